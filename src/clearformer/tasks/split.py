"""Cutting a long text into parts that a model can take: at sentence ends, and only where that is not enough at commas
or spaces.
"""

import re
from collections.abc import Callable

SENTENCES = re.compile(r"(?<=[.!?…।。！？])\s+")
INSIDE = (re.compile(r"(?<=[,;:])\s+"), re.compile(r"\s+"))
Fits = Callable[[str], bool]


def split(text: str, fits: Fits, can: Fits) -> list[str] | None:
    """Parts that fit, as few as possible; a sentence stays whole as long as it can be taken at all. None if some word
    alone cannot."""
    found: list[str] = []
    for part in _packed(text, SENTENCES, fits):
        smaller = [part] if can(part) else _cut(part, fits, can)
        if smaller is None:
            return None
        found += smaller
    return found


def _cut(text: str, fits: Fits, can: Fits) -> list[str] | None:
    """Parts of a sentence that is too long: at commas if that does, else at spaces."""
    for end in INSIDE:
        parts = _packed(text, end, fits)
        if all(can(part) for part in parts):
            return parts
    return None


def _packed(text: str, end: re.Pattern[str], fits: Fits) -> list[str]:
    """Pieces between ends, joined again as long as they fit."""
    parts: list[str] = []
    for piece in end.split(text.strip()):
        joined = f"{parts[-1]} {piece}" if parts else piece
        if parts and fits(joined):
            parts[-1] = joined
        else:
            parts.append(piece)
    return parts
