"""Dropout: the right fraction, the right scale, the same mask backwards, none in evaluation."""

import pytest
import torch

from clearformer.kernels.dropout import Dropout


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
