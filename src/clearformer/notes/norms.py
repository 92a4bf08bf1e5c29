"""Residual connections and norms (N1–N4): layer norm against batch norm, with the numbers that enter each mean."""

import torch
from torch import Tensor, nn

from clearformer import presets
from clearformer.assemble import build
from clearformer.core.block import LayerNorm, Residual
from clearformer.core.model import EncoderDecoder
from clearformer.core.places import Places
from clearformer.notes.layers import furthest, part, table
from clearformer.notes.parts import (
    Beside,
    Check,
    Equation,
    Heading,
    Ours,
    Prose,
    Section,
    Slip,
    Table,
    labels,
    matrix,
    tiny,
    vector,
)

SAMPLES, FEATURES = labels("s1 s2 s3 s4 s5"), labels("f1 f2 z1 z2 z3")
N3_TABLE = table([2, 3, 7, 5, 4], [1, 1, 2, 3, 4], [5, 4, 1, 2, 3], [6, 1, 7, 5, 6], [7, 1, 3, 3, 4])


def norms() -> list[Section]:
    return [*_two_norms(), *_padding(), *_residual()]


def layer_norm(x: Tensor) -> Tensor:
    with torch.no_grad():
        return LayerNorm(x.size(-1)).double()(x)


def batch_norm(x: Tensor) -> Tensor:
    with torch.no_grad():
        return nn.BatchNorm1d(x.size(-1)).double().train()(x)


def _two_norms() -> list[Section]:
    by_column, by_row = batch_norm(N3_TABLE), layer_norm(N3_TABLE)
    return [
        Heading("The same table, normed two ways"),
        Equation("(x − mean) / √(variance + 0.00001)"),
        matrix("the table", N3_TABLE, SAMPLES, FEATURES, ("samples", "features"), decimals=0),
        Prose(f"Batch norm takes the mean of a column. f1: {_mean(N3_TABLE[:, 0])}"),
        matrix("batch norm", by_column, SAMPLES, FEATURES, ("samples", "features")),
        Prose(f"Layer norm takes the mean of a row. s1: {_mean(N3_TABLE[0])}"),
        matrix("layer norm", by_row, SAMPLES, FEATURES, ("samples", "features")),
        Check(
            "batch norm: every column has mean 0 and variance 1",
            bool(by_column.mean(0).abs().max() < 1e-9 and (by_column.var(0, correction=0) - 1).abs().max() < 1e-4),
            f"means {vector(by_column.mean(0).abs())}",
        ),
        Check(
            "layer norm: so has every row",
            bool(by_row.mean(1).abs().max() < 1e-9 and (by_row.var(1, correction=0) - 1).abs().max() < 1e-4),
            f"means {vector(by_row.mean(1).abs())}",
        ),
    ]


def _padding() -> list[Section]:
    words = table([2, 5, 3], [4, 1, 6], [3, 3, 3], [5, 2, 8], [1, 4, 2])  # a text of five words
    short = table([6, 3, 4], [2, 7, 1], [4, 5, 7], [0, 0, 0], [0, 0, 0])  # three words and padding
    batch = torch.cat([words, short])
    real = torch.cat([words, short[:3]])
    named = [*(f"A, word {n}" for n in range(1, 6)), *(f"B, word {n}" for n in range(1, 4)), "B, padding", "B, padding"]
    column, without = batch[:, 0], real[:, 0]
    long = torch.cat([real[-3:, 0], torch.zeros(100, dtype=torch.float64)])
    moved = furthest(batch_norm(batch)[:8], batch_norm(real))
    kept = furthest(layer_norm(batch)[:8], layer_norm(real))
    return [
        Heading("The same on a padded batch"),
        Ours("two texts of five and three words with three features; the second is padded with zeros."),
        Beside((matrix("the batch", batch, named, labels("f1 f2 f3"), decimals=0),)),
        Table(
            "What enters each mean",
            ("norm", "of", "numbers", "mean"),
            (
                ("batch, padded", "f1", _numbers(column), f"{float(column.mean()):.4f}"),
                ("batch, words only", "f1", _numbers(without), f"{float(without.mean()):.4f}"),
                ("layer", "B, word 1", _numbers(short[0]), f"{float(short[0].mean()):.4f}"),
                ("layer", "B, padding", _numbers(short[3]), f"{float(short[3].mean()):.4f}"),
            ),
        ),
        Check("batch norm: padding changes the vectors of real words", moved > 0.01, f"by up to {moved:.4f}"),
        Check("layer norm: it does not, each word is normed by itself", kept == 0, f"by {tiny(kept)}"),
        Prose(
            f"N3's three words and 100 trailing zeros: B's f1 alone has mean {float(long[:3].mean()):.4f}, "
            f"with the zeros {float(long.mean()):.4f}."
        ),
        *_padded_model(),
    ]


def _padded_model() -> list[Section]:
    model = build(presets.original("tiny", dropout=0.0), seed=0)
    assert isinstance(model, EncoderDecoder)
    ids = torch.tensor([[5, 6, 7]])
    padded = torch.cat([ids, torch.zeros(1, 100, dtype=torch.long)], 1)
    with torch.no_grad():
        alone = model.encode(ids).states
        beside = model.encode(padded, padded > 0).states[:, :3]
    return [
        Check(
            "a whole encoder: three words alone and with 100 pads come out the same",
            furthest(alone, beside) < 1e-5,
            f"largest difference {tiny(furthest(alone, beside))}",
        )
    ]


def _residual() -> list[Section]:
    model = build(presets.original("tiny", dropout=0.0), kernel="reference", seed=0).double()
    attend, feed = (part(model, f"encoder.blocks.0.branches.{name}", Residual) for name in ("self", "feedforward"))
    x, places = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(0)).double(), Places.span(0, 3)
    with torch.no_grad():
        z = attend.layer(x, places, None)
        y = attend.after(x + z)
        block = feed(attend(x, places, None), places, None)
        ours = feed.after(y + feed.layer(y))
        printed = feed.after((x + z) + feed.layer(x + z))
    return [
        Heading("Residual connection, then norm"),
        Equation("y = LayerNorm(x + attention(x))    output = LayerNorm(y + feedforward(y))"),
        Prose("What a layer computes is added to what it was given, so nothing is lost on the way up."),
        Check(
            "a block of the model computes just that",
            furthest(block, ours) < 1e-12,
            f"largest difference {tiny(furthest(block, ours))}",
        ),
        Slip(
            "(X + Z) + R, a residual connection from X + Z",
            "LayerNorm(X + Z) + R",
            "in the original each sum is normed before it goes on, so the second residual starts from the normed "
            f"one; as printed the block's output is off by up to {furthest(block, printed):.4f} on a tiny model",
            "N4, encoder",
        ),
    ]


def _numbers(x: Tensor) -> str:
    return ", ".join(f"{v:g}" for v in x.tolist())


def _mean(x: Tensor) -> str:
    written = " + ".join(f"{v:g}" for v in x.tolist())
    return f"({written}) / {len(x)} = {float(x.mean()):.4f}, variance {float(x.var(correction=0)):.4f}."
