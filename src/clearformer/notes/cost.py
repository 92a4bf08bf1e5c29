"""Quadratic cost (N2), and two ways out: BigBird's pattern and Linformer's compression."""

import torch

from clearformer import presets, spec
from clearformer.assemble import build
from clearformer.core.patterns import sees
from clearformer.notes.layers import kernel_steps
from clearformer.notes.parts import Beside, Check, Curves, Equation, Heading, Ours, Prose, Section, Table, seen

LENGTHS = (128, 256, 512, 1024, 2048)
WINDOW = spec.Near(radius=24)
BIGBIRD = spec.BigBird(block=16, radius=24, count=3, first=2)
RANK = 64


def cost() -> list[Section]:
    return [*_drawn(), *_pairs(), *_linformer()]


def visible(pattern: spec.Pattern, length: int) -> torch.Tensor:
    places = torch.arange(length)
    return sees(pattern, places[:, None], places).expand(length, length)


def _drawn() -> list[Section]:
    size = 16
    parts = (
        ("(a) random", spec.Random(count=2, block=2)),
        ("(b) window", spec.Near(radius=1)),
        ("(c) global", spec.Global(count=2)),
        ("(d) BigBird", spec.BigBird(block=2, radius=1, count=2, first=2)),
    )
    grids = [visible(pattern, size) for _, pattern in parts]
    union = grids[0] | grids[1] | grids[2]
    return [
        Heading("Who sees whom, for 16 words"),
        Beside(tuple(seen(name, grid) for (name, _), grid in zip(parts, grids, strict=True))),
        Check(
            "(d) is (a), (b) and (c) together",
            bool((union == grids[3]).all()),
            f"{int(grids[3].sum())} of {size * size} pairs",
        ),
        Prose("Random keys are drawn for a block of two words at a time; a draw beyond the text's end sees nothing."),
    ]


def _pairs() -> list[Section]:
    counts = {n: (n * n, *(int(visible(pattern, n).sum()) for pattern in (WINDOW, BIGBIRD)), n * RANK) for n in LENGTHS}
    last, before = counts[LENGTHS[-1]], counts[LENGTHS[-2]]
    growth = [a / b for a, b in zip(last, before, strict=True)]
    return [
        Heading("Pairs that attention computes"),
        Equation("all pairs: n²    window of radius r: about (2r + 1) n    Linformer of rank r: r n"),
        Ours(
            f"a window of radius {WINDOW.radius}; BigBird with it, blocks of 16 and 3 draws; Linformer of rank {RANK}."
        ),
        Table(
            "",
            ("words", "all pairs", "window", "BigBird", "Linformer"),
            (
                *((f"{n:,}", *(f"{x:,}" for x in row)) for n, row in counts.items()),
                (f"×{LENGTHS[-1] // LENGTHS[-2]}", *(f"×{x:.2f}" for x in growth)),
            ),
        ),
        Curves(
            "Pairs a word",
            tuple(map(float, LENGTHS)),
            tuple(
                (name, tuple(counts[n][column] / n for n in LENGTHS))
                for column, name in enumerate(("all pairs", "window", "BigBird", "Linformer"))
            ),
            "words",
            "pairs / words",
            doubling=True,
        ),
        Check(
            "twice the words: four times the pairs, but about twice with the others",
            growth[0] == 4 and all(x < 2.2 for x in growth[1:]),
            ", ".join(f"{x:.2f}" for x in growth),
        ),
    ]


def _linformer() -> list[Section]:
    model = build(presets.linformer("tiny", dropout=0.0), kernel="reference", seed=0)
    rows = []
    for length in (16, 32, 64):
        ids = torch.arange(length)[None]
        found = kernel_steps(model, "stack.blocks.0.branches.self.layer", lambda ids=ids: model(ids))  # type: ignore[misc]
        rows.append((str(length), *(str(n) for n in found.weights.shape[1:])))
    return [
        Heading("Linformer: fewer keys, whatever the length"),
        Equation("attention = softmax(Q (E K)ᵀ / √d) (F V), with E and F of rank × length"),
        Table("A tiny Linformer of rank 8, run", ("words", "queries", "keys"), tuple(rows)),
        Check("the keys stay 8", all(row[2] == "8" for row in rows), "so the cost grows with the queries only"),
        Prose("Compressed keys mix all positions, the future too: good for encoders, not for decoders."),
    ]
