"""Sinusoidal positions (N1–N4): the formula, why not counts, the binary counter, the heat map."""

import math
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

from clearformer.core.positions import sinusoid
from clearformer.errors import ClearformerError
from clearformer.notes.layers import furthest, table
from clearformer.notes.parts import (
    Beside,
    Check,
    Curves,
    Equation,
    Heading,
    Picture,
    Prose,
    Section,
    Slip,
    Table,
    matrix,
    vector,
)

WORDS, WIDTH = 50, 128


def encoding(count: int, width: int) -> Tensor:
    """count × width: PE(0), PE(1), ... as the core computes them, in double precision."""
    return sinusoid(torch.arange(count), width, 10_000.0, "interleaved", table([0.0]))


def positions() -> list[Section]:
    return [*_counts(), *_formula(), *_slips(), *_distance(), *_counter(), *_heat()]


def _counts() -> list[Section]:
    last = [9, 99, 999]
    waves = encoding(1000, 6)
    rows = tuple((str(n), str(n), f"{n / 999:.4f}", vector(waves[n][:2])) for n in last)
    return [
        Heading("Why not raw counts"),
        Table("", ("word", "count", "count / last of 1000", "PE, first two of 6"), rows),
        Prose(
            "A count is unbounded and would drown the embedding it is added to. Divided by the length it is bounded, "
            "but a step then means something else in each text. Sines and cosines are bounded, smooth, and the same "
            "in every text. One sine repeats itself; many of different speed do not, within any usual length."
        ),
        Check(
            "no number of PE(0) … PE(999) exceeds 1",
            float(waves.abs().max()) <= 1,
            f"largest {float(waves.abs().max()):.4f}",
        ),
        Check(
            "six numbers already tell 1000 positions apart",
            float(torch.pdist(waves).min()) > 1e-3,
            f"the two nearest are {float(torch.pdist(waves).min()):.4f} apart",
        ),
    ]


def _formula() -> list[Section]:
    return [
        Heading("The formula, d = 6"),
        Equation("PE(pos, 2i) = sin(pos / 10000^(2i/d))    PE(pos, 2i+1) = cos(pos / 10000^(2i/d))"),
        matrix(
            "PE",
            encoding(3, 6),
            ("PE(0) river", "PE(1) bank", "PE(2)"),
            ("sin i=0", "cos i=0", "sin i=1", "cos i=1", "sin i=2", "cos i=2"),
        ),
        Prose("Position 0 is 0, 1, 0, 1, …; the later columns hardly move: their waves are long."),
        Curves(
            "Some dimensions of 128 over 50 words",
            tuple(map(float, range(WORDS))),
            tuple((f"dimension {n}", tuple(encoding(WORDS, WIDTH)[:, n].tolist())) for n in (0, 8, 16, 32, 64)),
            "words",
            "PE",
        ),
    ]


def _slips() -> list[Section]:
    two = encoding(4, 2)
    return [
        Slip(
            "PE(pos, i) = sin(pos / 10000^(2i/d))",
            "PE(pos, 2i)",
            "sines take the even places and cosines the odd ones; with i, sines would overwrite cosines. "
            "The notes' own numbers use 2i",
            "N3, positional encoding",
        ),
        Slip(
            "10000^(2i/p), with the p that was the width of queries and keys",
            "10000^(2i/d)",
            "PE is added to the embedding, so it has the embedding's width d",
            "N4, positional encoding",
        ),
        Slip(
            "the vectors [1 0], [0 1], [1 0], [0 1] for positions 1 to 4",
            "; ".join(vector(row) for row in two),
            "with d = 2 these are sin and cos of 0, 1, 2, 3; as printed positions 1 and 3 could not be told apart",
            "N1, positional encoding",
        ),
        Slip(
            "a specific pattern that the model learns",
            "a fixed pattern in the original model",
            "sines and cosines have no parameters; the model learns to use them. BERT and GPT-2 do learn a table",
            "N0, positional encoding",
        ),
    ]


def _distance() -> list[Section]:
    waves = encoding(60, WIDTH)
    near, far = waves[:-5] * waves[5:], waves[:-20] * waves[20:]
    spread = max(float(x.sum(1).max() - x.sum(1).min()) for x in (near, far))
    return [
        Heading("Relative positions are in it"),
        Equation("PE(p) · PE(p + k) = Σ_i cos(k / 10000^(2i/d)): no p on the right"),
        Check(
            "the same distance gives the same dot product anywhere",
            spread < 1e-9,
            f"{float(near[0].sum()):.4f} for k = 5 and {float(far[0].sum()):.4f} for k = 20, at all of 60 positions",
        ),
        Curves(
            "PE(0) · PE(k), d = 128: it falls as words move apart, in waves",
            tuple(map(float, range(60))),
            (("d = 128", tuple((waves @ waves[0]).tolist())),),
            "distance k",
            "dot product",
        ),
    ]


def _counter() -> list[Section]:
    numbers, bits = torch.arange(16), torch.arange(3, -1, -1)
    binary = numbers[:, None].bitwise_right_shift(bits).bitwise_and(1)
    long = torch.arange(64)
    flips = [int(long.bitwise_right_shift(bit).bitwise_and(1).diff().abs().sum()) for bit in range(6)]
    width = 26  # 10000^(2/26) = 2.03: each wave is twice as long as the one before, as bits are
    sines = encoding(64, width)[:, ::2]
    changes = [int((wave[1:] >= 0).bitwise_xor(wave[:-1] >= 0).sum()) for wave in sines.T[:6]]
    rows = tuple(
        (f"bit {n}", str(flips[n]), f"sin i={n}", f"{2 * math.pi * 10_000 ** (2 * n / width):.1f}", str(changes[n]))
        for n in range(6)
    )
    signs = (sines[:16, :4].flip(1) >= 0).long()
    named = [str(n) for n in range(16)]
    return [
        Heading("The binary counter"),
        Prose("The higher the bit, the more seldom it flips. The later the sine, the more seldom it changes sign."),
        Beside(
            (
                matrix("bits", binary, named, ("8", "4", "2", "1"), decimals=0),
                matrix("sine ≥ 0, d = 26", signs, named, ("i=3", "i=2", "i=1", "i=0"), decimals=0),
            )
        ),
        Table("Changes in 64 steps", ("", "flips", "", "wavelength", "sign changes"), rows),
        Check(
            "both fall by about half from row to row",
            flips == sorted(flips, reverse=True) and changes == sorted(changes, reverse=True),
            f"{flips} and {changes}",
        ),
    ]


def _heat() -> list[Section]:
    values = encoding(WORDS, WIDTH)
    first, last = values[:, 0], values[:, -WIDTH // 4 :]
    moves, still = float(first.max() - first.min()), furthest(last, last[:1])
    return [
        Heading("The heat map: 128 dimensions, 50 words"),
        Picture("PE, dark −1 to bright 1", tuple(map(tuple, values.tolist())), "words", "dimensions"),
        Check(
            "the higher dimensions are almost the same for all 50 words",
            still < 0.1,
            f"the last quarter moves by {still:.4f} at most, the first column by {moves:.4f}",
        ),
        Prose("As a picture: clearformer notes positions --out positions.svg"),
    ]


def save_heatmap(path: str | Path) -> None:
    """Write the heat map as an image; its kind follows the ending of the name."""
    try:
        figures = import_module("matplotlib.figure")
    except ImportError:
        raise ClearformerError(
            "the heat map needs matplotlib, which is not installed; pip install 'clearformer[plot]'"
        ) from None
    figure = figures.Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(encoding(WORDS, WIDTH).numpy(), cmap="viridis", vmin=-1, vmax=1, aspect="auto")
    axes.set(xlabel="dimensions →", ylabel="words ↓", title="Sinusoidal positions")
    figure.colorbar(image)
    figure.savefig(path)
