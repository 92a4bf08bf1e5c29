"""Muon against an SVD, against PyTorch's own, and in a run."""

from pathlib import Path

import pytest
import torch

import clearformer as cf
from clearformer.errors import TrainingError
from clearformer.training.distributed import Group
from clearformer.training.loop import Trainer
from clearformer.training.muon import SIZE, Muon, matrices, orthogonal
from tests.training.runs import ALONE, prepared


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 6, 20), (2, 20, 6)])
def test_orthogonal_keeps_the_directions_of_an_svd_and_evens_out_their_sizes(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    found = orthogonal(x)
    for before, after in zip(x, found, strict=True):
        u, _, v = torch.linalg.svd(before, full_matrices=False)
        turned = u.T @ after @ v.T  # diagonal in the same directions
        sizes = turned.diagonal()
        assert torch.allclose(turned, torch.diag(sizes), atol=1e-9)
        assert float(sizes.min()) > 0.3
        assert float(sizes.max()) < 1.3


def test_a_step_is_that_of_pytorchs_own_muon_but_for_its_size() -> None:
    """PyTorch's works in bfloat16; so does ours here."""
    torch.manual_seed(0)
    first, second = (torch.nn.Parameter(torch.randn(8, 24)) for _ in range(2))
    second.data.copy_(first.data)
    ours = Muon([first], weight_decay=0.1, kind=torch.bfloat16)
    theirs = torch.optim.Muon(
        [second], lr=0.01 * SIZE / 0.2, weight_decay=0.1 * 0.2 / SIZE, adjust_lr_fn="match_rms_adamw"
    )
    ours.param_groups[0]["lr"] = 0.01
    for _ in range(4):
        first.grad = torch.randn(8, 24)
        # theirs averages its momentum, ours sums it; the direction is the same
        second.grad = first.grad.clone()
        ours.step()
        theirs.step()
    torch.testing.assert_close(first, second, rtol=0.02, atol=0.02)


def test_matrices_are_the_products_inside_blocks() -> None:
    model = cf.build(cf.presets.t5("tiny"), seed=0)
    found = matrices(model)
    assert all(weight.ndim == 2 for weight in found.values())
    assert {name.split(".")[-2] for name in found} >= {"query", "key", "value", "output", "down"}
    assert not any("embed" in name or name.startswith("head") or "positions" in name for name in found)
    named = dict(model.named_parameters())
    assert all(named[name] is weight for name, weight in found.items())


def test_every_parameter_has_one_optimizer_and_all_are_moved(tmp_path: Path) -> None:
    trainer = Trainer(prepared(tmp_path, {"optimizer.kind": "muon"}), ALONE)
    held = [parameter for each in trainer.optimizers for group in each.param_groups for parameter in group["params"]]
    assert sorted(map(id, held)) == sorted(map(id, trainer.parameters.values()))
    before = {name: weight.detach().clone() for name, weight in trainer.parameters.items()}
    for step in trainer.parts():
        if step is not None:
            break
    still = [name for name, weight in trainer.parameters.items() if torch.equal(weight, before[name])]
    assert not [name for name in still if "key.bias" not in name]  # a key's bias changes no weight of attention


def test_sharded_matrices_are_refused(tmp_path: Path) -> None:
    run = prepared(tmp_path, {"optimizer.kind": "muon"})
    group = Group(0, 1, torch.device("cpu"), True)
    with pytest.raises(TrainingError, match="needs whole matrices"):
        Trainer(run, group)
