"""Who may see whom: relations between the positions of queries and keys, as data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from clearformer.spec.base import Part, Size


class _Pattern(Part):
    """A relation between the positions of queries and keys; `core.patterns` computes it."""

    @property
    def causal(self) -> bool:
        """Whether no query sees a later key."""
        return False

    def __and__(self, other: Pattern) -> Both:
        return Both(parts=(self, other))

    def __or__(self, other: Pattern) -> Either:
        return Either(parts=(self, other))


class Everyone(_Pattern):
    """Every query sees every key."""

    kind: Literal["everyone"] = "everyone"


class Causal(_Pattern):
    """A query sees itself and what came before: the look-ahead mask."""

    kind: Literal["causal"] = "causal"

    @property
    def causal(self) -> bool:
        return True


class Window(_Pattern):
    """A query sees the `size` newest keys, itself included."""

    kind: Literal["window"] = "window"
    size: Size

    @property
    def causal(self) -> bool:
        return True


class Near(_Pattern):
    """A query sees the keys at most `radius` away, on both sides."""

    kind: Literal["near"] = "near"
    radius: Annotated[int, Field(ge=0, le=2**24)]


class Global(_Pattern):
    """The first `count` positions see everything and are seen by everything."""

    kind: Literal["global"] = "global"
    count: Size


class Random(_Pattern):
    """The queries of a block of positions see `count` blocks drawn by a hash of `seed` and their block.

    A draw is uniform over twice the block's own distance from the start, so that it needs no length: a longer
    text never changes what a shorter one saw. Draws beyond the end of the text see nothing.
    """

    kind: Literal["random"] = "random"
    count: Size
    seed: int = 0
    block: Size = 64


class Both(_Pattern):
    """What all parts allow: `a & b`."""

    kind: Literal["both"] = "both"
    parts: tuple[Pattern, ...] = Field(min_length=1)

    @property
    def causal(self) -> bool:
        return any(part.causal for part in self.parts)


class Either(_Pattern):
    """What any part allows: `a | b`."""

    kind: Literal["either"] = "either"
    parts: tuple[Pattern, ...] = Field(min_length=1)

    @property
    def causal(self) -> bool:
        return all(part.causal for part in self.parts)


Pattern = Annotated[Everyone | Causal | Window | Near | Global | Random | Both | Either, Field(discriminator="kind")]


def BigBird(*, block: int = 64, radius: int = 96, count: int = 3, first: int = 2, seed: int = 0) -> Either:  # noqa: N802
    """Window + global + random (Zaheer et al. 2020): the union the notes draw as figure (d)."""
    return Either(parts=(Near(radius=radius), Global(count=first), Random(count=count, seed=seed, block=block)))
