"""A stack's modules as a program of the machine, and the reasons why some stacks cannot be one."""

import torch
from torch import Tensor, nn

from clearformer import spec
from clearformer.core import feedforward
from clearformer.core.attention import Attention
from clearformer.core.block import RMSNorm
from clearformer.core.embed import Tokens
from clearformer.core.kv import Fresh
from clearformer.core.model import Stack
from clearformer.core.positions import ALiBi, Buckets, Learned, Relative, Rotary, Sinusoid, scaled_frequencies, sinusoid
from clearformer.kernels.int8 import Matrix, MatrixLinear
from clearformer.kernels.native import isa
from clearformer.kernels.native.isa import GATES, INNER, MIXED, NEW_KEYS, NEW_VALUES, NORMED, QUERIES, STATES, stride
from clearformer.kernels.native.program import Grow, Program, eps_of

SPANNED = spec.Everyone | spec.Causal | spec.Window | spec.Near


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
    assert isinstance(last, nn.Linear | MatrixLinear)
    return last.out_features


def head_width(layer: Attention) -> int:
    return layer.query.out_features // layer.heads


def compose(stack: Stack, width: int) -> Program:
    """The stack on tokens, or, from the operation `program.given` on, on vectors."""
    program = Program()
    program.buffer(STATES, width)
    _embed(program, stack.embed, width)
    program.given = len(program.operations)
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


def _embed(program: Program, embed: nn.Module, width: int) -> None:
    """The vectors of tokens, where they come from tables only."""
    if not isinstance(embed, Tokens) or not isinstance(embed.positions, Learned | Sinusoid | None):
        return
    table, scale, quads = embed.table, None, False
    if isinstance(table, Matrix):
        table, scale, quads = table.panels, table.scale, table.quads
    side = None if embed.segments is None else embed.segments[0]
    positions = embed.positions.table[embed.positions.offset :] if isinstance(embed.positions, Learned) else None
    parts = {"table": table, "scale": scale, "positions": positions, "side": side}
    fields = {name: program.address(None if part is None else part.contiguous()) for name, part in parts.items()}
    factor = isa.bits(embed.scale)
    number = program.add(isa.Pick(width=width, step=stride(width), factor=factor, quads=int(quads), **fields))
    if isinstance(embed.positions, Sinusoid):
        program.grow(("sinusoid",), number, _waves(embed.positions, width))
    if not isinstance(embed.norm, nn.Identity):
        program.norm(embed.norm, STATES, STATES, width)


def _waves(positions: Sinusoid, width: int) -> Grow:
    def make(length: int) -> tuple[Tensor, str, dict[str, int]]:
        made = sinusoid(torch.arange(length), width, positions.base, positions.layout, torch.empty(0))
        return made.contiguous(), "positions", {}

    return make


def memories(stack: Stack) -> Program:
    """The keys and values of what cross-attention looks at, from the encoder's states, all layers at once."""
    program = Program()
    for number, layer in enumerate(each for each in layers(stack) if isinstance(each, Attention)):
        program.keys.append(layer.key_heads * head_width(layer))
        if layer.source is None:
            if not program.operations:
                program.buffer(STATES, layer.key.in_features)
                program.quantise(layer.key, STATES)
            _new_keys(program, layer, STATES, number, placed=False)
    return program


def _attention(program: Program, layer: Attention, source: int, target: int, more: bool) -> None:
    d, width = head_width(layer), layer.query.out_features
    keys, values = isa.keys(len(program.keys))
    program.keys.append(layer.key_heads * d)
    program.quantise(layer.query, source)
    program.linear(layer.query, source, QUERIES)
    if layer.source is None:
        spans = isa.MEMORY
        program.crossing.add(len(program.keys) - 1)
    else:
        spans = _numbered(program.patterns, layer.pattern)
        _new_keys(program, layer, source, len(program.keys) - 1)
    _turned(program, layer, layer.query_norm, QUERIES, layer.heads)
    program.buffer(MIXED, width)
    sizes = {"heads": layer.heads, "key_heads": layer.key_heads, "head": d, "step": stride(width)}
    shifts = {"scale": isa.bits(layer.kernel.scale), "bias": 0, "bias_step": 0, "bias_centre": 0}
    number = program.add(isa.Attend(QUERIES, MIXED, keys, values, spans=spans, **sizes, **shifts))
    if isinstance(layer.relative, Buckets | ALiBi):
        program.grow(id(layer.relative), number, _biases(layer.relative))
    program.quantise(layer.output, MIXED)
    program.linear(layer.output, MIXED, target, more)


def _new_keys(program: Program, layer: Attention, source: int, number: int, placed: bool = True) -> None:
    """Keys and values of the rows, into the cells of the paged KV cache that a run names."""
    width = layer.key_heads * head_width(layer)
    program.linear(layer.key, source, NEW_KEYS)
    program.linear(layer.value, source, NEW_VALUES)
    _turned(program, layer, layer.key_norm, NEW_KEYS, layer.key_heads, placed)
    for new, target in zip((NEW_KEYS, NEW_VALUES), isa.keys(number), strict=True):
        program.add(isa.Store(new, target, width, stride(width)))


def _numbered(patterns: list[spec.Pattern], pattern: spec.Pattern) -> int:
    """Which list of spans a pattern has: after that of the memory, in order of their appearance."""
    if pattern not in patterns:
        patterns.append(pattern)
    return 1 + isa.MEMORY + patterns.index(pattern)


def _turned(program: Program, layer: Attention, norm: nn.Module, target: int, heads: int, placed: bool = True) -> None:
    """Norm and turn the heads of queries or keys, where the layer does either."""
    turns = layer.relative if placed and isinstance(layer.relative, Rotary) else None
    if not turns and not isinstance(norm, RMSNorm):
        return
    d = head_width(layer)
    step = stride(heads * d)
    weight, eps = (program.address(norm.weight), eps_of(norm)) if isinstance(norm, RMSNorm) else (0, 0)
    interleaved = int(turns is not None and turns.layout == "interleaved")
    number = program.add(isa.Rotate(target, heads, d, step, 0, interleaved, weight, eps))
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
    program.add(isa.Activate(active, other, width, stride(width), isa.ACTIVATIONS[layer.name]))
    program.quantise(layer.down, active)
    program.linear(layer.down, active, target, more)
