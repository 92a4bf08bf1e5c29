"""A run of so many minutes: what is chosen follows from what a step takes, and all that takes time is counted."""

import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer import arrangements
from clearformer.assemble import count_parameters
from clearformer.training import defaults
from clearformer.training import prepare as preparing
from clearformer.training import run as module
from clearformer.training.budget import FEWEST, MOST, Fitted, fit
from clearformer.training.prepare import Prepared
from clearformer.training.run import start
from clearformer.training.settings import Settings, known
from tests.training.runs import ALONE, asking, prepared

ROOT = Path(__file__).parents[2]
ASKED = Settings(out="x", data={"train": [{"source": "a", "target": "b"}]}, length={"minutes": 5.0})


@dataclass
class Machine:
    """One that does so many weights × tokens a second, and whose validations take so long."""

    speed: float
    judging: float = 2.0
    tried: int = 0

    def step(self, run: Any) -> float:
        self.tried += 1
        return count_parameters(run.spec) * run.settings.batch.tokens / self.speed

    def validation(self, run: Any) -> float:
        return self.judging


class Goal:
    """Translating, as far as `fit` asks."""

    def __init__(self, most: float):
        self.most, self.paced = most, defaults.paced

    def most_epochs(self, settings: Settings) -> float:
        return self.most


def fitted(
    speed: float, tokens: int = 200_000, asked: Settings = ASKED, judging: float = 2.0, most: float = math.inf
) -> tuple[Fitted, Machine]:
    machine = Machine(speed, judging)

    def assembled(settings: Settings) -> Any:
        model = settings.model
        spec = arrangements.encoder_decoder(
            width=known(model.width), layers=(known(model.layers), known(model.decoder_layers)),
            heads=known(model.heads), inner=known(model.inner), vocabulary=3_000, dropout=known(model.dropout),
        )  # fmt: skip
        batches = [0] * max(1, tokens // known(settings.batch.tokens))
        return SimpleNamespace(
            settings=settings, spec=spec, goal=Goal(most), train=SimpleNamespace(plan=lambda epoch: batches)
        )

    options = defaults.choices(asked, tokens, tokens // 10)
    return fit(options, asked, 60 * known(asked.length.minutes), machine, assembled, lambda: 0.0), machine  # type: ignore[arg-type]


@given(st.floats(1e7, 1e13), st.integers(10_000, 10**8), st.floats(0.01, 30))
def test_everything_fits_into_the_time(speed: float, tokens: int, judging: float) -> None:
    found, _ = fitted(speed, tokens, judging=judging)
    assert found.validations is not None
    assert FEWEST <= found.validations <= MOST
    took = found.steps * found.step + found.validations * found.validation
    assert took <= 300 or found.steps == 20
    if found.steps > 20:
        assert took > 299 - found.step  # and none of it is wasted


@given(st.integers(10_000, 10**8))
def test_a_faster_machine_trains_a_larger_model_and_no_less(tokens: int) -> None:
    slow, fast = fitted(3e9, tokens)[0], fitted(3e11, tokens)[0]
    assert count_parameters(slow.run.spec) <= count_parameters(fast.run.spec)
    seen = [each.steps * known(each.run.settings.batch.tokens) for each in (slow, fast)]
    assert seen[0] < seen[1]


def test_the_model_is_the_largest_that_sees_enough() -> None:
    """1.5 tokens a weight: on a machine that does 276 s × speed weights × tokens, all below √(184 × speed) weights."""
    own = {"width": 256, "layers": 3}
    sizes = []
    for speed in (1e13, 4e10, 2e10, 1e9):
        found, _ = fitted(speed, 2_000_000)
        model = found.run.settings.model
        sizes.append((model.width, model.layers))
        weights = count_parameters(found.run.spec)
        if (model.width, model.layers) != (128, 2):
            assert weights**2 <= 184 * speed
    assert sizes[0] == (own["width"], own["layers"])
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == (128, 2)  # there is none smaller, so it is taken with what it gets


def test_batches_grow_with_what_is_seen() -> None:
    few, many = fitted(3e9)[0], fitted(3e11)[0]
    assert few.run.settings.batch.tokens == defaults.LEAST_BATCH
    assert many.run.settings.batch.tokens == 2_000  # the data's own: a hundred steps an epoch
    assert many.run.settings.model.dropout == 0.3
    assert few.run.settings.model.dropout <= 0.1  # of a few epochs


def test_what_is_said_is_left() -> None:
    asked = ASKED.replace({"model.width": 64, "model.dropout": 0.25, "batch.tokens": 700, "validation.every": 50})
    found, machine = fitted(3e9, asked=asked)
    settings = found.run.settings
    assert (settings.model.width, settings.model.dropout, settings.batch.tokens) == (64, 0.25, 700)
    assert machine.tried == 1
    assert found.validations is None
    assert found.steps == pytest.approx(300 / (found.step + found.validation / 50), abs=1)


def test_more_epochs_than_help_are_not_made() -> None:
    found, _ = fitted(1e13, tokens=20_000, most=120.0)
    batches = len(found.run.train.plan(0))
    assert found.steps == 120 * batches
    assert found.steps * found.step < 100


def test_the_run_is_as_long_as_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds a step and six a validation, every 6 steps: three seconds a step, 19 of them in 57 seconds."""
    monkeypatch.setattr(module, "seconds_of_a_step", lambda run, group: 2.0)
    monkeypatch.setattr(module.Tried, "validation", lambda self, run: 6.0)
    monkeypatch.setattr(preparing, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    assert start(asking(tmp_path, {"length": {"minutes": 1.0}})).steps == 20  # never less
    (tmp_path / "longer").mkdir()
    done = start(asking(tmp_path / "longer", {"length": {"minutes": 2.0}}))
    assert done.steps == 37  # of 38, saving takes a moment


def test_a_validation_is_told_from_a_few_of_its_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss takes 1 s, the first translation 9 s more, any 0.5 s and 0.01 s a sentence, of which a trained model
    writes 0.4: 1 + 0.5 + 8 × 0.01 + 0.4 × 492 × 0.01."""
    run, clock, first = prepared(tmp_path, {"validation.sentences": 500}), [0.0], [9.0]

    def measures(goal: Any, model: Any) -> tuple[dict[str, float], list[Any]]:
        clock[0] += 0.5 + 0.01 * goal.settings.validation.sentences + (first.pop() if first else 0.0)
        return {}, []

    def loss(goal: Any, model: Any) -> float:
        clock[0] += 1.0
        return 0.0

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(type(run.goal), "measures", measures)
    monkeypatch.setattr(type(run.goal), "loss", loss)
    assert module.Tried(ALONE).validation(run) == pytest.approx(1 + 0.5 + 0.08 + 0.4 * 4.92)
    few = Prepared(**{**run.__dict__, "settings": run.settings.replace({"validation.sentences": 5})})
    assert module.Tried(ALONE).validation(few) == pytest.approx(1 + 0.5 + 0.05)


def test_what_is_tried_leaves_nothing(tmp_path: Path) -> None:
    """Measured for real: the run is prepared and takes its steps."""
    asked = asking(tmp_path, {"length": {"minutes": 0.1}, "validation.sentences": 5, "validation.every": None})
    done = start(asked)
    assert done.steps >= 20
    assert sorted(path.name for path in asked.out.iterdir() if path.is_dir()) == ["data", "states"]


def test_the_documents_show_the_tables() -> None:
    assert defaults.table() in (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
