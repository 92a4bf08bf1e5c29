"""N4's column convention: X is d × n, and attention is Z = V softmax(KᵀQ/√p)."""

import math

from torch import Tensor

from clearformer import spec
from clearformer.notes.attention import INPUTS, W_KEY, W_QUERY, W_VALUE, X
from clearformer.notes.layers import attended, by_hand, furthest, steps, table
from clearformer.notes.masks import hidden
from clearformer.notes.parts import Beside, Check, Equation, Heading, Ours, Prose, Section, Slip, Table, matrix, tiny

KEYS_QUERIES = ("keys", "queries")


def columns() -> list[Section]:
    rows = steps(by_hand(W_QUERY, W_KEY, W_VALUE), X)
    q, k, v = rows.q[0].T, rows.k[0].T, rows.v[0].T  # p × n, p × n, m × n
    weights = (k.T @ q / math.sqrt(len(q))).softmax(0)
    z = v @ weights
    return [
        Heading("The same numbers, stood upright"),
        Prose("N2 has a word in each row, N4 a word in each column: X is d × n, Q = W_QᵀX is p × n."),
        Equation("rows:     Output = softmax(Q Kᵀ / √p) V    columns: Z = V softmax(Kᵀ Q / √p)"),
        Beside(
            (
                matrix("Q", q, columns=INPUTS, decimals=0),
                matrix("K", k, columns=INPUTS, decimals=0),
                matrix("V", v, columns=INPUTS, decimals=0),
            )
        ),
        matrix("softmax of each column of Kᵀ Q / √3", weights, INPUTS, INPUTS, KEYS_QUERIES, shade=True),
        matrix("Z = V · weights", z, columns=INPUTS),
        Check(
            "Z is example 4's output, transposed",
            furthest(z, rows.mixed[0].T) < 1e-12,
            f"largest difference {tiny(furthest(z, rows.mixed[0].T))}",
        ),
        Prose("V stands on the left, so each column of the weights makes one output: columns must sum to 1."),
        *_as_printed(),
        Slip(
            "qᵀk_i = x_iᵀ W_Q W_Kᵀ x_i",
            "q_iᵀ k_j = x_iᵀ W_Q W_Kᵀ x_j",
            "query and key come from two words; with one index it compares each word with itself only",
            "N4, similarity measures",
        ),
        Slip(
            "Z_1 = V softmax(…), …, Z_h = V softmax(…)",
            "Z_h = V_h softmax(…)",
            "every head has values of its own: V_h = W_V^hᵀ X stands on the line above",
            "N4, heads",
        ),
    ]


def _as_printed() -> list[Section]:
    changed = X.clone()
    changed[2] = table([1, 1, 1, 0])[0]
    cases = ((X, spec.Everyone()), (changed, spec.Everyone()), (X, spec.Causal()))
    found = [_three_ways(x, pattern) for x, pattern in cases]
    named = ("N2's numbers", "input 3 = [1, 1, 1, 0]", "N2's numbers, masked")
    rows = tuple((name, *(f"{x:.4f}" for x in row)) for name, row in zip(named, found, strict=True))
    (right, accident, _), (_, other, other_rows), (_, masked, masked_rows) = found
    return [
        Heading("As printed: Z = V softmax(Qᵀ K / √p)"),
        Prose("The softmax may be meant over the columns of QᵀK or over its rows; both are tried."),
        Ours("the second line changes one input; the third adds N4's mask M(i, j) = 0 for j ≤ i."),
        Table(
            "Largest difference from attention",
            ("", "KᵀQ, columns", "QᵀK, columns", "QᵀK, rows"),
            rows,
        ),
        Check(
            "QᵀK gives the right numbers on N2's inputs by accident only",
            right < 1e-12 and accident < 1e-12 and other > 0.1,
            "there Q Kᵀ = [2 4 4; 4 16 12; 4 12 10] happens to be symmetric",
        ),
        Slip(
            "Z = V softmax(QᵀK/√p)",
            "Z = V softmax(KᵀQ/√p)",
            "V is multiplied from the left, so column j of the softmax must hold the weights of query j over the "
            f"keys; with QᵀK it is off by {min(other, other_rows):.4f} or more once the scores are not symmetric",
            "N4, attention computation",
        ),
        Slip(
            "QᵀK + M with M(i, j) = 0 for j ≤ i",
            "KᵀQ + Mᵀ, 0 where the key i ≤ the query j",
            f"the mask turns with the scores; as printed it is off by {min(masked, masked_rows):.4f} or more",
            "N4, masked self-attention",
        ),
    ]


def _three_ways(x: Tensor, pattern: spec.Pattern) -> tuple[float, float, float]:
    """How far KᵀQ by columns, QᵀK by columns and QᵀK by rows are from the core's attention."""
    given = steps(by_hand(W_QUERY, W_KEY, W_VALUE), x)
    truth = attended(given.q, given.k, given.v, 1 / math.sqrt(3), pattern).mixed[0].T
    q, k, v = given.q[0].T, given.k[0].T, given.v[0].T
    scores = q.T @ k / math.sqrt(3) + hidden(pattern, 3)  # queries down, keys across
    ways = (v @ scores.T.softmax(0), v @ scores.softmax(0), v @ scores.softmax(1))
    upright, down, across = (furthest(way, truth) for way in ways)
    return upright, down, across
