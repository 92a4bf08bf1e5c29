"""Weights as int8: each row of a matrix is whole numbers up to ±127 times a scale of its own.

The equations in plain PyTorch, for any machine, and the truth that the fast path (`native`) is compared with. An input
is not rounded here; the fast path rounds it to as many bits as its sums of 32 bits leave room for.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.embed import Tokens
from clearformer.core.heads import MaskedToken, NextToken
from clearformer.core.step import step

MOST = 127


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of whole numbers and their scales: weight ≈ whole · scale, each row's largest value becoming ±127."""
    if weight.is_meta:  # no values yet
        return torch.empty(weight.shape, dtype=torch.int8, device="meta"), torch.empty(len(weight), device="meta")
    scale = (weight.abs().amax(1).float() / MOST).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight.float() / scale[:, None]).round().to(torch.int8), scale


class Matrix(nn.Module):
    """A matrix of n rows as int8."""

    whole: Tensor  # n k
    scale: Tensor  # n

    def __init__(self, whole: Tensor, scale: Tensor):
        super().__init__()
        self.register_buffer("whole", whole)
        self.register_buffer("scale", scale)

    @classmethod
    def of(cls, weight: Tensor) -> "Matrix":
        return cls(*quantised(weight.detach()))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.whole.to(x.dtype)) * self.scale

    @property
    def meant(self) -> Tensor:
        """The numbers that are meant."""
        return self.whole * self.scale[:, None]

    def rows(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.whole).float() * F.embedding(ids, self.scale[:, None])

    def __len__(self) -> int:
        return len(self.whole)


class Int8Linear(nn.Module):
    """nn.Linear over a matrix of int8."""

    def __init__(self, matrix: Matrix, bias: nn.Parameter | None):
        super().__init__()
        self.matrix, self.bias = matrix, bias
        self.out_features, self.in_features = matrix.whole.shape

    @property
    def weight(self) -> Tensor:
        return self.matrix.meant

    def forward(self, x: Tensor) -> Tensor:
        y = self.matrix(x)
        return y if self.bias is None else y + self.bias


class Int8Tokens(Tokens):
    """The embedding of tokens from a table of int8."""

    table: Matrix  # type: ignore[assignment]

    @step("b t m")
    def tokens(self, ids: Tensor) -> Tensor:
        try:
            return self.table.rows(ids) * self.scale
        except IndexError:
            raise self.outside(ids) from None


class Int8NextToken(NextToken):
    weight: Matrix  # type: ignore[assignment]

    @step("b t v")
    def logits(self, x: Tensor) -> Tensor:
        y = self.weight(x * self.scale if self.scale != 1.0 else x)
        return y if self.bias is None else y + self.bias


class Int8MaskedToken(MaskedToken):
    weight: Matrix  # type: ignore[assignment]

    @step("b t v")
    def logits(self, x: Tensor) -> Tensor:
        return self.weight(x) + self.bias
