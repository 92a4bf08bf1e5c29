"""How much of a test set was in the training data: a score on texts that were learned by heart says little.

A model keeps 32 bits of a hash for every source and every pair it was trained on (`seen.safetensors`, 8 bytes a
pair), enough to recognise them and not enough to restore any; of 25,000 unseen texts about one is taken for seen
where a million were trained on. Case and spacing do not count.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from clearformer.errors import CheckpointError

FILE = "seen.safetensors"


class Overlap(NamedTuple):
    """Shares of a test set whose source, or whose source with this target, was in the training data."""

    sources: float
    pairs: float

    def __str__(self) -> str:
        return f"{self.sources:.1%} of the sources and {self.pairs:.1%} of the pairs were in the training data"


class Seen:
    def __init__(self, sources: np.ndarray, pairs: np.ndarray):
        self.sources, self.pairs = sources, pairs

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> "Seen":
        marks = np.fromiter(
            ((mark(source), mark(source, target)) for source, target in pairs), np.dtype((np.uint32, 2))
        ).reshape(-1, 2)
        return cls(np.unique(marks[:, 0]), np.unique(marks[:, 1]))

    def overlap(self, sources: Sequence[str], targets: Sequence[str]) -> Overlap:
        if not len(sources):
            return Overlap(0.0, 0.0)
        both = [mark(source, target) for source, target in zip(sources, targets, strict=True)]
        alone = [mark(source) for source in sources]
        return Overlap(float(np.isin(alone, self.sources).mean()), float(np.isin(both, self.pairs).mean()))

    def to_bytes(self) -> bytes:
        return save({"sources": self.sources, "pairs": self.pairs})

    @classmethod
    def load(cls, folder: Path) -> "Seen | None":
        """What a model folder tells; None if it does not."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            found = load_file(path)
            return cls(found["sources"], found["pairs"])
        except (OSError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from None


def mark(*texts: str) -> int:
    normal = "\0".join(" ".join(text.casefold().split()) for text in texts)
    return int.from_bytes(hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "little")
