"""What Word2Vec is told."""

import math
from dataclasses import dataclass

from clearformer.errors import DataError


@dataclass(frozen=True)
class Settings:
    """The names are those of the paper (Mikolov et al. 2013); so are the usual values."""

    width: int = 100  # numbers a word
    window: int = 5  # words to either side at most; how many is drawn anew for every word
    min_count: int = 5  # words that occur less often are left out
    negatives: int = 5  # words drawn against each word that is there
    epochs: float | None = None  # passes over the text; None: as many as its length asks for
    rate: float = 0.025  # of the first step; it falls to nothing in a straight line
    subsample: float = 1e-3  # words more frequent than this share are seen less often; 1 leaves all
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in (("width", 4_096), ("window", 100), ("min_count", 2**40), ("negatives", 100)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise DataError(f"{name} must be a whole number from 1 to {most:,}, given {value!r}", param=name)
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise DataError(f"seed must be a whole number from 0 on, given {self.seed!r}", param="seed")
        for name, largest in (("rate", 10.0), ("subsample", 1.0), ("epochs", 1e6)):
            value = getattr(self, name)
            if value is None and name == "epochs":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= largest:
                raise DataError(f"{name} must be more than 0 and at most {largest:,g}, given {value!r}", param=name)


SEEN, FEWEST, MOST = 20_000_000, 5, 50


def usual_epochs(tokens: int) -> int:
    """Short texts are read more often, so that 20 million words are seen; no text more than fifty times."""
    return min(max(math.ceil(SEEN / max(tokens, 1)), FEWEST), MOST)
