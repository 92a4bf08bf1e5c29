"""The chunked loss is PyTorch's cross-entropy on the whole logits, in value and gradients."""

import pytest
import torch
import torch.nn.functional as F

import clearformer as cf
from clearformer.core.heads import NextToken
from clearformer.training.loss import next_token_loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 40, 10**6])
def test_equals_cross_entropy(smoothing: float, bias: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.training.loss.CHUNK", chunk)
    states = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(13, 8, dtype=torch.float64))
    offset = torch.nn.Parameter(torch.randn(13, dtype=torch.float64)) if bias else None
    targets = torch.randint(0, 13, (3, 5))
    mask = torch.rand(3, 5) < 0.7
    mask[0, 0] = True
    head = NextToken(weight, offset, scale=0.5)
    wanted = [states, weight, *([offset] if offset is not None else [])]

    total, count = next_token_loss(head, states, targets, mask, smoothing)
    found = torch.autograd.grad(total / count, wanted)

    logits = F.linear(states * 0.5, weight, offset)[mask]
    plain = F.cross_entropy(logits, targets[mask], label_smoothing=smoothing)
    assert count == int(mask.sum())
    torch.testing.assert_close(total / count, plain)
    with torch.no_grad():
        torch.testing.assert_close(next_token_loss(head, states, targets, mask, smoothing)[0] / count, plain)
    for a, b in zip(found, torch.autograd.grad(plain, wanted), strict=True):
        torch.testing.assert_close(a, b)


def test_no_targets_at_all_is_no_loss() -> None:
    head = NextToken(torch.nn.Parameter(torch.randn(5, 4)), None, 1.0)
    total, count = next_token_loss(head, torch.randn(2, 3, 4), torch.zeros(2, 3).long(), torch.zeros(2, 3).bool())
    assert (float(total.detach()), count) == (0.0, 0)


def test_target_outside_the_vocabulary() -> None:
    head = NextToken(torch.nn.Parameter(torch.randn(5, 4)), None, 1.0)
    with pytest.raises(cf.DataError, match="between 0 and 4, given 5"):
        next_token_loss(head, torch.randn(1, 1, 4), torch.tensor([[5]]))


def test_without_gradients_none_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    head = NextToken(torch.nn.Parameter(torch.randn(5, 4)), None, 1.0)
    called = []
    monkeypatch.setattr(torch, "addmm", lambda *args, **options: called.append(args))
    with torch.no_grad():
        total, _ = next_token_loss(head, torch.randn(1, 3, 4), torch.tensor([[1, 2, 3]]))
    assert not total.requires_grad
    assert not called


def test_bad_shapes() -> None:
    head = NextToken(torch.nn.Parameter(torch.randn(5, 4)), None, 1.0)
    states = torch.randn(2, 3, 4)
    with pytest.raises(cf.DataError, match=r"targets must be of shape \(2, 3\)"):
        next_token_loss(head, states, torch.zeros(2, 9).long())
    with pytest.raises(cf.DataError, match="mask must be bool"):
        next_token_loss(head, states, torch.zeros(2, 3).long(), torch.ones(2, 3).long())
    with pytest.raises(cf.DataError, match="given -1"):
        next_token_loss(head, states, torch.full((2, 3), -1))


def test_half_precision_adds_up_in_single() -> None:
    head = NextToken(torch.nn.Parameter(torch.randn(50, 8).bfloat16()), None, 1.0)
    states, targets = torch.randn(40, 100, 8).bfloat16(), torch.randint(0, 50, (40, 100))
    total, count = next_token_loss(head, states, targets)
    plain = F.cross_entropy((states.float() @ head.weight.float().T).flatten(0, 1), targets.flatten(), reduction="sum")
    assert count == 4000
    assert float(total.detach()) == pytest.approx(float(plain.detach()), rel=0.01)


def test_a_frozen_table_and_autocast() -> None:
    head = NextToken(torch.nn.Parameter(torch.randn(5, 4), requires_grad=False), None, 1.0)
    states = torch.randn(1, 3, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = next_token_loss(head, states * 1, torch.tensor([[1, 2, 3]]))
    total.backward()
    assert states.grad is not None
    assert head.weight.grad is None
