"""A program while it is written: its operations, what they point at, and the buffers they need."""

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer import spec
from clearformer.core.block import LayerNorm, RMSNorm
from clearformer.kernels.int8 import Matrix, MatrixLinear
from clearformer.kernels.native import isa
from clearformer.kernels.native.isa import STATES, padded, stride
from clearformer.kernels.packed_float import FloatMatrix

Array = np.ndarray
MAX_SUM = 2**31 - 1  # of a sum
Grow = Callable[[int], tuple[Tensor, str, dict[str, int]]]  # a length → a table, the field for its address, others


@dataclass
class Growing:
    """A table that must be as long as the longest text: how it is made, and which operations point at it."""

    make: Grow
    operations: list[int] = field(default_factory=list)
    length: int = 0


@dataclass(eq=False)
class Program:
    """Operations, what they point at, and the widths of the buffers they need."""

    operations: list[isa.Operation] = field(default_factory=list)
    given: int = 0  # where a run begins that has vectors to begin with
    alive: list[Tensor] = field(default_factory=list)
    widths: dict[int, int] = field(default_factory=dict)  # buffer → numbers a row
    keys: list[int] = field(default_factory=list)  # the width of keys and values of every attention
    crossing: set[int] = field(default_factory=set)  # the numbers of those that look at a memory
    patterns: list[spec.Pattern] = field(default_factory=list)
    growing: dict[Hashable, Growing] = field(default_factory=dict)  # by what a table is made from
    lock: Lock = field(default_factory=Lock)
    ragged: bool = False  # whether rows of some buffer end within a vector
    rooms: list[Any] = field(default_factory=list)  # of runs that are over (`launch`)
    ready: int = 0  # the address of the table of operations
    reach: int = 0  # the longest texts that it is ready for

    def __str__(self) -> str:
        from clearformer.kernels.native.disassemble import listing

        return listing(self)

    @property
    def layers(self) -> int:
        return max(1, len(self.keys))

    @cached_property
    def arena(self) -> list[tuple[int, int]]:
        """The buffers that a run makes room for, with their numbers a row."""
        widths = {number: width for number, width in self.widths.items() if number != STATES}
        widths[isa.QUANTISED] = widths.get(isa.QUANTISED, 0) // 2
        return list(widths.items())

    def attend_scratch(self, longest: int) -> int:
        """The floats that a thread needs to look at so many cells: weights of a few rows, and keys turned round."""
        return padded(longest) * self._of_cell

    @cached_property
    def _of_cell(self) -> int:
        heads = [each.head for each in self.operations if isinstance(each, isa.Attend)]
        return isa.QUERY_ROWS + max(heads) if heads else 0

    def copy(self) -> "Program":
        """The same, to be added to."""
        growing = {key: Growing(each.make, list(each.operations)) for key, each in self.growing.items()}
        parts: dict[str, Any] = {"operations": [*self.operations], "alive": [*self.alive], "widths": {**self.widths}}
        return replace(self, **parts, growing=growing, lock=Lock(), rooms=[], ready=0, reach=0)

    def add(self, operation: isa.Operation) -> int:
        self.operations.append(operation)
        return len(self.operations) - 1

    def grow(self, made_from: Hashable, operation: int, make: Grow) -> None:
        """Let an operation point at a table, which it shares with all whose tables are made from the same."""
        self.growing.setdefault(made_from, Growing(make)).operations.append(operation)

    def address(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        self.alive.append(tensor)
        return tensor.data_ptr()

    def buffer(self, number: int, width: int) -> int:
        self.ragged |= width != padded(width)
        self.widths[number] = max(self.widths.get(number, 0), stride(width))
        return number

    def table(self, length: int) -> int:
        """The address of the operations for texts of up to so many tokens. What was outgrown is kept: it may be in
        use."""
        if self.ready and self.reach >= length:
            return self.ready
        with self.lock:
            for each in self.growing.values():
                if each.length < length:
                    each.length = max(length, 2 * each.length, 64)
                    made, name, fields = each.make(each.length)
                    fields[name] = self.address(made)
                    for number in each.operations:
                        self.operations[number] = self.operations[number]._replace(**fields)
            ready = self.address(torch.tensor(isa.table(self.operations), dtype=torch.int64))
            self.ready, self.reach = ready, min((each.length for each in self.growing.values()), default=sys.maxsize)
            return ready

    def linear(self, linear: nn.Module, source: int, target: int, more: bool = False) -> None:
        """Of an input that is quantised already where the matrix is."""
        assert isinstance(linear, MatrixLinear)
        self.product(linear.matrix, linear.bias, source, target, more)

    def product(self, matrix: Matrix | FloatMatrix, bias: Tensor | None, source: int, target: int, more: bool) -> None:
        outputs, inputs = matrix.shape
        weight, scale = matrix.panels, _filled(matrix.scale) if isinstance(matrix, Matrix) else None
        own = target < isa.LOGITS  # others are where they are given
        if own:
            self.buffer(target, outputs)
        bias = torch.zeros(padded(outputs)) if bias is None else _filled(bias.detach())
        addresses = {name: self.address(each) for name, each in (("weight", weight), ("scale", scale), ("bias", bias))}
        sizes = {"inputs": padded(inputs), "outputs": outputs, "source_step": stride(inputs)}
        sizes["target_step"] = stride(outputs) if own else outputs
        grouped = int(isinstance(matrix, Matrix) and matrix.quads)
        self.add(isa.Linear(source=source, target=target, more=int(more), grouped=grouped, **addresses, **sizes))

    def rank(self, logits: isa.Linear) -> None:
        """The largest of what would be logits."""
        self.add(isa.Rank(*logits))
        self.add(isa.Merge(logits.outputs))

    def quantise(self, linear: nn.Module, source: int) -> None:
        """Ready an input for matrices of int8."""
        if isinstance(linear, MatrixLinear) and isinstance(linear.matrix, Matrix):
            self.whole(source, linear.in_features, linear.matrix.quads)

    def whole(self, source: int, width: int, grouped: bool) -> None:
        """Bytes in groups for products of bytes, else as many bits as the sums leave room for."""
        self.buffer(isa.QUANTISED, width)
        scales = 2 * -(-width // isa.GROUP) if grouped else 1
        self.widths[isa.SCALES] = max(self.widths.get(isa.SCALES, 0), scales)
        limit = 127 if grouped else min(2**15 - 1, MAX_SUM // (127 * padded(width)))
        self.add(isa.Quantise(source, width, stride(width), limit, int(grouped)))

    def norm(self, norm: nn.Module, source: int, target: int, width: int, more: bool = False) -> None:
        assert isinstance(norm, LayerNorm | RMSNorm)
        bias = getattr(norm, "bias", None)
        fields = {"weight": self.address(norm.weight), "eps": eps_of(norm), "more": int(more)}
        fields["bias"] = self.address(torch.zeros(width) if bias is None else bias)
        centred = int(isinstance(norm, LayerNorm))
        self.add(isa.Norm(source, target, width, stride(width), centred=centred, **fields))


def eps_of(norm: LayerNorm | RMSNorm) -> int:
    return isa.bits(torch.finfo(torch.float32).eps if norm.eps is None else norm.eps)


def _filled(rows: Tensor) -> Tensor:
    """The same numbers with zeros after each row up to a whole vector."""
    spare = padded(rows.size(-1)) - rows.size(-1)
    return F.pad(rows, (0, spare)) if spare else rows.contiguous()
