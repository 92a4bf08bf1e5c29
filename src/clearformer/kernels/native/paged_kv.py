"""Where keys and values lie: in cells, one a token, with a list of cells for every text.

To choose among hypotheses is to copy lists, never keys; a text needs no padding to lie beside a longer one.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from clearformer import spec
from clearformer.core.model import Context, Encoded, EncoderDecoder, Transformer
from clearformer.core.places import Places
from clearformer.kernels.native import isa
from clearformer.kernels.native.fused_step import fused_step
from clearformer.kernels.native.isa import stride
from clearformer.kernels.native.launch import Array, Job, at, wide
from clearformer.kernels.native.topk import Ranking, scratch

if TYPE_CHECKING:
    from clearformer.kernels.native.stack import NativeStack

MIN_CELLS = 128  # cells of a text to begin with: memory that is not used yet costs nothing


class Texts:
    """The new tokens of a batch, row by row without padding: of which text each is, and where in it."""

    def __init__(self, text: Array, position: Array, count: Array):
        self.text, self.position, self.count = text, position, count

    @classmethod
    def of(cls, places: Places, batch: int) -> "Texts":
        length = places.length
        if places.start is not None and length == 1:
            return cls(np.arange(batch), np.full(batch, places.start), np.ones(batch, dtype=np.int64))
        if places.start is not None:
            position = np.tile(np.arange(places.start, places.start + length), batch)
            return cls(np.repeat(np.arange(batch), length), position, np.full(batch, length))
        index = places.index.numpy()
        real = index >= 0
        return cls(np.nonzero(real)[0], index[real], real.sum(1))


class Runs:
    """Lists of cells for texts that lie one after the other."""

    def __init__(self, count: Array):
        self.count = count
        self.start = np.cumsum(count) - count
        self.cells = np.arange(int(count.sum()), dtype=np.int32)

    def addresses(self, texts: Texts) -> Array:
        return at(self.cells) + 4 * self.start[texts.text]


class Cells(Context):
    """The keys and values of all texts of a batch; if not cached, for one run only."""

    stack: "NativeStack"

    def __init__(self, stack: "NativeStack", encoded: Encoded | None, cached: bool):
        self.stack, self.cached, self.program = stack, cached, stack.program
        self.past: Tensor | int = 0
        self.batch = None if encoded is None else len(encoded.states)
        layers, nothing = len(self.program.keys), torch.empty(0, 0)
        self.found = [(nothing, nothing)] * layers  # keys and values of every layer, by cell
        self.first = self.used = self.room = 0  # cells: the first of the new tokens, those in use, and all
        self.addresses = np.zeros((0, 2), dtype=np.int64)  # of the keys and values of every layer
        self.length = np.zeros(0, dtype=np.int64)  # of every text
        self.table = np.zeros((0, 0), dtype=np.int32)  # the list of every text
        self.runs: Runs | None = None  # the lists, where nothing is cached
        self.memory: Runs | None = None
        if encoded is not None:
            self._remember(encoded)

    @property
    def longest(self) -> int:
        """What a row may see at most."""
        seen = int(self.length.max(initial=1))
        return seen if self.memory is None else max(seen, int(self.memory.count.max(initial=1)))

    def _remember(self, encoded: Encoded) -> None:
        """Keys and values of the encoder's output for every cross-attention, all at once."""
        states, places = encoded
        texts = Texts.of(places, len(states))
        rows = states.flatten(0, 1) if places.start is not None else states[places.real]
        job, self.memory = Job(self.stack.memories, wide(rows)), Runs(texts.count)
        for layer in self.program.crossing:
            self.found[layer] = _pair(len(rows), self.program.keys[layer])
        job.keys(self._addresses(), self.memory.cells)
        job.run(texts.position)

    def take(self, texts: Texts) -> None:
        """Cells for new tokens, after those in use, and their numbers in the lists."""
        if not self.cached or not len(self.length):
            self.length, self.used = np.zeros(len(texts.count), dtype=np.int64), 0
        self.first, self.used = self.used, self.used + len(texts.text)
        self.length = self.length + texts.count
        if not self.cached:
            self.runs = Runs(texts.count)
            pairs = {width: _pair(self.used, width) for width in set(self.program.keys)}  # layers take turns in them
            for layer, width in enumerate(self.program.keys):
                if layer not in self.program.crossing:
                    self.found[layer] = pairs[width]
            self.addresses = self._addresses()
            return
        self._make_room()
        self.table[texts.text, texts.position] = np.arange(self.first, self.used, dtype=np.int32)

    def _make_room(self) -> None:
        """Twice as much when there is too little, so that a step seldom copies anything."""
        if self.room < self.used:
            self.room = max(2 * self.first, self.used + MIN_CELLS * len(self.length))
            for layer, pair in enumerate(self.found):
                if layer not in self.program.crossing:
                    grown = _pair(self.room, self.program.keys[layer])
                    for new, old in zip(grown, pair, strict=True):
                        new[: self.first] = old[: self.first].view(self.first, new.size(1))
                    self.found[layer] = grown
            self.addresses = self._addresses()
        rows, longest = len(self.length), int(self.length.max(initial=0))
        if self.table.shape[1] < longest or len(self.table) != rows:
            table = np.zeros((rows, max(2 * longest, MIN_CELLS)), dtype=np.int32)
            table[: len(self.table), : self.table.shape[1]] = self.table
            self.table = table

    def _addresses(self) -> Array:
        return np.array([[keys.data_ptr(), values.data_ptr()] for keys, values in self.found], dtype=np.int64)

    def show(self, job: Job, texts: Texts) -> None:
        """Tell a job where keys and values are, and which of them every row sees."""
        job.keys(self.addresses, np.arange(self.first, self.used, dtype=np.int32))
        if self.memory is not None:
            job.sees(isa.MEMORY, self.memory.addresses(texts), 0, self.memory.count[texts.text])
        if self.runs is not None:
            lists = self.runs.addresses(texts)
        else:
            lists = at(self.table) + 4 * self.table.shape[1] * texts.text
        for number, pattern in enumerate(self.program.patterns, 1 + isa.MEMORY):
            job.sees(number, lists, *span(pattern, texts.position, self.length[texts.text]))

    def best(
        self, model: Transformer | EncoderDecoder, tokens: Tensor, count: int, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As ever; one more token of every text is one run of one program."""
        batch, fused = len(tokens), fused_step(self.stack, model.head) if self.cached and count > 0 else None
        position = self.length if len(self.length) else np.zeros(batch, dtype=np.int64)
        one = mask is None and tokens.shape == (len(position), 1) and tokens.dtype in (torch.int64, torch.int32)
        ids = self.stack.ids(tokens, position) if one and self.stack in model.children() else None
        if fused is None or ids is None:
            return super().best(model, tokens, count, mask)
        self.check(self.stack, batch)
        texts = Texts(np.arange(batch), position, np.ones(batch, dtype=np.int64))
        self.take(texts)
        job = Job(fused.program, torch.empty(batch, stride(self.stack.width)), self.longest, scratch(batch))
        self.show(job, texts)
        job.ids(ids)
        ranking = Ranking(job, count, fused.outputs, batch)
        job.run(position)
        self.past = self.past + 1
        return ranking.best()

    def select(self, rows: Tensor) -> None:
        chosen = rows.numpy()
        self.past = self.past if isinstance(self.past, int) else self.past[rows]
        self.batch = len(rows)
        if len(self.length):
            self.table, self.length = self.table[chosen], self.length[chosen]
        if self.memory is not None:
            self.memory.count, self.memory.start = self.memory.count[chosen], self.memory.start[chosen]


def _pair(cells: int, width: int) -> tuple[Tensor, Tensor]:
    return torch.empty(cells, width), torch.empty(cells, width)


def span(pattern: spec.Pattern, position: Array, length: Array) -> tuple[Array | int, Array]:
    """The first position that each row sees, and the first after it that it does not."""
    match pattern:
        case spec.Causal():
            return 0, position + 1
        case spec.Window(size=size):
            return np.maximum(position - size + 1, 0), position + 1
        case spec.Near(radius=radius):
            return np.maximum(position - radius, 0), np.minimum(position + radius + 1, length)
    return 0, length
