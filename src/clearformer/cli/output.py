"""The one way out of every verb that reads texts: answers in the order of the texts and as they become ready, to stdout
or to a new file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import typer

from clearformer.cli.progress import progress
from clearformer.cli.streams import check_stdout
from clearformer.errors import DataError

if TYPE_CHECKING:
    from clearformer.cli.texts import Given

Result = TypeVar("Result")
Work = Callable[..., Sequence[Result]]  # (texts, number=texts before these, done=called with how many are finished)


def answers(given: "Given", work: Work[Result], least: int = 2) -> Iterator[tuple[int, list[str], Sequence[Result]]]:
    """What `work` makes of the texts, so many at a time: how many came before them, the texts, the results. One bar
    goes along with all of it."""
    number = 0
    typed = given.stdin and sys.stdin is not None and sys.stdin.isatty()  # who types sees what was answered
    with progress((lambda: 0) if typed else given.count, least) as bar:
        for chunk in given.chunks():
            found = work(chunk, number=number, done=bar.advance)
            with bar.aside():
                yield number, chunk, found
            number += len(chunk)


def write(
    given: "Given", work: Work[Result], shown: Callable[[int, str, Result], str], out: Path | None, least: int = 2
) -> None:
    """Write what is `shown` of each text's number, from 1, the text and its result; say how many texts were cut."""
    total = cut = 0
    with output(out) as stream:
        for number, chunk, found in answers(given, work, least):
            pairs = zip(chunk, found, strict=True)
            stream.writelines(shown(n, text, one) for n, (text, one) in enumerate(pairs, number + 1))
            stream.flush()
            total += len(chunk)
            cut += sum(getattr(one, "finish", None) == "truncated" for one in found)
    tell_cut(cut, total)


def tell_cut(cut: int, total: int) -> None:
    if cut:
        typer.echo(f"clearformer: {cut:,} of {total:,} texts were too long and were cut", err=True)


def json_line(found: dict[str, Any]) -> str:
    from json import dumps

    return dumps(found, ensure_ascii=False) + "\n"


def one_line(text: str) -> str:
    """A text among others, each on its line."""
    return " ".join(text.splitlines()) if "\n" in text or "\r" in text else text


def check_out(out: Path | None) -> None:
    """An answer never replaces a file that is there; without a file, there must be a stdout."""
    if out is None:
        check_stdout()
        return
    with naming("write", out):
        there, home = out.exists(), out.parent.is_dir()
    if there:
        raise DataError(f"{out} exists already; give a new name")
    if not home:
        raise DataError(f"there is no folder {out.parent} to write {out.name} in; make it first")


@contextmanager
def naming(doing: str, path: Path) -> Iterator[None]:
    """What the system refuses is said with the path."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot {doing} {path}: {error.strerror or error}") from None


class output:  # noqa: N801 used like open()
    """stdout, or a file that is written beside its name and renamed when it is complete."""

    def __init__(self, path: Path | None, mode: str = "w"):
        self.path, self.mode = path, mode

    def __enter__(self) -> IO[Any]:
        if self.path is None:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(encoding="utf-8")
            return sys.stdout
        self.waiting = self.path.with_name(f".{self.path.name}.partial")
        text = {} if "b" in self.mode else {"encoding": "utf-8", "newline": "\n"}
        with naming("write", self.path):
            self.stream: IO[Any] = self.waiting.open(self.mode, **text)  # type: ignore[call-overload]
        return self.stream

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: Any) -> None:
        if self.path is None:
            return
        try:
            with naming("write", self.path):
                self.stream.close()
                if kind is None:
                    self.waiting.replace(self.path)
                elif isinstance(error, OSError):  # the disk is full, say
                    raise error
        finally:
            self.waiting.unlink(missing_ok=True)
