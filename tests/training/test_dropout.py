"""Dropout: the right fraction, the right scale, the same mask backwards, none in evaluation."""

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearformer.kernels.dropout import Dropout
from tests.training.runs import prepared
from tests.training.test_steps import trainer_on


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_fraction_and_scale(p: float) -> None:
    x = torch.ones(1000, 1001)
    y = Dropout(p).train()(x)
    dropped = float((y == 0).float().mean())
    assert abs(dropped - p) < 0.003
    kept = y[y != 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-3)
    assert abs(float(y.mean()) - 1) < 0.01


def test_no_cell_is_favoured_by_its_place_in_a_draw() -> None:
    y = Dropout(0.5).train()(torch.ones(400_000)).view(-1, 4)
    assert ((y == 0).float().mean(0) - 0.5).abs().max() < 0.01
    together = ((y == 0).float().T.corrcoef() - torch.eye(4)).abs().max()
    assert float(together) < 0.02


def test_backward_uses_the_same_mask() -> None:
    x = torch.randn(50, 51, requires_grad=True)
    y = Dropout(0.4).train()(x)
    y.sum().backward()
    assert torch.equal(x.grad == 0, y == 0)


def test_evaluation_and_seed() -> None:
    x = torch.randn(5, 7)
    assert Dropout(0.5).eval()(x) is x
    torch.manual_seed(4)
    first = Dropout(0.5).train()(x)
    torch.manual_seed(4)
    assert torch.equal(first, Dropout(0.5).train()(x))


def masks(folder: Path, seed: int = 1) -> list[Tensor]:
    """What the first dropout of a model lets through, in each batch of three steps of two, all of the same pairs."""
    folder.mkdir()
    trainer = trainer_on(prepared(folder, {"seed": seed}), [np.arange(8)] * 6, 2)
    found: list[Tensor] = []

    def look(module: Any, given: tuple[Tensor], made: Tensor) -> None:
        found.append(made != 0)

    first = next(module for module in trainer.model.modules() if isinstance(module, Dropout))
    first.register_forward_hook(look)
    assert sum(step is not None for step in trainer.parts()) == 3
    return found


def test_every_step_and_every_batch_of_a_step_draws_masks_of_its_own(tmp_path: Path) -> None:
    made = masks(tmp_path / "one")
    assert len(made) == 6
    for (a, one), (b, other) in combinations(enumerate(made), 2):
        assert not torch.equal(one, other), f"batch {a % 2} of step {a // 2} and batch {b % 2} of step {b // 2}"
    assert all(torch.equal(one, other) for one, other in zip(made, masks(tmp_path / "again"), strict=True))
    assert not torch.equal(made[0], masks(tmp_path / "other", seed=2)[0])


def test_every_process_draws_masks_of_its_own(tmp_path: Path) -> None:
    trainer = trainer_on(prepared(tmp_path), [np.arange(8)], 1)
    drawn = []
    for rank in (0, 1, 0):
        trainer.group = SimpleNamespace(rank=rank)  # type: ignore[assignment]
        trainer._seed(3, 1)
        drawn.append(torch.rand(8).tolist())
    assert drawn[0] == drawn[2] != drawn[1]
