"""Multi-head attention (N0–N3): the shapes of the base model, and one sentence read in two ways."""

import torch
from torch import Tensor

from clearformer import presets
from clearformer.core.attention import Attention
from clearformer.core.places import Places
from clearformer.notes.layers import attended, by_hand, furthest, self_attention, steps
from clearformer.notes.parts import (
    QUERIES_KEYS,
    Check,
    Equation,
    Heading,
    Ours,
    Prose,
    Section,
    Slip,
    Table,
    matrix,
    tiny,
)

SENTENCE = ["The", "man", "saw", "the", "astronomer", "with", "a", "telescope"]
PHRASE = ("with", "a", "telescope")


def base_attention() -> tuple[Attention, int]:
    """The self-attention of the base model's first block, and the model's width."""
    base = presets.original("base")
    return self_attention(base.encoder.blocks[0].at("self.layer"), base.encoder.width), base.encoder.width


def heads() -> list[Section]:
    return [*_shapes(), *_sum(), *_telescope()]


def _shapes() -> list[Section]:
    attention, width = base_attention()
    x, places = _states(3, width), Places.span(0, 3)
    with torch.no_grad():
        q, k, v = attention.q(x, places), attention.k(x, places), attention.v(x)
        found = attended(q[0], k[0], v[0], attention.kernel.scale)
        merged = attention.merged(found.mixed[None])
        out = attention.out(merged)
    count, each = q.size(1), q.size(3)
    return [
        Heading("8 × 64 = 512, on one layer of the base model"),
        Equation("head_n = softmax(Q_n K_nᵀ / √64) V_n    output = [head_1 ; … ; head_8] W_O"),
        Table(
            "A sentence of three words",
            ("step", "shape", "axes"),
            (
                ("x", _shape(x), "batch · words · width"),
                ("q, k and v, each", _shape(q), "batch · heads · words · head width"),
                ("weights", _shape(found.weights[None]), "batch · heads · queries · keys"),
                ("heads", _shape(found.mixed[None]), "batch · heads · words · head width"),
                ("heads side by side", _shape(merged), "batch · words · heads × head width"),
                ("times W_O", _shape(out), "batch · words · width"),
            ),
        ),
        Check(
            "the heads side by side are as wide as the model",
            merged.size(-1) == count * each == width,
            f"{count} × {each} = {count * each}",
        ),
        Prose("Each head works in 64 dimensions, so eight heads cost about as much as one head of 512."),
    ]


def _sum() -> list[Section]:
    attention, width = base_attention()
    with torch.no_grad():
        mixed = steps(attention, _states(3, width)[0]).mixed
        joined = attention.out(attention.merged(mixed[None]))[0] - attention.output.bias
        slices = attention.output.weight.chunk(len(mixed), 1)
        added = sum((head @ part.T for head, part in zip(mixed, slices, strict=True)), torch.zeros_like(joined))
    return [
        Slip(
            "self-attention head 1 + self-attention head 2 + … + head n",
            "[head 1 ; head 2 ; … ; head n] W_O",
            "heads are laid side by side; a sum of bare heads would be 64 wide, not 512",
            "N1, multi-head attention",
        ),
        Check(
            "a sum is right once each head has gone through its own 64 rows of W_O",
            furthest(joined, added) < 1e-5,
            f"largest difference {tiny(furthest(joined, added))}",
        ),
    ]


def _telescope() -> list[Section]:
    words = len(SENTENCE)
    x = torch.eye(words, dtype=torch.float64)  # one axis a word
    to_saw, to_astronomer = _looking_at("saw"), _looking_at("astronomer")
    query = torch.cat([to_saw, to_astronomer], 1)
    same = torch.cat([x, x], 1)
    found = steps(by_hand(query, same, same, heads=2, scale=4.0), x)
    rows = [SENTENCE.index(word) for word in PHRASE]
    views = [
        matrix(
            f"head {n + 1}: {reading}", found.weights[n][rows], PHRASE, SENTENCE, QUERIES_KEYS, shade=True, decimals=2
        )
        for n, reading in enumerate(("he saw with a telescope", "the astronomer has a telescope"))
    ]
    looked = [SENTENCE[int(found.weights[n, rows[-1]].argmax())] for n in range(2)]
    return [
        Heading("One sentence, two meanings"),
        Prose("The man saw the astronomer with a telescope. Who has the telescope? A single head must choose."),
        Ours("two heads whose queries are set by hand: one sends «with a telescope» to saw, one to astronomer."),
        *views,
        Check(
            "the two heads keep both readings, side by side",
            looked == ["saw", "astronomer"],
            f"telescope looks most at {looked[0]} in head 1, at {looked[1]} in head 2",
        ),
        Prose("In a model nothing is set by hand: heads come to differ because they start from different weights."),
    ]


def _looking_at(target: str) -> Tensor:
    """W_Q that turns the words of the phrase into queries for the target, and leaves the others to themselves."""
    query = torch.eye(len(SENTENCE), dtype=torch.float64)
    for word in PHRASE:
        query[SENTENCE.index(word)] = torch.eye(len(SENTENCE), dtype=torch.float64)[SENTENCE.index(target)]
    return query


def _states(words: int, width: int) -> Tensor:
    return torch.randn(1, words, width, generator=torch.Generator().manual_seed(0))


def _shape(x: Tensor) -> str:
    return " × ".join(map(str, x.shape))
