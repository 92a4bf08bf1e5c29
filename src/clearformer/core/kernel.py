"""softmax(Q Kᵀ / √d) V: the equation itself, and the contract that every kernel obeys.

A kernel is called with queries b h t d, keys and values b g s d (g key heads, each read by h/g query heads:
grouped-query attention, GQA), what
is visible, and the relative positions. A query that sees nothing gets zeros, never NaN, in values and gradients.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from clearformer import spec
from clearformer.core.patterns import Visible
from clearformer.core.positions import Relative
from clearformer.core.step import step


class Kernel(nn.Module, ABC):
    name: ClassVar[str]

    def __init__(self, layer: spec.SelfAttention | spec.CrossAttention, scale: float):
        super().__init__()
        self.layer, self.scale, self.dropout = layer, scale, layer.weight_dropout

    @classmethod
    @abstractmethod
    def supports(cls, layer: spec.SelfAttention | spec.CrossAttention) -> str | None:
        """None, or the reason why this kernel cannot compute such a layer."""

    @abstractmethod
    def forward(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, relative: Relative) -> Tensor:
        """b h t d"""


class Reference(Kernel):
    """One line an equation. What it computes is what the others must."""

    name = "reference"

    @classmethod
    def supports(cls, layer: spec.SelfAttention | spec.CrossAttention) -> str | None:
        return None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, relative: Relative) -> Tensor:
        k, v = spread(k, q.size(1)), spread(v, q.size(1))
        scores = self.scores(q, k, relative.bias(q, self.scale, visible.queries, visible.keys))
        weights = self.weights(scores, visible)
        return self.mixed(weights, v, relative.mixture(weights, visible.queries, visible.keys))

    @step("b h t s")
    def scores(self, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        products = q @ k.mT * self.scale
        return products if bias is None else products + bias

    @step("b h t s")
    def weights(self, scores: Tensor, visible: Visible) -> Tensor:
        if visible.everything():
            return self._drop(scores.softmax(-1))
        hidden = ~visible.dense()
        # The lowest number rather than −∞, and zeros afterwards: a row with nothing to see is then zeros, not NaN.
        lowest = torch.finfo(scores.dtype).min
        return self._drop(scores.masked_fill(hidden, lowest).softmax(-1).masked_fill(hidden, 0.0))

    @step("b h t d")
    def mixed(self, weights: Tensor, v: Tensor, mixture: Tensor | None) -> Tensor:
        values = weights @ v
        return values if mixture is None else values + mixture

    def _drop(self, weights: Tensor) -> Tensor:
        return nn.functional.dropout(weights, self.dropout, self.training)


def spread(x: Tensor, heads: int) -> Tensor:
    """b g s d → b h s d: each key head stands for h/g query heads."""
    return x if x.size(1) == heads else x.repeat_interleave(heads // x.size(1), 1)
