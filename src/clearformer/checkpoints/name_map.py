"""Our parameter names beside those of public files, family by family, and the two ways between them.

A row pairs names; `{}` stands for the number of a block, and a row that names modules covers their weight and bias.
Several names of ours, separated by spaces, are joined in one public tensor. Both directions read the same rows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

Weights = dict[str, Tensor]


class Change(NamedTuple):
    """How a tensor differs on the two sides, both ways; views, so that nothing is copied on the way in."""

    to_ours: Callable[[Tensor], Tensor]
    to_public: Callable[[Tensor], Tensor]


SAME = Change(lambda x: x, lambda x: x)
TRANSPOSED = Change(torch.t, torch.t)  # leaves a bias as it is
LEADING_ONE = Change(lambda x: x[0], lambda x: x[None])


def squares(channels: int, patch: int) -> Change:
    """A convolution whose kernel is as large as its stride is a matrix over flattened squares."""
    return Change(lambda x: x.flatten(1), lambda x: x.unflatten(1, (channels, patch, patch)))


class Row(NamedTuple):
    ours: str
    public: str
    change: Change = SAME


def under(ours: str, public: str, *rows: tuple[str, str] | tuple[str, str, Change]) -> list[Row]:
    """Rows with a prefix for either side."""
    return [Row(" ".join(f"{ours}.{one}" for one in row[0].split()), f"{public}.{row[1]}", *row[2:]) for row in rows]


@dataclass(frozen=True)
class Rules:
    """The rows of one model, and what its files may hold besides.

    `base` is the prefix of the body's names, which files of a body alone leave out. `left` are patterns of names
    that are no weights of this model, with the reason; `copies` are names that may repeat another tensor. Both are
    written without the prefix.
    """

    rows: list[Row]
    base: str = ""
    left: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)

    def bare(self, name: str) -> str:
        """A public name without the body's prefix, in today's spelling."""
        name = name.removeprefix(self.base)
        return re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))

    def why_left(self, bare: str) -> str | None:
        return next((why for pattern, why in self.left.items() if re.fullmatch(pattern, bare)), None)

    def to_ours(self, public: Mapping[str, Tensor]) -> Weights:
        """Tensors under our names; every name given must have a row."""
        ours: Weights = {}
        for row in spelled(self.rows, public, "public"):
            ours |= split(row, public[row.public])
        return ours

    def to_public(self, ours: Mapping[str, Tensor]) -> Weights:
        """Tensors under their public names; every name given must have a row."""
        return {row.public: joined(row, ours).contiguous() for row in spelled(self.rows, ours, "ours")}


def split(row: Row, public: Tensor) -> Weights:
    names = row.ours.split()
    return dict(zip(names, row.change.to_ours(public).chunk(len(names)), strict=True))


def joined(row: Row, ours: Mapping[str, Tensor]) -> Tensor:
    parts = [ours[name] for name in row.ours.split()]
    return row.change.to_public(torch.cat(parts) if len(parts) > 1 else parts[0])


def public_shape(row: Row, ours: Mapping[str, Tensor]) -> torch.Size:
    """The shape of the public tensor; joining on the meta device would import PyTorch's compiler for it."""
    parts = [ours[name].shape for name in row.ours.split()]
    rows = sum(part[0] for part in parts) if parts[0] else 0
    whole = torch.empty((rows, *parts[0][1:]) if parts[0] else (), device="meta")
    return row.change.to_public(whole).shape


def spelled(rows: Iterable[Row], given: Iterable[str], side: str) -> Iterator[Row]:
    """The rows that the given names ask for, with block numbers and `.weight` or `.bias` in place; none may be over."""
    left = set(given)
    numbers = range(1 + max((int(n) for name in left for n in re.findall(r"\.(\d{1,6})\.", name)), default=0))
    for row in rows:
        for number in numbers if "{}" in row.public else [0]:
            for suffix in ("", ".weight", ".bias"):
                found = Row(_spell(row.ours, number, suffix), _spell(row.public, number, suffix), row.change)
                asked = set(getattr(found, side).split())
                if asked <= left:
                    left -= asked
                    yield found
    if left:
        raise KeyError(f"no row for {', '.join(sorted(left))}")


def _spell(names: str, number: int, suffix: str) -> str:
    return " ".join(name.replace("{}", str(number)) + suffix for name in names.split())
