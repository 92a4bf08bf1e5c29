"""Self-attention without parameters, then with Q, K and V (N3), and which of the two can give the notes' weights."""

import torch
from torch import Tensor

from clearformer.notes.layers import by_hand, furthest, steps, table
from clearformer.notes.parts import (
    QUERIES_KEYS,
    Beside,
    Check,
    Equation,
    Heading,
    Ours,
    Prose,
    Section,
    Slip,
    matrix,
    tiny,
    vector,
)
from clearformer.notes.words import S1

MONEY, RIVER = ["money", "bank", "grows"], ["river", "bank", "flows"]
FEATURES = ["finance", "water", "change"]
MONEY_VECTORS = table([2, 0, 0], [1, 1, 0], [1, 0, 1])
RIVER_VECTORS = table([0, 2, 0], [1, 1, 0], [0, 1, 1])


def bank() -> list[Section]:
    return [*_without_parameters(), *_impossible(), *_with_parameters(), *_possible()]


def _without_parameters() -> list[Section]:
    same = torch.eye(3, dtype=torch.float64)
    layer = by_hand(same, same, same, scale=1.0)  # Q = K = V = X
    money, river = steps(layer, MONEY_VECTORS), steps(layer, RIVER_VECTORS)
    return [
        Heading("Without parameters: Q = K = V = the embeddings"),
        Equation("new(i) = Σ_j softmax_j(e_i · e_j) e_j"),
        Ours("embeddings small enough to follow by hand; the notes give none."),
        Beside((matrix("money bank grows", MONEY_VECTORS, MONEY, FEATURES, decimals=0),)),
        Beside(
            (
                matrix("dot products", money.scores[0], MONEY, MONEY, QUERIES_KEYS, decimals=0),
                matrix("softmax of each row", money.weights[0], MONEY, MONEY, QUERIES_KEYS, shade=True),
            )
        ),
        Beside(
            (
                matrix("new vectors", money.mixed[0], MONEY, FEATURES),
                matrix("new vectors, river bank flows", river.mixed[0], RIVER, FEATURES),
            )
        ),
        Check(
            "bank has become two vectors, from one",
            furthest(money.mixed[0, 1], river.mixed[0, 1]) > 0,
            f"{vector(money.mixed[0, 1])} and {vector(river.mixed[0, 1])}",
        ),
        Prose("All rows come from one matrix product: no word waits for another."),
        Slip(
            "e_bank(new) = [e_bank · e_money] e_money + …, with the dot products themselves as weights",
            "the softmax of the dot products",
            "dot products need not be positive nor sum to 1: bank's are "
            f"{vector(money.scores[0, 1], 0)} here, which sum to {float(money.scores[0, 1].sum()):.0f}",
            "N3, similarity",
        ),
    ]


def _round_trips(w: Tensor) -> tuple[float, float]:
    """The products of weights around the triangle, one way and the other."""
    return float(w[0, 1] * w[1, 2] * w[2, 0]), float(w[0, 2] * w[2, 1] * w[1, 0])


def _impossible() -> list[Section]:
    same = torch.eye(3, dtype=torch.float64)
    here, back = _round_trips(steps(by_hand(same, same, same, scale=1.0), MONEY_VECTORS).weights[0])
    one, other = _round_trips(S1)
    return [
        Heading("Can this give the weights of S1?"),
        Prose("e_i · e_j = e_j · e_i, so around the triangle the weights multiply to the same number either way:"),
        Equation("w(money,bank) w(bank,grows) w(grows,money) = w(money,grows) w(grows,bank) w(bank,money)"),
        Check("so it is for our embeddings", abs(here - back) < 1e-12, f"{here:.6f} and {back:.6f}"),
        Slip(
            "the weights of S1 as dot products between those embeddings",
            f"impossible for any embeddings, softmax or not: S1 gives {one:.4f} one way and {other:.4f} the other",
            "only separate queries and keys let bank look at money otherwise than money looks at bank",
            "N3, similarity",
        ),
    ]


def _with_parameters() -> list[Section]:
    query, key, value = (
        table([1, 0], [0, 1], [1, 1]),
        table([1, 0], [1, 1], [0, 1]),
        table([1, 0], [0, 1], [1, 1]),
    )
    layer = by_hand(query, key, value)
    found = steps(layer, MONEY_VECTORS)
    free = sum(p.numel() for m in (layer.query, layer.key, layer.value) for p in m.parameters())
    return [
        Heading("With parameters: Q = X W_Q, K = X W_K, V = X W_V"),
        Ours("three small matrices; in a model they start random and training sets them."),
        Beside(
            (
                matrix("W_Q", query, FEATURES, decimals=0),
                matrix("W_K", key, FEATURES, decimals=0),
                matrix("W_V", value, FEATURES, decimals=0),
            )
        ),
        Beside(
            (
                matrix("Q", found.q[0], MONEY, decimals=0),
                matrix("K", found.k[0], MONEY, decimals=0),
                matrix("V", found.v[0], MONEY, decimals=0),
            )
        ),
        Beside(
            (
                matrix("Q Kᵀ / √2", found.scores[0], MONEY, MONEY, QUERIES_KEYS),
                matrix("softmax of each row", found.weights[0], MONEY, MONEY, QUERIES_KEYS, shade=True),
            )
        ),
        Beside((matrix("weights · V", found.mixed[0], MONEY),)),
        Check(
            "training has something to set",
            free == 18,
            f"0 numbers without parameters, 3 · 3 · 2 = {free} with; the same for every word",
        ),
    ]


def _possible() -> list[Section]:
    # Queries ln S1 and keys 1 give the scores ln S1, and the softmax undoes the logarithm.
    inverse = torch.linalg.inv(MONEY_VECTORS)
    query, key = inverse @ S1.log(), inverse
    found = steps(by_hand(query, key, torch.eye(3, dtype=torch.float64), scale=1.0), MONEY_VECTORS)
    return [
        Heading("With Q and K, S1 can be reached"),
        Ours("W_Q and W_K solved for on our embeddings; training would find its own."),
        Beside((matrix("W_Q", query, FEATURES), matrix("W_K", key, FEATURES))),
        Beside((matrix("weights", found.weights[0], MONEY, MONEY, QUERIES_KEYS, shade=True),)),
        Check(
            "these are the notes' weights S1",
            furthest(found.weights[0], S1) < 1e-12,
            f"largest difference {tiny(furthest(found.weights[0], S1))}",
        ),
    ]
