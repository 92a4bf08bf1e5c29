"""What every verb that reads texts shares: texts from the command line, files or stdin, and where the answers go."""

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from clearformer.cli.streams import check_stdout
from clearformer.errors import DataError

AT_ONCE = 2_000  # lines read before they are sorted by length and worked on
PAUSE = 0.05  # seconds without more from a pipe before what came is worked on


def check_files(files: list[Path]) -> None:
    for path in files:
        if str(path) != "-" and (not path.exists() or path.is_dir()):
            raise DataError(f"{path} is a folder; give a file" if path.is_dir() else f"there is no file {path}")


def check_out(out: Path | None) -> None:
    """An answer never replaces a file that is there."""
    if out is not None and out.exists():
        raise DataError(f"{out} exists already; give a new name")
    if out is not None and not out.parent.is_dir():
        raise DataError(f"there is no folder {out.parent} to write {out.name} in; make it first")


def chunks(texts: list[str] | None, files: list[Path]) -> Iterator[list[str]]:
    """Texts from the command line, or the lines of files or stdin: so many at a time, or what stdin has for now."""
    if texts:
        yield list(texts)
        return
    chunk: list[str] = []
    stdin = _stdin() if not files or Path("-") in files else None
    waits = stdin if {str(path) for path in files} <= {"-"} else None
    for line in _lines(files, stdin):
        chunk.append(line)
        if len(chunk) == AT_ONCE or (waits is not None and _pauses(waits)):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


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


def _lines(files: list[Path], stdin: Any) -> Iterator[str]:
    from clearformer.data.lines import decode, lines, raw_lines

    for path in files or [Path("-")]:
        if str(path) == "-":
            for number, raw in enumerate(raw_lines(stdin, Path("stdin")), 1):
                yield decode(raw, Path("stdin"), number)
        elif path.is_file():
            yield from lines(path)
        else:  # a pipe, as from <(zcat ...), which can be read only once
            with path.open("rb") as handle:
                for number, raw in enumerate(raw_lines(handle, path), 1):
                    yield decode(raw, path, number)


class output:  # noqa: N801 used like open()
    """stdout, or a file that appears under its name when it is complete."""

    def __init__(self, path: Path | None):
        self.path = path

    def __enter__(self) -> TextIO:
        if self.path is None:
            check_stdout()
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(encoding="utf-8")
            return sys.stdout
        self.waiting = self.path.with_name(f".{self.path.name}.partial")
        with writing(self.path):
            self.stream = self.waiting.open("w", encoding="utf-8", newline="\n")
        return self.stream

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if self.path is None:
            return
        with writing(self.path):
            try:
                self.stream.close()
                if kind is None:
                    self.waiting.replace(self.path)
                elif isinstance(error, OSError) and error.errno in NO_ROOM:
                    raise error
            finally:
                self.waiting.unlink(missing_ok=True)


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An error of the system names the file that was asked for, not the one beside it."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from None
