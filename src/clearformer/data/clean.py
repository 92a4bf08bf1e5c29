"""Which pairs are worth learning from, by their texts alone; what is left out is counted under its reason."""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from clearformer.data.training_pairs import Script, Scripts

SHORT = 10  # characters: a side of fewer counts as so many, since short sentences differ much in length
SEVERAL: dict[str, tuple[str, ...]] = {"Han": ("CJK",), "Japanese": ("CJK", "HIRAGANA", "KATAKANA")}
REASONS = {  # a field of the report, and what is said of it
    "ratio": "with sides of too different length",
    "script": "in another script",
    "copy": "with equal sides",
}


@dataclass(frozen=True)
class Clean:
    """`ratio`: the longer side has at most so many times the characters of the shorter. `copies`: keep pairs whose
    sides are equal; numbers and the like, without a letter, are always kept."""

    ratio: float | None = None
    copies: bool = True
    script: Scripts | None = None

    def fault(self, source: str, target: str) -> str | None:
        """The reason why a pair is left out, a key of `REASONS`; None if it is kept."""
        if self.ratio is not None:
            shorter, longer = sorted((len(source.strip()), len(target.strip())))
            if longer > self.ratio * max(shorter, SHORT):
                return "ratio"
        if self.script is not None:
            sides = (source, self.script.source), (target, self.script.target)
            if not all(script is None or mostly(text, script) for text, script in sides):
                return "script"
        if not self.copies and source.strip() == target.strip() and any(map(str.isalpha, source)):
            return "copy"
        return None


def mostly(text: str, script: Script) -> bool:
    """Whether more than half of the letters are of a script, or there are none."""
    letters = text.translate(_marks(script))
    return not letters or 2 * letters.count("y") > len(letters)


class _Marks(dict[int, str | None]):
    """For `str.translate`: y for letters and signs of a script, n for those of others, nothing for the rest."""

    def __init__(self, script: Script):
        super().__init__()
        self.names = SEVERAL.get(script, (script.upper(),))

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        found = None
        if unicodedata.category(character)[0] in "LM":
            name = unicodedata.name(character, "").replace("FULLWIDTH ", "").replace("HALFWIDTH ", "")
            if not name.startswith("COMBINING"):  # accents belong to the letter before them
                found = "y" if name.startswith(self.names) else "n"
        self[code] = found
        return found


@lru_cache
def _marks(script: Script) -> _Marks:
    return _Marks(script)
