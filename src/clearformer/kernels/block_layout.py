"""Which blocks of keys a block of queries may see: a pattern at the scale of blocks.

A layout lets a kernel skip the blocks in which nobody sees anybody. It may name too many blocks, never too few:
the pattern itself decides within them.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer import spec
from clearformer.core.patterns import draws


@dataclass(frozen=True, eq=False)
class Layout:
    """For blocks of `size` positions: the first `full` query blocks see every key; query block n ≥ full sees at
    most the key blocks keys[n], −1 where there are fewer."""

    size: int
    full: int
    keys: Tensor  # n r


def block_size(pattern: spec.Pattern) -> int:
    """The block that a pattern is drawn in, 64 where it does not say."""
    sizes = {part.block for part in _leaves(pattern) if isinstance(part, spec.Random)}
    return min(sizes, default=64)


def _leaves(pattern: spec.Pattern) -> list[spec.Pattern]:
    if isinstance(pattern, spec.Both | spec.Either):
        return [leaf for part in pattern.parts for leaf in _leaves(part)]
    return [pattern]


def layout(pattern: spec.Pattern, size: int, blocks: int) -> Layout | None:
    """The blocks that matter, each once, or None where every key may matter to most queries."""
    if blocks == 0:
        return None
    found = _reach(pattern, size, torch.arange(blocks, device="cpu"))  # a plan, wherever the model is
    if found is None:
        return None
    keys = torch.where((found.keys >= 0) & (found.keys < blocks), found.keys, -1).sort(-1, descending=True).values
    repeated = torch.zeros_like(keys, dtype=torch.bool)
    repeated[:, 1:] = keys[:, 1:] == keys[:, :-1]
    keys = keys.masked_fill(repeated, -1).sort(-1, descending=True).values
    used = int((keys >= 0).sum(-1).max())
    return Layout(size, min(found.full, blocks), keys[:, :used])


def _reach(pattern: spec.Pattern, size: int, row: Tensor) -> Layout | None:
    def around(before: int, after: int) -> Tensor:
        back, ahead = (min(math.ceil(reach / size), len(row)) for reach in (before, after))
        return row[:, None] + torch.arange(-back, ahead + 1, device=row.device)

    match pattern:
        case spec.Window(size=newest):
            return Layout(size, 0, around(newest - 1, 0))
        case spec.Near(radius=radius):
            return Layout(size, 0, around(radius, radius))
        case spec.Global(count=count):
            first = min(math.ceil(count / size), len(row))
            return Layout(size, first, torch.arange(first, device=row.device).expand(len(row), -1))
        case spec.Random(block=block) if block == size:
            return Layout(size, 0, draws(pattern, row))
        case spec.Both(parts=parts):
            found = [each for part in parts if (each := _reach(part, size, row)) is not None]
            return min(found, key=lambda each: (each.full, each.keys.size(1)), default=None)
        case spec.Either(parts=parts):
            every = [_reach(part, size, row) for part in parts]
            if any(each is None for each in every):
                return None
            known = [each for each in every if each is not None]
            return Layout(size, max(each.full for each in known), torch.cat([each.keys for each in known], -1))
    return None
