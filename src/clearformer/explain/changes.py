"""What an address means on a tensor, and values that are replaced while a run goes on."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearformer.errors import TraceError, nearest
from clearformer.explain import address
from clearformer.explain.tape import Tape

Changes = Mapping[str, float | Tensor | Callable[[Tensor], Tensor]]
Find = Callable[[str, str], int]  # an axis and a word on it → its number


class Changing:
    """The changes of one run: each is made when its step is reached, and one that never was is an error."""

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
            cells = index(where, text, axes, value, self.heads(name))
            if value[cells].numel() == 0:
                raise TraceError(f"{text}: there are no cells in that range")
            found = new(value[cells]) if callable(new) else new
            try:
                value[cells] = torch.as_tensor(found, dtype=value.dtype)
            except (RuntimeError, TypeError, ValueError):
                shape = list(found.shape) if isinstance(found, Tensor) else repr(found)
                raise TraceError(f"{text}: the values are of shape {list(value[cells].shape)}, given {shape}") from None
        return value if mine else None

    def check(self, tape: Tape) -> None:
        for where, text, _ in self.wanted:
            if text not in self.done and where.name in tape.records:
                raise TraceError(f"{text}: this is a parameter or an input; only the results of steps can be changed")
            if text not in self.done:
                raise TraceError(f"{text}: {unknown(where, tape)}")


def unknown(where: address.Address, tape: Tape) -> str:
    return f"nothing in this run has the name {where.name!r}{nearest(where.name, tape.records)}"


def index(
    where: address.Address, text: str, axes: list[str], value: Tensor, heads: int | None, find: Find | None = None
) -> tuple[Any, ...]:
    """What an address means on a tensor with these axes; `heads` is how many query heads its attention has, and `find`
    knows the words."""
    found: list[Any] = [slice(None)] * len(axes)
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
        found[place] = number
        left.remove(place)
    if axes[:1] == ["b"] and value.size(0) == 1 and len(where.cells) < len(left):
        found[0] = 0
        left.remove(0)
    if len(where.cells) > len(left):
        raise TraceError(f"{text}: {len(where.cells)} cells given for the axes {' '.join(axes[n] for n in left)}")
    for place, which in zip(left, where.cells, strict=False):
        if isinstance(which, str):
            if find is None:
                raise TraceError(f"{text}: no words are known here; give the number of {which!r}")
            which = find(axes[place], which)
        if isinstance(which, int) and not -value.size(place) <= which < value.size(place):
            raise TraceError(f"{text}: axis {axes[place]} has {value.size(place)} cells, given {which}")
        found[place] = which
    return tuple(found)
