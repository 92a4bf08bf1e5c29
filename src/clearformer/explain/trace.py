"""Looking inside a run: every step by its address, its arithmetic, and what happens when a value is changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.model import EncoderDecoder, Transformer
from clearformer.errors import TraceError, nearest
from clearformer.explain import address, cell, show
from clearformer.explain.address import shorten
from clearformer.explain.record import Record, Tape, record

Model = Transformer | EncoderDecoder
Words = Sequence[str] | Mapping[str, Sequence[str]]
Changes = Mapping[str, float | Tensor | Callable[[Tensor], Tensor]]


def trace(
    model: Model,
    *inputs: Tensor,
    words: Words | None = None,
    change: Changes | None = None,
    **options: Any,
) -> "Trace":
    """Run the model on the inputs and keep every step.

    Inputs and options are those of the model's own call. `words` label the tokens: a list, or `source` and `target`
    lists. `change` replaces values by their address while the run goes on: a number, a tensor, or a function of the
    old values; `{"decoder.2.cross.h3.mixed": 0}` drops a head.
    """
    changes = _Changes(change or {})
    names = ["source", "target"] if isinstance(model, EncoderDecoder) else ["input"]
    given = dict(zip(names, inputs, strict=False))
    labels = _checked(words, given)
    result, tape = record(model, changes, given, lambda twin: twin(*inputs, **options))
    changes.check(tape)
    crossing = {shorten(path) for path, module in model.named_modules() if _crosses(module)}
    return Trace(result, tape, labels, crossing)


def _crosses(module: nn.Module) -> bool:
    return isinstance(module, Attention) and module.source is None


def _checked(words: Words | None, given: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """The words of each input, one for each token."""
    if words is None:
        return {}
    if not isinstance(words, Mapping):
        if len(given) > 1:
            raise TraceError(f"words: give a list for each of {' and '.join(given)}, as a dict")
        words = {next(iter(given)): words}
    for name, list_ in words.items():
        if name not in given:
            raise TraceError(f"words: unknown input {name!r}{nearest(name, given)}")
        if given[name].dim() == 2 and len(list_) != given[name].size(1):
            raise TraceError(f"words: {len(list_)} given for the {given[name].size(1)} tokens of {name}")
    return {name: list(list_) for name, list_ in words.items()}


class _Changes:
    def __init__(self, changes: Changes):
        self.wanted = [(address.parse(text), text, value) for text, value in changes.items()]
        self.done: set[str] = set()
        self.queries: dict[str, int] = {}  # how many query heads each attention has

    def heads(self, name: str) -> int | None:
        return self.queries.get(name.rsplit(".", 1)[0])

    def __call__(self, name: str, value: Tensor, axes: list[str]) -> Tensor | None:
        if name.endswith(".q"):
            self.queries[name.removesuffix(".q")] = value.size(1)
        mine = [each for each in self.wanted if each[0].name == name]
        for where, text, new in mine:
            self.done.add(text)
            value = value.clone()
            index = _index(where, text, axes, value, self.heads(name))
            if value[index].numel() == 0:
                raise TraceError(f"{text}: there are no cells in that range")
            found = new(value[index]) if callable(new) else new
            try:
                value[index] = torch.as_tensor(found, dtype=value.dtype)
            except (RuntimeError, TypeError, ValueError):
                shape = list(found.shape) if isinstance(found, Tensor) else repr(found)
                raise TraceError(f"{text}: the values are of shape {list(value[index].shape)}, given {shape}") from None
        return value if mine else None

    def check(self, tape: Tape) -> None:
        for where, text, _ in self.wanted:
            if text not in self.done and where.name in tape.records:
                raise TraceError(f"{text}: this is a parameter or an input; only the results of steps can be changed")
            if text not in self.done:
                raise TraceError(f"{text}: {_unknown(where, tape)}")


def _unknown(where: address.Address, tape: Tape) -> str:
    return f"nothing in this run has the name {where.name!r}{nearest(where.name, tape.records)}"


def _index(where: address.Address, text: str, axes: list[str], value: Tensor, heads: int | None) -> tuple[Any, ...]:
    """What an address means on a tensor with these axes; `heads` is how many query heads its attention has."""
    index: list[Any] = [slice(None)] * len(axes)
    left = list(range(len(axes)))
    if where.head is not None:
        letter, number = where.head
        axis = letter if letter in axes else "g" if "g" in axes else None
        if axis is None:
            raise TraceError(f"{text}: this step has no heads; its axes are {' '.join(axes)}")
        place = axes.index(axis)
        count = heads if letter == "h" and heads is not None else value.size(place)
        if number >= count:
            raise TraceError(f"{text}: there are {count} heads, 0 to {count - 1}")
        if letter == "h" and axis == "g":  # the key head that this query head reads
            number = number * value.size(place) // count
        index[place] = number
        left.remove(place)
    if axes[:1] == ["b"] and value.size(0) == 1 and len(where.cells) < len(left):
        index[0] = 0
        left.remove(0)
    if len(where.cells) > len(left):
        raise TraceError(f"{text}: {len(where.cells)} cells given for the axes {' '.join(axes[n] for n in left)}")
    for place, which in zip(left, where.cells, strict=False):
        if isinstance(which, int) and not -value.size(place) <= which < value.size(place):
            raise TraceError(f"{text}: axis {axes[place]} has {value.size(place)} cells, given {which}")
        index[place] = which
    return tuple(index)


@dataclass(frozen=True, eq=False)
class View:
    """A recorded tensor, or a part of one: `values`, the letters of its `axes`, and where it came from."""

    address: str
    axes: list[str]
    values: Tensor
    operands: list[str]
    labels: dict[str, list[str]]

    def __getitem__(self, cells: Any) -> Tensor:
        return self.values[cells]

    def __repr__(self) -> str:
        return show.line(self)

    def __str__(self) -> str:
        return show.text(self)

    def __rich__(self) -> Any:
        return show.table(self)


class Trace:
    """The steps of one run. `trace[address]` is a view, `explain(address)` the arithmetic of a cell."""

    def __init__(self, result: Tensor, tape: Tape, words: dict[str, list[str]], crossing: set[str]):
        self.result, self.tape, self.words = result, tape, words
        self.crossing = crossing  # the attentions whose keys are the source's

    def addresses(self, containing: str = "") -> list[str]:
        """The names of all steps, in the order they ran; heads and cells are written into them as needed."""
        made = [
            name for name, each in self.tape.records.items() if not each.axes or not each.axes[0].startswith("axis")
        ]
        return [name for name in made if containing in name and name not in ("source", "target", "input")]

    def __iter__(self) -> Iterator[str]:
        return iter(self.addresses())

    def __len__(self) -> int:
        return len(self.addresses())

    def __contains__(self, text: str) -> bool:
        return address.parse(text).name in self.tape.records

    def __getitem__(self, text: str) -> View:
        where, found = self._find(text)
        index = _index(where, text, found.axes, found.value, self._heads(found.name))
        axes = [axis for axis, which in zip(found.axes, index, strict=True) if not isinstance(which, int)]
        labels = {axis: label for axis in axes if (label := self._labels(found.name, axis))}
        for axis, which in zip(found.axes, index, strict=True):
            if axis in labels and isinstance(which, slice):
                labels[axis] = labels[axis][which]
        return View(text, axes, found.value.detach()[index], self._operands(found), labels)

    def explain(self, text: str) -> show.Explanation:
        """How one cell was computed, from the nearest named numbers."""
        where, found = self._find(text)
        index = _index(where, text, found.axes, found.value, self._heads(found.name))
        if any(not isinstance(which, int) for which in index):
            left = [axis for axis, which in zip(found.axes, index, strict=True) if not isinstance(which, int)]
            raise TraceError(f"{text}: name one cell; still open: {', '.join(show.word(a, found.axes) for a in left)}")
        size = found.value.shape
        exact = tuple(int(which) % size[n] for n, which in enumerate(index))
        words = [self._word(found, axis, n) for axis, n in zip(found.axes, exact, strict=True)]
        full = address.write(found.name, found.axes, exact, size[0] if found.axes[:1] == ["b"] else 0)
        expression = cell.explain(self.tape, found.value, exact)
        return show.Explanation(full, float(found.value[exact]), expression, [w for w in words if w], found.changed)

    def differences(self, other: "Trace") -> dict[str, float]:
        """The largest change of each step between this run and another of the same model and shapes."""
        mine, theirs = self.tape.records, other.tape.records
        both = [
            name for name in self.addresses() if name in theirs and mine[name].value.shape == theirs[name].value.shape
        ]
        changes = {name: (mine[name].value - theirs[name].value).abs() for name in both}
        return {name: float(change.max()) for name, change in changes.items() if change.numel()}

    def _find(self, text: str) -> tuple[address.Address, Record]:
        where = address.parse(text)
        if where.name not in self.tape.records:
            raise TraceError(f"{text}: {_unknown(where, self.tape)}")
        return where, self.tape.records[where.name]

    def _heads(self, name: str) -> int | None:
        queries = self.tape.records.get(f"{name.rsplit('.', 1)[0]}.q")
        return None if queries is None else queries.value.size(1)

    def _labels(self, name: str, axis: str) -> list[str]:
        """The words along an axis of positions; compressed keys are no positions."""
        own, step = name.rsplit(".", 1) if "." in name else ("", name)
        compressed = f"{own}.short_k" in self.tape.records and step not in ("k", "v")
        if axis not in ("t", "s") or (axis == "s" and compressed):
            return []
        if "input" in self.words:
            return self.words["input"]
        of_source = name.startswith("encoder") or (axis == "s" and own in self.crossing)
        return self.words.get("source" if of_source else "target", [])

    def _word(self, found: Record, axis: str, number: int) -> str:
        labels = self._labels(found.name, axis)
        word = f" “{labels[number]}”" if number < len(labels) else ""
        return "" if axis == "b" else f"{show.word(axis, found.axes)} {number}{word}"

    def _operands(self, found: Record) -> list[str]:
        """The named tensors that a step was computed from, nearest first."""
        names: list[str] = []
        seen: set[int] = set()

        def walk(thing: Any, top: bool) -> None:
            if isinstance(thing, tuple | list):
                for each in thing:
                    walk(each, False)
            if not isinstance(thing, Tensor) or id(thing) in seen:
                return
            seen.add(id(thing))
            named, operation = self.tape.named.get(id(thing)), self.tape.operations.get(id(thing))
            if named is not None and not top:
                names.append(named.name)
            elif operation is not None:
                walk(operation.args, False)

        walk(found.value, True)
        return names
