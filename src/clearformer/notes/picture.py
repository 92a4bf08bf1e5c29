"""The pictures of an example as SVG or PNG: attention grids, who sees whom, the map of positions, curves."""

import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from io import BytesIO
from typing import Any

import numpy as np

from clearformer.errors import ClearformerError, DataError
from clearformer.explain.picture import Drawn, as_png, as_svg
from clearformer.notes import parts
from clearformer.notes.render import number

Drawable = parts.Matrix | parts.Seen | parts.Picture | parts.Curves
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by all eyes
DASHES = ("", "6 3", "2 3", "8 3 2 3", "4 2", "1 2")
WIDE, HIGH, EDGE = 720, 300, 64  # of a curve, in pixels
SIZE = re.compile(r'<svg [^>]*?width="(\d+)" height="(\d+)"')
DRAWN = (parts.Seen, parts.Picture, parts.Curves)


def pictures(sections: Sequence[parts.Section]) -> list[Drawable]:
    """What of an example can be drawn."""
    return list(_pictures(sections))


def _pictures(sections: Sequence[parts.Section]) -> Iterator[Drawable]:
    for section in sections:
        if isinstance(section, parts.Beside):
            yield from _pictures(section.parts)
        elif isinstance(section, DRAWN) or (isinstance(section, parts.Matrix) and section.shade):
            yield section


def draw(example: parts.Example, kind: str) -> bytes:
    """All pictures of an example, one below the other, as "svg" or "png"."""
    found = pictures(example.run())
    if not found:
        raise DataError(
            f"the example {example.name!r} has no picture, only numbers and words; ask for them as a page:"
            f" clearformer notes {example.name} --out {example.name}.html"
        )
    return svg(found).encode() if kind == "svg" else png(found)


def svg(found: Sequence[Drawable]) -> str:
    made = [one_svg(each) for each in found]
    sizes = [tuple(map(int, SIZE.match(each).groups())) for each in made]  # type: ignore[union-attr]
    if len(made) == 1:
        return made[0]
    wide, high = max(size[0] for size in sizes), sum(size[1] for size in sizes)
    tops = [sum(size[1] for size in sizes[:n]) for n in range(len(sizes))]
    inside = "\n".join(each.replace("<svg ", f'<svg y="{top}" ', 1) for each, top in zip(made, tops, strict=True))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">\n'
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>\n{inside}\n</svg>'
    )


def one_svg(section: Drawable) -> str:
    return _curves(section) if isinstance(section, parts.Curves) else as_svg(_drawn(section))


def png(found: Sequence[Drawable]) -> bytes:
    try:
        from matplotlib.image import imread, imsave
    except ImportError:
        raise ClearformerError(
            "PNG pictures need matplotlib: pip install 'clearformer[plot]'; .svg needs nothing"
        ) from None
    made = [imread(BytesIO(_plot(each) if isinstance(each, parts.Curves) else as_png(_drawn(each)))) for each in found]
    wide = max(each.shape[1] for each in made)
    rows = [np.pad(each, ((0, 0), (0, wide - each.shape[1]), (0, 0)), constant_values=1.0) for each in made]
    out = BytesIO()
    imsave(out, np.concatenate(rows), format="png")
    return out.getvalue()


def _drawn(section: parts.Matrix | parts.Seen | parts.Picture) -> Drawn:
    axes = " ".join(f"{word} {arrow}" for word, arrow in ((section.row_axis, "↓"), (section.column_axis, "→")) if word)
    if isinstance(section, parts.Seen):
        numbers = np.where(np.array(section.cells), 1.0, np.nan)
        axes += "; grey is not seen"
    else:
        numbers = np.array(section.values)
        numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    rows, columns = numbers.shape
    down = list(section.rows) if isinstance(section, parts.Matrix) else []
    across = list(section.columns) if isinstance(section, parts.Matrix) else []
    low = -1.0 if isinstance(section, parts.Picture) else 0.0  # a picture goes from dark −1 to bright 1
    return Drawn(section.title, axes, numbers, down or [""] * rows, across or [""] * columns, low, 1.0, True)


def _curves(section: parts.Curves) -> str:
    """Lines with their names, and the ends of both axes."""
    along = [math.log(place) if section.doubling else place for place in section.places]
    every = [value for _, values in section.lines for value in values]
    low, high = min(0.0, *every), max(every)
    right = WIDE - 150
    x = [EDGE + (place - along[0]) / (along[-1] - along[0]) * (right - EDGE) for place in along]

    def y(value: float) -> float:
        return HIGH - 44 - (value - low) / ((high - low) or 1) * (HIGH - 44 - 54)

    said = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}" viewBox="0 0 {WIDE} {HIGH}"'
        ' font-family="ui-monospace, monospace" font-size="12" role="img">',
        f"<title>{escape(section.title)}</title>",
        f'<rect width="{WIDE}" height="{HIGH}" fill="#ffffff"/>',
        _text(8, 18, section.title, ' font-weight="bold"'),
        _text(8, 36, f"{section.up} ↑ {section.across} →"),
    ]
    for value in sorted({low, 0.0, high}):
        said.append(f'<path d="M{EDGE} {y(value):.1f}H{right}" stroke="#c8c8c8"/>')
        said.append(_text(EDGE - 6, y(value) + 4, f"{value:.4g}".replace("-", "−"), ' text-anchor="end"'))
    for n in (0, len(x) // 2, len(x) - 1):
        said.append(_text(x[n], HIGH - 24, f"{section.places[n]:g}", ' text-anchor="middle"'))
    for n, (name, values) in enumerate(section.lines):
        points = " ".join(f"{a:.1f},{y(b):.1f}" for a, b in zip(x, values, strict=True))
        colour, dash = COLOURS[n % len(COLOURS)], DASHES[n % len(DASHES)]
        drawn = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        said.append(f'<polyline points="{points}" {drawn}><title>{escape(name)}</title></polyline>')
        said.append(f'<path d="M{right + 10} {62 + 18 * n}h22" {drawn}/>')
        said.append(_text(right + 38, 66 + 18 * n, name))
    return "\n".join([*said, "</svg>"])


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#1a1a1a"{more}>{escape(words)}</text>'


def _plot(section: parts.Curves) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(7.2, 3.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for n, (name, values) in enumerate(section.lines):
        axes.plot(section.places, values, label=name, color=COLOURS[n % len(COLOURS)])
    if section.doubling:
        axes.set_xscale("log", base=2)
        axes.set_xticks(section.places, [number(place, 0) for place in section.places])
    axes.set(xlabel=f"{section.across} →", ylabel=f"{section.up} →")
    axes.set_title(section.title, fontsize=9)
    axes.legend(fontsize=7)
    out = BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()
