"""Weights quantised to int8: each row of a matrix is whole numbers up to ±127 times a scale of its own.

The equations in plain PyTorch, for any machine, and the truth that the fast path (`native`) is compared with. An input
is not rounded here; the fast path rounds it to as many bits as its sums of 32 bits leave room for.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.embed import Tokens
from clearformer.core.heads import MaskedToken, NextToken
from clearformer.core.step import step

if TYPE_CHECKING:
    from clearformer.kernels.packed_float import FloatMatrix

MOST = 127
ROWS = 16  # of a panel
Done = Callable[[Tensor], None]
AT_ONCE = 2**18  # numbers of a matrix that are made int8 at a time, so that what this takes on the way stays small


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of whole numbers and their scales: weight ≈ whole · scale, each row's largest value becoming ±127."""
    scale = (weight.abs().amax(1).float() / MOST).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight.float() / scale[:, None]).round().to(torch.int8), scale


class Matrix(nn.Module):
    """A matrix of n rows of k numbers as int8, kept in panels: of sixteen rows the first two numbers each, then the
    next two, and so on, with zeros up to whole vectors. A product reads it from one end to the other.

    Where the processor multiplies bytes, its panels are `quads`: four numbers of each row, then the next four, as bytes
    without a sign, 128 more than the numbers. A folder keeps pairs, for all processors.
    """

    panels: Tensor  # ⌈n / 16⌉ ⌈k / 16⌉·8 16 2, or as quads ⌈n / 16⌉ ⌈k / 16⌉·4 16 4
    scale: Tensor  # n

    def __init__(self, panels: Tensor, scale: Tensor, width: int):
        super().__init__()
        self.register_buffer("panels", panels)
        self.register_buffer("scale", scale)
        self.width = width

    @classmethod
    def of(cls, weight: Tensor, done: Done | None = None) -> "Matrix":
        """The weight as int8; `done` is told of every part of it that was read."""
        n, k = weight.shape
        panels = weight.new_zeros(-(-n // ROWS), -(-k // ROWS) * ROWS // 2, ROWS, 2, dtype=torch.int8)
        made = cls(panels, weight.new_empty(n, dtype=torch.float32), k)
        some = max(AT_ONCE // k // ROWS, 1) * ROWS
        for start in range(0, 0 if weight.is_meta else n, some):  # one that is meta has no values yet
            stop = min(start + some, n)
            whole, made.scale[start:stop] = quantised(weight[start:stop].detach())
            rows = (
                F.pad(whole, (0, -k % ROWS, 0, -(stop - start) % ROWS)).unflatten(1, (-1, 2)).unflatten(0, (-1, ROWS))
            )
            panels[start // ROWS : start // ROWS + len(rows)] = rows.transpose(1, 2)
            if done is not None:
                done(weight[start:stop])
        return made

    @property
    def quads(self) -> bool:
        return self.panels.dtype == torch.uint8

    def arranged(self, quads: bool, done: Done | None = None) -> "Matrix":
        """The same matrix with such panels; `done` is told of those that were read."""
        if quads == self.quads or self.panels.is_meta:
            return self
        panels = torch.empty_like(self.panels, dtype=torch.uint8 if quads else torch.int8)
        panels = panels.view(len(panels), -1, ROWS, 4 if quads else 2)
        for start in range(0, len(panels), some := max(AT_ONCE // self.width // ROWS, 1)):
            part = self.panels[start : start + some]
            panels[start : start + some] = _to_quads(part) if quads else _to_pairs(part)
            if done is not None:
                done(part)
        return Matrix(panels, self.scale, self.width)

    @property
    def pairs(self) -> Tensor:
        """The panels as a folder keeps them."""
        return self.arranged(quads=False).panels

    @property
    def whole(self) -> Tensor:
        """n k: the whole numbers, row by row."""
        rows = self.pairs.transpose(1, 2).flatten(2).flatten(0, 1)
        return rows[: len(self.scale), : self.width]

    @property
    def meant(self) -> Tensor:
        """The numbers that are meant: the matrix dequantised."""
        return self.whole * self.scale[:, None]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.width

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.whole.to(x.dtype)) * self.scale

    def rows(self, ids: Tensor) -> Tensor:
        scale = F.embedding(ids, self.scale[:, None])
        together = self.panels.view(torch.int32 if self.quads else torch.int16)[..., 0]  # as they lie side by side
        found = together[ids // ROWS, :, ids % ROWS].view(self.panels.dtype)
        return (_signed(found) if self.quads else found)[..., : self.width] * scale

    def __len__(self) -> int:
        return len(self.scale)


def _to_quads(panels: Tensor) -> Tensor:
    """Every 64 bytes hold four numbers of sixteen rows, in both orders."""
    twos = panels.view(torch.int16).view(len(panels), -1, 2, ROWS)
    return twos.transpose(2, 3).contiguous().view(torch.uint8).view(len(panels), -1, ROWS, 4) ^ 128


def _to_pairs(panels: Tensor) -> Tensor:
    twos = _signed(panels).view(torch.int16)  # p q 16 2
    return twos.transpose(2, 3).contiguous().view(torch.int8).view(len(panels), -1, ROWS, 2)


def _signed(bytes_: Tensor) -> Tensor:
    return (bytes_ ^ 128).view(torch.int8)


class MatrixLinear(nn.Module):
    """nn.Linear over a matrix in panels, of int8 or of floats (`packed_float`)."""

    def __init__(self, matrix: "Matrix | FloatMatrix", bias: nn.Parameter | None):
        super().__init__()
        self.matrix, self.bias = matrix, bias
        self.out_features, self.in_features = matrix.shape

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
