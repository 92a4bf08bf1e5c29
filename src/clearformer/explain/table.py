"""Tables for a terminal of any width: columns that do not fit are left out and counted, digits never are."""

from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from clearformer.explain.words import shown

if TYPE_CHECKING:
    from rich.text import Text

WIDE = 14  # of a heading, where there is room
LEAST = 3  # of a row's label


class Column(NamedTuple):
    heading: str
    right: bool = True  # numbers are


class Row(NamedTuple):
    label: str
    cells: list[tuple[str, str]]  # a text, never cut, and its style


def fitted(corner: str, columns: list[Column], rows: list[Row], width: int, more: int = 0) -> "Text":
    """The table; `more` columns were left out before. Headings are cut first, and said in full below; then whole
    columns go, from the right, but one is always shown. What is called `corner` stands above, where it takes no room
    from numbers."""
    from rich.cells import cell_len
    from rich.text import Text

    labels = [shown(row.label) for row in rows]
    named = min(max((cell_len(label) for label in labels), default=0), max(LEAST, width // 3))
    needed = [max((cell_len(row.cells[n][0]) for row in rows), default=1) for n in range(len(columns))]
    widest = [max(least, min(cell_len(shown(c.heading)), WIDE)) for least, c in zip(needed, columns, strict=True)]
    sizes, count = widest, _fitting(widest, named, width)
    if count < len(columns):  # narrower headings, for more columns
        sizes = [max(least, min(size, 4)) for least, size in zip(needed, widest, strict=True)]
        count = _fitting(sizes, named, width)
        sizes = _widened(sizes[:count], widest, width - named)
    if columns and named + 1 + sizes[0] > width:  # a very narrow terminal: the numbers come before the names
        named = max(0, width - 1 - sizes[0])
    left = more + len(columns) - count
    lines: list[Text] = [Text(corner, "dim")] if corner else []
    head = [_cell(shown(c.heading), size, c.right) for c, size in zip(columns[:count], sizes, strict=False)]
    lines.append(Text(" ".join([" " * named, *head]), "bold"))
    for row, label in zip(rows, labels, strict=True):
        line = Text(_cell(label, named, False), "bold")
        for (said, style), size, column in zip(row.cells[:count], sizes, columns, strict=False):
            line.append(" ")
            line.append(_cell(said, size, column.right), style)
        lines.append(line)
    cut = [c.heading for c, size in zip(columns[:count], sizes, strict=False) if cell_len(shown(c.heading)) > size]
    if cut:
        said = "columns: " + ", ".join(map(shown, cut))
        lines += [Text(line, "dim") for line in wrap(said, width, subsequent_indent="  ")]
    if left:
        lines.append(Text(f"… {left} more column{'s' * (left > 1)}"[:width], "dim"))
    for each in lines:
        each.rstrip()
    return Text("\n").join(lines)


def _fitting(sizes: list[int], named: int, width: int) -> int:
    """How many columns fit, one at least."""
    room, count = width - named, 0
    for size in sizes:
        room -= size + 1
        if room < 0:
            break
        count += 1
    return max(1, count) if sizes else 0


def _widened(sizes: list[int], widest: list[int], room: int) -> list[int]:
    """What room is left goes to the headings that are cut most."""
    sizes = list(sizes)
    room -= sum(size + 1 for size in sizes)
    while room > 0 and sizes:
        short = max(range(len(sizes)), key=lambda n: widest[n] - sizes[n])
        if sizes[short] >= widest[short]:
            break
        sizes[short] += 1
        room -= 1
    return sizes


def _cell(text: str, size: int, right: bool) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > size:
        return set_cell_size(text, size - 1) + "…" if size > 1 else "…"[:size]
    return " " * (size - cell_len(text)) + text if right else set_cell_size(text, size)
