"""The look-ahead mask (N2, N3, N4): scores, mask, masked scores, softmax."""

import math

import torch
from torch import Tensor

from clearformer import spec
from clearformer.core.patterns import sees
from clearformer.notes.layers import furthest, softmax, table
from clearformer.notes.parts import (
    QUERIES_KEYS,
    Beside,
    Check,
    Equation,
    Heading,
    Prose,
    Section,
    Slip,
    matrix,
    vector,
)

WORDS = ["<start>", "I", "am", "fine"]
SCORES = table([0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3])
ROUNDED_WRONG = [(1, 0), (2, 1)]  # the cells that the notes cut off instead of rounding


def mask() -> list[Section]:
    return [*_masked(), *_what_sees_what(), *_grid(), *_leak()]


def hidden(pattern: spec.Pattern, length: int) -> Tensor:
    """0 where a query sees a key, −∞ where it does not."""
    places = torch.arange(length)
    visible = sees(pattern, places[:, None], places)
    return torch.zeros(length, length, dtype=torch.float64).masked_fill(~visible, -math.inf)


def _masked() -> list[Section]:
    look_ahead = hidden(spec.Causal(), 4)
    weights = softmax(SCORES, spec.Causal())
    return [
        Heading("Scores + mask, then softmax"),
        Beside(
            (
                matrix("scaled scores", SCORES, WORDS, WORDS, QUERIES_KEYS, decimals=1),
                matrix("look-ahead mask", look_ahead, WORDS, WORDS, QUERIES_KEYS, decimals=0),
            )
        ),
        Beside((matrix("masked scores", SCORES + look_ahead, WORDS, WORDS, QUERIES_KEYS, decimals=1),)),
        Prose("e^−∞ = 0: a hidden key gets no weight, and the others share what is left."),
        matrix(
            "softmax of the masked scores", weights, WORDS, WORDS, QUERIES_KEYS, highlight=ROUNDED_WRONG, shade=True
        ),
        Slip(
            "0.37 and 0.62 in the row of I, 0.31 in the row of am (cells marked *)",
            f"{float(weights[1, 0]):.4f}, {float(weights[1, 1]):.4f} and {float(weights[2, 1]):.4f}",
            "rounded to two places these are 0.38, 0.62 and 0.32: the notes cut digits off, and 0.37 + 0.62 = 0.99",
            "N2, look-ahead mask",
        ),
    ]


def _what_sees_what() -> list[Section]:
    i, j = torch.arange(4)[:, None], torch.arange(4)
    strict = (j < i).double()
    right = sees(spec.Causal(), i, j).double()
    before = strict.sum(1)
    return [
        Heading("Who sees whom"),
        Equation("N4: M(i, j) = 0 if j ≤ i, −∞ if j > i"),
        Beside(
            (
                matrix("j ≤ i", right, WORDS, WORDS, QUERIES_KEYS, decimals=0),
                matrix("j < i", strict, WORDS, WORDS, QUERIES_KEYS, decimals=0),
            )
        ),
        Slip(
            "scores q_i · k_j for j < i, and −∞ for j ≥ i",
            "j ≤ i and j > i",
            "with j < i a word would not see itself and <start> would see nothing: the words see "
            f"{vector(before, 0)} keys. The notes' own table, and N4, have j ≤ i",
            "N2, masking the future",
        ),
    ]


def _grid() -> list[Section]:
    words = ["Hi", "how", "are", "you"]
    raw = table([98, 27, 10, 12], [27, 89, 31, 67], [10, 31, 91, 54], [12, 67, 54, 92])
    weights = softmax(raw / math.sqrt(64))
    sums = SCORES.sum(1)
    return [
        Heading("Where the scores come from"),
        Prose("N2 shows scores for «Hi how are you», then the grid above as their scaled softmax. With √64:"),
        Beside(
            (
                matrix("scores", raw, words, words, QUERIES_KEYS, decimals=0),
                matrix("softmax(scores / √64)", weights, words, words, QUERIES_KEYS, shade=True),
            )
        ),
        Slip(
            "the grid 0.7 0.1 0.1 0.1 … as Softmax(grid), with 0.1 0.3 0.6 0.1 as the row of are",
            f"no softmax: its rows sum to {vector(sums, 1)}",
            "a softmax row sums to 1; the grid is an illustration",
            "N2, scaled scores",
        ),
        Slip(
            "the same grid again as the scaled scores that are masked",
            "scores here and weights on the earlier page, which cannot be one grid",
            "softmax comes once, after the mask; weights must not go through it again",
            "N2, look-ahead mask",
        ),
    ]


def _leak() -> list[Section]:
    words = ["aap", "kaise", "hain"]
    given = table([0.8, 0.1, 0.1], [0.15, 0.75, 0.1], [0.1, 0.2, 0.7])
    masked = softmax(given.log(), spec.Causal())
    shared = given.tril() / given.tril().sum(1, keepdim=True)
    return [
        Heading("Why: the leak that N3 points out"),
        Prose(
            "Three Hindi words, aap kaise hain (आप कैसे हैं), with weights as given. All three are there in training;"
            " when translating, the later ones are not."
        ),
        Beside(
            (
                matrix("as given", given, words, words, QUERIES_KEYS, shade=True, decimals=2),
                matrix("with the mask", masked, words, words, QUERIES_KEYS, shade=True),
            )
        ),
        Check(
            "masking before softmax is sharing out again what the visible keys had",
            furthest(masked, shared) < 1e-12,
            f"kaise: 0.15 / (0.15 + 0.75) = {float(shared[1, 0]):.4f}",
        ),
    ]
