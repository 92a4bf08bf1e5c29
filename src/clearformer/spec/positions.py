"""Where a token is: absolute schemes join the embedding, relative ones act inside attention."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from clearformer.spec.base import Part, Positive, Size


class Sinusoid(Part):
    """PE(pos, 2i) = sin(pos / base^(2i/d)), PE(pos, 2i+1) = cos(same); `halves` puts all sines first (Marian)."""

    kind: Literal["sinusoid"] = "sinusoid"
    base: Positive = 10_000.0
    layout: Literal["interleaved", "halves"] = "interleaved"


class Learned(Part):
    """A table of `length` rows; RoBERTa's first position is row `offset`."""

    kind: Literal["learned"] = "learned"
    length: Size
    offset: Annotated[int, Field(ge=0, le=2**24)] = 0


class TreeDepth(Part):
    """Wang et al. 2019: tanh(W [sequential ; sinusoid(depth in the dependency tree)])."""

    kind: Literal["tree_depth"] = "tree_depth"
    sequential: Sinusoid | Learned = Field(default=Sinusoid(), discriminator="kind")


Absolute = Annotated[Sinusoid | Learned | TreeDepth, Field(discriminator="kind")]


class Linear(Part):
    """Rotary positions divided by `factor`."""

    kind: Literal["linear"] = "linear"
    factor: Positive


class Llama3(Part):
    """Llama 3.1's scaling: slow rotations are divided by `factor`, fast ones kept, those between blended."""

    kind: Literal["llama3"] = "llama3"
    factor: Positive
    low: Positive = 1.0
    high: Positive = 4.0
    original: Size = 8192

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low}) must be below high ({self.high})")
        return self


class Rotary(Part):
    """Su et al. 2021: queries and keys are rotated by angles that grow with their position."""

    kind: Literal["rotary"] = "rotary"
    base: Positive = 10_000.0
    scaling: Annotated[Linear | Llama3, Field(discriminator="kind")] | None = None
    layout: Literal["halves", "interleaved"] = "halves"


class Buckets(Part):
    """T5's bias: one number per head and bucket of distance; `shared`: one table for all layers of the stack."""

    kind: Literal["buckets"] = "buckets"
    count: Annotated[int, Field(ge=4, le=2**24, multiple_of=2)] = 32
    reach: Annotated[int, Field(ge=2, le=2**24)] = 128
    two_way: bool
    shared: bool = True

    @model_validator(mode="after")
    def _reaches_beyond_exact(self) -> Self:
        exact = self.count // (4 if self.two_way else 2)
        if self.reach <= exact:
            raise ValueError(f"reach ({self.reach}) must exceed the {exact} exact buckets that count gives")
        return self


class Shaw(Part):
    """Shaw et al. 2018: a vector per clipped distance joins the key and, with `values`, the value."""

    kind: Literal["shaw"] = "shaw"
    reach: Size
    values: bool = True
    shared: bool = False


class ALiBi(Part):
    """Press et al. 2022: score − slope · distance, with a fixed slope per head."""

    kind: Literal["alibi"] = "alibi"


class TreeDistance(Part):
    """Wang et al. 2019: Shaw's vectors on the distance in the dependency tree, added to the sequential ones."""

    kind: Literal["tree_distance"] = "tree_distance"
    reach: Size
    sequential: Size | None = None
    values: bool = True
    shared: bool = False


Relative = Annotated[Rotary | Buckets | Shaw | ALiBi | TreeDistance, Field(discriminator="kind")]
