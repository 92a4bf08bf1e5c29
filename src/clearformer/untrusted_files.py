"""Small files of a folder that is not trusted, read with limits: which file it is, its size, and what JSON may hold."""

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

from clearformer.errors import CheckpointError

LARGEST_JSON = 16 * 2**20
DEEPEST = 64
MOST_VALUES = 4_000_000  # of one JSON file: tokenizers with a quarter of a million words have two million
Kind = type | tuple[type, ...]


def open_file(path: str | Path, *, within: str | Path | None = None) -> int:
    """A descriptor of a regular file, open for reading, that lies in its folder (or in `within`, where that is given).

    Links are followed inside the folder only, with one exception: in the cache of the Hugging Face hub, files in
    `snapshots/REVISION` are links into `blobs` beside `snapshots`, and those are followed.
    """
    path = Path(path)
    folder = Path(within) if within is not None else path.parent
    try:
        real, base = path.resolve(strict=True), folder.resolve(strict=True)
        if not (real.is_relative_to(base) or real.parent in _blobs(base)):
            raise CheckpointError(
                f"{path} is a link out of its folder, to {real}; copy the file itself there", path=path
            )
        # not blocking, so that a pipe without a writer does not hang; what it is, is asked of what was opened
        handle = os.open(real, os.O_RDONLY | sum(getattr(os, flag, 0) for flag in _FLAGS))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {path.name}", path=path) from None
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # a loop of links is a RuntimeError, a NUL in a name a ValueError
        raise CheckpointError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", path=path
        ) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise CheckpointError(f"{path} is no regular file", path=path)
    return handle


_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")


def _blobs(base: Path) -> list[Path]:
    """Where links may lead besides the folder itself: `blobs`, where the folder is in a hub cache."""
    near = [base, *base.parents][:3]
    return [above.parent.parent / "blobs" for above in near if above.parent.name == "snapshots"]


def read_bytes(path: str | Path, largest: int = LARGEST_JSON, *, within: str | Path | None = None) -> bytes:
    """The content of a small file, by the rules of `open_file`."""
    with open(open_file(path, within=within), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise CheckpointError(f"{path} has {size:,} bytes; more than {largest:,} are not read", path=path)
        try:
            return file.read(size)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}", path=path) from None


def read_json(
    path: str | Path,
    largest: int = LARGEST_JSON,
    depth: int = DEEPEST,
    *,
    kind: Kind = dict,
    within: str | Path | None = None,
) -> Any:
    """The value of a JSON file, which must be a `kind`; no NaN, no infinity, no key twice."""
    try:
        return parse_json(read_bytes(path, largest, within=within), depth, kind=kind)
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON that can be read: {error}", path=path) from None


def parse_json(raw: bytes, depth: int = DEEPEST, *, kind: Kind = dict) -> Any:
    """As `read_json`, of bytes; a ValueError says what is wrong."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start:,} is not UTF-8") from None
    _check_structure(raw, depth)
    value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_float, parse_int=_int)
    if _SURROGATE.search(raw):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("a \\u escape is half of a character") from None
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds):
        expected = " or ".join(_NAMES.get(each, each.__name__) for each in kinds)
        raise ValueError(f"it holds {_NAMES.get(type(value), 'a bare value')}, expected {expected}")
    return value


_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_UNMARKED = bytes(set(range(256)) - set(b"[]{},"))


def _check_structure(raw: bytes, depth: int) -> None:
    """Before any value is made: how deep brackets nest, and how many values there can be."""
    marks = _STRING.sub(b"", raw).translate(None, _UNMARKED)
    if len(marks) > 2 * MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    level = 0
    for mark in marks.replace(b",", b""):
        level += 1 if mark in b"[{" else -1
        if level > depth:
            raise ValueError(f"its brackets nest deeper than {depth}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown(twice)} is there twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{shown(text)} is too large for a number")
    return number


def _int(text: str) -> int:
    if len(text) > 300:  # a whole number that would overflow where it meets a fraction
        raise ValueError(f"{shown(text)} is too large for a number")
    return int(text)


def shown(text: str, most: int = 80) -> str:
    """What a file says, short and without control characters, for a message."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")
