"""Steps of a search, one after the other: the rows, what they see and what is found of them stay where they are, so that
a step is a few numbers that change and one call."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from clearformer.kernels.native import isa
from clearformer.kernels.native.launch import Room, at, start
from clearformer.kernels.native.topk import scratch

if TYPE_CHECKING:
    from clearformer.kernels.native.fused_step import FusedStep

Array = np.ndarray
MIN_ROWS, MIN_CELLS, MIN_KEEP = 64, 128, 16


class StepRunner:
    """Runs a fused step on up to as many rows as were ever asked for; fill the arrays, then `run`."""

    def __init__(self, fused: "FusedStep", width: int, addresses: Array):
        self.fused, self.program, self.width, self.addresses = fused, fused.program, width, addresses
        self.rows = self.ranked = self.longest = self.keep = self.threads = 0
        self.reserve(MIN_ROWS, MIN_ROWS, MIN_CELLS, MIN_KEEP, 1)

    def reserve(self, rows: int, ranked: int, longest: int, keep: int, threads: int) -> None:
        """Make room, where there is less, for so many rows that see so many cells, and so many best of those ranked."""
        grown = [
            have if have >= want else max(want, 1 << (want - 1).bit_length())
            for have, want in (
                (self.rows, rows), (self.ranked, ranked), (self.longest, longest), (self.keep, keep),
                (self.threads, threads),
            )
        ]  # fmt: skip
        if grown == [self.rows, self.ranked, self.longest, self.keep, self.threads]:
            return
        self.rows, self.ranked, self.longest, self.keep, self.threads = grown
        program, most = self.program, self.rows
        floats = max(program.attend_scratch(self.longest), scratch(self.ranked))
        self.room = Room(program, most, floats, self.threads)
        self.states = torch.empty(most, isa.stride(self.width))
        self.ids, self.positions = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
        self.cells = np.zeros(most, dtype=np.int32)
        self.heat = np.ones(most, dtype=np.float32)
        self.spans = [np.zeros((most, isa.SPAN), dtype=np.int64) for _ in range(1 + len(program.patterns))]
        numbers = self.threads * self.ranked * self.keep
        self.numbers, self.places = np.empty(numbers, dtype=np.float32), np.empty(numbers, dtype=np.int64)
        self.totals = np.empty((self.ranked, -(-self.fused.outputs // isa.TOPK_BLOCK), 3), dtype=np.float32)
        fields, buffers = self.room.fields, self.room.buffers
        fields[isa.IDS], fields[isa.POSITIONS], fields[isa.CELLS] = at(self.ids), at(self.positions), at(self.cells)
        for number, spans in enumerate(self.spans):
            fields[isa.SPANS + number] = at(spans)
        self.room.keys[:] = self.addresses
        buffers[isa.STATES] = self.states.data_ptr()
        buffers[isa.NUMBERS : isa.TOTALS + 1] = at(self.numbers), at(self.places), at(self.totals)
        fields[isa.OPERATIONS] = len(program.operations)

    def run(
        self, rows: int, ranked: int, keep: int, longest: int, threads: int, heated: bool, whole: bool
    ) -> tuple[Array, Array, Array, Array | None]:
        """Of the ranked rows, which are the first: the best logits and their tokens, the largest with both sums, and all
        logits if `whole`. What is given is overwritten by the next run."""
        fields = self.room.fields
        logits = np.empty((ranked, self.fused.outputs), dtype=np.float32) if whole else None
        self.room.buffers[isa.LOGITS] = 0 if logits is None else at(logits)
        fields[isa.ROWS], fields[isa.RANKED], fields[isa.KEEP] = rows, ranked, keep
        fields[isa.HEAT] = at(self.heat) if heated else 0
        fields[isa.PROGRAM] = self.program.table(longest)
        start(self.room, threads)
        size = ranked * keep
        numbers, places = self.numbers[:size].reshape(ranked, keep), self.places[:size].reshape(ranked, keep)
        return numbers, places, self.totals[:ranked, 0], logits
