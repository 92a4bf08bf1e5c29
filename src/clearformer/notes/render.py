"""Sections → the terminal. Numbers are always written out; colour only adds to them."""

import math
from collections.abc import Iterator
from functools import singledispatch

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from clearformer.notes import parts

LIGHT, DEEP = (236, 242, 250), (24, 78, 148)  # the colours of 0 and 1
LOW, HIGH = (33, 66, 140), (248, 220, 90)  # the colours of −1 and 1 in a picture
SHADES = " ░▒▓█"
SPARKS = "▁▂▃▄▅▆▇█"


def show(example: parts.Example, console: Console) -> None:
    """Run an example and draw what it gives."""
    title = Text.assemble((f" {example.number} · {example.title} ", "bold"))
    console.print(Rule(title, align="left", characters="━", style="cyan"))
    console.print(Text(f"   {example.where}", style="dim"))
    for section in example.run():
        console.print(draw(section))
    console.print()


def listing(examples: tuple[parts.Example, ...]) -> RenderableType:
    table = _frame(("", "name", "what it shows", "where"))
    for example in examples:
        number, name = Text(str(example.number), justify="right"), Text(example.name, style="cyan", no_wrap=True)
        table.add_row(number, name, example.title, Text(example.where, style="dim"))
    hint = Text("clearformer notes NAME shows one, --all shows all. N0 to N4 are the five sets of notes.", style="dim")
    return Group(table, Text(), hint)


@singledispatch
def draw(section: object) -> RenderableType:
    raise TypeError(f"no drawing for {type(section).__name__}")


@draw.register
def _(section: parts.Heading) -> RenderableType:
    return Text(f"\n{section.text}", style="bold cyan")


@draw.register
def _(section: parts.Prose) -> RenderableType:
    return _indented(Text(section.text))


@draw.register
def _(section: parts.Ours) -> RenderableType:
    return _indented(Text.assemble(("ours: ", "bold magenta"), (section.text, "magenta")))


@draw.register
def _(section: parts.Equation) -> RenderableType:
    return _indented(Text(section.text, style="bold"), by=6)


@draw.register
def _(section: parts.Check) -> RenderableType:
    mark = ("✓ ", "bold green") if section.holds else ("✗ ", "bold red")
    body = Text.assemble(section.claim, (f"  ({section.seen})", "dim"))
    return _indented(_hanging(Text.assemble(mark), body))


@draw.register
def _(section: parts.Slip) -> RenderableType:
    body = Text.assemble(
        "The notes print ",
        (section.notes_say, "red"),
        "; it is ",
        (section.right, "bold green"),
        f", because {section.why}.",
    )
    title = Text(f"slip · {section.where}", style="bold yellow")
    return _indented(Panel(body, title=title, title_align="left", border_style="yellow"), above=1)


@draw.register
def _(section: parts.Question) -> RenderableType:
    lines: list[RenderableType] = [Text(f"\n{section.text}", style="bold cyan")]
    for letter, option in zip("ABCDEFG", section.options, strict=False):
        right = letter in section.answers
        mark = Text(f"{'●' if right else '○'} {letter}  ", style="bold green" if right else "dim")
        lines.append(_indented(_hanging(mark, Text(option, style="" if right else "dim"))))
    return Group(*lines)


@draw.register
def _(section: parts.Beside) -> RenderableType:
    return Columns([draw(part) for part in section.parts], padding=(0, 2))


@draw.register
def _(section: parts.Table) -> RenderableType:
    table = _frame(section.columns)
    for column, cells in zip(table.columns, zip(*section.rows, strict=True), strict=True):
        column.justify = "right" if all(_numeric(cell) for cell in cells) else "left"
    for row in section.rows:
        table.add_row(*row)
    return _indented(*([Text(section.title, style="bold")] if section.title else []), table, above=1)


@draw.register
def _(section: parts.Matrix) -> RenderableType:
    columns = section.columns or ("",) * len(section.values[0])
    table = _frame(("", *columns) if section.rows else columns, header=bool(section.columns), gap=1)
    for column in table.columns[bool(section.rows) :]:
        column.justify, column.no_wrap = "right", True
    for i, row in enumerate(section.values):
        cells = [_cell(section, i, j, value) for j, value in enumerate(row)]
        table.add_row(*([Text(section.rows[i], style="cyan", no_wrap=True)] if section.rows else []), *cells)
    return _indented(_named(section), table, above=1)


@draw.register
def _(section: parts.Seen) -> RenderableType:
    lines = ["".join("■ " if cell else "· " for cell in row).rstrip() for row in section.cells]
    return _indented(_named(section), *(Text(line, style="blue") for line in lines), above=1)


@draw.register
def _(section: parts.Picture) -> RenderableType:
    return _indented(_Drawn(section), above=1)


@draw.register
def _(section: parts.Curves) -> RenderableType:
    return _indented(_Sparks(section), above=1)


def number(value: float, decimals: int) -> str:
    """−∞ and − as they are written; no minus before zero."""
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    text = f"{value:.{decimals}f}"
    return (text.lstrip("-") if float(text) == 0 else text).replace("-", "−")


def _numeric(cell: str) -> bool:
    return (cell[:1].isdigit() or cell[:1] == "×") and " " not in cell


def _cell(section: parts.Matrix, i: int, j: int, value: float) -> Text:
    marked = (i, j) in section.highlight
    text = Text(("*" if marked else "") + number(value, section.decimals), style="bold" if marked else "")
    if section.shade and 0 <= value <= 1:
        text.stylize(f"{'#000000' if value < 0.7 else '#ffffff'} on {_mix(LIGHT, DEEP, value)}")
    return text


def _named(section: parts.Matrix | parts.Seen) -> Text:
    """The title, with the words of the axes."""
    axes = [f"{word} {arrow}" for word, arrow in ((section.row_axis, "↓"), (section.column_axis, "→")) if word]
    return Text.assemble((section.title, "bold"), ("   " + "  ".join(axes) if axes else "", "dim"))


def _indented(*lines: RenderableType, by: int = 2, above: int = 0) -> RenderableType:
    return Padding(Group(*lines), (above, 0, 0, by), expand=False)


def _frame(columns: tuple[str, ...], header: bool = True, gap: int = 2) -> RichTable:
    frame = RichTable(box=None, show_header=header, header_style="cyan", padding=(0, gap, 0, 0), pad_edge=False)
    for column in columns:
        frame.add_column(column)
    return frame


def _hanging(mark: Text, body: Text) -> RenderableType:
    """The mark, and the body beside it with its lines aligned."""
    grid = RichTable.grid()
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row(mark, body)
    return grid


def _mix(low: tuple[int, int, int], high: tuple[int, int, int], share: float) -> str:
    return "rgb({},{},{})".format(*(round(a + (b - a) * share) for a, b in zip(low, high, strict=True)))


class _Drawn:
    """Two rows a line as coloured half blocks; without colour one row in two, as shades. Thinned to fit the width."""

    def __init__(self, section: parts.Picture):
        self.section = section

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        section = self.section
        every = math.ceil(len(section.values[0]) / options.max_width)
        every += every % 2 == 0  # an odd step, so that sines and cosines still take turns
        thinned = "" if every == 1 else f" (one in {every} drawn)"
        title = f"   {section.row_axis} ↓  {section.column_axis} →{thinned}"
        yield Text.assemble((section.title, "bold"), (title, "dim"))
        rows = [row[::every] for row in section.values]
        coloured = console.color_system is not None and not console.no_color
        for top, bottom in zip(rows[::2], rows[1::2], strict=False):
            yield _half_blocks(top, bottom) if coloured else Text("".join(_shade(value) for value in top))


def _half_blocks(top: tuple[float, ...], bottom: tuple[float, ...]) -> Text:
    line = Text()
    for a, b in zip(top, bottom, strict=True):
        line.append("▀", f"{_mix(LOW, HIGH, (a + 1) / 2)} on {_mix(LOW, HIGH, (b + 1) / 2)}")
    return line


def _shade(value: float) -> str:
    return SHADES[min(int((value + 1) / 2 * len(SHADES)), len(SHADES) - 1)]


class _Sparks:
    """Each curve as a line of bars, all on one scale, thinned to fit the width."""

    def __init__(self, section: parts.Curves):
        self.section = section

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        section = self.section
        yield Text.assemble((section.title, "bold"), (f"   {section.up} ↑  {section.across} →", "dim"))
        names = max(len(name) for name, _ in section.lines)
        every = math.ceil(len(section.places) / max(options.max_width - names - 22, 8))
        numbers = [value for _, values in section.lines for value in values]
        low, high = min(numbers), max(numbers)
        for name, values in section.lines:
            bars = "".join(_bar(value, low, high) for value in values[::every])
            ends = f"  {number(min(values), 2)} to {number(max(values), 2)}"
            yield Text.assemble((name.ljust(names), "cyan"), "  ", (bars, "blue"), (ends, "dim"), no_wrap=True)


def _bar(value: float, low: float, high: float) -> str:
    return SPARKS[round((value - low) / ((high - low) or 1) * (len(SPARKS) - 1))]
