"""Dropout whose random numbers are cheap: sixteen bits decide a cell, four cells to a 64-bit draw.

On a CPU PyTorch's own dropout spends most of its time drawing one number per cell (bench/train_step.py). The
fraction dropped is p to within 2⁻¹⁷, and the cells that stay are scaled by what was really dropped.
"""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        stays = max(1, round((1.0 - self.p) * 65536))  # of 65,536 equally likely 16-bit numbers
        drawn = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = torch.lt(drawn.view(torch.int16)[: x.numel()].view(x.shape), stays - 32768, out=torch.empty_like(x))
        return x * kept.mul_(65536 / stays)

    def extra_repr(self) -> str:
        return f"p={self.p}"
