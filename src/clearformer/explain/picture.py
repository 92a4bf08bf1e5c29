"""Heat maps: a vector or matrix with its words on the axes, as SVG text or as PNG.

Shares, which are never negative, go from dark to bright (viridis); other numbers from blue over white to red, with
white at 0. A matrix of many cells is drawn in tiles, each the mean of its cells, and says so.
"""

import warnings
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clearformer.errors import TraceError
from clearformer.explain.show import HIDDEN, number
from clearformer.explain.words import shown

if TYPE_CHECKING:
    from clearformer.explain.view import View

MOST = 96  # cells on a side; above, tiles
CELL = 22  # pixels
LETTER = 7.2  # the width of a letter, about
LABEL = 16  # letters of a label
VIRIDIS = ("#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725")
TWO_SIDED = ("#2166ac", "#67a9cf", "#d1e5f0", "#f7f7f7", "#fddbc7", "#ef8a62", "#b2182b")
PLURAL = {"query": "queries", "key": "keys", "position": "positions", "feature": "features", "head": "heads"}
NOTHING = "#c8c8c8"
SCRIPTS = ("Noto Sans", "Noto Sans Devanagari", "Lohit Devanagari", "FreeSans", "Noto Sans CJK SC", "Noto Sans Arabic")


class Drawn(NamedTuple):
    """What is drawn of a view."""

    title: str
    axes: str
    numbers: Any  # rows × columns of floats, NaN where there is nothing
    down: list[str]
    across: list[str]
    low: float
    high: float
    shares: bool


def drawn(view: "View") -> Drawn:
    values = view.numpy().astype(np.float64)
    if values.ndim > 2 or values.ndim == 0 or values.size == 0:
        what = "one number" if values.ndim == 0 else "no numbers" if values.size == 0 else f"{values.ndim} axes"
        raise TraceError(
            f"{view.address} has {what}: a picture is of one axis or two; choose a head or cells, such as"
            f" {view.address.split('[')[0]}[0]"
        )
    grid = values.reshape(1, -1) if values.ndim == 1 else values
    grid = np.where((grid <= HIDDEN[0]) | ~np.isfinite(grid), np.nan, grid)
    rows, columns = (None, view.axes[0]) if values.ndim == 1 else (view.axes[0], view.axes[1])
    down, across = _labels(view, rows, grid.shape[0]), _labels(view, columns, grid.shape[1])
    tiled, down, across = _tiled(grid, down, across)
    axes = " ".join(
        f"{PLURAL.get(view.name(axis), view.name(axis))} {arrow}"
        for axis, arrow in ((rows, "↓"), (columns, "→"))
        if axis
    )
    if tiled.shape != grid.shape:
        axes += f"; each square is the mean of {-(-grid.shape[0] // MOST)} × {-(-grid.shape[1] // MOST)} cells"
    known = tiled[np.isfinite(tiled)]
    shares = bool(known.size) and float(known.min()) >= 0
    most = float(np.abs(known).max()) if known.size else 1.0
    most = most or 1.0
    return Drawn(shown(view.address, 80), axes, tiled, down, across, 0.0 if shares else -most, most, shares)


def _labels(view: "View", axis: str | None, count: int) -> list[str]:
    return [""] * count if axis is None else [shown(view.label(axis, n), LABEL) for n in range(count)]


def _tiled(grid: Any, down: list[str], across: list[str]) -> tuple[Any, list[str], list[str]]:
    """At most `MOST` on each side."""
    for axis, labels in ((0, down), (1, across)):
        size = -(-grid.shape[axis] // MOST)
        if size > 1:
            starts = np.arange(0, grid.shape[axis], size)
            here = np.isfinite(grid)
            sums = np.add.reduceat(np.where(here, grid, 0.0), starts, axis)
            counts = np.add.reduceat(here.astype(float), starts, axis)
            grid = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
            labels[:] = labels[::size]
    return grid, down, across


def colour(value: float, made: Drawn) -> str:
    if not np.isfinite(value):
        return NOTHING
    scale = VIRIDIS if made.shares else TWO_SIDED
    place = (value - made.low) / (made.high - made.low) * (len(scale) - 1)
    below = min(int(place), len(scale) - 2)
    first, second = (np.array([int(code[n : n + 2], 16) for n in (1, 3, 5)]) for code in scale[below : below + 2])
    mixed = first + (second - first) * (place - below)
    return "#" + "".join(f"{round(float(part)):02x}" for part in mixed)


def svg(view: "View") -> str:
    """The picture as text: shapes, words and titles only."""
    return as_svg(drawn(view))


def as_svg(made: Drawn) -> str:
    left = 10 + LETTER * max(len(label) for label in made.down)
    top = 54 + LETTER * 0.75 * max(len(label) for label in made.across)
    rows, columns = made.numbers.shape
    cell = CELL if max(rows, columns) <= 40 else 12
    wide = left + cell * columns + 24 + LETTER * 6
    wide = max(wide, 16 + LETTER * max(len(made.title), len(made.axes)))
    high = top + cell * rows + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}"'
        f' viewBox="0 0 {wide:.0f} {high:.0f}" font-family="ui-monospace, monospace" font-size="12" role="img">',
        f"<title>{escape(made.title)}</title>",
        f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#ffffff"/>',
        _text(8, 18, made.title, weight="bold"),
        _text(8, 36, made.axes),
    ]
    for n, label in enumerate(made.across):
        x = left + cell * (n + 0.5) + 4
        if label:
            parts.append(_text(x, top - 6, label, f' transform="rotate(-50 {x:.1f} {top - 6:.1f})"'))
    for n, label in enumerate(made.down):
        if label:
            parts.append(_text(left - 6, top + cell * (n + 0.5) + 4, label, ' text-anchor="end"'))
    for n, row in enumerate(made.numbers.tolist()):
        for m, value in enumerate(row):
            said = " ".join(filter(None, (made.down[n], "·" if made.down[n] else "", made.across[m])))
            parts.append(
                f'<rect x="{left + cell * m:.1f}" y="{top + cell * n:.1f}" width="{cell - 1}" height="{cell - 1}"'
                f' fill="{colour(value, made)}"><title>{escape(said)}: {_said(value)}</title></rect>'
            )
    parts += _scale(made, left, top + cell * rows + 10)
    return "\n".join([*parts, "</svg>"])


def _scale(made: Drawn, left: float, top: float) -> list[str]:
    """What the colours mean."""
    steps = [made.low + (made.high - made.low) * n / 19 for n in range(20)]
    bars = [
        f'<rect x="{left + 6 * n:.1f}" y="{top:.1f}" width="6" height="10" fill="{colour(value, made)}"/>'
        for n, value in enumerate(steps)
    ]
    ends = _text(left, top + 24, number(made.low)), _text(left + 120, top + 24, number(made.high), ' text-anchor="end"')
    return [*bars, *ends]


def _text(x: float, y: float, words: str, more: str = "", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}" fill="#1a1a1a" unicode-bidi="isolate"{more}>'
        f"{escape(words)}</text>"
    )


def _said(value: float) -> str:
    return "−∞ or hidden" if not np.isfinite(value) else escape(number(value))


def png(view: "View") -> bytes:
    """The same picture drawn by matplotlib, which knows how to place words of any length."""
    return as_png(drawn(view))


def as_png(made: Drawn) -> bytes:
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
    except ImportError:
        raise TraceError(
            "PNG pictures need matplotlib: pip install 'clearformer[plot]'; .to_svg() needs nothing"
        ) from None
    with rc_context({"font.family": _fonts()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a letter that no font has is drawn as a box
        figure = _figure(made, Figure, LinearSegmentedColormap)
        FigureCanvasAgg(figure)
        out = BytesIO()
        figure.savefig(out, format="png")
    return out.getvalue()


def _fonts() -> list[str]:
    """matplotlib's own font, then those for other scripts that this machine has."""
    from matplotlib.font_manager import fontManager

    there = {each.name for each in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in SCRIPTS if name in there)]


def _figure(made: Drawn, figure_kind: Any, colours_kind: Any) -> Any:
    rows, columns = made.numbers.shape
    step = 0.3 if max(rows, columns) <= 40 else 0.13
    figure = figure_kind(figsize=(2.6 + step * columns, 1.9 + step * rows), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    scale = VIRIDIS if made.shares else TWO_SIDED
    colours = colours_kind.from_list("ours", scale).with_extremes(bad=NOTHING)
    image = axes.imshow(made.numbers, cmap=colours, vmin=made.low, vmax=made.high, aspect="equal")
    small = 8 if max(rows, columns) <= 40 else 5
    axes.set_xticks(range(columns), [_unmarked(label) for label in made.across], rotation=60, ha="left", fontsize=small)
    axes.set_yticks(range(rows), [_unmarked(label) for label in made.down], fontsize=small)
    axes.xaxis.set_ticks_position("top")
    axes.tick_params(length=0)
    axes.set_xlabel(_unmarked(made.axes))
    figure.suptitle(_unmarked(made.title), fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.7)
    return figure


def _unmarked(words: str) -> str:
    """matplotlib reads $ as mathematics."""
    return words.replace("$", r"\$")
