"""Cross-entropy over a vocabulary, with label smoothing, without the logits of a whole batch in memory.

−Σ_v q_v log p_v with q = (1 − ε) · one-hot + ε / V. Logits are made for a few rows at a time; while they are there,
their gradient p − q is made too and folded into the gradients of states and table at once. Logits of a whole batch are
tens of megabytes that would be written and read eight times over.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.core.heads import NextToken
from clearformer.errors import DataError

CHUNK = 2**21  # logits made at a time: 8 MB, which stay in the cache


def next_token_loss(
    head: NextToken, states: Tensor, targets: Tensor, mask: Tensor | None = None, smoothing: float = 0.0
) -> tuple[Tensor, int]:
    """The sum of the losses of all real targets, and how many there are.

    States are b t m, targets b t; the caller divides by the number of targets, of this batch or of several.
    """
    if mask is not None and not bool(mask.all()):
        states, targets = states[mask], targets[mask]
    states, targets = states.flatten(0, -2), targets.flatten()
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(head.weight):
        raise DataError(f"target ids must lie between 0 and {len(head.weight) - 1}, given {int(targets.max())}")
    if head.scale != 1.0:
        states = states * head.scale
    return _Loss.apply(states, head.weight, head.bias, targets, smoothing), len(targets)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        wanted = torch.is_grad_enabled() or any(ctx.needs_input_grad)
        d_states = torch.empty_like(states) if wanted else None
        d_weight = torch.zeros_like(weight) if wanted else None
        d_bias = torch.zeros_like(bias) if wanted and bias is not None else None
        total = states.new_zeros(())
        rows = max(1, CHUNK // len(weight))
        for start in range(0, len(states), rows):
            x, y = states[start : start + rows], targets[start : start + rows, None]
            logits = torch.nn.functional.linear(x, weight, bias)
            likely = (1 - smoothing) * logits.gather(1, y)[:, 0]
            if smoothing:
                likely = likely + smoothing * logits.mean(1)
            top = logits.logsumexp(1)
            total += (top - likely).sum()
            if d_states is None or d_weight is None:
                continue
            change = logits.sub_(top[:, None]).exp_()  # p
            if smoothing:
                change.sub_(smoothing / len(weight))
            change.scatter_add_(1, y, change.new_full(y.shape, smoothing - 1))  # p − q
            d_states[start : start + rows] = change @ weight
            d_weight.addmm_(change.T, x)
            if d_bias is not None:
                d_bias += change.sum(0)
        ctx.save_for_backward(d_states, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (scale,) = grads
        d_states, d_weight, d_bias = ctx.saved_tensors
        return d_states * scale, d_weight * scale, None if d_bias is None else d_bias * scale, None, None
