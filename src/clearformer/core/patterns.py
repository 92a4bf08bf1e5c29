"""Who may see whom: relations between the positions of queries and keys.

`sees` is the truth, one line a pattern; `Visible` is the pattern on actual positions, as kernels are handed it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer import spec
from clearformer.core.places import Places


def sees(pattern: spec.Pattern, i: Tensor, j: Tensor) -> Tensor:
    """Whether the query at position i may see the key at position j, elementwise with broadcasting."""
    return _relation(pattern, i, j) & (i >= 0) & (j >= 0)


def _relation(pattern: spec.Pattern, i: Tensor, j: Tensor) -> Tensor:
    match pattern:
        case spec.Everyone():
            return torch.ones((), dtype=torch.bool, device=i.device)
        case spec.Causal():
            return j <= i
        case spec.Window(size=size):
            return (j <= i) & (j > i - size)
        case spec.Near(radius=radius):
            return (i - j).abs() <= radius
        case spec.Global(count=count):
            return (i < count) | (j < count)
        case spec.Random(block=block):
            drawn = draws(pattern, i.div(block, rounding_mode="floor"))
            return (drawn == j.div(block, rounding_mode="floor")[..., None]).any(-1)
        case spec.Both(parts=parts):
            allowed = [_relation(part, i, j) for part in parts]
            return torch.stack(torch.broadcast_tensors(*allowed)).all(0)
        case spec.Either(parts=parts):
            allowed = [_relation(part, i, j) for part in parts]
            return torch.stack(torch.broadcast_tensors(*allowed)).any(0)
    raise TypeError(pattern)


def draws(pattern: spec.Random, block: Tensor) -> Tensor:
    """... count: the key blocks that the queries of a block see, drawn below 2 · (block + 1)."""
    number = torch.arange(pattern.count, device=block.device)
    mixed = _mix(_mix(_mix(block[..., None] + 1) ^ (number + 1)) ^ (pattern.seed & 0xFFFFFFFF))
    return mixed % (2 * block[..., None].clamp(min=0) + 2)


def _mix(x: Tensor) -> Tensor:
    """A 32-bit hash (multiply and fold, three rounds), in the low half of 64-bit integers."""
    for factor in (0x7FEB352D, 0x846CA68B, 0x9E3779B1):
        x = ((x ^ (x >> 16)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 15)


@dataclass(frozen=True)
class Visible:
    """A pattern on actual positions, computed only as far as a kernel asks."""

    pattern: spec.Pattern
    queries: Places
    keys: Places

    def dense(self) -> Tensor:
        """b 1 t s: True where the query may see the key."""

        def compute() -> Tensor:
            i, j = self.queries.index[:, None, :, None], self.keys.index[:, None, None, :]
            return sees(self.pattern, i, j)

        own = self.keys is self.queries  # not named in its own memory, or it would keep itself alive
        return self.queries.once((self.pattern, None if own else self.keys), compute)

    def everything(self) -> bool:
        """Known without looking: every query sees every key."""
        start, known = self.queries.start, self.keys.start is not None
        if isinstance(self.pattern, spec.Everyone) and self.queries.full and self.keys.full:
            return True
        if start is None or not known:
            return False
        last = self.keys.start + self.keys.length - 1  # type: ignore[operator]
        return isinstance(self.pattern, spec.Everyone) or (self._all_before() and start >= last)

    def _all_before(self) -> bool:
        """Known without looking: a query sees all keys up to itself. A window does that may hold them all."""
        if isinstance(self.pattern, spec.Window) and self.queries.start is not None and self.keys.start is not None:
            return self.queries.start + self.queries.length - self.keys.start <= self.pattern.size
        return isinstance(self.pattern, spec.Causal)

    def lower_triangle(self) -> bool:
        """Known without looking: query n sees keys 0 to n and there are as many keys as queries."""
        return (
            self._all_before()
            and self.queries.start is not None
            and self.queries.start == self.keys.start
            and self.queries.length == self.keys.length
        )
