"""The four works that are timed: their default models, what a run of each column does, and the least it must read and
multiply.

Counted are the matrices of weights alone. What attention multiplies and what caches hold is small beside them here.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clearformer import presets, spec
from clearformer.errors import DataError, nearest

SOURCE, TARGET, BEAM, BATCH = 20, 32, 4, 32  # translate: tokens of a source and of a target, hypotheses, texts
PROMPT, ADDED, LONG, TOGETHER = 16, 64, 400, 8  # complete: tokens of a prompt, new ones, a long prompt, texts
TEXTS, ALONE = 512, 32  # embed: texts made up where none are given, and how many of them go one by one
STEP = (64, 20)  # train: texts and tokens of a step
FIRST = "first"  # the run that ends with the first token

Spec = spec.Transformer | spec.EncoderDecoder


def _minilm(tiny: bool = False) -> Spec:
    """all-MiniLM-L6-v2 (Wang et al. 2020)."""
    if tiny:
        return presets.bert("tiny", vocabulary=1000, head=spec.States())
    wide = presets.bert("small", vocabulary=30_522, head=spec.States())
    block = wide.stack.blocks[0].replace({"self.heads": 12, "feedforward.layer.inner": 1536})
    return wide.replace(stack=wide.stack.replace(width=384, blocks=(block,) * 6))


def _trained(size: str) -> Spec:
    return presets.original(size, vocabulary=8_000, positions=spec.Sinusoid(layout="halves"), head_bias=True)


SHAPES: dict[str, dict[str, Callable[[], Spec]]] = {  # the first of each is the usual one
    "translate": {
        "base": lambda: presets.marian("opus-mt", vocabulary=32_000),
        "tiny": lambda: presets.marian("tiny"),
    },
    "complete": {
        "llama": lambda: presets.llama("135m"),
        "gpt2": lambda: presets.gpt2("124m"),
        "tiny": lambda: presets.llama("tiny"),
    },
    "embed": {"minilm": _minilm, "tiny": lambda: _minilm(tiny=True)},
    "train": {"small": lambda: _trained("small"), "tiny": lambda: _trained("tiny")},
}


def shape_of(work: str, name: str | None) -> Spec:
    """The default model of a work, or another by name."""
    shapes = SHAPES[work]
    if name is not None and name not in shapes:
        raise DataError(f"{work} has no shape {name!r}{nearest(name, shapes)}")
    return shapes[name or next(iter(shapes))]()


@dataclass(frozen=True)
class Job:
    """What one contender is to do, as it is told in its own process."""

    work: str
    contender: str
    precision: str
    folder: str
    threads: int
    vocabulary: int = 0
    start: int = 0
    texts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self, count: int, length: int) -> list[list[int]]:
        """Random tokens, the same for every contender; the first and last of a vocabulary often mean something."""
        draw = random.Random(0)
        return [[draw.randrange(4, self.vocabulary - 4) for _ in range(length)] for _ in range(count)]


def made_up_texts(words: Sequence[str]) -> tuple[str, ...]:
    """Texts of 3 to 60 words, most of them short, as sentences are."""
    draw = random.Random(0)
    lengths = [min(60, max(3, round(draw.lognormvariate(2.4, 0.5)))) for _ in range(TEXTS)]
    return tuple(" ".join(draw.choice(words) for _ in range(length)) for length in lengths)


@dataclass(frozen=True)
class Column:
    """One figure of the table: how many tokens or texts a run is, the numbers of weights that it must at least read,
    and its multiplications with additions, counted as two operations each."""

    name: str
    unit: str
    amount: int
    reads: int
    operations: int


@dataclass(frozen=True)
class Sizes:
    """The numbers in a model's matrices: those used once a text, those of every step, and the head's."""

    once: int
    each: int
    head: int


def sizes_of(what: Spec) -> Sizes:
    """Nothing is allocated. A decoder makes keys and values of its memory once a text."""
    import torch
    from torch import nn

    from clearformer.assemble import assemble

    with torch.device("meta"):
        model: Any = assemble(what)

    def count(module: Any, where: str = "") -> int:
        linear = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
        return sum(part.weight.numel() for name, part in linear if where in name)

    weight = getattr(model.head, "weight", None)
    head = weight.numel() if isinstance(weight, torch.Tensor) else 0
    if isinstance(what, spec.Transformer):
        return Sizes(0, count(model.stack), head)
    memory = sum(count(model.decoder, f"cross.layer.{name}") for name in ("key", "value"))
    return Sizes(count(model.encoder) + memory, count(model.decoder) - memory, head)


def columns_of(work: str, sizes: Sizes, lengths: Sequence[int] = ()) -> list[Column]:
    """The columns of a work; `lengths` are the tokens of the texts to embed."""
    return COLUMNS[work](sizes, lengths)


def _translate(sizes: Sizes, _: Sequence[int]) -> list[Column]:
    found = []
    for batch in (1, BATCH):
        for beams, name in ((1, "greedy"), (BEAM, f"beam {BEAM}")):
            reads = sizes.once + TARGET * (sizes.each + sizes.head)
            rows = batch * (1 + (TARGET - 1) * beams)  # the first step has one row a text
            products = batch * SOURCE * sizes.once + rows * (sizes.each + sizes.head)
            found.append(Column(f"batch {batch} {name}", "tokens/s", batch * TARGET, reads, 2 * products))
    return found


def _complete(sizes: Sizes, _: Sequence[int]) -> list[Column]:
    step = sizes.each + sizes.head
    products = (PROMPT + ADDED - 1) * sizes.each + ADDED * sizes.head
    return [
        Column("batch 1", "tokens/s", ADDED, ADDED * step, 2 * products),
        Column("prompt", "tokens/s", LONG, step, 2 * (LONG * sizes.each + sizes.head)),
        Column(f"batch {TOGETHER}", "tokens/s", TOGETHER * ADDED, ADDED * step, 2 * TOGETHER * products),
    ]


def _embed(sizes: Sizes, lengths: Sequence[int]) -> list[Column]:
    few = lengths[:ALONE]
    return [
        Column("all texts", "texts/s", len(lengths), sizes.each, 2 * sum(lengths) * sizes.each),
        Column("one by one", "texts/s", len(few), len(few) * sizes.each, 2 * sum(few) * sizes.each),
    ]


def _train(sizes: Sizes, _: Sequence[int]) -> list[Column]:
    tokens, all_of_it = STEP[0] * STEP[1], sizes.once + sizes.each + sizes.head
    return [Column("step", "tokens/s", tokens, 3 * all_of_it, 3 * 2 * tokens * all_of_it)]  # back is twice forward


COLUMNS = {"translate": _translate, "complete": _complete, "embed": _embed, "train": _train}
