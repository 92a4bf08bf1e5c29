"""Where tokens are: the one record that masks, caches, windows and position schemes all read.

A place is a position in the text, and −1 where there is nothing: padding and empty cache slots need no other
mechanism, because nothing sees −1 and −1 sees nothing. A token may also know its path in a dependency tree.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from clearformer.errors import DataError

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Places:
    index: Tensor  # b t (b is 1 where all rows are alike)
    path: Tensor | None = None  # b t p: the ancestors of each token, from the root to itself, then −1
    start: int | None = None  # known to be start, start + 1, ... in every row, with nothing missing
    full: bool = False  # known to have nothing missing, whatever the order
    memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def span(cls, start: int, stop: int, device: torch.device | None = None) -> "Places":
        return cls(torch.arange(start, stop, device=device)[None], start=start)

    @classmethod
    def some(cls, index: Tensor) -> "Places":
        """These places, b t, and nothing missing among them: a part of an image."""
        return cls(index, full=True)

    @classmethod
    def where(cls, mask: Tensor, past: Tensor | int = 0) -> "Places":
        """Number the True cells of each row from `past` on; False is nowhere. Padding may be on any side."""
        if bool(mask.all()) and isinstance(past, int):
            return cls.span(past, past + mask.size(1), mask.device)
        past = past if isinstance(past, int) else past[:, None]
        return cls(torch.where(mask, mask.cumsum(1) - 1 + past, -1))

    @property
    def length(self) -> int:
        return self.index.size(1)

    @property
    def real(self) -> Tensor:
        return self.index >= 0

    def once(self, key: Hashable, compute: Callable[[], Found]) -> Found:
        """What `compute` gives, remembered as long as these places are: layers share masks and angles."""
        if key not in self.memo:
            self.memo[key] = compute()
        return self.memo[key]

    def rows(self, batch: int) -> "Places":
        """The same places with one row for each of the batch."""
        path = self.path if self.path is None else self.path.expand(batch, -1, -1)
        return replace(self, index=self.index.expand(batch, -1), path=path, memo={})

    def select(self, rows: Tensor) -> "Places":
        if self.index.size(0) == 1 and self.start is not None:
            return self
        path = self.path if self.path is None else self.path[rows]
        return replace(self, index=self.index[rows], path=path, memo={})

    def after(self, count: int) -> "Places":
        """The same places without the first `count` of every row, and numbered from the next one on."""
        return Places((self.index - count).clamp(min=-1))

    def then(self, later: "Places") -> "Places":
        """These places followed by later ones."""
        joined = self.start is not None and later.start == self.start + self.length
        batch = max(self.index.size(0), later.index.size(0))
        a, b = (self, later) if joined else (self.rows(batch), later.rows(batch))
        if (a.path is None) != (b.path is None):
            raise DataError("a tree was given for some of the text only; give one for each part")
        path = None if a.path is None or b.path is None else _join_paths(a.path, b.path)
        return Places(torch.cat([a.index, b.index], 1), path, a.start if joined else None)

    def with_trees(self, trees: Sequence[Sequence[int]]) -> "Places":
        """Add dependency trees: for each row the head of every token as CoNLL-U writes it (1 is the first, 0 none).

        A row's tree covers its text from the start, so a later part of a text is given the tree of all so far.
        """
        if len(self.index) != len(trees):
            raise DataError(f"trees: {len(trees)} given for a batch of {len(self.index)}")
        per_row: list[list[list[int]]] = []
        for row, (heads, index) in enumerate(zip(trees, self.index.tolist(), strict=True)):
            length = max(index, default=-1) + 1
            if length and len(heads) != length:
                raise DataError(f"trees[{row}]: {len(heads)} heads given for a text of {length} tokens")
            found = _ancestors(heads, row)
            per_row.append([found[here] if here >= 0 else [] for here in index])
        deepest = max((len(path) for paths in per_row for path in paths), default=0) or 1
        filled = [path + [-1] * (deepest - len(path)) for paths in per_row for path in paths]
        path = torch.tensor(filled, dtype=torch.long, device=self.index.device)
        return replace(self, path=path.view(*self.index.shape, deepest), memo={})

    @property
    def depth(self) -> Tensor:
        """b t: how far each token is from the root of its tree."""
        if self.path is None:
            raise DataError("this model uses dependency trees; pass trees=[[head of each token, 0 for the root], ...]")
        return (self.path >= 0).sum(-1) - 1


def _ancestors(heads: Sequence[int], row: int) -> list[list[int]]:
    paths = []
    for token, head in enumerate(heads):
        path = [token]
        while head != 0:
            if not isinstance(head, int) or not 0 <= head <= len(heads):
                raise DataError(f"trees[{row}]: head {head!r} is no whole number between 0 and {len(heads)}")
            if head - 1 in path:
                raise DataError(f"trees[{row}]: the heads of tokens {sorted(path)} run in a circle; a tree has a root")
            path.append(head - 1)
            head = heads[head - 1]
        paths.append(path[::-1])
    return paths


def _join_paths(a: Tensor, b: Tensor) -> Tensor:
    wide = max(a.size(2), b.size(2))
    a, b = (torch.nn.functional.pad(p, (0, wide - p.size(2)), value=-1) for p in (a, b))
    return torch.cat([a, b], 1)
