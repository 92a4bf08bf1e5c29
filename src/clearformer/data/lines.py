"""Lines of a text file, plain or gzip, one at a time.

A line ends at `\\n` and nowhere else: U+2028, form feeds or a lone carriage return inside a sentence never shift the
alignment of two files. A carriage return just before `\\n` belongs to the line's end, as on Windows.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from clearformer.errors import DataError

LONGEST = 2**20  # bytes in a line: beyond it the file is no text


def open_bytes(path: Path) -> BinaryIO:
    """The file's content, unpacked if it is gzip, whatever it is called."""
    try:
        with path.open("rb") as handle:
            start = handle.read(2)
            handle.seek(0)
        return gzip.open(path) if start == b"\x1f\x8b" else path.open("rb")  # type: ignore[return-value]
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; give a file") from None
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except io.UnsupportedOperation:
        raise DataError(f"{path} cannot be read twice, as training needs; write it to a file first") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, without their ends. What is not UTF-8 is an error that names the line."""
    with open_bytes(path) as handle:
        for number, raw in enumerate(raw_lines(handle, path), 1):
            yield decode(raw, path, number)


def raw_lines(handle: BinaryIO, path: Path) -> Iterator[bytes]:
    number = 0
    while raw := _read(handle, path, number + 1):
        number += 1
        if len(raw) > LONGEST:
            raise DataError(f"{path}, line {number}: longer than {LONGEST:,} bytes; is this a text file?")
        yield raw


def _read(handle: BinaryIO, path: Path, number: int) -> bytes:
    try:
        return handle.readline(LONGEST + 1)
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(
            f"{path}, line {number}: cannot be unpacked ({error}); the file is damaged, copy it anew"
        ) from None


def decode(raw: bytes, path: Path, number: int) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        if number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            advice = "UTF-16; convert it with: iconv -f UTF-16 -t UTF-8"
        elif b"\x00" in raw or raw.startswith(b"\x89PNG"):
            advice = "a binary file; give a text file"
        else:
            advice = "not UTF-8; convert it, for example with: iconv -f LATIN1 -t UTF-8"
        byte = f"byte {error.start + 1} (0x{raw[error.start]:02x})"
        raise DataError(f"{path}, line {number}: {byte} shows this is {advice}") from None
    if number == 1:
        text = text.removeprefix("\ufeff")  # the mark that some editors put in front
    return text.removesuffix("\n").removesuffix("\r")


class Print(NamedTuple):
    """What tells whether a file is still the same: its size and the SHA-256 of its bytes."""

    size: int
    sha256: str


def fingerprint(path: Path) -> Print:
    try:
        with path.open("rb") as handle:
            return Print(path.stat().st_size, hashlib.file_digest(handle, "sha256").hexdigest())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
