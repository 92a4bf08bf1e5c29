"""The products of a training step, by whichever library is faster: MKL, which PyTorch takes for float32, or oneDNN.

MKL keeps to AVX2 on processors that are not Intel's. oneDNN takes AVX-512 wherever it is: twice as fast on AMD's Zen 5
(measured), and a little slower than MKL without it. Only a trainer turns it on, after measuring (`training.machine`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_onednn = [False]


def use_onednn(on: bool) -> None:
    """Products of float32 that gradients are taken of, by oneDNN from now on, or by PyTorch's own choice."""
    _onednn[0] = on


def has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias"""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def by_onednn(*tensors: Tensor) -> bool:
    """Whether it is on, and made for these."""
    if not _onednn[0] or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    return all(each.dtype == torch.float32 and each.device.type == "cpu" and each.numel() for each in tensors)


class Linear(nn.Linear):
    """y = x Wᵀ + b"""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and by_onednn(x, self.weight):
            return _Product.apply(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return onednn_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x, weight), wanted = ctx.saved_tensors, ctx.needs_input_grad
        g = grads[0].reshape(-1, len(weight))
        d_x = onednn_linear(g, weight.T).view_as(x) if wanted[0] else None
        d_weight = onednn_linear(g.T, x.reshape(-1, weight.size(1)).T) if wanted[1] else None
        return d_x, d_weight, g.sum(0) if ctx.biased and wanted[2] else None
