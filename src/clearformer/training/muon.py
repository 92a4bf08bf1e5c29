"""Muon (Jordan et al. 2024): matrices of the blocks move along the orthogonal matrix that is nearest to their momentum.

M ← β M + G, then W ← W − η (λ W + 0.6 √max(rows, columns) · O) with O ≈ U Vᵀ where G + β M = U S Vᵀ. O comes from five
Newton–Schulz steps, products only. 0.2 would make the step as large as AdamW's (Liu et al. 2025); three times that is
what learns fastest here at a rate η that suits AdamW. Embeddings, heads, norms and biases stay with AdamW.

PyTorch's own Muon takes one matrix at a time, in bfloat16 always; here all matrices of a shape go together, in the
format in which the machine multiplies fast.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

STEPS, A, B, C = 5, 3.4445, -4.7750, 2.0315  # of the published polynomial a x + b x³ + c x⁵
BETA, SIZE = 0.95, 0.6


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices: Iterable[Tensor], weight_decay: float, kind: torch.dtype):
        super().__init__(list(matrices), {"lr": 0.0, "weight_decay": weight_decay})
        self.kind = kind

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes[weight.shape].append(weight)
            for shape, weights in shapes.items():
                momenta = [self._momentum(weight) for weight in weights]
                gradients = [weight.grad for weight in weights if weight.grad is not None]
                torch._foreach_mul_(momenta, BETA)
                torch._foreach_add_(momenta, gradients)
                ahead = torch.stack(torch._foreach_add(gradients, momenta, alpha=BETA))
                moves = orthogonal(ahead.to(self.kind)).to(weights[0].dtype)
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(weights, list(moves.unbind()), alpha=-group["lr"] * SIZE * max(shape) ** 0.5)

    def _momentum(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        return state["momentum"]


def orthogonal(x: Tensor) -> Tensor:
    """For each of n matrices, about the orthogonal one nearest to it: its singular values come to 0.7 to 1.2."""
    if x.shape[1] > x.shape[2]:
        return orthogonal(x.mT).mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        square = x @ x.mT  # n r r
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=B, alpha=C), x, beta=A)
    return x


def matrices(model: nn.Module) -> dict[str, Tensor]:
    """The weights of all products inside the blocks that are to be trained."""
    found: dict[str, Any] = {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and ".blocks." in name
    }
    return {name: weight for name, weight in found.items() if weight.requires_grad}
