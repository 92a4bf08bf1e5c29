"""A step: its batches weigh by their target tokens, its gradient is clipped, and one that is not finite is skipped."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearformer.errors import TrainingError
from clearformer.training.loop import Step, Trainer
from clearformer.training.prepare import Prepared
from clearformer.training.run import resume, start
from tests.training.runs import ALONE, asking, prepared, saved, weights_of

STILL = {"model.dropout": 0.0, "optimizer.schedule": "constant", "optimizer.warmup": 0}


def trainer_on(run: Prepared, plan: Sequence[np.ndarray], accumulate: int, **changes: Any) -> Trainer:
    """A trainer in double precision that sees the given pairs, batch by batch."""
    run.settings = run.settings.replace({"batch.accumulate": accumulate, "length.steps": len(plan) // accumulate})
    run.settings = run.settings.replace({f"optimizer.{key}": value for key, value in changes.items()})
    run.settings = run.settings.replace({"average.kind": "none"})
    made = Trainer(run, ALONE)
    made.model.double()
    made._batches = lambda epoch, first: ((0, n, run.train.make(rows)) for n, rows in enumerate(plan))  # type: ignore[method-assign]
    return made


def trained(trainer: Trainer) -> tuple[list[Step], list[dict[str, Tensor]]]:
    """All steps, and the gradients that the optimizer was given in each."""
    gradients: list[dict[str, Tensor]] = []

    def look(*_: Any) -> None:
        gradients.append({name: p.grad.clone() for name, p in trainer.parameters.items() if p.grad is not None})

    trainer.optimizers[0].register_step_pre_hook(look)
    return [step for step in trainer.parts() if step is not None], gradients


# pairs of a batch; pairs are sorted by nothing, so the batches differ in rows, lengths and tokens
UNEQUAL = [[0], [1, 2, 3, 4, 5, 6], [7, 8], [9], [10, 11, 12], [13, 14, 15, 16]]
EQUAL = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize(("batches", "accumulate"), [(UNEQUAL, 3), (UNEQUAL, 2), (UNEQUAL, 6), (EQUAL, 4)])
@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_accumulating_equals_one_large_batch(
    tmp_path: Path, batches: list[list[int]], accumulate: int, clip: float
) -> None:
    """In double precision, gradients to 1e-12 and weights to 1e-9 (Adam divides small ones by their own size)."""
    run = prepared(tmp_path, STILL)
    small = [np.asarray(rows) for rows in batches]
    large = [np.concatenate(small[n : n + accumulate]) for n in range(0, len(small), accumulate)]
    assert len({run.train.make(rows).tokens for rows in small}) > 1
    many = trainer_on(run, small, accumulate, clip=clip)
    steps, gradients = trained(many)
    one = trainer_on(run, large, 1, clip=clip)
    wanted_steps, wanted = trained(one)
    assert len(steps) == len(wanted_steps) == len(large)
    for a, b in zip(steps, wanted_steps, strict=True):
        assert a.tokens == b.tokens
        assert a.loss == pytest.approx(b.loss, rel=1e-12)
        assert a.norm == pytest.approx(b.norm, rel=1e-9)
    for found, right in zip(gradients, wanted, strict=True):
        assert found.keys() == right.keys() == many.parameters.keys()
        for name in found:
            torch.testing.assert_close(found[name], right[name], rtol=1e-9, atol=1e-12)
    for name, weight in weights_of(many).items():
        torch.testing.assert_close(weight, weights_of(one)[name], rtol=0, atol=1e-9)


def test_the_loss_is_that_of_a_target_token(tmp_path: Path) -> None:
    """Untrained, with smoothing or without: near the logarithm of the vocabulary; and the mean over all batches."""
    run = prepared(tmp_path, STILL)
    plan = [np.asarray(rows) for rows in UNEQUAL]
    trainer = trainer_on(run, plan, len(plan), smoothing=0.0)
    with torch.no_grad():
        sums = [float(trainer.objective(run.train.make(rows))) for rows in plan]
    tokens = [run.train.make(rows).tokens for rows in plan]
    (step,), _ = trained(trainer)
    assert step.tokens == sum(tokens)
    assert step.loss == pytest.approx(sum(sums) / sum(tokens), rel=1e-12)


def test_the_gradient_is_clipped_by_its_norm(tmp_path: Path) -> None:
    run = prepared(tmp_path, STILL)
    plan = [np.asarray(rows) for rows in UNEQUAL]
    (free,), (whole,) = trained(trainer_on(run, plan, 6, clip=0.0))
    norm = math.sqrt(sum(float(g.square().sum()) for g in whole.values()))
    assert free.norm == pytest.approx(norm, rel=1e-12)
    (step,), (cut,) = trained(trainer_on(run, plan, 6, clip=norm / 4))
    assert step.norm == pytest.approx(norm, rel=1e-12)  # what is told is what it was
    for name, gradient in cut.items():
        torch.testing.assert_close(gradient, whole[name] / 4, rtol=1e-9, atol=1e-14)
    (_,), (loose,) = trained(trainer_on(run, plan, 6, clip=norm * 1.01))
    assert all(torch.equal(loose[name], whole[name]) for name in whole)


def test_each_step_has_the_rate_of_its_schedule(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    plan = [np.asarray(rows) for rows in UNEQUAL]
    trainer = trainer_on(run, plan, 1, schedule="linear", rate=0.8, warmup=2)
    used: list[float] = []
    trainer.optimizers[0].register_step_pre_hook(lambda *_: used.append(trainer.optimizers[0].param_groups[0]["lr"]))
    told = [step.rate for step in trainer.parts() if step is not None]
    assert used == told == pytest.approx([0.4, 0.8, 0.6, 0.4, 0.2, 0.0])


@pytest.mark.parametrize("fault", ["loss", "gradient"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_not_finite_changes_nothing(tmp_path: Path, fault: str, value: float) -> None:
    run = prepared(tmp_path)
    trainer = Trainer(run, ALONE)
    parts = (step for step in trainer.parts() if step is not None)
    assert not next(parts).skipped
    weights, moments = weights_of(trainer), trainer.state()[0]["optimizer"]
    moments = {name: moment.clone() for name, moment in moments.items()}
    if fault == "loss":
        handle = trainer.objective.register_forward_hook(lambda module, given, made: made * value)
    else:
        handle = next(iter(trainer.parameters.values())).register_hook(lambda gradient: gradient * value)
    assert next(parts).skipped
    handle.remove()
    assert (trainer.progress.step, trainer.progress.skipped, trainer.progress.bad) == (2, 1, 1)
    for name, weight in weights_of(trainer).items():
        assert torch.equal(weight, weights[name]), name
    for name, moment in trainer.state()[0]["optimizer"].items():
        assert torch.equal(moment, moments[name]), name
    assert not next(parts).skipped
    assert (trainer.progress.skipped, trainer.progress.bad) == (1, 0)
    assert any(not torch.equal(weight, weights[name]) for name, weight in weights_of(trainer).items())


def test_five_in_a_row_stop_the_run_and_the_last_good_state_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 1 and 2 are good, then four bad and one good, then bad ones for ever."""
    asked = asking(tmp_path, {"save.every": 1})
    true, good = Trainer._step, (1, 2, 7)

    def step(self: Trainer) -> Step:
        if self.progress.step + 1 not in good:
            self.progress.part_loss = math.nan
        return true(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        with pytest.raises(TrainingError, match="step 12: loss or gradient was not finite 5 times in a row") as told:
            start(asked)
    assert f"the state in {asked.out}/states/00000011-0000 is kept" in str(told.value)
    kept = saved(asked.out)
    assert (kept.facts["step"], kept.facts["skipped"], kept.facts["bad"]) == (11, 8, 4)
    assert all(bool(torch.isfinite(tensor).all()) for named in kept.tensors.values() for tensor in named.values())
    assert resume(asked.out).steps == 12  # with the cause gone it goes on


def test_no_state_is_promised_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, true = asking(tmp_path, {"save.every": 100}), Trainer._step

    def step(self: Trainer) -> Step:
        self.progress.part_loss = math.nan
        return true(self)

    monkeypatch.setattr(Trainer, "_step", step)
    with pytest.raises(TrainingError, match="step 5: loss or gradient was not finite 5 times in a row") as told:
        start(asked)
    assert "kept" not in str(told.value)
    assert "no state was saved yet" in str(told.value)


def test_half_precision_trains_too(tmp_path: Path) -> None:
    """float16 skips steps while it looks for its scale, and that stops no run."""
    for precision in ("bfloat16", "float16"):
        folder = tmp_path / precision
        folder.mkdir()
        trainer = Trainer(prepared(folder, {"machine.precision": precision, "length.steps": 20}), ALONE)
        if precision == "float16":
            trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28)
        steps = [step for step in trainer.parts() if step is not None]
        assert all(math.isfinite(step.loss) for step in steps)
        assert all(bool(torch.isfinite(weight).all()) for weight in weights_of(trainer).values())
        assert not steps[-1].skipped
        assert (trainer.progress.skipped > 5) == (precision == "float16")


def test_the_same_seed_trains_the_same_and_another_does_not(tmp_path: Path) -> None:
    runs = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = tmp_path / name
        folder.mkdir()
        trainer = Trainer(prepared(folder, {"seed": seed, "length.steps": 3}), ALONE)
        torch.manual_seed(hash(name))  # what happened before does not matter
        for _ in trainer.parts():
            pass
        runs.append(weights_of(trainer))
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    assert any(not torch.equal(runs[0][name], runs[2][name]) for name in runs[0])
