"""Which language texts are in, by the bundled identifier: a word about what a translator was not made for."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from clearformer.tasks.bundled import bundled

IDENTIFIER = "language-id"
WORDS, SURE = 5, 0.9  # of a text at least, and of the identifier, before anything is said


@cache
def _identifier() -> Any:
    from clearformer.tasks.load import load

    return load(IDENTIFIER) if IDENTIFIER in bundled() else None


def other_languages(texts: Sequence[str], expected: str | None) -> dict[int, str]:
    """Of texts that are surely in another language than the expected one: their places, and which. Nothing is said of
    short texts, nor where the identifier does not know the expected language."""
    rows = [n for n, text in enumerate(texts) if len(text.split()) >= WORDS]
    if expected is None or not rows or (identifier := _identifier()) is None:
        return {}
    if expected not in (identifier.metadata.labels or ()):
        return {}
    found = identifier.classify([texts[n] for n in rows], on_long="truncate")
    sure = {n: one.label for n, one in zip(rows, found, strict=True) if one.probability >= SURE}
    return {n: label for n, label in sure.items() if label != expected}
