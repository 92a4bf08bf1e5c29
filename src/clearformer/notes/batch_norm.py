"""(x − mean) / √(variance + eps), twice: over the features of one token, and over one feature of the whole batch.

Layer norm's mean is the token's own affair. Batch norm's mean runs over every cell of the batch, and in a padded
batch of sentences most cells may be padding: its zeros enter. Neither norm is given a weight or a bias here.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clearformer.errors import DataError


@dataclass(frozen=True)
class Entered:
    """The numbers one cell was normalised by, each with whether it is padding, and what became of the cell."""

    numbers: tuple[float, ...]
    padding: tuple[bool, ...]
    mean: float
    variance: float
    result: float

    @property
    def mean_of_tokens(self) -> float:
        """The mean that leaves padding out."""
        kept = [number for number, padded in zip(self.numbers, self.padding, strict=True) if not padded]
        return sum(kept) / len(kept)


class Comparison(NamedTuple):
    layer: Tensor  # b t m
    batch: Tensor  # b t m
    entered_layer: Entered
    entered_batch: Entered


def compare(x: Tensor, mask: Tensor, cell: tuple[int, int, int], eps: float = 1e-5) -> Comparison:
    """Both norms of a padded batch x (b t m), and the numbers that entered each for one cell (row, token, feature).

    The mask (b t) is True where a token is; x is zero elsewhere, whatever was given there.
    """
    _check(x, mask, cell)
    row, token, feature = cell
    x = x.masked_fill(~mask[..., None], 0.0)
    layer = _normalise(x, (2,), eps)
    batch = _normalise(x, (0, 1), eps)
    own = torch.zeros_like(x[row, token], dtype=torch.bool)  # a token that is there has no padding among its features
    return Comparison(
        layer,
        batch,
        _entered(x[row, token], own, layer[cell]),
        _entered(x[..., feature].flatten(), ~mask.flatten(), batch[cell]),
    )


def _normalise(x: Tensor, over: tuple[int, ...], eps: float) -> Tensor:
    variance, mean = torch.var_mean(x, over, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt()


def _entered(numbers: Tensor, padding: Tensor, result: Tensor) -> Entered:
    variance, mean = torch.var_mean(numbers, correction=0)
    return Entered(tuple(numbers.tolist()), tuple(padding.tolist()), mean.item(), variance.item(), result.item())


def _check(x: Tensor, mask: Tensor, cell: tuple[int, int, int]) -> None:
    if x.dim() != 3 or not x.is_floating_point():
        raise DataError(f"x must be floating-point of shape batch × length × width, given {x.dtype} {tuple(x.shape)}")
    if mask.shape != x.shape[:2] or mask.dtype != torch.bool:
        raise DataError(
            f"mask must be bool, True where a token is, and of shape {tuple(x.shape[:2])};"
            f" given {mask.dtype} {tuple(mask.shape)}"
        )
    if len(cell) != 3 or not all(0 <= index < size for index, size in zip(cell, x.shape, strict=True)):
        raise DataError(f"cell {cell} is outside the batch of shape {tuple(x.shape)}; give (row, token, feature)")
    if not mask[cell[:2]]:
        raise DataError(
            f"cell {cell} is padding; choose a token that is there: token {mask[cell[0]].nonzero().flatten().tolist()}"
        )
