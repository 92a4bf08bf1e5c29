"""Every model that the laws are held against: all presets, and all patterns, positions and parts they allow."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clearformer import presets, spec
from clearformer.assemble import Model, build
from clearformer.core.model import EncoderDecoder
from clearformer.spec import (
    ALiBi,
    BigBird,
    Buckets,
    Causal,
    Compressed,
    Gated,
    Global,
    LayerNorm,
    Learned,
    Linear,
    Llama3,
    MaskedToken,
    Near,
    Plain,
    Random,
    RMSNorm,
    Rotary,
    Shaw,
    Sinusoid,
    TokenClasses,
    TreeDepth,
    TreeDistance,
    Window,
)

VOCABULARY = 100
AnySpec = spec.Transformer | spec.EncoderDecoder


def loud(model: Model) -> Model:
    """Weights large enough that a wrong mask or position shows, with biases and norms that are not trivial."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 1.0 if parameter.dim() == 1 else 1.2 * parameter.size(-1) ** -0.5
            parameter += torch.randn(parameter.shape, generator=generator) * 0.3 * spread
    return model


@dataclass(frozen=True)
class Case:
    name: str
    spec: AnySpec
    trees: bool = False

    def __str__(self) -> str:
        return self.name

    def model(self, kernel: str = "auto") -> Model:
        return loud(build(self.spec, kernel=kernel, seed=3))

    @property
    def images(self) -> bool:
        return isinstance(self.spec, spec.Transformer) and isinstance(self.spec.stack.embed, spec.Patches)

    @property
    def decodes(self) -> bool:
        return isinstance(self.spec, spec.EncoderDecoder) or isinstance(self.spec.head, spec.NextToken)


def tree(length: int) -> list[int]:
    """A tree whose heads come before their tokens, so that a text's beginning is a tree too."""
    return [0 if n == 0 else 1 + (n * 7 + 3) % n for n in range(length)]


@dataclass
class Batch:
    """Rows of tokens of different lengths, padded on a side."""

    ids: Tensor
    mask: Tensor
    rows: list[Tensor] = field(default_factory=list)


def padded(lengths: list[int], side: str = "right", extra: int = 0, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(0, VOCABULARY, (n,), generator=generator) for n in lengths]
    wide = max(lengths) + extra
    ids = torch.randint(0, VOCABULARY, (len(rows), wide), generator=generator)  # padding is noise, and must not matter
    mask = torch.zeros(len(rows), wide, dtype=torch.bool)
    for n, row in enumerate(rows):
        where = slice(0, len(row)) if side == "right" else slice(wide - len(row), wide)
        ids[n, where], mask[n, where] = row, True
    return Batch(ids, mask, rows)


def run(case: Case, model: Model, source: Batch, target: Batch | None = None) -> Tensor:
    """The model's result on a padded batch."""
    options: dict[str, Any] = {}
    if case.trees:
        options["trees"] = [tree(len(row)) for row in source.rows]
    if isinstance(model, EncoderDecoder):
        assert target is not None
        return model(source.ids, target.ids, source.mask, target.mask, **options)
    return model(source.ids, source.mask, **options)


def alone(batch: Batch, row: int) -> Batch:
    ids = batch.rows[row][None]
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool), [batch.rows[row]])


def _decoder(**changes: Any) -> spec.Transformer:
    """GPT-2-shaped without positions of its own."""
    base = presets.gpt2("tiny").replace({"stack.embed.positions": None})
    return base.replace(changes) if changes else base


def _encoder(**changes: Any) -> spec.Transformer:
    base = presets.bert("tiny", head=TokenClasses(count=7)).replace({"stack.embed.positions": Sinusoid()})
    return base.replace(changes) if changes else base


OWN = "stack.blocks.*.self."
_relative = {
    "rotary": Rotary(),
    "rotary interleaved": Rotary(layout="interleaved"),
    "rotary linear": Rotary(scaling=Linear(factor=2.0)),
    "rotary llama3": Rotary(scaling=Llama3(factor=4.0, original=16)),
    "shaw": Shaw(reach=3),
    "shaw keys only": Shaw(reach=3, values=False),
    "shaw shared": Shaw(reach=2, shared=True),
    "alibi": ALiBi(),
}
_trees = {
    "tree distance": TreeDistance(reach=4),
    "tree distance and order": TreeDistance(reach=4, sequential=3),
    "tree distance keys only": TreeDistance(reach=4, values=False),
}
_causal = {
    "window": Window(size=3),
    "causal near": Causal() & Near(radius=2),
    "causal global": Causal() & (Global(count=2) | Near(radius=1)),
    "causal bigbird": Causal() & BigBird(block=2, radius=2, count=1, first=1),
    "window or random past": Window(size=2) | (Causal() & Random(count=1, block=2)),
}
_both_ways = {
    "near": Near(radius=2),
    "global": Global(count=2) | Near(radius=0),
    "random": Random(count=2, block=2) | Near(radius=0),
    "bigbird": BigBird(block=4, radius=3, count=1, first=1),
    "bigbird of causal": BigBird(block=4, radius=3, count=1, first=2) & Causal(),
    "window in an encoder": Window(size=4),
}

PRESETS = [Case(name, make("tiny")) for name, make in presets.FAMILIES.items()]
DECODERS = [
    Case("decoder without positions", _decoder()),
    *(Case(f"decoder {name}", _decoder(**{OWN + "positions": scheme})) for name, scheme in _relative.items()),
    Case("decoder buckets", _decoder(**{OWN + "positions": Buckets(count=8, reach=12, two_way=False)})),
    Case(
        "decoder buckets per layer",
        _decoder(**{OWN + "positions": Buckets(count=8, reach=12, two_way=False, shared=False)}),
    ),
    *(Case(f"decoder {name}", _decoder(**{OWN + "positions": scheme}), trees=True) for name, scheme in _trees.items()),
    Case("decoder sinusoid", _decoder(**{"stack.embed.positions": Sinusoid()})),
    Case("decoder tree depth", _decoder(**{"stack.embed.positions": TreeDepth()}), trees=True),
    *(
        Case(f"decoder {name}", presets.llama("tiny").replace({OWN + "pattern": pattern}))
        for name, pattern in _causal.items()
    ),
    Case(
        "decoder layers differ",
        presets.llama("tiny").replace(
            {
                "stack.blocks.0.self.pattern": Window(size=3),
                "stack.blocks.1.self.positions": ALiBi(),
                "stack.blocks.1.self.key_heads": 1,
                "stack.blocks.1.feedforward.layer": Plain(inner=40, activation="gelu"),
                "stack.blocks.1.feedforward.before": LayerNorm(),
            }
        ),
    ),
    Case(
        "decoder with head norms and wide heads",
        presets.llama("tiny").replace({OWN + "norm": RMSNorm(), OWN + "head_width": 12, OWN + "bias": True}),
    ),
]
ENCODERS = [
    *(Case(f"encoder {name}", _encoder(**{OWN + "positions": scheme})) for name, scheme in _relative.items()),
    Case("encoder buckets", _encoder(**{OWN + "positions": Buckets(count=8, reach=12, two_way=True)})),
    *(Case(f"encoder {name}", _encoder(**{OWN + "positions": scheme}), trees=True) for name, scheme in _trees.items()),
    Case("encoder tree depth", _encoder(**{"stack.embed.positions": TreeDepth()}), trees=True),
    Case(
        "encoder tree depth on a table",
        _encoder(**{"stack.embed.positions": TreeDepth(sequential=Learned(length=64))}),
        trees=True,
    ),
    Case("encoder learned with an offset", _encoder(**{"stack.embed.positions": Learned(length=64, offset=2)})),
    *(Case(f"encoder {name}", _encoder(**{OWN + "pattern": pattern})) for name, pattern in _both_ways.items()),
    Case(
        "encoder bigbird shaw", _encoder(**{OWN + "pattern": _both_ways["bigbird"], OWN + "positions": Shaw(reach=3)})
    ),
    Case("encoder bigbird alibi", _encoder(**{OWN + "pattern": _both_ways["bigbird"], OWN + "positions": ALiBi()})),
    Case("encoder bigbird rotary", _encoder(**{OWN + "pattern": _both_ways["bigbird"], OWN + "positions": Rotary()})),
    Case(
        "encoder bigbird tree",
        _encoder(**{OWN + "pattern": _both_ways["bigbird"], OWN + "positions": TreeDistance(reach=3)}),
        trees=True,
    ),
    Case("encoder compressed, one map", _encoder(**{OWN + "compressed": Compressed(length=64, rank=5, shared=True)})),
    Case(
        "encoder gated", _encoder(**{"stack.blocks.*.feedforward.layer": Gated(inner=24, activation="gelu", bias=True)})
    ),
    Case(
        "encoder sandwiched norms",
        _encoder(**{"stack.blocks.*.self.between": LayerNorm(), "stack.blocks.*.self.before": RMSNorm()}),
    ),
    *(
        Case(f"encoder head {head.kind} {getattr(head, 'pool', '')}", presets.bert("tiny", head=head))
        for head in (
            MaskedToken(),
            spec.Spans(),
            spec.Classes(count=3),
            spec.Vector(pool="mean"),
            spec.Vector(pool="last", dense="relu"),
            spec.States(),
        )
    ),
]
PAIRS = [
    Case("original norms before", presets.original("tiny", norm="before")),
    Case(
        "original, sparse encoder, window decoder",
        presets.original("tiny").replace(
            {"encoder.blocks.*.self.pattern": _both_ways["bigbird"], "decoder.blocks.0.self.pattern": Window(size=2)}
        ),
    ),
    Case(
        "original, compressed encoder",
        presets.original("tiny").replace({"encoder.blocks.*.self.compressed": Compressed(length=64, rank=4)}),
    ),
    Case(
        "original, tree encoder",
        presets.original("tiny").replace({"encoder.blocks.*.self.positions": TreeDistance(reach=3, sequential=3)}),
        trees=True,
    ),
    Case(
        "original, narrow encoder, own tables, grouped cross heads",
        presets.original("tiny").replace(
            {
                "encoder.width": 24,
                "shared": False,
                "decoder.blocks.*.cross.key_heads": 2,
                "head": spec.NextToken(tied=False, bias=True),
            }
        ),
    ),
]
ALL = PRESETS + DECODERS + ENCODERS + PAIRS
TEXT = [case for case in ALL if not case.images]
DECODING = [case for case in ALL if case.decodes]


def inputs(case: Case, length: int = 9, seed: int = 0) -> tuple[Batch, Batch | None]:
    """One unpadded source and, where the model has two stacks, a target."""
    source = padded([length], seed=seed)
    return source, padded([length - 2], seed=seed + 1) if isinstance(case.spec, spec.EncoderDecoder) else None
