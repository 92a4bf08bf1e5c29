"""Sections → one page of HTML without scripts, in which every word is only text and numbers stand in tables."""

from collections.abc import Sequence
from functools import singledispatch
from html import escape

from clearformer.notes import parts
from clearformer.notes.picture import one_svg
from clearformer.notes.render import number

STYLE = """
:root { color-scheme: light dark; --line: #8886; --shade: 0 114 178 }
body { font: 16px/1.5 system-ui, "Noto Sans", "Noto Sans Devanagari", sans-serif; max-width: 60rem; margin: auto;
  padding: 1rem }
h1, h2 { line-height: 1.25 }
.where, .axes, .seen { opacity: .75 }
.eq { font-family: ui-monospace, monospace; padding-left: 1rem }
.wide { overflow-x: auto }
.beside { display: flex; flex-wrap: wrap; gap: 0 2rem }
table { border-collapse: collapse; font-family: ui-monospace, monospace; font-size: .85rem; margin: .5rem 0 }
caption { text-align: left; font-weight: 600 }
th, td { border: 1px solid var(--line); padding: .15rem .5rem; text-align: right }
th { font-weight: 500; text-align: left }
td.words { text-align: left }
td.hidden { background: repeating-linear-gradient(45deg, transparent 0 4px, var(--line) 4px 6px) }
.slip { border-left: 4px solid #b8860b; background: #b8860b22; padding: .5rem 1rem; margin: 1rem 0 }
.ours::before { content: "ours: "; font-weight: 600 }
.yes::before { content: "✓ "; color: #0a7d38; font-weight: 700 }
.no::before { content: "✗ "; color: #b3261e; font-weight: 700 }
ol { list-style: upper-alpha }
svg { max-width: 100%; height: auto }
""".strip()


def page(examples: Sequence[parts.Example]) -> str:
    """Examples, run now, as a page that stands alone."""
    title = examples[0].title if len(examples) == 1 else "The examples of the lecture notes"
    inside = "\n".join(_example(example) for example in examples)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<style>\n{STYLE}\n</style>\n</head>\n<body>\n{inside}\n</body>\n</html>\n"
    )


def _example(example: parts.Example) -> str:
    head = f'<h1>{example.number} · {escape(example.title)}</h1>\n<p class="where">{escape(example.where)}</p>'
    return "\n".join([head, *(draw(section) for section in example.run())])


@singledispatch
def draw(section: object) -> str:
    raise TypeError(f"no drawing for {type(section).__name__}")


@draw.register
def _(section: parts.Heading) -> str:
    return f"<h2>{escape(section.text)}</h2>"


@draw.register
def _(section: parts.Prose) -> str:
    return f"<p>{escape(section.text)}</p>"


@draw.register
def _(section: parts.Ours) -> str:
    return f'<p class="ours">{escape(section.text)}</p>'


@draw.register
def _(section: parts.Equation) -> str:
    return f'<p class="eq">{escape(section.text)}</p>'


@draw.register
def _(section: parts.Check) -> str:
    held = "yes" if section.holds else "no"
    return f'<p class="{held}">{escape(section.claim)} <span class="seen">({escape(section.seen)})</span></p>'


@draw.register
def _(section: parts.Slip) -> str:
    return (
        f'<div class="slip"><b>slip · {escape(section.where)}</b><br>'
        f"The notes print <s>{escape(section.notes_say)}</s>;"
        f" it is <b>{escape(section.right)}</b>, because {escape(section.why)}.</div>"
    )


@draw.register
def _(section: parts.Question) -> str:
    options = "".join(
        f"<li>{f'<mark>{escape(option)}</mark>' if letter in section.answers else escape(option)}</li>"
        for letter, option in zip("ABCDEFG", section.options, strict=False)
    )
    return f"<h2>{escape(section.text)}</h2>\n<ol>{options}</ol>"


@draw.register
def _(section: parts.Beside) -> str:
    return f'<div class="beside">{"".join(draw(part) for part in section.parts)}</div>'


@draw.register
def _(section: parts.Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in section.columns)
    rows = "".join(
        "<tr>" + "".join(f'<td class="words">{escape(cell)}</td>' for cell in row) + "</tr>" for row in section.rows
    )
    return _table(section.title, "", f"<tr>{head}</tr>", rows)


@draw.register
def _(section: parts.Matrix) -> str:
    corner = "<td></td>" if section.rows else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in section.columns)
    rows = []
    for i, values in enumerate(section.values):
        name = f"<th>{escape(section.rows[i])}</th>" if section.rows else ""
        rows.append(f"<tr>{name}{''.join(_cell(section, i, j, value) for j, value in enumerate(values))}</tr>")
    return _table(section.title, _axes(section), f"<tr>{corner}{head}</tr>" if head else "", "".join(rows))


@draw.register
def _(section: parts.Seen) -> str:
    rows = "".join(
        "<tr>" + "".join("<td>■</td>" if cell else '<td class="hidden"></td>' for cell in row) + "</tr>"
        for row in section.cells
    )
    return _table(section.title, _axes(section), "", rows)


@draw.register(parts.Picture)
@draw.register(parts.Curves)
def _(section: parts.Picture | parts.Curves) -> str:
    return f"<figure>{one_svg(section)}</figure>"


def _cell(section: parts.Matrix, i: int, j: int, value: float) -> str:
    text = number(value, section.decimals)
    if (i, j) in section.highlight:
        text = f"<mark>* {text}</mark>"
    if value == float("-inf"):
        return f'<td class="hidden">{text}</td>'
    shade = f' style="background: rgb(var(--shade) / {0.6 * value:.3f})"' if section.shade and 0 <= value <= 1 else ""
    return f"<td{shade}>{text}</td>"


def _axes(section: parts.Matrix | parts.Seen) -> str:
    return " ".join(f"{word} {arrow}" for word, arrow in ((section.row_axis, "↓"), (section.column_axis, "→")) if word)


def _table(title: str, axes: str, head: str, rows: str) -> str:
    said = f"{escape(title)} <span class='axes'>{escape(axes)}</span>" if title or axes else ""
    caption = f"<caption>{said}</caption>" if said else ""
    return f'<div class="wide"><table>{caption}<thead>{head}</thead><tbody>{rows}</tbody></table></div>'
