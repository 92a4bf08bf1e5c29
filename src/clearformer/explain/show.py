"""Traced values as text: one line, a table with numbers and axis words, and the arithmetic of a cell."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clearformer.explain.cell import Apply, Expression, Masked, Normed, Number, Products, Share
from clearformer.explain.tree import tree
from clearformer.explain.words import shown

if TYPE_CHECKING:
    from clearformer.explain.view import View

AXES = {
    "b": "text",
    "h": "head",
    "g": "key head",
    "t": "position",
    "s": "position",
    "d": "head feature",
    "m": "feature",
    "f": "inner feature",
    "v": "token of the vocabulary",
    "c": "channel",
    "r": "row",
}
LETTERS = "xyzuvwabcdefghijklmnopqrst"
MOST_ROWS, MOST_COLUMNS, MOST_TERMS = 40, 64, 8
SCHEMA = "clearformer.explanation/1"
HIDDEN = (-1e30, -65504.0)  # scores that were masked, in single and in half precision


def word(axis: str, axes: list[str]) -> str:
    """What an axis is called; two axes of positions are queries and keys."""
    if {"t", "s"} <= set(axes):
        return {"t": "query", "s": "key"}.get(axis, AXES.get(axis, axis))
    return AXES.get(axis, axis)


def number(value: float) -> str:
    if value <= HIDDEN[0] or value == HIDDEN[1]:
        return "−∞"
    text = f"{value:.4f}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.3g}"
    return text.replace("-", "−")


def line(view: "View") -> str:
    shape = " × ".join(f"{view.name(a)} {n}" for a, n in zip(view.axes, view.values.shape, strict=True))
    made = f", from {', '.join(view.operands)}" if view.operands else ""
    values = view.values.double()
    if values.numel() == 0:
        span = ", empty"
    elif values.dim() == 0:
        span = f" = {number(float(values))}"
    else:
        span = f" in [{number(float(values.min()))}, {number(float(values.max()))}]"
    return f"<{view.address}: {shape or 'one number'}{span}{made}>"


def corner(view: "View") -> str:
    """Which axis runs down and which across."""
    if len(view.axes) == 2:
        return f"{view.name(view.axes[0])} ↓ {view.name(view.axes[1])} →"
    return f"{view.name(view.axes[0])} →" if view.axes else ""


def table(view: "View", width: int = 160, *, short: bool = False) -> Any:
    """A vector or matrix in so many columns of a terminal, in `short` with two digits; more axes than two are an error
    that says how to choose."""
    from rich.text import Text

    from clearformer.explain.table import Column, Row, fitted

    values = view.values
    if values.dim() > 2:
        return Text(f"{line(view)}\nchoose a head or cells so that at most two axes are left")
    rows = values.reshape(1, -1) if values.dim() < 2 else values
    down, across = (None, view.axes[0] if view.axes else None) if values.dim() < 2 else (view.axes[0], view.axes[1])
    shares = view.address.split("[")[0].endswith("weights")
    columns = [Column(view.label(across, n)) for n in range(min(rows.size(1), MOST_COLUMNS))]
    body = [
        Row(
            view.label(down, n) if down else "",
            [(f"{x:.2f}" if short else number(x), _heat(x) if shares else "") for x in row[:MOST_COLUMNS]],
        )
        for n, row in enumerate(rows[:MOST_ROWS].tolist())
    ]
    made = fitted(corner(view), columns, body, width, rows.size(1) - len(columns))
    more = f"\n… {rows.size(0) - MOST_ROWS} more rows" if rows.size(0) > MOST_ROWS else ""
    source = f"\nfrom {', '.join(view.operands)}" if view.operands else ""
    return Text.assemble((f"{view.address}\n", "bold"), made, more, (source, "dim"))


def _heat(share: float) -> str:
    """A background for an attention weight: darker is more."""
    level = round(max(0.0, min(1.0, share)) * 10)
    return (
        "" if level == 0 else f"{'white' if level > 5 else 'black'} on rgb({230 - 20 * level},{235 - 14 * level},245)"
    )


def text(view: "View") -> str:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    Console(file=out, width=160, no_color=True, legacy_windows=False, soft_wrap=True).print(table(view))
    return "\n".join(row.rstrip() for row in out.getvalue().rstrip().splitlines())


@dataclass(frozen=True)
class Explanation:
    """A cell, its value, and the expression that made it."""

    address: str
    number: float
    expression: Expression
    place: list[str]
    changed: bool

    def __str__(self) -> str:
        head = f"{self.address} = {number(self.number)}"
        place = f"  ({', '.join(self.place)})" if self.place else ""
        if self.changed:
            return f"{head}{place}\n  set by a change"
        if isinstance(self.expression, Number) and self.expression.address in (None, self.address):
            return f"{head}{place}\n  given"
        return "\n".join([head + place, *(f"  {row}" for row in write(self.expression))])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the cell and how it was made (`tree.py`); each address in it can be explained in turn. What was
        given, or set by a change, has no expression."""
        leaf = self.changed or (isinstance(self.expression, Number) and self.expression.address in (None, self.address))
        return {
            "schema": SCHEMA,
            "address": self.address,
            "value": self.number,
            "place": self.place,
            "changed": self.changed,
            "expression": None if leaf else tree(self.expression),
        }


def quoted(words: list[str], most: int = 60) -> str:
    """Words in a line that is not too long."""
    said = " ".join(shown(word) for word in words)
    return f"“{said[:most]}{'…' * (len(said) > most)}”"


def write(expression: Expression) -> list[str]:
    """The lines of an expression: what it is, its numbers, its value."""
    match expression:
        case Share(row=row, place=place):
            top = max(each.value() for each in row)
            total = sum(_exp(each.value() - top) for each in row)
            mine = _exp(row[place].value() - top)
            return [
                f"= exp(x{place}) / Σ exp(x) over {len(row)} keys; {number(top)}, the largest, is taken off first",
                f"= {number(mine)} / {number(total)} = {number(expression.value())}",
                *(f"x{n} = {_inline(each)}" for n, each in _important(row, place)),
            ]
        case Masked():
            return [f"= {number(expression.number)}: masked, this query may not see this key"]
        case Products():
            return _products(expression)
        case Normed():
            what = "(x − mean) / √(variance + eps)" if expression.centred else "x / √(mean square + eps)"
            mean = f"mean {number(expression.mean())}, " if expression.centred else ""
            return [
                f"= {what}{' · weight' if expression.weight else ''}{' + bias' if expression.bias else ''}, "
                f"over {len(expression.row)} features",
                f"x = {_inline(expression.row[expression.place])}; {mean}root {number(expression.spread())}, "
                f"eps {expression.eps:g}",
                *([f"weight = {_inline(expression.weight)}"] if expression.weight else []),
                *([f"bias = {_inline(expression.bias)}"] if expression.bias else []),
                f"= {number(expression.value())}",
            ]
        case Apply() if _deep_parts(expression):
            letters = dict(zip(map(id, parts := _deep_parts(expression)), LETTERS, strict=False))
            rows = [f"= {_inline(expression, letters, outer=True)}"]
            for part in parts:
                first, *rest = write(part)
                rows += [f"{letters[id(part)]} {first}", *(f"  {row}" for row in rest)]
            return [*rows, f"= {number(expression.value())}"]
    return [f"= {_inline(expression)}", f"= {number(expression.value())}"]


def _deep(expression: Expression) -> bool:
    """Whether an expression needs lines of its own."""
    return isinstance(expression, Products | Share | Normed)


def _deep_parts(expression: Expression) -> list[Expression]:
    """Those that need lines of their own, wherever they stand in a formula."""
    if _deep(expression):
        return [expression]
    if isinstance(expression, Apply):
        return [found for part in expression.parts for found in _deep_parts(part)]
    return []


def _constant(expression: Expression) -> bool:
    """Whether only numbers went in that the equations themselves say, such as the frequency of a position."""
    match expression:
        case Number(address=address):
            return address is None
        case Apply(parts=parts):
            return all(_constant(part) for part in parts)
    return False


def _joined(sign: str, parts: list[str]) -> str:
    if len(parts) == 2 and not sign.isalpha():
        return f"{parts[0]} {sign} {parts[1]}"
    return f"{sign}({', '.join(parts)})"


def _exp(x: float) -> float:
    from math import exp

    return exp(x)


def _important(row: tuple[Expression, ...], place: int) -> list[tuple[int, Expression]]:
    """The asked place first, then the largest others."""
    others = sorted((n for n in range(len(row)) if n != place), key=lambda n: -row[n].value())
    return [(n, row[n]) for n in [place, *others[: MOST_TERMS - 1]]]


def _products(expression: Products) -> list[str]:
    terms = sorted(expression.pairs, key=lambda pair: -abs(pair[0].value() * pair[1].value()))
    shown, rest = terms[:MOST_TERMS], terms[MOST_TERMS:]
    bias = f" + {_inline(expression.bias)}" if expression.bias else ""
    rows = [f"= Σ a · b over {len(terms)} products{' + bias' if expression.bias else ''}, largest first"]
    rows += [f"  {_inline(a)} · {_inline(b)} = {number(a.value() * b.value())}" for a, b in shown]
    if rest:
        rows.append(f"  … and {len(rest)} smaller ones = {number(sum(a.value() * b.value() for a, b in rest))}")
    if bias:
        rows.append(f"  bias{bias}")
    return [*rows, f"= {number(expression.value())}"]


def _inline(expression: Expression, letters: dict[int, str] | None = None, outer: bool = False) -> str:
    """A formula in one line; what has lines of its own goes by its letter."""
    if letters and id(expression) in letters:
        return letters[id(expression)]
    if _constant(expression):
        return f"{number(expression.value())} [constant]"
    match expression:
        case Number(number=value, address=where):
            return f"{number(value)} [{where}]"
        case Apply(sign=sign, parts=parts):
            joined = _joined(sign, [_inline(part, letters) for part in parts])
            return f"({joined})" if len(parts) == 2 and not outer else joined
    return number(expression.value())
