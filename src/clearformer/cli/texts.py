"""The one way in of every verb that reads texts.

A positional argument is a text, always; `--file` and stdin have one text a line, or are one text each with `--whole`.
"""

import os
import select
import shlex
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from clearformer.cli.output import check_out, naming
from clearformer.errors import DataError

FIRST = 64  # texts worked on at first, so that an answer comes soon; then twice as many, and so on
AT_ONCE = 1_000  # up to so many, which are enough to sort by length
SLOW = 64  # at once where each takes long, as in writing
PAUSE = 0.05  # seconds without more from a pipe before what came is worked on
LARGEST = 2**24  # bytes of a text that is a whole file
STDIN = Path("-")


class Given:
    """The texts that a verb was called with: from the command line, files or stdin. What is wrong with them, or with
    where the answers are to go, is said before any model is loaded."""

    def __init__(
        self,
        texts: list[str] | None,
        files: list[Path] | None = None,
        *,
        whole: bool = False,
        out: Path | None = None,
        most: int | None = None,
    ):
        if texts and files:
            raise DataError("give texts or files, not both")
        self.texts, self.files, self.whole, self.most = list(texts or ()), list(files or ()), whole, most
        if whole and self.texts and "-" not in self.texts:
            raise DataError("--whole is about files and stdin; a text on the command line is whole as it is")
        if (self.texts or [str(path) for path in self.files]).count("-") > 1:
            raise DataError("stdin can be read only once; give - once")
        check_out(out)
        check_files(self.files)
        for text in self.texts:
            hint(text)

    @property
    def one(self) -> str | None:
        """The text, where the command line has one and no more."""
        return self.texts[0] if len(self.texts) == 1 and self.texts != ["-"] else None

    @property
    def stdin(self) -> bool:
        """Whether texts come from there."""
        return "-" in self.texts or STDIN in self.files or not (self.texts or self.files)

    def count(self) -> int | None:
        """How many texts there are, where that can be known before they are read."""
        if self.whole and not self.texts:
            return len(self.files) or 1
        if self.stdin:
            return None
        return len(self.texts) or _count(self.files)

    def chunks(self) -> Iterator[list[str]]:
        return chunks(self.texts, self.files, whole=self.whole, most=self.most)

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks():
            yield from chunk


def first_text(text: str) -> str:
    """For a verb that looks at one text: the one given, or the first of stdin."""
    for found in Given([text]):
        return found
    raise DataError("stdin is empty; give a text")


def check_files(files: list[Path]) -> None:
    for path in files:
        if path == STDIN:
            continue
        with naming("read", path):
            there, folder = path.exists(), path.is_dir()
        if not there or folder:
            raise DataError(f"{path} is a folder; give a file" if folder else f"there is no file {path}")


def hint(text: str) -> None:
    """A text that is also the name of a file was perhaps meant as that."""
    try:
        there = text != "-" and os.path.isfile(text)
    except (OSError, ValueError):  # far too long for a name, or with a null in it
        return
    if there:
        typer.echo(f"clearformer: {text!r} is also a file; --file {shlex.quote(text)} reads it", err=True)


def chunks(
    texts: list[str] | None, files: list[Path], *, whole: bool = False, most: int | None = None
) -> Iterator[list[str]]:
    """The texts in order: few at first, then `most` at a time, or what stdin has for now."""
    source = texts or [str(path) for path in files] or ["-"]
    stdin = _stdin() if "-" in source else None
    waits = stdin if set(source) == {"-"} else None
    most = most or AT_ONCE
    chunk, size = [], min(FIRST, most)
    for text in _texts(texts or [], files or [STDIN], stdin, whole):
        chunk.append(text)
        if len(chunk) == size or (waits is not None and _pauses(waits)):
            yield chunk
            chunk, size = [], min(2 * size, most)
    if chunk:
        yield chunk


def _texts(texts: list[str], files: list[Path], stdin: Any, whole: bool) -> Iterator[str]:
    read = _whole if whole else _lines
    if not texts:
        for path in files:
            yield from read(path, stdin)
    for text in texts:
        yield from read(STDIN, stdin) if text == "-" else (text,)


class Piped:
    """What comes in through a pipe or from a terminal, line by line, and whether it has come to a halt."""

    def __init__(self, number: int):
        self.number, self.kept, self.at = number, b"", 0  # of what was read, what begins at `at` is still to be given

    def readline(self, most: int) -> bytes:
        while (end := self.kept.find(b"\n", self.at)) < 0 and len(self.kept) - self.at < most:
            select.select([self.number], [], [])  # one that does not block would say that there is nothing
            if not (more := os.read(self.number, 2**16)):
                break
            self.kept, self.at = self.kept[self.at :] + more, 0
        stop = min(end + 1 if end >= 0 else len(self.kept), self.at + most)
        line, self.at = self.kept[self.at : stop], stop
        return line

    def pauses(self) -> bool:
        """Whether all lines so far were given and no more comes for a moment; an answer should not wait for it."""
        return self.kept.find(b"\n", self.at) < 0 and not select.select([self.number], [], [], PAUSE)[0]


def _pauses(stdin: Any) -> bool:
    """Whether what came is to be worked on now; where one cannot know, at a terminal always."""
    return stdin.pauses() if isinstance(stdin, Piped) else sys.stdin.isatty()


def _stdin() -> Any:
    """stdin as it comes, where the system can say whether there is more; elsewhere as Python has it."""
    if sys.stdin is None:
        raise DataError("there is no stdin to read texts from; give texts or files")
    try:
        return Piped(sys.stdin.fileno()) if os.name == "posix" else sys.stdin.buffer
    except (OSError, ValueError):
        return sys.stdin.buffer


def _lines(path: Path, stdin: Any) -> Iterator[str]:
    from clearformer.data.lines import decode, lines, raw_lines

    if path == STDIN:
        for number, raw in enumerate(raw_lines(stdin, Path("stdin")), 1):
            yield decode(raw, Path("stdin"), number)
    elif path.is_file():
        yield from lines(path)
    else:  # a pipe, as from <(zcat ...), which can be read only once
        with naming("read", path), path.open("rb") as handle:
            for number, raw in enumerate(raw_lines(handle, path), 1):
                yield decode(raw, path, number)


def _whole(path: Path, stdin: Any) -> Iterator[str]:
    text = read_text(path)
    if not text.strip():
        raise DataError(f"{'stdin' if path == STDIN else path} is empty; give a text")
    yield text.removesuffix("\n").removesuffix("\r")  # the end of the last line is the editor's


def read_text(path: Path) -> str:
    """A whole text from a file or stdin."""
    from clearformer.data.lines import decode, open_bytes

    if path == STDIN:
        if sys.stdin is None:
            raise DataError("there is no stdin to read a text from; give a file")
        path, raw = Path("stdin"), sys.stdin.buffer.read(LARGEST + 1)
    else:
        with naming("read", path), open_bytes(path) if path.is_file() else path.open("rb") as handle:
            try:
                raw = handle.read(LARGEST + 1)
            except (EOFError, zlib.error) as error:
                raise DataError(f"{path} cannot be unpacked ({error}); the file is damaged, copy it anew") from None
    if len(raw) > LARGEST:
        raise DataError(f"{path} has more than {LARGEST:,} bytes, too many for one text; give a part of it")
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        for number, line in enumerate(raw.split(b"\n"), 1):
            decode(line, path, number)  # says which line it is, and what to do
        raise


def _count(files: list[Path]) -> int | None:
    """The lines of files; None where they cannot be counted without unpacking, or read only once."""
    total = 0
    for path in files:
        if not path.is_file():
            return None
        with naming("read", path), path.open("rb") as handle:
            part = last = handle.read(2**20)
            if part[:2] == b"\x1f\x8b":
                return None
            while part:
                total += part.count(b"\n")
                last, part = part, handle.read(2**20)
            total += bool(last) and not last.endswith(b"\n")
    return total
