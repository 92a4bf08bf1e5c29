"""Words as people see them on axes: found by what they are called, and shown whatever characters they are made of."""

import unicodedata
from collections.abc import Sequence

from clearformer.errors import TraceError, nearest

SPACES = ("Ġ", "▁")  # what stands for a space in front of a piece
KEPT = "\u200c\u200d"  # joiners are part of words in many scripts
HIDDEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")  # controls, changes of direction, line ends: they would act
MOST = 40  # characters of a word
FEW = 5_000  # words to look for near ones in


def shown(word: str, most: int = MOST) -> str:
    """A word without anything that acts on a page or a terminal, and not too long; what is hidden is named."""
    some = "".join(
        f"⟨U+{ord(sign):04X}⟩" if unicodedata.category(sign) in HIDDEN and sign not in KEPT else sign
        for sign in word[:most]
    )
    return some + "…" * (len(word) > most)


def find(word: str, words: Sequence[str], what: str) -> int:
    """The number of a word; a space in front is also found as the sign that a vocabulary has for it."""
    spellings = [word, *(sign + word[1:] for sign in SPACES if word.startswith(" "))]
    for spelling in spellings:
        if spelling in words:
            places = [n for n, each in enumerate(words) if each == spelling] if len(words) <= FEW else []
            if len(places) > 1:
                raise TraceError(f"{what}: {word!r} is there {len(places)} times, at {places}; give its number")
            return places[0] if places else words.index(spelling)
    if not words:
        raise TraceError(f"{what}: no words are known here; give the number of {word!r}")
    if len(words) <= FEW:
        raise TraceError(f"{what}: there is no {word!r}{nearest(word, words)}")
    like = [each for each in words if word.strip().lower() in each.lower()][:5]
    near = f"; there is {', '.join(map(repr, like))}" if like else ""
    raise TraceError(f"{what}: there is no {word!r} in the vocabulary{near}; one piece of it is wanted")
