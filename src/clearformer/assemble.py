"""Spec → model. The only place that names module classes and picks kernels."""

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from clearformer import spec
from clearformer.core import block, embed, feedforward, heads, kv, model, positions
from clearformer.core.attention import Attention
from clearformer.core.kernel import Kernel, Reference
from clearformer.errors import KernelError, SpecError, nearest
from clearformer.kernels import linear
from clearformer.kernels.dropout import Dropout
from clearformer.kernels.fused import Fused
from clearformer.kernels.sparse import Sparse

Model = model.Transformer | model.EncoderDecoder
Layer = spec.SelfAttention | spec.CrossAttention
KERNELS: dict[str, type[Kernel]] = {kernel.name: kernel for kernel in (Sparse, Fused, Reference)}  # best first


def build(what: spec.Transformer | spec.EncoderDecoder, *, kernel: str = "auto", seed: int | None = None) -> Model:
    """A model with fresh weights, drawn from `seed` or, without one, from PyTorch's generator.

    `kernel` is `auto` or the name of one that every layer must fit. Under `torch.device("meta")` nothing is allocated.
    """
    built = assemble(what, kernel)
    _initialise(built, torch.Generator().manual_seed(seed) if seed is not None else None)
    return built.eval()


def assemble(what: spec.Transformer | spec.EncoderDecoder, kernel: str = "auto") -> Model:
    """The model with its weights allocated but not filled."""
    if kernel not in ("auto", *KERNELS):
        raise KernelError(f"unknown kernel {kernel!r}{nearest(str(kernel), ['auto', *KERNELS])}")
    if not isinstance(what, spec.Transformer | spec.EncoderDecoder):
        raise SpecError(f"a spec is needed, such as presets.bert('base'), given {type(what).__name__}")
    if isinstance(what, spec.Transformer):
        stack = _stack(what.stack, kernel)
        return model.Transformer(what, stack, _head(what.head, stack, what.stack.width))
    table = _table(what.encoder.embed, what.encoder.width) if what.shared else None
    encoder = _stack(what.encoder, kernel, table)
    decoder = _stack(what.decoder, kernel, table, memory=what.encoder.width)
    return model.EncoderDecoder(what, encoder, decoder, _head(what.head, decoder, what.decoder.width))


def count_parameters(what: spec.Transformer | spec.EncoderDecoder) -> int:
    """How many numbers the model learns; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in assemble(what).parameters())


@dataclass(frozen=True)
class Choice:
    """The kernel a layer runs on, and why not each of the others that were better."""

    address: str
    kernel: str
    instead_of: dict[str, str]

    def __str__(self) -> str:
        return f"{self.address}: {self.kernel}" + "".join(f"; not {k}: {why}" for k, why in self.instead_of.items())


def kernels_of(built: Model) -> list[Choice]:
    """What every attention of a model runs on."""
    found = []
    for stack, what in built.spec.stacks.items():
        for number, name, layer in what.layers():
            if isinstance(layer, Layer):
                chosen = getattr(built, stack).blocks[number].branches[name].layer.kernel.name
                reasons = {k: why for k, why in choices(layer).items() if why is not None}
                found.append(Choice(f"{stack}.{number}.{name}", chosen, reasons))
    return found


def choices(layer: Layer) -> dict[str, str | None]:
    """Every kernel, best first, with the reason why it does not fit the layer, or None where it does."""
    return {name: kernel.supports(layer) for name, kernel in KERNELS.items()}


def _kernel(layer: Layer, asked: str) -> type[Kernel]:
    reasons = choices(layer)
    if asked == "auto":
        return KERNELS[next(name for name, reason in reasons.items() if reason is None)]
    if reasons[asked]:
        raise KernelError(f"kernel {asked!r} does not fit: {reasons[asked]}; use 'auto' or 'reference'")
    return KERNELS[asked]


class Linear(linear.Linear):
    """Left unfilled when made: `_initialise` or a checkpoint fills it."""

    def reset_parameters(self) -> None:
        pass


def _stack(what: spec.Stack, kernel: str, table: nn.Parameter | None = None, memory: int = 0) -> model.Stack:
    shared: list[tuple[Any, positions.Relative]] = []
    blocks = []
    for each in what.blocks:
        branches = {}
        for branch in each.branches:
            if isinstance(branch.layer, spec.Plain | spec.Gated):
                layer: nn.Module = _feedforward(branch.layer, what.width)
            else:
                layer = _attention(branch.layer, what.width, memory, kernel, shared)
            before, between, after = (_norm(norm, what.width) for norm in (branch.before, branch.between, branch.after))
            branches[branch.name] = block.Residual(layer, before, between, after, Dropout(branch.dropout))
        blocks.append(block.Block(branches))
    return model.Stack(_embed(what.embed, what.width, table), blocks, _norm(what.final, what.width))


def _norm(what: spec.Norm | None, width: int) -> nn.Module:
    match what:
        case spec.LayerNorm(eps=eps, bias=bias):
            return block.LayerNorm(width, eps=eps, bias=bias)
        case spec.RMSNorm(eps=eps):
            return block.RMSNorm(width, eps=eps)
    return nn.Identity()


def _head_norm(what: spec.RMSNorm | None, d: int) -> nn.Module:
    return nn.Identity() if what is None else block.HeadNorm(d, eps=what.eps)


def _feedforward(what: spec.Plain | spec.Gated, width: int) -> nn.Module:
    up, down = Linear(width, what.inner, what.bias), Linear(what.inner, width, what.bias)
    if isinstance(what, spec.Plain):
        return feedforward.Plain(up, down, what.activation, Dropout(what.inner_dropout))
    gate = Linear(width, what.inner, what.bias)
    return feedforward.Gated(gate, up, down, what.activation, Dropout(what.inner_dropout))


def _attention(what: Layer, width: int, memory: int, kernel: str, shared: list[Any]) -> Attention:
    d = what.head_width or width // what.heads
    key_heads = what.key_heads or what.heads
    scale = what.scale or 1 / math.sqrt(d)
    if isinstance(what, spec.SelfAttention):
        seen, pattern, placed, source = width, what.pattern, what.positions, _source(what.compressed)
    else:
        seen, pattern, placed, source = memory, spec.Everyone(), None, None
    return Attention(
        query=Linear(width, what.heads * d, what.bias),
        key=Linear(seen, key_heads * d, what.bias),
        value=Linear(seen, key_heads * d, what.bias),
        output=Linear(what.heads * d, width, what.output_bias),
        heads=what.heads,
        key_heads=key_heads,
        query_norm=_head_norm(what.norm, d),
        key_norm=_head_norm(what.norm, d),
        pattern=pattern,
        relative=_relative(placed, what.heads, d, shared),
        source=source,
        kernel=_kernel(what, kernel)(what, scale),
    )


def _source(what: spec.Compressed | None) -> nn.Module:
    return kv.Fresh() if what is None else kv.Compressed(what.length, what.rank, what.shared)


def _relative(what: spec.Relative | None, heads: int, d: int, shared: list[Any]) -> positions.Relative:
    """One module a layer, or one for all layers that ask for the same shared scheme."""
    for scheme, module in shared:
        if scheme == (what, heads, d):
            return module
    made = _make_relative(what, heads, d)
    if getattr(what, "shared", False):
        shared.append(((what, heads, d), made))
    return made


def _make_relative(what: spec.Relative | None, heads: int, d: int) -> positions.Relative:
    match what:
        case spec.Rotary():
            return positions.Rotary(what.base, what.scaling, what.layout)
        case spec.Buckets():
            return positions.Buckets(heads, what.count, what.reach, what.two_way)
        case spec.ALiBi():
            return positions.ALiBi(heads)
        case spec.Shaw():
            return positions.Vectors(what.reach, d, what.values)
        case spec.TreeDistance():
            tree = positions.TreeVectors(what.reach, d, what.values)
            if what.sequential is None:
                return tree
            return positions.Sum(order=positions.Vectors(what.sequential, d, what.values), tree=tree)
    return positions.Relative()


def _absolute(what: spec.Absolute | None, width: int) -> nn.Module | None:
    match what:
        case spec.Sinusoid():
            return positions.Sinusoid(what.base, what.layout)
        case spec.Learned():
            return positions.Learned(what.length, width, what.offset)
        case spec.TreeDepth():
            return positions.TreeDepth(_made(_absolute(what.sequential, width)), width)
    return None


def _table(what: spec.Embed, width: int) -> nn.Parameter:
    assert isinstance(what, spec.Tokens)  # a shared table is validated by the spec
    return nn.Parameter(torch.empty(what.vocabulary, width))


def _embed(what: spec.Embed, width: int, table: nn.Parameter | None) -> nn.Module:
    placed, norm, drop = _absolute(what.positions, width), _norm(what.norm, width), Dropout(what.dropout)
    if isinstance(what, spec.Tokens):
        segments = nn.Parameter(torch.empty(what.segments, width)) if what.segments else None
        scale = math.sqrt(width) if what.scaled else 1.0
        table = table if table is not None else _table(what, width)
        return embed.Tokens(table, segments, placed, norm, drop, scale)
    project = Linear(what.channels * what.patch**2, width)
    summary = nn.Parameter(torch.empty(1, 1, width)) if what.summary else None
    return embed.Patches(project, what.patch, what.image, summary, placed, norm, drop)


def _head(what: spec.Head, stack: model.Stack, width: int) -> nn.Module:
    def vocabulary(tied: bool) -> nn.Parameter:
        table = _made(getattr(stack.embed, "table", None))
        return table if tied else nn.Parameter(torch.empty_like(table))

    match what:
        case spec.States():
            return heads.States()
        case spec.NextToken():
            weight = vocabulary(what.tied)
            bias = nn.Parameter(torch.empty(len(weight))) if what.bias else None
            return heads.NextToken(weight, bias, width**-0.5 if what.scaled else 1.0)
        case spec.MaskedToken():
            weight = vocabulary(what.tied)
            bias, dense = nn.Parameter(torch.empty(len(weight))), Linear(width, width)
            return heads.MaskedToken(dense, what.activation, _norm(what.norm, width), weight, bias)
        case spec.Vector():
            return _vector(what, width)
        case spec.Classes():
            return heads.Classes(_vector(what.vector, width), Dropout(what.dropout), Linear(width, what.count))
        case spec.TokenClasses():
            return heads.TokenClasses(Dropout(what.dropout), Linear(width, what.count))
        case spec.Spans():
            return heads.TokenClasses(Dropout(what.dropout), Linear(width, 2))
    raise TypeError(what)


def _vector(what: spec.Vector, width: int) -> heads.Vector:
    return heads.Vector(what.pool, Linear(width, width) if what.dense else None, what.dense)


Thing = TypeVar("Thing")


def _made(thing: Thing | None) -> Thing:
    assert thing is not None
    return thing


def _initialise(built: Model, generator: torch.Generator | None) -> None:
    """Matrices by Glorot's rule, or normal with the stack's deviation; tables normal; biases 0; norms 1."""
    norms = {id(p) for m in built.modules() if isinstance(m, block.LayerNorm | block.RMSNorm) for p in m.parameters()}
    matrices = {id(m.weight) for m in built.modules() if isinstance(m, nn.Linear)}
    stacks = built.spec.stacks
    last = list(stacks.values())[-1]  # the head goes with it
    for name, parameter in built.named_parameters():
        if parameter.is_meta or id(parameter) in norms:
            continue
        initial = stacks.get(name.split(".")[0], last).initial
        with torch.no_grad():
            if parameter.dim() == 1:
                parameter.zero_()
            elif initial is None and id(parameter) in matrices:
                nn.init.xavier_uniform_(parameter, generator=generator)
            else:
                parameter.normal_(0.0, initial or parameter.size(-1) ** -0.5, generator=generator)
