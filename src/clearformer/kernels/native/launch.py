"""One run of a program: its buffers, what its rows see, and the start of its threads."""

import numpy as np
import torch
from torch import Tensor

from clearformer.kernels.native import isa
from clearformer.kernels.native.isa import FIRST_KEYS, STATES, padded, stride
from clearformer.kernels.native.program import Program
from clearformer.kernels.native.runtime import machine

Array = np.ndarray
NO_POSITIONS = np.zeros(1, dtype=np.int64)
KEPT_ROWS = 1024  # rows of a run whose room is kept for the next
KEPT_ROOMS = 4  # rooms of a program
MIN_CELLS = 64  # cells that a row of such a run may see


def wide(rows: Tensor) -> Tensor:
    """Rows as the machine wants them: whole vectors, one row after the other."""
    spare = stride(rows.size(1)) - rows.size(1)
    return torch.nn.functional.pad(rows, (0, spare)) if spare else rows.contiguous()


def at(array: Array) -> int:
    """The address of an array; `array.ctypes.data` says the same and takes five times as long."""
    return array.__array_interface__["data"][0]


class Room:
    """What a run of a program needs beside its rows: the fields of the job, the buffers and their addresses."""

    def __init__(self, program: Program, rows: int, longest: int, threads: int):
        self.rows, self.threads, self.longest = rows, threads, longest
        scratch = isa.MIN_SCRATCH + padded(longest)
        self.fields = np.zeros(isa.SPANS + 1 + len(program.patterns), dtype=np.int64)
        self.buffers = np.zeros(FIRST_KEYS + 2 * program.layers, dtype=np.int64)
        make = torch.zeros if program.ragged else torch.empty  # what fills up a vector must be zeros, and stays so
        self.memory = make(rows * sum(width for _, width in program.arena) + threads * scratch)
        address = self.memory.data_ptr()
        for number, width in program.arena:
            self.buffers[number], address = address, address + 4 * rows * width
        self.fields[isa.CODES : isa.PROGRAM] = at(machine().codes), rows, threads, at(self.buffers), address, scratch
        self.keys = self.buffers[FIRST_KEYS:].reshape(-1, 2)  # of every layer
        self.at = at(self.fields)

    def fits(self, rows: int, longest: int, threads: int) -> bool:
        return rows <= self.rows and self.threads == threads and longest <= self.longest


def start(room: Room, threads: int) -> None:
    """Run the program that the fields of a room say, with so many threads, or one while others use the cores."""
    if threads > 1:
        team = machine().team(threads)
        room.fields[isa.THREADS] = size = team.size()
        room.fields[isa.ARRIVED] = team.arrivals()
        if size > 1:
            team.run(room.at)
            return
    room.fields[isa.THREADS] = 1
    machine().alone(room.at, None, 0)


class Job:
    """A program on some rows, which it changes in place. What a row sees has at most `longest` cells."""

    def __init__(self, program: Program, rows: Tensor, longest: int = 1, scratch: int = 0):
        self.program, self.rows, self.longest, self.count = program, rows, longest, rows.size(0)
        threads, scratch = machine().threads, max(program.attend_scratch(longest), scratch)
        room = program.rooms.pop() if program.rooms else None  # the last run's, unless another thread has it
        if room is None or not room.fits(self.count, scratch, threads):
            few = self.count <= KEPT_ROWS
            most = 1 << (self.count - 1).bit_length() if few and self.count else self.count  # the next may have more
            room = Room(program, most, max(2 * scratch, MIN_CELLS) if few else scratch, threads)
        self.room, self.buffers = room, room.buffers
        self.alive: list[Array] = []

    def keys(self, addresses: Array, cells: Array) -> None:
        """Where keys and values are, for each layer two addresses; and the cells, int32, of those of the rows."""
        self.room.keys[:] = addresses
        self._field(isa.CELLS, cells)

    def sees(self, number: int, lists: Array, first: Array | int, last: Array) -> None:
        """For each row the address of a list of cells and the part of it that the row sees."""
        spans = np.empty((len(lists), isa.SPAN), dtype=np.int64)
        spans[:, 0], spans[:, 1], spans[:, 2] = lists, first, last
        self._field(isa.SPANS + number, spans)

    def ranks(self, rows: int, keep: int, heat: Array | None = None) -> None:
        """So many of the first rows are ranked, and so many numbers of each kept."""
        self.room.fields[isa.RANKED], self.room.fields[isa.KEEP], self.room.fields[isa.HEAT] = rows, keep, 0
        if heat is not None:
            self._field(isa.HEAT, heat)

    def ids(self, ids: Array) -> None:
        """The tokens of the rows."""
        self._field(isa.IDS, ids)

    def _field(self, number: int, array: Array) -> None:
        self.alive.append(array)
        self.room.fields[number] = at(array)

    def run(self, positions: Array | None = None, first: int = 0) -> None:
        """The operations from the first on."""
        if not self.count:
            return
        room = self.room
        room.fields[isa.ROWS] = self.count
        self._field(
            isa.POSITIONS, NO_POSITIONS if positions is None else np.ascontiguousarray(positions, dtype=np.int64)
        )
        room.fields[isa.PROGRAM] = self.program.table(self.longest) + 8 * isa.WIDTH * first
        room.fields[isa.OPERATIONS] = len(self.program.operations) - first
        room.buffers[STATES] = self.rows.data_ptr()
        start(room, room.threads)
        if self.count <= KEPT_ROWS and len(self.program.rooms) < KEPT_ROOMS:  # a step is followed by another
            self.program.rooms.append(room)
