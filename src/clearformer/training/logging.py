"""Watching a run: a line or a live bar for people, a JSON line for programs, TensorBoard if asked for."""

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from clearformer.errors import TrainingError


class Watch:
    """Told what happens; shows and writes it. `quiet` ones, of all processes but the first, do nothing."""

    def __init__(self, folder: Path, steps: int, tensorboard: bool = False, quiet: bool = False):
        self.folder, self.steps, self.quiet = folder, steps, quiet
        self.console = Console(stderr=True, highlight=False)
        self.bar: Progress | None = None
        self.board = _board(folder) if tensorboard and not quiet else None

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.quiet:
            columns = (
                BarColumn(30),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, TextColumn("{task.description}"), console=self.console)
            self.task = self.bar.add_task("", total=self.steps)
            self.bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.board is not None:
            self.board.close()

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, markup=False, soft_wrap=True)

    def moved(self, step: int) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def note(self, event: str, step: int, facts: Mapping[str, Any], shown: str | None = None) -> None:
        """Write an event to the log, and show it."""
        if self.quiet:
            return
        facts = {name: None if _is_no_number(value) else value for name, value in facts.items()}
        row = {"event": event, "step": step, "time": round(time.time(), 3), **facts}
        try:
            with (self.folder / "log.jsonl").open("a+b") as log:
                log.write(_behind(log) + json.dumps(row, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            raise TrainingError(f"cannot write {self.folder / 'log.jsonl'}: {error.strerror}") from None
        if self.board is not None:
            sets = {f"{key}/{name}": n for name, told in facts.get("sets", {}).items() for key, n in told.items()}
            for name, value in {**facts, **sets}.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{event}/{name}", value, step)
        if shown is None:
            return
        if event == "step" and self.bar is not None:
            short = f"loss {facts['loss']:.3f}  {facts['tokens_per_second']:,.0f} tokens/s  rate {facts['rate']:.1e}"
            self.bar.update(self.task, completed=step, description=short)
        else:
            self.say(shown)


def _behind(log: BinaryIO) -> bytes:
    """What an event begins with: a new line, where a run was killed in the middle of one."""
    if not log.seek(0, os.SEEK_END):
        return b""
    log.seek(-1, os.SEEK_END)
    return b"" if log.read(1) == b"\n" else b"\n"


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrainingError("tensorboard is not installed; pip install 'clearformer[tensorboard]'") from None
    return SummaryWriter(str(folder / "tensorboard"))


def _is_no_number(value: Any) -> bool:
    """NaN and infinity, which JSON does not have."""
    return isinstance(value, float) and not math.isfinite(value)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
