"""What is taken of a file that holds pairs, in a line for whoever gave it: columns that were not asked for and names
that were taken for a pair would else be learned in silence.
"""

import re

from clearformer.data.pairs import Pairs, first_row, guess

# What people call columns; two of these beside each other in a first line are hardly ever a pair.
NAMES = re.compile(
    "source|target|src|tgt|trg|text|labels?|class|category|sentence[12]?|translation|original|input|output|prompt|completion"
    "|question|answer|id|score|english|german|deutsch|french|spanish|italian|hindi|eng|deu|ger"
    "|(en|de|fr|es|it|pt|nl|pl|ru|hi|zh|ja)([-_][a-z]{2})?",
    re.IGNORECASE,
)


def taken(part: Pairs) -> str | None:
    """Which columns, keys or languages are read; None where two files are aligned, or nothing can be said yet."""
    if part.file is None:
        return None
    kind = part.format or guess(part.file)
    if kind in ("tsv", "csv"):
        return _columns(part, kind)
    if kind == "jsonl":
        return f"{part.file}: fields {_and(part.fields or ('source', 'target'))} are taken"
    if kind == "tmx":
        return f"{part.file}: {_and(part.fields) if part.fields else 'the first two texts of each unit'} are taken"
    return f"{part.file}: messages and their translations are taken"


def _columns(part: Pairs, kind: str) -> str | None:
    assert part.file is not None
    names = first_row(part.file, kind)
    if names is None:
        return None
    by_name = part.fields is not None and not all(name.isdecimal() for name in part.fields)
    chosen = part.fields or ("1", "2")
    which = "" if by_name else "columns "
    said = f"{part.file}: {which}{_and(chosen)} of {len(names)} are taken"
    if by_name:
        return f"{said}; line 1 has their names and is no pair"
    if part.fields is None and len(names) > 2:
        said += "; choose others with fields (--fields 2,3)"
    first = [names[int(name) - 1].strip() for name in chosen[:2] if int(name) <= len(names)]
    if part.rows is None and len(first) == 2 and all(map(NAMES.fullmatch, first)):
        said += (
            f". Line 1, {first[0]!r} and {first[1]!r}, looks like names of columns and is trained on as a pair; with"
            f" fields (--fields {first[0]},{first[1]}) it is not"
        )
    return said


def _and(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}"
