"""Why this score: q · k / √d as a table, by where the query came from and where the key came from.

What an attention reads is a sum of parts (`parts.py`), and so are, with every norm's spread held, its queries and keys:
projections and rotations are linear. q · k is then the sum over all pairs of a part of the query and a part of the key.
Learned vectors for distances (Shaw) are parts of the key; other biases of positions are terms of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.kv import Compressed
from clearformer.core.patterns import Visible
from clearformer.core.places import Places
from clearformer.core.positions import Relative, Sum, Vectors
from clearformer.errors import TraceError
from clearformer.explain.attribution import CLOSE, Part
from clearformer.explain.heads import attentions
from clearformer.explain.parts import Parts, branch_of, stream
from clearformer.explain.streams import is_norm, single, stacked

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

NOTE = (
    "Rows are what the query came from, columns what the key came from; all cells, and the biases of positions, sum to"
    " the score. A large cell says that these two parts point the same way for this head. It does not show that the"
    " model needs them: every norm's spread is held at what it was, and a high score is only a high weight where the"
    " others are lower."
)
SCHEMA = "clearformer.score/1"


@dataclass(frozen=True)
class Score:
    """The parts of one score: `table[i][j]` is what part i of the query and part j of the key give together."""

    address: str
    value: float
    place: list[str]
    queries: list[str]
    keys: list[str]
    table: list[list[float]]
    biases: list[Part]
    visible: bool  # whether the query may see the key; if not, the score is made −∞ before the softmax
    note: str = NOTE

    @property
    def total(self) -> float:
        return sum(map(sum, self.table)) + sum(part.value for part in self.biases)

    def best(self, count: int = 10) -> list[tuple[str, str, float]]:
        """The largest cells: the query's part, the key's, and what they give."""
        every = [
            (query, key, value)
            for query, row in zip(self.queries, self.table, strict=True)
            for key, value in zip(self.keys, row, strict=True)
        ]
        return sorted(every, key=lambda cell: -abs(cell[2]))[:count]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "address": self.address,
            "value": self.value,
            "place": self.place,
            "queries": self.queries,
            "keys": self.keys,
            "table": self.table,
            "biases": [part._asdict() for part in self.biases],
            "total": self.total,
            "visible": self.visible,
            "note": self.note,
        }

    def __str__(self) -> str:
        shown = self.best(20)
        rows = [f"{value:+9.4f}  {query} · {key}" for query, key, value in shown]
        rest = len(self.queries) * len(self.keys) - len(shown)
        if rest:
            left = sum(map(sum, self.table)) - sum(value for *_, value in shown)
            rows.append(f"{left:+9.4f}  {rest} smaller ones")
        rows += [f"{part.value:+9.4f}  {part.address}" for part in self.biases]
        hidden = "" if self.visible else "; this query may not see this key, so it counts for nothing"
        head = f"{self.address} ({', '.join(self.place)}) = {self.value:.4f}{hidden}, the sum of query · key"
        return "\n".join([*(row.replace("-", "−") for row in (head, *rows)), self.note])

    def _repr_html_(self) -> str:
        from clearformer.explain.html import table

        rows = [[query, *(f"{x:+.3f}" for x in row)] for query, row in zip(self.queries, self.table, strict=True)]
        return table([self.address, *self.keys], rows, self.note)


class _Cell(NamedTuple):
    """One score: its attention, its head, its query and its key."""

    own: str
    layer: Attention
    head: int
    query: int
    key: int


@torch.no_grad()
def score(trace: "Trace", text: str, by: str = "branch") -> Score:
    """`by` head, every head and bias is a part of its own; by branch, those of one branch are one."""
    single(trace, "score")
    if by not in ("branch", "head"):
        raise TraceError(f"score: by must be branch or head, given {by[:40]!r}")
    cell = _cell(trace, text)
    own, layer, head, t, s = cell
    stack = own.split(".")[0]
    places = trace.tape.places[stack]
    crosses = own in trace.crossing
    there = trace.tape.places["encoder"] if crosses else places
    queries = _queries(trace, cell, places)
    keys = _keys(trace, cell, there, crosses)
    biases = []
    for name, part in _schemes(layer.relative, own):
        if isinstance(part, Vectors):
            row = int(part._row(places, there, layer.heads)[0, head, t, s])
            keys[f"{name}.key_table[{row}]"] = part.key_table[row].double()
        elif f"{name}.bias" in trace.tape.records:
            added = float(trace.tape.records[f"{name}.bias"].value[0, head, t, s])
            biases.append(Part(f"{own}.h{head}{name.removeprefix(own)}.bias[{t},{s}]", added))
    if by == "branch":
        queries, keys = _grouped(queries), _grouped(keys)
    scale: float = layer.kernel.scale
    table = torch.stack([*queries.values()]) @ torch.stack([*keys.values()]).T * scale
    found = trace.tape.records[f"{own}.scores"]
    value = float(found.value[0, head, t, s])
    seen = isinstance(layer.source, Compressed) or bool(
        Visible(layer.pattern, places, there).dense().expand(1, 1, *found.shape[-2:])[0, 0, t, s]
    )
    place = [said for axis, n in (("h", head), ("t", t), ("s", s)) if (said := trace.word(found, axis, n))]
    address = f"{own}.h{head}.scores[{t},{s}]"
    made = Score(address, value, place, [*queries], [*keys], table.tolist(), biases, seen)
    size = float(table.abs().sum()) + sum(abs(part.value) for part in biases)
    if abs(made.total - value) > CLOSE * max(1.0, size):
        raise TraceError(f"{text}: the parts do not sum to the score, because a change replaced a part of the stream")
    return made


def _cell(trace: "Trace", text: str) -> _Cell:
    where, found = trace.find(text)
    own, _, step = found.name.rpartition(".")
    layers = dict(attentions(trace))
    if own not in layers or step not in ("scores", "weights"):
        like = f"{next(iter(layers), 'stack.0.self')}.h0.scores[0,0]"
        raise TraceError(f"{text}: a score is asked for, such as {like}")
    cells = trace.index(where, text, found)
    if any(not isinstance(which, int) for which in cells[1:]):
        raise TraceError(f"{text}: name one score: a head, a query and a key, as in {own}.h0.scores[0,0]")
    head, query, key = (which % size for which, size in zip(cells[1:], found.shape[1:], strict=True))
    return _Cell(own, layers[own], head, query, key)


def _schemes(relative: Any, own: str) -> list[tuple[str, Relative]]:
    """The positions inside an attention, each with the address of its steps."""
    if isinstance(relative, Sum):
        return [(f"{own}.{name}", part) for name, part in relative.parts.items()]  # type: ignore[misc]
    return [(own, relative)]


def _queries(trace: "Trace", cell: _Cell, places: Places) -> Parts:
    """address → d: what the query is the sum of."""
    own, layer, head, t, _ = cell
    parts = stream(trace, stacked(trace, own.split(".")[0]), torch.tensor([t]), own)
    made = _projected(trace, parts, layer.query, head, layer.heads, f"{own}.query")
    made = _normed(made, layer.query_norm, f"{own}.query_norm")
    turn = _turn(layer.relative, places, t, layer)
    return {_at(name, t): part[0] @ turn for name, part in made.items()}


def _keys(trace: "Trace", cell: _Cell, there: Places, crosses: bool) -> Parts:
    """address → d: what the key is the sum of; a compressed one is a sum over all positions."""
    own, layer, head, _, s = cell
    rows, shares = torch.tensor([s]), torch.ones(1, dtype=torch.float64)
    if isinstance(layer.source, Compressed):
        shares = layer.source._rows(layer.source.key_map, there)[0, 0, s].double()
        rows = torch.arange(len(shares))
    name = "encoder" if crosses else own.split(".")[0]
    parts = stream(trace, stacked(trace, name), rows, None if crosses else own)
    group = head * layer.key_heads // layer.heads
    made = _projected(trace, parts, layer.key, group, layer.key_heads, f"{own}.key")
    made = _normed(made, layer.key_norm, f"{own}.key_norm")
    turns = torch.stack([_turn(layer.relative, there, int(row), layer) for row in rows])  # rows d d
    mixed = {name: torch.einsum("r,rd,rde->e", shares, part, turns) for name, part in made.items()}
    return {_at(name, s) if len(rows) == 1 else name: part for name, part in mixed.items()}


def _projected(trace: "Trace", parts: Parts, linear: Any, head: int, heads: int, name: str) -> Parts:
    """rows d: each part through the head's slice of a projection; its bias is a part."""
    weight = trace.ran.weight(linear).double().unflatten(0, (heads, -1))[head]  # d m
    made = {key: part @ weight.T for key, part in parts.items()}
    if linear.bias is not None:
        count = len(next(iter(made.values())))
        made[f"{name}.bias"] = linear.bias.detach().double().unflatten(0, (heads, -1))[head].expand(count, -1)
    return made


def _normed(parts: Parts, norm: nn.Module, name: str) -> Parts:
    from clearformer.explain.parts import frozen

    if not is_norm(norm):
        return parts
    whole = torch.stack([*parts.values()]).sum(0)
    return frozen(parts, norm, whole, name)


def _turn(relative: Any, places: Places, position: int, layer: Attention) -> Tensor:
    """d d: what rotation does to a row at a position, in the numbers that the run had."""
    one = replace(places, index=places.index[:1, position : position + 1], path=None, start=None, memo={})
    width = layer.query.out_features // layer.heads
    rotate: Callable[..., Tensor] = relative.rotate
    return rotate(torch.eye(width).view(width, 1, 1, width), one).reshape(width, width).double()


def _at(name: str, position: int) -> str:
    return name if name.endswith(("]", ".bias")) else f"{name}[{position}]"


def _grouped(parts: Parts) -> Parts:
    """The parts of one branch as one; the embedding of tokens and of positions stay apart."""
    found: Parts = {}
    for name, part in parts.items():
        whole = ".embed." in name or "_table[" in name or (name.endswith(".bias") and ".output." not in name)
        key = name if whole else branch_of(name)
        found[key] = found[key] + part if key in found else part
    return found
