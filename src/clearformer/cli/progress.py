"""One bar for the whole of a verb's work, on stderr, where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Bar:
    """How many texts are done. It stands aside while answers are written, as they may go to the same terminal."""

    def __init__(self, shown: Any = None, task: Any = None):
        self.shown, self.task = shown, task

    def advance(self, finished: float) -> None:
        if self.shown is not None:
            self.shown.advance(self.task, finished)

    @contextmanager
    def aside(self) -> Iterator[None]:
        there = self.shown is not None and sys.stdout is not None and sys.stdout.isatty()
        if there:
            self.shown.stop()
        yield
        if there:
            self.shown.start()


@contextmanager
def progress(count: Callable[[], int | None], least: int = 2) -> Iterator[Bar]:
    """A bar towards `count`, or one that only counts where that is None; none for fewer texts than `least`.

    The count is asked for only where there is a bar to show it.
    """
    if not _terminal() or ((total := count()) is not None and total < least):
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = [BarColumn(), MofNCompleteColumn(), TimeElapsedColumn() if total is None else TimeRemainingColumn()]
    # stdout is left alone: redirected, answers would end up on stderr
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as shown:
        yield Bar(shown, shown.add_task("", total=total))


@contextmanager
def passes(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """What to call with the passes of a model finished so far, and all there are; None without a bar."""
    if not _terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=None)
        yield lambda now, total: bar.update(task, completed=now, total=total)


def _terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
