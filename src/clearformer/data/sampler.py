"""Data mixing: which rows of a corpus an epoch has, where its sets have weights and its pairs several versions.

Each set is an endless row of shuffles of its pairs, and an epoch takes the next weight × n of it. So in any number of
epochs no pair comes more than once oftener than another of its set, and an epoch is a function of the seed and its
number: a resumed run needs no replay.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

ORDER, VERSION = 0x6F72, 0x7665  # what a draw is for


@dataclass(frozen=True)
class Stretch:
    """The rows of one set: `examples` of them, each in `versions` rows side by side."""

    first: int
    examples: int
    versions: int = 1

    @property
    def last(self) -> int:
        return self.first + self.examples * self.versions


@dataclass(frozen=True)
class Sampler:
    stretches: tuple[Stretch, ...]
    weights: tuple[float, ...]
    seed: int = 0

    def rows(self, epoch: int) -> np.ndarray[Any, Any]:
        """The rows of an epoch, set by set; one of weight 2 has every pair twice."""
        return np.concatenate([self._of(number, epoch) for number in range(len(self.stretches))])

    def _of(self, number: int, epoch: int) -> np.ndarray[Any, Any]:
        stretch, weight = self.stretches[number], Fraction(str(self.weights[number]))
        n, many = stretch.examples, stretch.versions
        place, end = floor(weight * n * epoch), floor(weight * n * (epoch + 1))
        found = [np.zeros(0, np.int64)]
        while place < end:
            turn, start = divmod(place, n)
            stop = min(n, start + end - place)
            chosen = np.arange(n) if stop - start == n else self._shuffle(number, turn, n)[start:stop]
            version = (turn + self._offsets(number, n, many)[chosen]) % many if many > 1 else 0
            found.append(stretch.first + chosen * many + version)
            place += stop - start
        return np.concatenate(found)

    def _shuffle(self, number: int, turn: int, n: int) -> np.ndarray[Any, Any]:
        return np.random.default_rng((self.seed, number, turn, ORDER)).permutation(n)

    def _offsets(self, number: int, n: int, versions: int) -> np.ndarray[Any, Any]:
        """Where each pair begins on its way round its versions."""
        return np.random.default_rng((self.seed, number, VERSION)).integers(versions, size=n)


def stretches(examples: list[int], versions: list[int]) -> tuple[Stretch, ...]:
    """Sets that lie one after another."""
    found, first = [], 0
    for n, many in zip(examples, versions, strict=True):
        found.append(Stretch(first, n, many))
        first = found[-1].last
    return tuple(found)
