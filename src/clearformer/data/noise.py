"""Sources as people type them. What becomes of a text is a function of 64 bits, and these of where the text stands
(seed, set, row, version), so that no generator has a state."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clearformer.data.training_pairs import Noise

MASK = 2**64 - 1
LOWER = 0.75  # of the texts that are brought to one case
FINAL = re.compile(r"\s*[.!?…。！？।॥]+\s*$")
STRAIGHT = str.maketrans("“”„‟‘’‚‛", "\"\"\"\"''''")
OPENING = re.compile(r"(^|[\s(\[{«—–-])([\"'])(?=\S)")
Encode = Callable[[Sequence[str], str | None], list[list[int]]]  # texts, to → ids
Sample = Callable[[Sequence[str], str | None, Sequence[int]], list[list[int]]]  # texts, to, bits → ids


def mixed(*numbers: int) -> int:
    """64 bits that depend on all numbers and their order (splitmix64, Steele et al. 2014)."""
    bits = 0
    for number in numbers:
        bits = (bits ^ (number & MASK)) + 0x9E3779B97F4A7C15 & MASK
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & MASK
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & MASK
        bits ^= bits >> 31
    return bits


@dataclass(frozen=True)
class Noiser:
    """The noise of one set. `encode` makes ids of sources alone, where a goal can; `sample` does and cuts them into
    subwords at random, where that is asked for."""

    asked: Noise
    address: int  # of the run's seed and the set
    encode: Encode | None = None
    sample: Sample | None = None

    @property
    def versions(self) -> int:
        return self.asked.versions

    def bits(self, row: int, version: int) -> int:
        return mixed(self.address, row, version)

    def text(self, text: str, row: int, version: int = 0) -> str:
        return noised(text, self.bits(row, version), self.asked.case, self.asked.punctuation)

    def pieces(self, texts: Sequence[str], to: str | None, places: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Sampled ids of texts that stand at these rows and versions."""
        assert self.sample is not None
        return self.sample(texts, to, [mixed(self.bits(*place), 1) for place in places])


def noised(text: str, bits: int, case: float, punctuation: float) -> str:
    """A text, changed as 64 random bits say: sixteen each for whether its case changes, to what, its end and quotes."""
    whether, what, end, quotes = ((bits >> shift & 0xFFFF) / 2**16 for shift in (48, 32, 16, 0))
    if quotes < punctuation:
        text = other_quotes(text)
    if end < punctuation:
        text = without_end(text)
    if whether < case:
        text = text.lower() if what < LOWER else text.upper()
    return text


def without_end(text: str) -> str:
    """A text without its final full stop, question or exclamation mark; one that is nothing else stays."""
    return FINAL.sub("", text) or text


def other_quotes(text: str) -> str:
    """Curly quotes and apostrophes made straight; where there are none, straight ones made curly."""
    straight = text.translate(STRAIGHT)
    if straight != text:
        return straight
    text = OPENING.sub(lambda found: found[1] + ("“" if found[2] == '"' else "‘"), text)
    return text.replace('"', "”").replace("'", "’")
