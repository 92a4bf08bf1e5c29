"""Traces in a notebook: pictures and tables without scripts, in which every word is only text."""

from html import escape
from typing import TYPE_CHECKING

from clearformer.errors import TraceError
from clearformer.explain.show import line, quoted
from clearformer.explain.words import shown

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace
    from clearformer.explain.view import View

STYLE = "font-family: ui-monospace, monospace; font-size: 12px"
SMALL = 48  # cells on a side of the picture that a trace shows of itself


def view(found: "View") -> str:
    """A picture where there are one or two axes, and a line else."""
    said = f"<p>{escape(found.note)}</p>" if found.note else ""
    try:
        return f'<div style="overflow-x: auto">{found.to_svg()}{said}</div>'
    except TraceError:
        return f'<code style="{STYLE}">{escape(shown(line(found), 400))}</code>{said}'


def trace(found: "Trace") -> str:
    """What was read, one attention of it as a picture, and the addresses there are."""
    parts = [
        f"<p><b>{escape(name)}</b> <span dir=auto>{escape(quoted(words, 400))}</span></p>"
        for name, words in found.words.items()
    ]
    if (said := getattr(found.run, "text", None)) is not None:
        parts.append(f"<p><b>gave</b> <span dir=auto>{escape(shown(str(said), 2000))}</span></p>")
    if (picture := _picture(found)) is not None:
        parts.append(f'<div style="overflow-x: auto">{picture}</div>')
    rows = "".join(f"<li><code>{escape(line(found[name]))}</code></li>" for name in found)
    listed = f"<details><summary>{len(found)} addresses</summary><ol>{rows}</ol></details>"
    return f'<div style="{STYLE}">{"".join(parts)}{listed}</div>'


def _picture(found: "Trace") -> str | None:
    """The last attention's first head, cross-attention where there is one; nothing of a batch."""
    weights = [name for name in found if name.endswith(".weights")]
    crossing = [name for name in weights if name.removesuffix(".weights") in found.crossing]
    for name in reversed(crossing or weights):
        value = found.tape.records[name].value
        if value.size(0) == 1 and max(value.shape[-2:]) <= SMALL:
            own, step = name.rsplit(".", 1)
            return found[f"{own}.h0.{step}"].to_svg()
    return None


def table(heading: list[str], rows: list[list[str]], note: str = "") -> str:
    """A table of texts."""
    head = "".join(f"<th>{escape(shown(cell))}</th>" for cell in heading)
    body = "".join("<tr>" + "".join(f"<td>{escape(shown(cell, 80))}</td>" for cell in row) + "</tr>" for row in rows)
    said = f"<p>{escape(note)}</p>" if note else ""
    return f'<table style="{STYLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}'
