"""One run of a program: its buffers, what its rows see, and the start of its threads."""

import numpy as np
import torch
from torch import Tensor

from clearformer.kernels.native import layout
from clearformer.kernels.native.build import machine
from clearformer.kernels.native.compose import Program
from clearformer.kernels.native.layout import FIRST_KEYS, STATES, padded

Array = np.ndarray


def wide(rows: Tensor) -> Tensor:
    """Rows as the machine wants them: whole vectors, one row after the other."""
    spare = padded(rows.size(1)) - rows.size(1)
    return torch.nn.functional.pad(rows, (0, spare)) if spare else rows.contiguous()


class Job:
    """A program on some rows, which it changes in place. What a row sees has at most `longest` cells."""

    def __init__(self, program: Program, rows: Tensor, longest: int = 1):
        self.program, self.rows, self.longest, self.machine = program, rows, longest, machine()
        self.fields = np.zeros(layout.SPANS + 1 + len(program.patterns), dtype=np.int64)
        self.buffers = np.zeros(FIRST_KEYS + 4 * program.layers, dtype=np.int64)
        self.alive: list[Array] = []

    def keys(self, addresses: Array, first: int) -> None:
        """Where keys and values are, for each layer two addresses; new ones are written from cell `first` on."""
        places = self.buffers[FIRST_KEYS:].reshape(-1, 2, 2)
        places[:, 1] = addresses
        places[:, 0] = addresses + first * self.program.bytes_of_keys

    def sees(self, number: int, lists: Array, first: Array | int, last: Array) -> None:
        """For each row the address of a list of cells and the part of it that the row sees."""
        spans = np.empty((len(lists), layout.SPAN), dtype=np.int64)
        spans[:, 0], spans[:, 1], spans[:, 2] = lists, first, last
        self.alive.append(spans)
        self.fields[layout.SPANS + number] = spans.ctypes.data

    def run(self, positions: Array | None = None) -> None:
        rows, threads = len(self.rows), self.machine.threads
        if not rows:
            return
        table, arena = self.program.table(self.longest), self.program.arena
        scratch = max(self.longest, layout.LEAST_SCRATCH)
        make = torch.zeros if self.program.ragged else torch.empty  # what fills up a vector must be zeros
        room = make(rows * sum(width for _, width in arena) + threads * scratch)
        self.buffers[STATES], at = self.rows.data_ptr(), room.data_ptr()
        for number, width in arena:
            self.buffers[number], at = at, at + 4 * rows * width
        where = np.zeros(1, dtype=np.int64) if positions is None else np.ascontiguousarray(positions, dtype=np.int64)
        self.fields[: layout.SPANS] = (
            table.data_ptr(), len(table), self.machine.codes.ctypes.data, rows, threads, self.machine.thread,
            self.machine.barrier,
            self.buffers.ctypes.data, at, scratch, where.ctypes.data,
        )  # fmt: skip
        self.machine.start(self.fields.ctypes.data, threads)
