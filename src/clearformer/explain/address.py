"""Addresses: `decoder.2.cross.h3.weights[4,7]` names one number of one run, the same everywhere.

The path of a module without the words that say nothing (blocks, branches, ...), then a head if one is meant, then the
step, then cells. Brackets index the axes that are left: the batch axis goes by itself where there is one text. A cell
may be a word in quotes where the axis has words: `head.logits[7, ' Paris']`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from clearformer.errors import TraceError

SILENT = {"blocks", "branches", "layer", "kernel", "source", "relative", "parts", "forward"}
_SHAPE = re.compile(r"^([^\[\]]+)(?:\[(.*)\])?$", re.DOTALL)
_CELL = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^,'"]*))\s*(,|$)""", re.DOTALL)
_HEAD = re.compile(r"^([hg])(\d+)$")

Cells = tuple[int | slice | str, ...]


@dataclass(frozen=True)
class Address:
    name: str  # without head and cells
    head: tuple[str, int] | None  # h3: the third query head; g1: the first key head
    cells: Cells


def shorten(path: str) -> str:
    """The address of a module or parameter path."""
    return ".".join(word for word in path.split(".") if word not in SILENT)


def parse(text: str) -> Address:
    found = _SHAPE.match(text.strip())
    if found is None:
        raise TraceError(f"{text!r} is no address; one looks like decoder.2.cross.h3.weights[4,7]")
    words: list[str] = []
    head: tuple[str, int] | None = None
    for word in found[1].replace(" ", "").split("."):
        if numbered := _HEAD.match(word):
            head = numbered[1], int(numbered[2])
        else:
            words.append(word)
    cells = tuple(_cells(found[2], text)) if found[2] and found[2].strip() else ()
    return Address(".".join(words), head, cells)


def _cells(inside: str, text: str) -> Iterator[int | slice | str]:
    at, more = 0, True
    while more:
        found = _CELL.match(inside, at)
        if found is None:
            raise TraceError(
                f"{text!r}: {inside[at:]!r} is no cell; use a number, a range such as 0:3, or a word in quotes"
            )
        quoted = found[1] if found[1] is not None else found[2]
        yield (
            _cell(found[3].replace(" ", ""), text)
            if quoted is None
            else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )
        at, more = found.end(), found[4] == ","


def _cell(part: str, text: str) -> int | slice:
    try:
        if ":" not in part:
            return int(part)
        ends = [int(end) if end else None for end in part.split(":")]
        if len(ends) != 2:
            raise ValueError
        return slice(*ends)
    except ValueError:
        raise TraceError(f"{text!r}: {part!r} is no cell; use a number or a range such as 0:3") from None


def write(name: str, axes: list[str], index: tuple[int, ...], batch: int) -> str:
    """The address of one cell of a recorded tensor."""
    cells = dict(zip(axes, index, strict=True))
    words = name.split(".")
    for letter in ("h", "g"):
        if letter in cells:
            words.insert(len(words) - 1, f"{letter}{cells.pop(letter)}")
    if batch == 1:
        cells.pop("b", None)
    inside = ",".join(str(number) for number in cells.values())
    return f"{'.'.join(words)}[{inside}]" if inside else ".".join(words)
