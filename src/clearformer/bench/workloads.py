"""The four works that are timed: their default models, the sizes of every column, and the least that a run must read
and multiply.

Counted are the matrices of weights alone. What attention multiplies and what KV caches hold is small beside them here.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from clearformer import presets, spec
from clearformer.errors import DataError, nearest

SOURCE, TARGET, BEAM, BATCH = 20, 32, 4, 32  # translate: tokens of a made-up source and its target, beams, texts
ONE = 16  # translate: texts that are given one by one
PROMPT, ADDED, LONG, TOGETHER = 16, 64, 400, 8  # complete: tokens of a prompt, new ones, a long prompt, texts
ARRIVALS, TOP_P = 32, 0.9  # complete: requests at once or arriving at random; what is sampled from
TEXTS, ALONE = 512, 32  # embed: texts made up where none are given, and how many of them go one by one
STEP = (64, 20)  # train: texts and tokens of a step
FIRST = "first"  # the run that ends with the first token

MANY_GREEDY, MANY_BEAM = "many texts greedy", f"many texts beam {BEAM}"
ONE_GREEDY, ONE_BEAM = "one text greedy", f"one text beam {BEAM}"
ONE_TEXT, SAMPLED, PREFILL, EIGHT = "one text", "one text sampled", "prompt", f"{TOGETHER} texts"
AT_ONCE, ARRIVING = f"{ARRIVALS} at once", f"{ARRIVALS} arriving"
ALL_TEXTS, ONE_BY_ONE = "all texts", "one by one"
COMPARED = (MANY_GREEDY, EIGHT, ALL_TEXTS)  # columns whose answers are compared

Spec = spec.Transformer | spec.EncoderDecoder
Runs = dict[str, Callable[[], Any]]


class Said(NamedTuple):
    """What a run answered: texts, and how many tokens were written for them."""

    texts: list[str]
    tokens: int


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
MODELS = {"translate": "en-de"}  # the bundled model that stands for a work where neither model nor shape is given


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
    folder: str  # what it loads
    threads: int
    texts: tuple[str, ...] = ()
    long: str = ""  # complete: the long prompt
    reader: str = ""  # the folder whose tokenizer peers read texts with
    limit: int | None = None  # translate: tokens of every answer; None where the model ends them itself
    most: int = 256  # translate: what no answer is to exceed
    ends: tuple[int, ...] = ()
    vocabulary: int = 0
    ways: dict[str, str] = field(default_factory=dict)  # by column: the configuration to run it in
    trial: bool = False  # try all configurations instead

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self, count: int, length: int) -> list[list[int]]:
        """Random tokens, the same for every contender; the first and last of a vocabulary often mean something."""
        draw = random.Random(0)
        return [[draw.randrange(4, self.vocabulary - 4) for _ in range(length)] for _ in range(count)]


def waits(count: int, mean: float) -> list[float]:
    """Seconds between requests that arrive at random (a Poisson process), the same in every run."""
    draw = random.Random(0)
    return [draw.expovariate(1 / mean) for _ in range(count)]


@dataclass(frozen=True)
class Column:
    """One figure of the table: how many tokens or texts a run is, the numbers of weights that it must at least read,
    and its multiplications with additions, counted as two operations each. Where tokens are `counted`, a contender's
    speed is that of the tokens that it wrote itself."""

    name: str
    unit: str
    amount: int
    reads: int
    operations: int
    counted: bool = False


@dataclass(frozen=True)
class Lengths:
    """Tokens of texts: of sources or prompts, of answers, of the long prompt."""

    sources: Sequence[int] = ()
    targets: Sequence[int] = ()
    long: int = LONG
    tokens: bool = True  # whether speeds are tokens or texts a second


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


def columns_of(work: str, sizes: Sizes, lengths: Lengths) -> list[Column]:
    return COLUMNS[work](sizes, lengths)


def _translate(sizes: Sizes, lengths: Lengths) -> list[Column]:
    """Many texts read the weights once a step of the longest, one by one as often as tokens are written."""
    pairs = list(zip(lengths.sources, lengths.targets, strict=True))
    step = sizes.each + sizes.head
    found = []
    for together, some in ((True, pairs), (False, pairs[:ONE])):
        for beams in (1, BEAM):
            steps = max(target for _, target in some) if together else sum(target for _, target in some)
            reads = sizes.once * (1 if together else len(some)) + steps * step
            rows = sum(1 + (target - 1) * beams for _, target in some)  # the first step has one row a text
            products = sum(source for source, _ in some) * sizes.once + rows * step
            name = {(True, 1): MANY_GREEDY, (True, BEAM): MANY_BEAM, (False, 1): ONE_GREEDY, (False, BEAM): ONE_BEAM}
            amount = sum(target for _, target in some) if lengths.tokens else len(some)
            unit = "tokens/s" if lengths.tokens else "texts/s"
            found.append(Column(name[together, beams], unit, amount, reads, 2 * products, counted=lengths.tokens))
    return found


def _complete(sizes: Sizes, lengths: Lengths) -> list[Column]:
    step = sizes.each + sizes.head

    def written(name: str, texts: int) -> Column:
        prompts = [lengths.sources[n % len(lengths.sources)] for n in range(texts)]
        products = sum(prompt + ADDED - 1 for prompt in prompts) * sizes.each + texts * ADDED * sizes.head
        return Column(name, "tokens/s", texts * ADDED, ADDED * step, 2 * products, counted=True)

    return [
        written(ONE_TEXT, 1),
        written(SAMPLED, 1),
        Column(PREFILL, "tokens/s", lengths.long, step, 2 * (lengths.long * sizes.each + sizes.head)),
        written(EIGHT, TOGETHER),
        written(AT_ONCE, ARRIVALS),
        written(ARRIVING, ARRIVALS),
    ]


def _embed(sizes: Sizes, lengths: Lengths) -> list[Column]:
    few = lengths.sources[:ALONE]
    return [
        Column(ALL_TEXTS, "texts/s", len(lengths.sources), sizes.each, 2 * sum(lengths.sources) * sizes.each),
        Column(ONE_BY_ONE, "texts/s", len(few), len(few) * sizes.each, 2 * sum(few) * sizes.each),
    ]


def _train(sizes: Sizes, _: Lengths) -> list[Column]:
    tokens, all_of_it = STEP[0] * STEP[1], sizes.once + sizes.each + sizes.head
    return [Column("step", "tokens/s", tokens, 3 * all_of_it, 3 * 2 * tokens * all_of_it)]  # back is twice forward


COLUMNS = {"translate": _translate, "complete": _complete, "embed": _embed, "train": _train}
