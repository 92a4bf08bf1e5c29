"""Fetch a set of data into a folder: resumed where it was interrupted, checked against its SHA-256, never unasked.

FOLDER/NAME/.FILE.part   what has arrived so far         FOLDER/NAME/source.json   where it came from, and what it is
"""

import gzip
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, url2pathname, urlopen

from clearformer.data.lines import fingerprint
from clearformer.data.prepare import prepare
from clearformer.data.sets import File, data_set
from clearformer.errors import DataError

SOURCE = "source.json"
PIECE = 2**18
TIMEOUT = 60  # seconds without a byte
LARGEST = 2 * 2**30  # bytes of a file whose size is not known
Watch = Callable[[str, int, int | None], None]  # a file's name, bytes there, bytes in all
Say = Callable[[str], None]


@dataclass(frozen=True)
class Fetched:
    """A set of data that is there."""

    folder: Path
    files: tuple[str, ...]  # what recipes read, or what was fetched where nothing was prepared
    other: tuple[str, ...]  # files that are not the pinned ones, or have no pin


def fetch(
    name: str,
    into: str | Path = "data",
    *,
    mirror: str | None = None,
    any_data: bool = False,
    watch: Watch = lambda *_: None,
    say: Say = lambda _: None,
) -> Fetched:
    """Fetch a set into INTO/NAME. `mirror` is a folder, or the address of one, that has NAME/FILE; nothing else is then
    asked. With `any_data` a file that is not the pinned one is kept, and `source.json` says so."""
    data = data_set(name)
    folder = Path(into) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if data.bytes is not None and free < 2 * data.bytes:
            raise DataError(f"{folder} has {free:,} bytes free, and twice {data.bytes:,} are needed", path=folder)
        notes = {}
        for file in data.files:
            urls = file.urls if mirror is None else (_mirrored(mirror, name, file),)
            notes[file.name] = _get(folder, file, urls, any_data, watch, say)
        made = prepare(folder, data)
        known = {"name": name, "licence": data.licence, "home": data.home, "files": notes}
        (folder / SOURCE).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}", path=folder) from None
    other = tuple(each for each, note in notes.items() if not note["pinned"])
    return Fetched(folder, tuple(made) or tuple(notes), other)


def _mirrored(mirror: str, name: str, file: File) -> str:
    base = mirror if "://" in mirror else Path(mirror).resolve().as_uri()
    return f"{base.rstrip('/')}/{name}/{urlsplit(file.urls[0]).path.rpartition('/')[2]}"


def _get(folder: Path, file: File, urls: tuple[str, ...], any_data: bool, watch: Watch, say: Say) -> dict[str, Any]:
    """The file, at its place; what is known of it."""
    path = folder / file.name
    if path.is_file() and (note := _there(path, file, any_data)) is not None:
        return note
    last: DataError | None = None
    for url in urls:
        try:
            part = _arrive(url, folder, file, LARGEST if any_data else file.bytes or LARGEST, watch)
        except DataError as error:
            last = error
            continue
        found = fingerprint(part)
        size, sha256 = found.size, found.sha256
        if file.checked == "content":
            _unpack(part)
            size, sha256 = fingerprint(part)
        right = file.sha256 is None or sha256 == file.sha256
        if right or (any_data and url == urls[-1]):
            part.replace(path)
            if not right:
                say(f"{file.name} is another file than the pinned one, and is kept (--any-data): SHA-256 {sha256}")
            elif file.sha256 is None:
                say(f"{file.name} has no pinned checksum; its SHA-256 is {sha256}")
            return {"url": url, "bytes": size, "sha256": sha256, "pinned": file.sha256 is not None and right}
        part.unlink()
        last = DataError(
            f"{url} has another file than the pinned one: its SHA-256 is {sha256}, not {file.sha256}; it was not kept."
            " Keep what there is with --any-data",
            path=path,
        )
    assert last is not None
    raise last


def _there(path: Path, file: File, any_data: bool) -> dict[str, Any] | None:
    """What is known of a file that is there already, if it need not be fetched again."""
    found = fingerprint(path)
    right = file.sha256 is None or found.sha256 == file.sha256
    if not right and not any_data:
        raise DataError(
            f"{path} is there and is not the pinned file: its SHA-256 is {found.sha256}, not {file.sha256}."
            " Move it away to fetch the pinned one, or keep it with --any-data",
            path=path,
        )
    pinned = file.sha256 is not None and right
    return {"url": None, "bytes": found.size, "sha256": found.sha256, "pinned": pinned}


def _arrive(url: str, folder: Path, file: File, most: int, watch: Watch) -> Path:
    """Everything of an address, in a file beside its place, `most` bytes; what arrived before an interruption is not
    asked again."""
    part, mark = folder / f".{file.name}.part", folder / f".{file.name}.url"
    if not (mark.is_file() and mark.read_text() == url):
        part.unlink(missing_ok=True)  # the beginning of another address's file
    mark.write_text(url)
    have = part.stat().st_size if part.is_file() else 0
    if have and have == file.bytes:
        mark.unlink()
        return part
    with _naming(url), _opened(url, have) as (stream, start, total), part.open("ab") as out:
        out.truncate(start)
        size = start
        while piece := stream.read(PIECE):
            size += len(piece)
            if size > most:
                raise DataError(f"{url} sends more than the {most:,} bytes that were expected")
            out.write(piece)
            watch(file.name, size, total or file.bytes)
    if total is not None and size < total:
        raise DataError(f"{url} broke off after {size:,} of {total:,} bytes; the same command goes on from there")
    mark.unlink()
    return part


@contextmanager
def _opened(url: str, have: int) -> Iterator[tuple[BinaryIO, int, int | None]]:
    """The bytes of an address from `have` on, where they really begin, and how many there are in all."""
    if url.startswith("file:"):
        path = Path(url2pathname(urlsplit(url).path))
        with path.open("rb") as stream:
            total = path.stat().st_size
            stream.seek(min(have, total))
            yield stream, min(have, total), total
        return
    asked = Request(url, headers={"User-Agent": "clearformer", **({"Range": f"bytes={have}-"} if have else {})})
    try:
        answer = urlopen(asked, timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != 416:  # nothing lies behind what is there: ask for all of it
            raise
        answer = urlopen(Request(url, headers={"User-Agent": "clearformer"}), timeout=TIMEOUT)
    with answer:
        start = have if answer.status == 206 else 0
        length = answer.headers.get("Content-Length", "")
        yield answer, start, start + int(length) if length.isdecimal() else None


@contextmanager
def _naming(url: str) -> Iterator[None]:
    """What goes wrong on the way is said with the address."""
    try:
        yield
    except HTTPError as error:
        raise DataError(f"{url} answers {error.code} {error.reason}") from None
    except FileNotFoundError:
        raise DataError(f"there is no file {url}") from None
    except (URLError, TimeoutError, HTTPException, ConnectionError) as error:
        why = getattr(error, "reason", None) or error
        raise DataError(
            f"{url} cannot be reached ({why}); try again, or give --mirror a folder that has the files"
        ) from None


def _unpack(path: Path) -> None:
    """Replace a gzip file by what is in it; one that is none stays."""
    with path.open("rb") as handle:
        if handle.read(2) != b"\x1f\x8b":
            return
    plain = path.with_name(path.name + ".plain")
    try:
        with gzip.open(path) as packed, plain.open("wb") as out:
            size = 0
            while piece := packed.read(PIECE):
                size += len(piece)
                if size > LARGEST:
                    raise DataError(f"{path.name} unpacks to more than {LARGEST:,} bytes", path=path)
                out.write(piece)
        plain.replace(path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        path.unlink()
        raise DataError(f"{path.name} cannot be unpacked ({error}); try again", path=path) from None
    finally:
        plain.unlink(missing_ok=True)
