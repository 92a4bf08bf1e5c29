"""What an example is made of: plain data that `render` draws and tests read. No torch in here."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

Rows = tuple[tuple[float, ...], ...]
Labels = tuple[str, ...]


class Listable(Protocol):
    """A tensor, as far as this file needs to know."""

    def tolist(self) -> Any: ...


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Prose:
    text: str


@dataclass(frozen=True)
class Ours:
    """Numbers or words that the notes do not give, said to be so."""

    text: str


@dataclass(frozen=True)
class Equation:
    text: str


@dataclass(frozen=True)
class Matrix:
    """Numbers with named rows and columns; `highlight` marks cells, `shade` colours them from 0 to 1."""

    title: str
    values: Rows
    rows: Labels = ()
    columns: Labels = ()
    row_axis: str = ""
    column_axis: str = ""
    highlight: frozenset[tuple[int, int]] = frozenset()
    shade: bool = False
    decimals: int = 4


@dataclass(frozen=True)
class Table:
    """Words and numbers already written out."""

    title: str
    columns: Labels
    rows: tuple[Labels, ...]


@dataclass(frozen=True)
class Seen:
    """Who may see whom: True where the query of the row sees the key of the column."""

    title: str
    cells: tuple[tuple[bool, ...], ...]
    row_axis: str = "queries"
    column_axis: str = "keys"


@dataclass(frozen=True)
class Picture:
    """Numbers from −1 to 1, too many to read, drawn as shades."""

    title: str
    values: Rows
    row_axis: str
    column_axis: str


@dataclass(frozen=True)
class Curves:
    """Lines over the same places; each has a name and a number for each place."""

    title: str
    places: tuple[float, ...]
    lines: tuple[tuple[str, tuple[float, ...]], ...]
    across: str
    up: str
    doubling: bool = False  # whether the places grow by factors: then equal factors are equally far apart


@dataclass(frozen=True)
class Beside:
    """Small things next to one another as far as the page is wide."""

    parts: tuple[Matrix | Seen, ...]


@dataclass(frozen=True)
class Check:
    """A claim, whether the numbers bear it out, and the numbers."""

    claim: str
    holds: bool
    seen: str


@dataclass(frozen=True)
class Question:
    text: str
    options: Labels
    answers: str  # the letters of the right options
    address: str = ""  # where to look at it in an encoder–decoder


@dataclass(frozen=True)
class Slip:
    """`The notes print …; it is …, because …`; `where` says which notes."""

    notes_say: str
    right: str
    why: str
    where: str


Section = (
    Heading | Prose | Ours | Equation | Matrix | Table | Seen | Picture | Curves | Beside | Check | Question | Slip
)  # what `render` can draw


@dataclass(frozen=True)
class Example:
    number: int
    name: str
    title: str
    where: str
    home: str  # module:function in this package, imported when the example runs

    def run(self) -> list[Section]:
        module, function = self.home.split(":")
        return getattr(import_module(f"clearformer.notes.{module}"), function)()


Names = str | Iterable[str]
QUERIES_KEYS = ("queries", "keys")


def labels(names: Names) -> Labels:
    """`"money bank grows"` is short for its words."""
    return tuple(names.split() if isinstance(names, str) else names)


def matrix(
    title: str,
    values: Listable,
    rows: Names = (),
    columns: Names = (),
    axes: tuple[str, str] = ("", ""),
    *,
    highlight: Iterable[tuple[int, int]] = (),
    shade: bool = False,
    decimals: int = 4,
) -> Matrix:
    """A tensor of one or two axes as a `Matrix`."""
    listed = values.tolist()
    lines = listed if listed and isinstance(listed[0], list) else [listed]
    return Matrix(
        title,
        tuple(tuple(float(x) for x in line) for line in lines),
        labels(rows),
        labels(columns),
        *axes,
        frozenset(highlight),
        shade,
        decimals,
    )


def seen(title: str, cells: Listable) -> Seen:
    return Seen(title, tuple(tuple(bool(x) for x in line) for line in cells.tolist()))


def vector(values: Listable, decimals: int = 4) -> str:
    """`[0.4223, 0.1554, 0.4223]` in a line of prose."""
    return "[" + ", ".join(f"{x:.{decimals}f}".replace("-", "−") for x in values.tolist()) + "]"


def tiny(value: float) -> str:
    """A difference that ought to be nothing: `0`, or `6e-07`."""
    return f"{value:.0e}" if value else "0"
