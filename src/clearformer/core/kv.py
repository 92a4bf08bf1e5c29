"""Where keys and values come from: the one answer to training, caches, cross-attention and compression.

Attention calls its source with itself, the states and their places, and is given keys, values and *their* places.
`Fresh` and `Compressed` belong to the model; `Cached` and `Memory` hold a text's state and belong to whoever
decodes, so that one model can serve many texts at once.
"""

from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.places import Places
from clearformer.core.step import step
from clearformer.errors import DataError

if TYPE_CHECKING:
    from clearformer.core.attention import Attention

Found = tuple[Tensor, Tensor, Places]


class Keys(Protocol):
    def __call__(self, attention: "Attention", x: Tensor, places: Places) -> Found: ...


class Fresh(nn.Module):
    """The states themselves: self-attention in training."""

    def forward(self, attention: "Attention", x: Tensor, places: Places) -> Found:
        return attention.k(x, places), attention.v(x), places


class Cached:
    """The KV cache: the states appended to all that came before, for self-attention step by step."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None  # b g capacity d
        self.values: Tensor | None = None
        self.places: Places | None = None

    def __call__(self, attention: "Attention", x: Tensor, places: Places) -> Found:
        k, v = attention.k(x, places), attention.v(x)
        past, before = self.places, 0 if self.places is None else self.places.length
        # once for all layers, so that they share what is computed from it: masks, angles
        self.places = places if past is None else places.once(("after", past), lambda: past.then(places))
        self.keys, self.values = _append(self.keys, k, before), _append(self.values, v, before)
        now = self.places.length
        return self.keys[:, :, :now], self.values[:, :, :now], self.places

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order: what beam search asks."""
        if self.keys is not None and self.values is not None and self.places is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
            self.places = _selected(self.places, rows)


def _selected(places: Places, rows: Tensor) -> Places:
    return places.once(("rows", rows), lambda: places.select(rows))


def _append(buffer: Tensor | None, new: Tensor, before: int) -> Tensor:
    """Write after `before`, doubling the buffer when it is full, so that a step costs no copy of the past."""
    after = before + new.size(2)
    if new.requires_grad:  # gradients flow through a new tensor, not through one that is written to again
        return new if buffer is None else torch.cat([buffer[:, :, :before], new], 2)
    if buffer is None or buffer.size(2) < after:
        grown = new.new_empty(*new.shape[:2], max(2 * before, after, 16), new.size(3))
        if buffer is not None:
            grown[:, :, :before] = buffer[:, :, :before]
        buffer = grown
    buffer[:, :, before:after] = new
    return buffer


class Memory:
    """The encoder's output, projected on first use: the KV cache of cross-attention."""

    def __init__(self, states: Tensor, places: Places):
        self.states, self.places = states, places
        self.found: tuple[Tensor, Tensor] | None = None

    def __call__(self, attention: "Attention", x: Tensor, places: Places) -> Found:
        if self.found is None:
            self.found = attention.k(self.states, self.places), attention.v(self.states)
        return *self.found, self.places

    def select(self, rows: Tensor) -> None:
        self.states, self.places = self.states[rows], _selected(self.places, rows)
        if self.found is not None:
            self.found = self.found[0][rows], self.found[1][rows]


class Compressed(nn.Module):
    """Linformer: keys and values summed over the length axis with learned weights, E K and F V.

    Row r of the result is Σ_j E[r, position of j] k_j; padding has no position and adds nothing.
    """

    def __init__(self, length: int, rank: int, shared: bool):
        super().__init__()
        self.length = length
        self.key_map = nn.Parameter(torch.empty(length, rank))
        self.value_map = self.key_map if shared else nn.Parameter(torch.empty(length, rank))

    def forward(self, attention: "Attention", x: Tensor, places: Places) -> Found:
        k, v = attention.k(x, places), attention.v(x)
        rank = self.key_map.size(1)
        some = places.real.any(1, keepdim=True)
        there = Places(torch.where(some, torch.arange(rank, device=x.device), -1))
        if places.start is not None:
            there = Places.span(0, rank, x.device)
        return self.short_k(k, places), self.short_v(v, places), there

    @step("b g r d")
    def short_k(self, k: Tensor, places: Places) -> Tensor:
        return self._rows(self.key_map, places) @ k

    @step("b g r d")
    def short_v(self, v: Tensor, places: Places) -> Tensor:
        return self._rows(self.value_map, places) @ v

    def _rows(self, table: Tensor, places: Places) -> Tensor:
        try:
            rows = F.embedding(places.index.clamp(min=0), table)
        except IndexError:
            longest = int(places.index.max()) + 1
            raise DataError(
                f"the text has {longest} tokens and compressed attention is built for {self.length};"
                " shorten the text, or build the model with a greater length"
            ) from None
        return rows.masked_fill(~places.real[..., None], 0.0).mT[:, None]  # b 1 r s
