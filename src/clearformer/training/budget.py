"""A run that fits into so many minutes: the model, the batch and the number of steps follow from what a step takes.

Everything counts that takes time: what was prepared already, measuring, validations, saves. What was found is fixed
before the first step and written down, so that the run can be repeated and resumed like any other.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from clearformer.assemble import count_parameters
from clearformer.training.defaults import TOKENS_A_WEIGHT
from clearformer.training.settings import Settings, known

if TYPE_CHECKING:
    from clearformer.training.prepare import Prepared

SURE = 0.95  # of the time is planned with
FOR_VALIDATIONS = 0.08  # of it at most, but for the first few
FEWEST, MOST = 3, 20  # validations
SAVED = 1e8  # bytes of a state a second, written, flushed and read back


class Stopwatch(Protocol):
    """Tries a run that is thrown away."""

    def step(self, run: "Prepared") -> float:
        """The seconds of a step."""
        ...

    def validation(self, run: "Prepared") -> float:
        """The seconds of a validation."""
        ...


@dataclass(frozen=True)
class Fitted:
    run: "Prepared"
    steps: int
    validations: int | None  # None where the settings say how often
    step: float  # seconds
    validation: float  # with the save after it

    def __str__(self) -> str:
        count = f" and {self.validations} validations" if self.validations else ""
        return f"a step takes {self.step:.3f} s, a validation {self.validation:.1f} s: {self.steps:,} steps{count}"


def fit(
    choices: Iterable[Settings],
    asked: Settings,
    seconds: float,
    stopwatch: Stopwatch,
    assembled: Callable[[Settings], "Prepared"],
    now: Callable[[], float] = time.perf_counter,
) -> Fitted:
    """The first of the choices that sees enough in the time, else the last, with a batch that suits it."""
    began = now()

    def left() -> float:
        return seconds - (now() - began)

    for settings in choices:
        run = assembled(settings)
        goal = run.goal
        run = assembled(goal.paced(settings, asked, tokens=0, epochs=math.inf))  # a small batch: quickly tried
        step = stopwatch.step(run)
        tokens = left() * (1 - FOR_VALIDATIONS) / step * _tokens(run)
        if tokens >= TOKENS_A_WEIGHT * count_parameters(run.spec):
            break
    an_epoch = max(1, len(run.train.plan(0))) * known(run.settings.batch.tokens)
    most = goal.most_epochs(settings)
    epochs = min(most, tokens / an_epoch)
    chosen = assembled(goal.paced(settings, asked, tokens=epochs * an_epoch, epochs=epochs))
    if _tokens(chosen) != _tokens(run):
        step = stopwatch.step(chosen)
    validation = stopwatch.validation(chosen) + 16 * count_parameters(chosen.spec) / SAVED
    enough = most * max(1, len(chosen.train.plan(0)) // chosen.settings.batch.accumulate)
    every = chosen.settings.validation.every
    if every is not None:
        return Fitted(chosen, _steps(left() / (step + validation / every), enough), None, step, validation)
    count = min(MOST, max(FEWEST, int(FOR_VALIDATIONS * left() / validation)))
    return Fitted(chosen, _steps((left() - count * validation) / step, enough), count, step, validation)


def _steps(count: float, enough: float) -> int:
    return max(20, int(min(count, enough)))


def _tokens(run: "Prepared") -> int:
    """Of a step."""
    return known(run.settings.batch.tokens) * run.settings.batch.accumulate
