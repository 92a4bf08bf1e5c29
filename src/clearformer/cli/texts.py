"""What every verb that reads texts shares: texts from the command line, files or stdin, and where the answers go."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from clearformer.errors import DataError

AT_ONCE = 2_000  # lines read before they are sorted by length and worked on


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
    """Texts from the command line, or the lines of files or stdin, so many at a time."""
    if texts:
        yield list(texts)
        return
    waiting = _lines(files)
    size = 1 if not files and sys.stdin.isatty() else AT_ONCE  # at a terminal every line is answered at once
    while chunk := list(islice(waiting, size)):
        yield chunk


def _lines(files: list[Path]) -> Iterator[str]:
    from clearformer.data.lines import decode, lines, raw_lines

    for path in files or [Path("-")]:
        if str(path) == "-":
            stdin = Path("stdin")
            for number, raw in enumerate(raw_lines(sys.stdin.buffer, stdin), 1):
                yield decode(raw, stdin, number)
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
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(encoding="utf-8")
            return sys.stdout
        self.waiting = self.path.with_name(f".{self.path.name}.partial")
        self.stream = self.waiting.open("w", encoding="utf-8", newline="\n")
        return self.stream

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if self.path is None:
            return
        self.stream.close()
        if kind is None:
            self.waiting.replace(self.path)
        else:
            self.waiting.unlink(missing_ok=True)
