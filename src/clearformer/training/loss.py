"""Cross-entropy over a vocabulary, with label smoothing, without the logits of a whole batch in memory.

−Σ_v q_v log p_v with q = (1 − ε) · one-hot + ε / V. Logits are made for a few rows at a time; while they are there,
their gradient p − q is made too and folded into the gradients of states and table at once. Logits of a whole batch are
tens of megabytes that would be written and read eight times over.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.core.heads import NextToken
from clearformer.errors import DataError
from clearformer.kernels.linear import by_onednn, onednn_linear

CHUNK = 2**23  # logits made at a time: 32 MB


def next_token_loss(
    head: NextToken,
    states: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    smoothing: float = 0.0,
    each: Tensor | None = None,
) -> tuple[Tensor, int]:
    """The sum of the losses of all real targets, and how many there are.

    States are b t m, targets b t; the caller divides by the number of targets, of this batch or of several. `each`, of
    as many numbers as there are real targets, is filled with their losses, to be looked at.
    """
    if not isinstance(head, NextToken):
        raise DataError(f"the next-token loss needs a next-token head, given {type(head).__name__}")
    if targets.shape != states.shape[:-1]:
        raise DataError(f"targets must be of shape {tuple(states.shape[:-1])}, given {tuple(targets.shape)}")
    if mask is not None and (mask.shape != targets.shape or mask.dtype != torch.bool):
        raise DataError(
            f"mask must be bool and of shape {tuple(targets.shape)}, given {mask.dtype} {tuple(mask.shape)}"
        )
    if mask is not None and not bool(mask.all()):
        states, targets = states[mask], targets[mask]
    states, targets = states.flatten(0, -2), targets.flatten()
    wrong = targets[(targets < 0) | (targets >= len(head.weight))]
    if len(wrong):
        raise DataError(f"target ids must lie between 0 and {len(head.weight) - 1}, given {int(wrong[0])}")
    learning = isinstance(head.weight, Tensor) and (states.requires_grad or head.weight.requires_grad)
    if not learning or not torch.is_grad_enabled():
        return _told(head, states, targets, smoothing, each), len(targets)
    if head.scale != 1.0:
        states = states * head.scale
    states = states.to(head.weight.dtype)
    return _Loss.apply(states, head.weight, head.bias, targets, smoothing, each), len(targets)


def _told(head: NextToken, states: Tensor, targets: Tensor, smoothing: float, each: Tensor | None) -> Tensor:
    """The loss alone, from the head's own logits, whatever its weights are kept as."""
    total = states.new_zeros((), dtype=torch.promote_types(states.dtype, torch.float32))
    rows, kind = max(1, CHUNK // len(head.weight)), getattr(head.weight, "dtype", torch.float32)
    for start in range(0, len(states), rows):
        x, y = states[start : start + rows], targets[start : start + rows]
        losses = F.cross_entropy(head.logits(x.to(kind)), y, reduction="none", label_smoothing=smoothing)
        total += losses.sum()
        if each is not None:
            each[start : start + rows] = losses
    return total


class _Loss(torch.autograd.Function):
    """Sums and softmax are in float32; the three products are in the format that autocast asks for."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        each: Tensor | None,
    ) -> Tensor:
        kind = _half(states)
        inputs, table, quick = states.to(kind), weight.to(kind), by_onednn(states, weight)
        d_states, d_weight = torch.empty_like(inputs), torch.zeros_like(weight)
        d_bias = None if bias is None else torch.zeros_like(bias)
        total = states.new_zeros((), dtype=torch.promote_types(weight.dtype, torch.float32))
        rows = min(max(1, CHUNK // len(weight)), len(states))
        memory = weight.new_empty(rows, len(weight))  # one piece for all chunks: fresh memory is slow to touch
        half = memory if kind == weight.dtype else inputs.new_empty(rows, len(weight))
        for start in range(0, len(states), max(rows, 1)):
            x, y = inputs[start : start + rows], targets[start : start + rows, None]
            logits, short = memory[: len(x)], half[: len(x)]
            if quick:
                logits = onednn_linear(x, table)
            else:
                torch.mm(x, table.T, out=short)
                if kind != weight.dtype:
                    logits.copy_(short)
            if bias is not None:
                logits += bias
            top = logits.amax(1, keepdim=True)
            right = logits.gather(1, y) - top
            average = logits.mean(1, keepdim=True) - top if smoothing else 0.0
            likely = logits.sub_(top).exp_()
            everything = likely.sum(1, keepdim=True)
            losses = everything.log() - (1 - smoothing) * right - smoothing * average
            total += losses.sum()
            if each is not None:
                each[start : start + rows] = losses[:, 0]
            change = likely.div_(everything)  # p
            if smoothing:
                change.sub_(smoothing / len(weight))
            change.scatter_add_(1, y, change.new_full(y.shape, smoothing - 1))  # p − q
            if d_bias is not None:
                d_bias += change.sum(0)
            if kind != weight.dtype:
                change = short.copy_(change)
            if quick:
                d_states[start : start + rows] = onednn_linear(change, table.T)
            else:
                torch.mm(change, table, out=d_states[start : start + rows])
            if kind == weight.dtype:
                torch.addmm(d_weight, change.T, x, out=d_weight)
            else:
                d_weight += change.T @ x
        ctx.gradients = d_states.to(states.dtype), d_weight, d_bias
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (scale,) = grads
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss were used already; compute the loss again")
        for gradient in ctx.gradients:
            if gradient is not None:
                gradient.mul_(scale)  # in place: the table's alone is megabytes
        d_states, d_weight, d_bias = ctx.gradients
        ctx.gradients = None
        return d_states, d_weight, d_bias, None, None, None


def _half(x: Tensor) -> torch.dtype:
    """The format of products: autocast's where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
