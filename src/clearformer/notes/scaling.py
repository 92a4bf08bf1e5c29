"""Why √d_k (N0, N1, N3): the variance of a dot product grows with its width, and softmax saturates."""

import math

import torch
from torch import Tensor

from clearformer.notes.layers import attended
from clearformer.notes.parts import Check, Curves, Equation, Heading, Ours, Prose, Section, Slip, Table

WIDTHS = (1, 2, 3, 4, 16, 64, 256, 512)
PAIRS = 8_000
KEYS = 10


def scaling() -> list[Section]:
    rows = [_measured(d) for d in WIDTHS]
    plain, scaled = (torch.tensor([row[n] for row in rows]) for n in (0, 1))
    widths = torch.tensor([float(d) for d in WIDTHS])
    (_, _, sharp, _, shrunk, _), (_, _, _, calm, _, kept) = rows[-1], rows[-1]
    return [
        Heading("The variance of a dot product"),
        Equation("q · k = q₁k₁ + … + q_d k_d    Var = d · Var(q₁k₁) = d for entries of variance 1"),
        Equation("Var(c X) = c² Var(X), so dividing by √d divides the variance by d"),
        Ours(f"{PAIRS:,} pairs of vectors with entries drawn from the normal distribution, seed 0, at each width."),
        Table(
            "Measured",
            ("d_k", "Var(q · k)", "Var(q · k / √d_k)"),
            tuple((str(d), f"{row[0]:.4f}", f"{row[1]:.4f}") for d, row in zip(WIDTHS, rows, strict=True)),
        ),
        Check(
            "without scaling the variance is d_k, within a tenth",
            bool(((plain / widths - 1).abs() < 0.1).all()),
            f"{float((plain / widths).min()):.4f} to {float((plain / widths).max()):.4f} times d_k",
        ),
        Check(
            "with scaling it is 1, whatever the width",
            bool(((scaled - 1).abs() < 0.1).all()),
            f"{float(scaled.min()):.4f} to {float(scaled.max()):.4f}",
        ),
        Heading("What the softmax makes of it"),
        Prose(f"Each query over {KEYS} keys: the largest weight, and how much a weight still moves with its score."),
        Equation("∂w/∂s = w (1 − w), summed over the keys"),
        Table(
            "Averages",
            ("d_k", "largest weight", "with √d_k", "slope", "with √d_k"),
            tuple((str(d), *(f"{x:.4f}" for x in row[2:])) for d, row in zip(WIDTHS, rows, strict=True)),
        ),
        Curves(
            "The largest weight",
            tuple(map(float, WIDTHS)),
            (("without √d_k", tuple(row[2] for row in rows)), ("with √d_k", tuple(row[3] for row in rows))),
            "d_k",
            "mean weight",
            doubling=True,
        ),
        Check(
            "unscaled and wide, one key takes all and the slope is nearly gone",
            sharp > 0.9 and shrunk < 0.2,
            f"at 512: weight {sharp:.4f} and slope {shrunk:.4f}, against {calm:.4f} and {kept:.4f} scaled",
        ),
        Slip(
            "a large d_k leads to exploding gradient descent",
            "vanishing gradients",
            "large scores saturate the softmax, and there its slope w (1 − w) is nearly 0",
            "N1, scaling",
        ),
        Slip(
            "d_k as the dimension of context embeddings",
            "the width of the queries and keys",
            "the variance measured above is that of q · k; the paper has 512-wide embeddings and d_k = 64",
            "N3, why scaling",
        ),
    ]


def _measured(d: int) -> tuple[float, float, float, float, float, float]:
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(PAIRS // KEYS, KEYS, d, generator=draw).flatten(0, 1)[:, None]  # a query for each pair
    k = torch.randn(PAIRS, 1, d, generator=draw)
    plain, scaled = attended(q, k, k).scores, attended(q, k, k, 1 / math.sqrt(d)).scores
    some = k.view(PAIRS // KEYS, KEYS, d)
    sharp, calm = (attended(q[::KEYS], some, some, c).weights for c in (1.0, 1 / math.sqrt(d)))
    return (float(plain.var()), float(scaled.var()), _top(sharp), _top(calm), _slope(sharp), _slope(calm))


def _top(weights: Tensor) -> float:
    return float(weights.amax(-1).mean())


def _slope(weights: Tensor) -> float:
    return float((weights * (1 - weights)).sum(-1).mean())
