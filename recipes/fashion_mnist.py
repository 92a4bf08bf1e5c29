"""Split the 70,000 images of Fashion-MNIST, which come sorted by kind, into train, valid and test, by chance.

    python recipes/fashion_mnist.py fashion_mnist_all.npz data/fashion-mnist

Of every kind 5,800 images are to train on, 200 to validate on and 1,000 to test on.
"""

import sys
from pathlib import Path

import numpy as np

PARTS = {"train": slice(0, 5800), "valid": slice(5800, 6000), "test": slice(6000, 7000)}


def main(source: Path, folder: Path) -> None:
    with np.load(source, allow_pickle=False) as found:
        images, labels = found["x"], found["y"]
    draw = np.random.default_rng(0)
    shuffled = [draw.permutation(np.flatnonzero(labels == kind)) for kind in np.unique(labels)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        rows = draw.permutation(np.concatenate([rows[part] for rows in shuffled]))
        np.savez_compressed(folder / f"{name}.npz", x=images[rows], y=labels[rows])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
