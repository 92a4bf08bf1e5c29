"""Draws the pictures of the documentation into docs/images, from the running code."""

from pathlib import Path

import matplotlib as mpl
import torch

mpl.use("Agg")
import matplotlib.pyplot as plt

from clearformer.core.patterns import sees
from clearformer.core.positions import sinusoid
from clearformer.spec import BigBird, Causal, Everyone, Global, Near, Random, Window
from clearformer.training.plot import plot

IMAGES = Path(__file__).parent / "images"


def patterns() -> None:
    """Who sees whom in a text of 32 tokens."""
    shown = {
        "Everyone()": Everyone(),
        "Causal()": Causal(),
        "Window(size=6)": Window(size=6),
        "Near(radius=3)": Near(radius=3),
        "Global(count=2)": Global(count=2),
        "Random(count=1, block=4)": Random(count=1, block=4),
        "BigBird: near | global | random": BigBird(block=4, radius=3, count=1, first=2),
        "Causal() & BigBird": Causal() & BigBird(block=4, radius=3, count=1, first=2),
    }
    figure, axes = plt.subplots(2, 4, figsize=(11, 6), layout="constrained")
    position = torch.arange(32)
    for axis, (name, pattern) in zip(axes.flat, shown.items(), strict=True):
        seen = sees(pattern, position[:, None], position[None]).expand(32, 32)
        axis.imshow(seen, cmap="Blues", vmin=0, vmax=1.3)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("keys →", fontsize=8)
        axis.set_ylabel("← queries", fontsize=8)
        axis.tick_params(labelsize=7)
    figure.savefig(IMAGES / "patterns.png", dpi=110)


def positions() -> None:
    """The notes' heat map: 128 dimensions, 50 words."""
    waves = sinusoid(torch.arange(50), 128, 10_000.0, "interleaved", torch.zeros(()))
    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    drawn = axis.imshow(waves, cmap="RdBu", aspect="auto", vmin=-1, vmax=1)
    axis.set_xlabel("dimension →")
    axis.set_ylabel("← position")
    axis.set_title("PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))", fontsize=10)
    figure.colorbar(drawn)
    figure.savefig(IMAGES / "positions.png", dpi=110)


def training() -> None:
    """The run that made the bundled English–German model."""
    plot(Path(__file__).parents[1] / "recipes" / "logs" / "en-de.jsonl", IMAGES / "training.png")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    training()
    patterns()
    positions()


if __name__ == "__main__":
    main()
