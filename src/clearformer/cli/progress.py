"""A bar for long work, on a terminal only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

MANY = 100  # fewer texts are done before a bar is read


@contextmanager
def progress(count: int | None, before: int = 0) -> Iterator[Callable[[int], None] | None]:
    """What to call with the number of texts finished, of `count` that follow on `before` others; None without a bar.

    Where the count is not known, the bar only counts.
    """
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    if (count is not None and count < MANY) or not console.is_terminal:
        yield None
        return
    columns = [*Progress.get_default_columns(), *([MofNCompleteColumn()] if count is None else [])]
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"from line {before + 1:,}", total=count)
        yield lambda finished: bar.advance(task, finished)


@contextmanager
def passes(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """What to call with the passes of a model finished so far, and all there are; None without a bar."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda now, total: bar.update(task, completed=now, total=total)
