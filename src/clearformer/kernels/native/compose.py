"""A stack's modules as a program of the machine, and the reasons why some stacks cannot be one."""

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer import spec
from clearformer.core import feedforward
from clearformer.core.attention import Attention
from clearformer.core.block import LayerNorm, RMSNorm
from clearformer.core.keys import Fresh
from clearformer.core.model import Stack
from clearformer.core.positions import ALiBi, Buckets, Relative, Rotary, scaled_frequencies
from clearformer.kernels.int8 import Int8Linear, Matrix
from clearformer.kernels.native import layout
from clearformer.kernels.native.layout import GATES, INNER, MIXED, NORMED, QUERIES, STATES, padded

SPANNED = spec.Everyone | spec.Causal | spec.Window | spec.Near
Array = np.ndarray
LARGEST = 2**31 - 1  # of a sum
ZEROS = torch.zeros(16)
Grow = Callable[[int], tuple[Tensor, str, dict[str, int]]]  # a length → a table, the field for its address, others


def reason(stack: Stack) -> str | None:
    """None, or why the machine cannot run a stack as it is."""
    weights = [each for each in [*stack.parameters(), *stack.buffers()] if each.is_floating_point()]
    if any(weight.device.type != "cpu" or weight.dtype != torch.float32 for weight in weights):
        return "weights that are not float32 or int8 on a CPU"
    return unfit(stack)


def unfit(stack: Stack) -> str | None:
    """None, or what a stack has that the machine does not know."""
    if stack.reads_trees:
        return "positions in trees"
    for layer in layers(stack):
        if not isinstance(layer, Attention):
            continue
        if type(layer.relative) not in (Relative, Rotary, Buckets, ALiBi):
            return "positions that are vectors of distances"
        if layer.source is not None and not isinstance(layer.source, Fresh):
            return "compressed keys"
        if not isinstance(layer.pattern, SPANNED):
            return f"pattern {layer.pattern.kind!r}"
        if head_width(layer) % 8:
            return f"heads of width {head_width(layer)}, which is no multiple of 8"
    return None


def layers(stack: Stack) -> list[nn.Module]:
    return [branch.layer for block in stack.blocks for branch in block.branches.values()]


def width_of(stack: Stack) -> int:
    """Of the states that go from block to block."""
    first = layers(stack)[0]
    last = first.output if isinstance(first, Attention) else first.down
    assert isinstance(last, nn.Linear | Int8Linear)
    return last.out_features


def head_width(layer: Attention) -> int:
    return layer.query.out_features // layer.heads


@dataclass
class Growing:
    """A table that must be as long as the longest text: how it is made, and which operations point at it."""

    make: Grow
    operations: list[int] = field(default_factory=list)
    length: int = 0


@dataclass
class Program:
    """Operations, what they point at, and the widths of the buffers they need."""

    operations: list[layout.Operation] = field(default_factory=list)
    alive: list[Tensor] = field(default_factory=list)
    widths: dict[int, int] = field(default_factory=dict)  # buffer → numbers a row
    keys: list[int] = field(default_factory=list)  # the width of keys and values of every attention
    crossing: set[int] = field(default_factory=set)  # the numbers of those that look at a memory
    patterns: list[spec.Pattern] = field(default_factory=list)
    growing: dict[Hashable, Growing] = field(default_factory=dict)  # by what a table is made from
    lock: Lock = field(default_factory=Lock)
    ragged: bool = False  # whether rows of some buffer end within a vector
    rooms: list[Any] = field(default_factory=list)  # of runs that are over (`job`)
    ready: tuple[int, int] | None = None  # the address of the table of operations, and their number
    reach: int = 0  # the longest texts that it is ready for

    @property
    def layers(self) -> int:
        return max(1, len(self.keys))

    @cached_property
    def arena(self) -> list[tuple[int, int]]:
        """The buffers that a run makes room for, with their numbers a row."""
        widths = {number: width for number, width in self.widths.items() if number != STATES}
        widths[layout.QUANTISED] = widths.get(layout.QUANTISED, 0) // 2
        return [*widths.items(), (layout.SCALES, 1)]

    @cached_property
    def bytes_of_keys(self) -> Array:
        """What a cell takes in every layer that writes new ones."""
        widths = [0 if layer in self.crossing else 4 * width for layer, width in enumerate(self.keys)]
        return np.array(widths, dtype=np.int64)[:, None]

    def add(self, operation: layout.Operation) -> int:
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
        self.widths[number] = max(self.widths.get(number, 0), padded(width))
        return number

    def table(self, length: int) -> tuple[int, int]:
        """The program for texts of up to so many tokens: its address, and the number of its operations. What was
        outgrown is kept: it may be in use."""
        if self.ready is not None and self.reach >= length:
            return self.ready
        with self.lock:
            for each in self.growing.values():
                if each.length < length:
                    each.length = max(length, 2 * each.length, 64)
                    made, name, fields = each.make(each.length)
                    fields[name] = self.address(made)
                    for number in each.operations:
                        self.operations[number] = self.operations[number]._replace(**fields)
            ready = self.address(torch.tensor(layout.table(self.operations), dtype=torch.int64)), len(self.operations)
            self.ready, self.reach = ready, min((each.length for each in self.growing.values()), default=sys.maxsize)
            return ready

    def linear(self, linear: nn.Module, source: int, target: int, more: bool = False) -> None:
        """Of an input that is quantised already where the matrix is."""
        assert isinstance(linear, nn.Linear | Int8Linear)
        matrix = linear.matrix if isinstance(linear, Int8Linear) else linear.weight
        self.product(matrix, linear.bias, source, target, more)

    def product(self, matrix: Matrix | Tensor, bias: Tensor | None, source: int, target: int, more: bool) -> None:
        outputs, inputs = matrix.shape
        if isinstance(matrix, Matrix):
            weight, scale = matrix.panels, _filled(matrix.scale)
        else:
            weight, scale = _filled(matrix.detach()), None
        if target < layout.FIRST_KEYS:
            self.buffer(target, outputs)
        bias = torch.zeros(padded(outputs)) if bias is None else _filled(bias.detach())
        addresses = {name: self.address(each) for name, each in (("weight", weight), ("scale", scale), ("bias", bias))}
        addresses["zeros"] = ZEROS.data_ptr()
        step = padded(inputs)
        sizes = {"inputs": step, "outputs": outputs, "source_step": step, "weight_step": step}
        sizes["target_step"] = padded(outputs) if target < layout.FIRST_KEYS else outputs
        self.add(layout.Linear(source=source, target=target, more=int(more), **addresses, **sizes))

    def quantise(self, linear: nn.Module, source: int) -> None:
        """Ready an input for matrices of int8: as many bits as the sums leave room for."""
        if isinstance(linear, Int8Linear):
            self.whole(source, linear.in_features)

    def whole(self, source: int, width: int) -> None:
        self.buffer(layout.QUANTISED, width)
        limit = min(2**15 - 1, LARGEST // (127 * padded(width)))
        self.add(layout.Quantise(source, width, padded(width), limit))

    def norm(self, norm: nn.Module, source: int, target: int, width: int, more: bool = False) -> None:
        assert isinstance(norm, LayerNorm | RMSNorm)
        bias = getattr(norm, "bias", None)
        fields = {"weight": self.address(norm.weight), "eps": _eps(norm), "more": int(more)}
        fields["bias"] = self.address(torch.zeros(width) if bias is None else bias)
        centred = int(isinstance(norm, LayerNorm))
        self.add(layout.Norm(source, target, width, padded(width), centred=centred, **fields))


def _eps(norm: LayerNorm | RMSNorm) -> int:
    return layout.bits(torch.finfo(torch.float32).eps if norm.eps is None else norm.eps)


def _filled(rows: Tensor) -> Tensor:
    """The same numbers with zeros after each row up to a whole vector."""
    spare = padded(rows.size(-1)) - rows.size(-1)
    return F.pad(rows, (0, spare)) if spare else rows.contiguous()


def compose(stack: Stack, width: int) -> Program:
    program = Program()
    program.buffer(STATES, width)
    for block in stack.blocks:
        for branch in block.branches.values():
            source = STATES
            if not isinstance(branch.before, nn.Identity):
                source = program.buffer(NORMED, width)
                program.norm(branch.before, STATES, source, width)
            alone = isinstance(branch.between, nn.Identity)  # then the result is added where it is made
            target = STATES if alone else program.buffer(NORMED, width)
            if isinstance(branch.layer, Attention):
                _attention(program, branch.layer, source, target, alone)
            else:
                _feedforward(program, branch.layer, source, target, alone)
            if not alone:
                program.norm(branch.between, NORMED, STATES, width, more=True)
            if not isinstance(branch.after, nn.Identity):
                program.norm(branch.after, STATES, STATES, width)
    if not isinstance(stack.final, nn.Identity):
        program.norm(stack.final, STATES, STATES, width)
    return program


def memories(stack: Stack) -> Program:
    """The keys and values of what cross-attention looks at, from the encoder's states, all layers at once."""
    program = Program()
    for number, layer in enumerate(each for each in layers(stack) if isinstance(each, Attention)):
        program.keys.append(layer.key_heads * head_width(layer))
        if layer.source is None:
            if not program.operations:
                program.buffer(STATES, layer.key.in_features)
                program.quantise(layer.key, STATES)
            new_keys, new_values, _, _ = layout.keys(number)
            program.linear(layer.key, STATES, new_keys)
            program.linear(layer.value, STATES, new_values)
            _turned(program, layer, layer.key_norm, new_keys, layer.key_heads, placed=False)
    return program


def _attention(program: Program, layer: Attention, source: int, target: int, more: bool) -> None:
    d, width = head_width(layer), layer.query.out_features
    new_keys, new_values, keys, values = layout.keys(len(program.keys))
    program.keys.append(layer.key_heads * d)
    program.quantise(layer.query, source)
    program.linear(layer.query, source, QUERIES)
    if layer.source is None:
        spans = layout.MEMORY
        program.crossing.add(len(program.keys) - 1)
    else:
        spans = _numbered(program.patterns, layer.pattern)
        program.linear(layer.key, source, new_keys)
        program.linear(layer.value, source, new_values)
        _turned(program, layer, layer.key_norm, new_keys, layer.key_heads)
    _turned(program, layer, layer.query_norm, QUERIES, layer.heads)
    program.buffer(MIXED, width)
    sizes = {"heads": layer.heads, "key_heads": layer.key_heads, "head": d, "step": padded(width)}
    shifts = {"scale": layout.bits(layer.kernel.scale), "bias": 0, "bias_step": 0, "bias_centre": 0}
    number = program.add(layout.Attend(QUERIES, MIXED, keys, values, spans=spans, **sizes, **shifts))
    if isinstance(layer.relative, Buckets | ALiBi):
        program.grow(id(layer.relative), number, _biases(layer.relative))
    program.quantise(layer.output, MIXED)
    program.linear(layer.output, MIXED, target, more)


def _numbered(patterns: list[spec.Pattern], pattern: spec.Pattern) -> int:
    """Which list of spans a pattern has: after that of the memory, in order of their appearance."""
    if pattern not in patterns:
        patterns.append(pattern)
    return 1 + layout.MEMORY + patterns.index(pattern)


def _turned(program: Program, layer: Attention, norm: nn.Module, target: int, heads: int, placed: bool = True) -> None:
    """Norm and turn the heads of queries or keys, where the layer does either."""
    turns = layer.relative if placed and isinstance(layer.relative, Rotary) else None
    if not turns and not isinstance(norm, RMSNorm):
        return
    d = head_width(layer)
    step = padded(heads * d) if target == QUERIES else heads * d
    weight, eps = (program.address(norm.weight), _eps(norm)) if isinstance(norm, RMSNorm) else (0, 0)
    interleaved = int(turns is not None and turns.layout == "interleaved")
    number = program.add(layout.Rotate(target, heads, d, step, 0, interleaved, weight, eps))
    if turns:
        program.grow((turns.base, turns.scaling, d), number, _angles(turns, d))


def _angles(relative: Rotary, d: int) -> Grow:
    def make(length: int) -> tuple[Tensor, str, dict[str, int]]:
        speed = scaled_frequencies(relative.base, relative.scaling, d, torch.empty(0))
        angles = torch.arange(length)[:, None] * speed
        return torch.cat([angles.cos(), angles.sin()], 1), "angles", {}

    return make


def _biases(relative: Buckets | ALiBi) -> Grow:
    def make(length: int) -> tuple[Tensor, str, dict[str, int]]:
        away = torch.arange(-length + 1, length)
        if isinstance(relative, Buckets):
            made = relative.table.detach()[relative.bucket(away)].T
        else:
            made = -relative.slopes[:, None] * away.abs()
        return made.contiguous(), "bias", {"bias_step": 2 * length - 1, "bias_centre": length - 1}

    return make


def _feedforward(program: Program, layer: nn.Module, source: int, target: int, more: bool) -> None:
    assert isinstance(layer, feedforward.Plain | feedforward.Gated)
    gated = isinstance(layer, feedforward.Gated)
    width = layer.up.out_features
    program.buffer(INNER, width)
    program.quantise(layer.up, source)
    if isinstance(layer, feedforward.Gated):
        program.buffer(GATES, width)
        program.linear(layer.gate, source, GATES)
    program.linear(layer.up, source, INNER)
    active, other = (GATES, INNER) if gated else (INNER, -1)
    program.add(layout.Activate(active, other, width, padded(width), layout.ACTIVATIONS[layer.name]))
    program.quantise(layer.down, active)
    program.linear(layer.down, active, target, more)
