"""Scaled dot-product attention with numbers: N1's softmax, N2's numerical, N2's soft hash table."""

import math

import torch

from clearformer.notes.layers import attended, by_hand, softmax, steps, table, weighted_sum
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
    labels,
    matrix,
    vector,
)

X = table([1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1])
W_KEY = table([0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0])
W_QUERY = table([1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1])
W_VALUE = table([0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0])
INPUTS = ("input 1", "input 2", "input 3")
WORDS = ("The", "cat", "sat")


def softmax_and_sum() -> list[Section]:
    scaled = table([6, 4]) / math.sqrt(4)
    pair = softmax(scaled)
    weights, other = softmax(table([1, 0, 1])), softmax(table([1.5, 0, 1]))
    values = table([1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 1, 0])
    products, total = weights.T * values, weighted_sum(weights, values)
    return [
        Heading("Scaling and softmax"),
        Equation("scores [6, 4], d_k = 4:  [6/√4, 4/√4] = " + vector(scaled[0], 0)),
        matrix("softmax([3, 2])", pair, columns=["6/√4", "4/√4"], shade=True),
        Slip(
            "softmax([3, 2]) = (0.75, 0.25)",
            vector(pair[0]),
            f"e³/(e³ + e²) = 1/(1 + e⁻¹) = 1/{1 + math.exp(-1):.4f} = {float(pair[0, 0]):.4f}",
            "N1, scaling",
        ),
        Heading("The weights of «The»"),
        Slip(
            "3/2 = 1",
            "1.5, and the weights would be " + vector(other[0]),
            "3/√4 = 1.5; the notes go on with [1, 0, 1], and so do we",
            "N1, scaled scores",
        ),
        Slip(
            "the second and third score both as (The, K, sat), and the second value as V_K",
            "(The, cat) and V_cat",
            "there is one score and one value for each word: The, cat, sat",
            "N1, scaled scores",
        ),
        matrix("softmax([1, 0, 1])", weights, ["The"], WORDS, QUERIES_KEYS, shade=True),
        Slip(
            "[0.4223, 0.1554, 0.4221]",
            vector(weights[0]),
            "equal scores have equal weights; as printed the row sums to 0.9998",
            "N1, applying softmax",
        ),
        Heading("The weighted sum of values"),
        matrix("values", values, WORDS, decimals=0),
        matrix("weight · value", products, WORDS),
        Slip(
            "0.4223 · [0, 1, 1, 0] = [0.4223, 0.4223, 0.4223, 0]",
            vector(products[2]),
            "0.4223 · 0 = 0",
            "N1, weighted sum",
        ),
        matrix("their sum, the output for «The»", total),
        Slip(
            "[1.2669, 0.7999, 1.2669, 0.7999]",
            vector(total[0]),
            "each column adds the three rows above it; weights that sum to 1 never pass the largest value, 1",
            "N1, weighted sum",
        ),
        Slip(
            "E_The = [1, 0, 0, 0] at the start and The = [1, 0, 1, 0] at the end",
            "[1, 0, 1, 0] as the value of The",
            "an embedding becomes a value by W_V; the notes skip that step",
            "N1, token embeddings and weighted sum",
        ),
    ]


def numerical() -> list[Section]:
    plain = steps(by_hand(W_QUERY, W_KEY, W_VALUE, scale=1.0), X)
    scaled = steps(by_hand(W_QUERY, W_KEY, W_VALUE), X)
    highlight = [(0, j) for j in range(3)]
    first = [float(s) for s in plain.scores[0, 0]]
    parts = [f"{math.exp(s):.4f}" for s in first]
    return [
        Heading("Step 1: queries, keys and values"),
        Beside((matrix("X", X, INPUTS, decimals=0),)),
        Beside(
            (
                matrix("W_query", W_QUERY, decimals=0),
                matrix("W_key", W_KEY, decimals=0),
                matrix("W_value", W_VALUE, decimals=0),
            )
        ),
        Equation("Q = X W_query    K = X W_key    V = X W_value"),
        Beside(
            (
                matrix("Q", plain.q[0], INPUTS, decimals=0),
                matrix("K", plain.k[0], INPUTS, decimals=0),
                matrix("V", plain.v[0], INPUTS, decimals=0),
            )
        ),
        Heading("Step 2: scores"),
        Equation("E = Q Kᵀ"),
        matrix("Q Kᵀ", plain.scores[0], INPUTS, INPUTS, QUERIES_KEYS, decimals=0),
        Heading("Steps 3 and 4 without scaling: output = softmax(Q Kᵀ) V"),
        matrix("weights", plain.weights[0], INPUTS, INPUTS, QUERIES_KEYS, highlight=highlight, shade=True),
        Equation(f"* input 1: e², e⁴, e⁴ = {', '.join(parts)}, each over their sum {sum(map(math.exp, first)):.4f}"),
        matrix("output", plain.mixed[0], INPUTS),
        Heading("Steps 3 and 4 divided by √d_k = √3: output = softmax(Q Kᵀ / √3) V"),
        Beside(
            (
                matrix("Q Kᵀ / √3", scaled.scores[0], INPUTS, INPUTS, QUERIES_KEYS),
                matrix("weights, scaled", scaled.weights[0], INPUTS, INPUTS, QUERIES_KEYS, shade=True),
            )
        ),
        matrix("output, scaled", scaled.mixed[0], INPUTS),
        Prose("Scaled, the weights are less extreme: input 1 keeps more of itself."),
        Slip(
            "d_k as the dimension of the vectors that represent the input",
            "the width of the queries and keys: 3 here, where the inputs are 4 wide",
            "it is their dot product, a sum of d_k terms, that is scaled; in the paper inputs have 512 and keys 64",
            "N0, self-attention computation; N3, why scaling",
        ),
    ]


def hash_table() -> list[Section]:
    names = labels("key-a key-b key-c key-d")
    keys = torch.eye(4, dtype=torch.float64)
    values = table([10, 0], [0, 10], [20, 20], [30, 0])
    exact, near = table([0, 0, 1, 0]), table([0, 0.6, 1, 0.2])
    looked_up = dict(zip(names, values.tolist(), strict=True))["key-c"]
    temperatures = (1.0, 0.5, 0.1, 0.01)
    soft = [attended(near, keys, values, 1 / t) for t in temperatures]
    hard = attended(exact, keys, values, 100.0)
    named = [f"T = {t:g}" for t in temperatures]
    return [
        Heading("A lookup table: the query equals one key"),
        Ours("four keys, values of two numbers, and queries; the notes draw the idea without numbers."),
        matrix("values", values, names, decimals=0),
        Equation(f"table[key-c] = {vector(table(looked_up)[0], 0)}"),
        Heading("Attention: the query matches every key, more or less"),
        Equation("output = Σ_j softmax_j(query · key_j / T) value_j"),
        Prose(f"The query {vector(near[0], 1)} is most like key-c, a little like key-b. T is the temperature."),
        matrix("weights", torch.cat([s.weights[0] for s in soft]), named, names, ("query at", "keys"), shade=True),
        matrix("output", torch.cat([s.mixed[0] for s in soft]), named),
        Check(
            "as T falls, the soft lookup becomes the hard one",
            bool(torch.allclose(soft[-1].mixed[0, 0], values[2])),
            f"{vector(soft[-1].mixed[0, 0])} at T = 0.01, the value of key-c",
        ),
        Check(
            "an exact query at T = 0.01 gives what the table gives",
            bool(torch.allclose(hard.mixed[0, 0], table(looked_up)[0])),
            vector(hard.mixed[0, 0]),
        ),
        Prose("Unlike a hash table, the soft one has a gradient: queries and keys can be learned."),
    ]
