"""Cutting a long text into parts that a model can take: at sentence ends, else at commas, else at spaces."""

import re
from collections.abc import Callable

ENDS = (re.compile(r"(?<=[.!?…।।。！？])\s+"), re.compile(r"(?<=[,;:])\s+"), re.compile(r"\s+"))


def split(text: str, fits: Callable[[str], bool]) -> list[str] | None:
    """Parts that fit, as few as possible; None if some word alone does not."""
    if fits(text):
        return [text]
    for end in ENDS:
        pieces = end.split(text.strip())
        if len(pieces) == 1:
            continue
        parts: list[str] = []
        for piece in pieces:
            if parts and fits(f"{parts[-1]} {piece}"):
                parts[-1] = f"{parts[-1]} {piece}"
            else:
                parts.append(piece)
        found = [split(part, fits) for part in parts]
        return None if None in found else [small for part in found for small in part or []]
    return None
