"""Products by oneDNN are the products: values and gradients, on every shape that a layer may be given."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.core.heads import NextToken
from clearformer.kernels import linear
from clearformer.kernels.linear import Linear, by_onednn, has_onednn, use_onednn
from clearformer.training.loss import next_token_loss

pytestmark = pytest.mark.skipif(not has_onednn(), reason="PyTorch was built without oneDNN")


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    yield
    use_onednn(False)


def both(rows: tuple[int, ...], inputs: int, outputs: int, bias: bool) -> list[list[torch.Tensor]]:
    """Output and gradients without oneDNN, with it, and in float64."""
    generator = torch.Generator().manual_seed(sum(rows) + inputs + outputs)
    found = []
    layer = Linear(inputs, outputs, bias)
    x = torch.randn(*rows, inputs, generator=generator)
    g = torch.randn(*rows, outputs, generator=generator)
    for on, kind in ((False, torch.float32), (True, torch.float32), (False, torch.float64)):
        use_onednn(on)
        layer, y = layer.to(kind), x.to(kind, copy=True).requires_grad_()
        layer.zero_grad()
        assert by_onednn(y, layer.weight) == on
        out = layer(y)
        assert (type(out.grad_fn).__name__ == "_ProductBackward") == on
        (out * g.to(kind)).sum().backward()
        assert y.grad is not None
        found.append([out.detach(), y.grad, *(p.grad.clone() for p in layer.parameters() if p.grad is not None)])
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple), st.integers(1, 40), st.integers(1, 40),
    st.booleans(),
)  # fmt: skip
def test_values_and_gradients_are_those_of_the_plain_product(
    rows: tuple[int, ...], inputs: int, outputs: int, bias: bool
) -> None:
    plain, quick, true = both(rows, inputs, outputs, bias)
    assert len(plain) == len(quick) == (4 if bias else 3)
    for one, other, exact in zip(plain, quick, true, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(other.double(), exact, atol=2e-5, rtol=1e-5)


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    use_onednn(True)
    layer, x = Linear(6, 4), torch.randn(3, 6, requires_grad=True)
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(3, 6))
    torch.testing.assert_close(layer.bias.grad, torch.full((4,), 3.0))


def test_it_keeps_to_what_it_is_made_for() -> None:
    use_onednn(True)
    layer = Linear(6, 4)
    assert type(layer(torch.randn(3, 6)).grad_fn).__name__ == "_ProductBackward"
    assert not by_onednn(torch.randn(3, 6).double())
    assert not by_onednn(torch.randn(0, 6))
    assert layer(torch.randn(0, 6)).shape == (0, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(3, 6)).dtype == torch.bfloat16
    with torch.no_grad():
        assert layer(torch.randn(3, 6)).grad_fn is None


@pytest.mark.parametrize("chunk", [1 << 23, 40])
@pytest.mark.parametrize("way", ["plain", "onednn", "bfloat16"])
def test_the_loss_has_the_same_gradients(way: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearformer.training import loss as module

    monkeypatch.setattr(module, "CHUNK", chunk)
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(11, 8, generator=generator).bfloat16().float()
    states, targets = torch.randn(5, 7, 8, generator=generator).bfloat16().float(), torch.arange(35).view(5, 7) % 11
    found = []
    for exact in (True, False):
        kind = torch.float64 if exact else torch.float32
        weight, x = torch.nn.Parameter(table.to(kind, copy=True)), states.to(kind, copy=True).requires_grad_()
        head = NextToken(weight, None, 1.0)
        use_onednn(way == "onednn" and not exact)
        if exact:
            logits = x.flatten(0, 1) @ weight.T
            total = torch.nn.functional.cross_entropy(logits, targets.flatten(), reduction="sum", label_smoothing=0.1)
        else:
            with torch.autocast("cpu", torch.bfloat16, enabled=way == "bfloat16"):
                total, _ = next_token_loss(head, x, targets, smoothing=0.1)
        (total * 0.5).backward()
        assert x.grad is not None
        assert weight.grad is not None
        found.append([total.detach().double(), x.grad.double(), weight.grad.double()])
        assert weight.grad.dtype == kind
    tolerance = {"atol": 0.05, "rtol": 0.02} if way == "bfloat16" else {"atol": 1e-5, "rtol": 1e-5}
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, **tolerance)


def test_it_is_off_where_no_trainer_has_turned_it_on() -> None:
    assert linear._onednn == [False]
