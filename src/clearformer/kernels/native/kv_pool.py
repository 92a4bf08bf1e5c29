"""The paged KV cache of an engine: cells of keys and values with a free list and a hard size.

A cell has room for the keys and values of one token in every layer. Which cells a text has, and in which order, is a
list of numbers: texts share cells by sharing numbers, and no key is ever moved.
"""

import numpy as np
import torch

Array = np.ndarray


class KVPool:
    """Cells for layers of these widths (0 for a layer that has none). Memory that was never used costs nothing."""

    def __init__(self, size: int, widths: list[int]):
        self.size = size
        self.layers = [(torch.empty(size, width), torch.empty(size, width)) for width in widths]
        self.free = np.arange(size, dtype=np.int32)[::-1].copy()  # the last used are the first to be used again
        self.left = size
        self.promised = 0  # of those left: reserved for requests that were let in
        self.owner = np.full(size, -1, dtype=np.int64)
        self.high = 0  # no cell from this one on was ever used

    @property
    def addresses(self) -> Array:
        pairs = [[keys.data_ptr(), values.data_ptr()] for keys, values in self.layers]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @property
    def available(self) -> int:
        """Cells that are neither in use nor promised."""
        return self.left - self.promised

    def take(self, owners: Array | int, count: int) -> Array:
        """Promised cells, for one owner each or for one of all."""
        self.left -= count
        self.promised -= count
        cells = self.free[self.left : self.left + count].copy()
        self.owner[cells] = owners
        if count and (top := int(cells.max())) >= self.high:
            self.high = top + 1
        return cells

    def owned(self, owner: int) -> Array:
        return np.flatnonzero(self.owner[: self.high] == owner).astype(np.int32)

    def give_back(self, cells: Array) -> None:
        self.owner[cells] = -1
        self.free[self.left : self.left + len(cells)] = cells
        self.left += len(cells)
