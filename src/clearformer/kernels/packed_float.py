"""Weights of floats in the order in which a product of matrices (GEMM) reads them: kept once, so, where they were."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.kernels.int8 import AT_ONCE, ROWS, Done, MatrixLinear


class FloatMatrix(nn.Module):
    """A matrix of n rows of k numbers in panels: of sixteen rows the first number each, then the second, and so on,
    with zeros up to whole vectors. The sums of sixteen outputs then lie side by side, and memory is read from one end
    to the other."""

    panels: nn.Parameter  # ⌈n / 16⌉ ⌈k / 16⌉·16 16

    def __init__(self, panels: Tensor, rows: int, width: int):
        super().__init__()
        self.panels = panels if isinstance(panels, nn.Parameter) else nn.Parameter(panels)
        self.shape = (rows, width)

    @classmethod
    def of(cls, weight: Tensor, done: Done | None = None) -> "FloatMatrix":
        """The weight in panels; `done` is told of every part of it that was read."""
        (n, k), values = weight.shape, weight.detach()
        ragged = bool(n % ROWS or k % ROWS)
        make = values.new_zeros if ragged else values.new_empty
        panels = make(-(-n // ROWS), -(-k // ROWS) * ROWS, ROWS)
        some = max(AT_ONCE // k // ROWS, 1) * ROWS
        for start in range(0, n, some):
            part = values[start : start + some]
            rows = F.pad(part, (0, -k % ROWS, 0, -len(part) % ROWS)) if ragged else part
            rows = rows.unflatten(0, (-1, ROWS))
            panels[start // ROWS : start // ROWS + len(rows)] = rows.transpose(1, 2)
            if done is not None:
                done(part)
        return cls(nn.Parameter(panels, requires_grad=weight.requires_grad), n, k)

    @property
    def meant(self) -> Tensor:
        """n k: the matrix, row by row."""
        rows, width = self.shape
        return self.panels.transpose(1, 2).flatten(0, 1)[:rows, :width]

    def _load_from_state_dict(self, *args: Any) -> None:
        """The layer it belongs to reads it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.meant)

    def __len__(self) -> int:
        return self.shape[0]


class FloatLinear(MatrixLinear):
    """nn.Linear over panels of floats. Its state is that of an nn.Linear: what is saved tells not how it ran."""

    matrix: FloatMatrix

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.plain().state_dict(*args, **kwargs)

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        plain = self.plain()
        plain._load_from_state_dict(state, prefix, *rest)
        with torch.no_grad():
            self.matrix.panels.copy_(FloatMatrix.of(plain.weight).panels)
        self.bias = plain.bias

    def plain(self) -> nn.Linear:
        """An ordinary layer with the same weights."""
        with torch.device("meta"):
            made = nn.Linear(self.in_features, self.out_features, bias=False)
        weight = self.matrix.meant.detach().contiguous()
        made.weight = nn.Parameter(weight, requires_grad=self.matrix.panels.requires_grad)
        made.register_parameter("bias", self.bias)
        return made
