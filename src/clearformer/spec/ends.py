"""What turns input into vectors, and vectors into answers: embeddings and heads."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from clearformer.spec.base import Activation, Fraction, Part, Size
from clearformer.spec.blocks import LayerNorm, Norm
from clearformer.spec.positions import Absolute, Learned, Sinusoid


class Tokens(Part):
    """Table lookup, times √width if `scaled`, plus positions and segments, then norm and dropout."""

    kind: Literal["tokens"] = "tokens"
    vocabulary: Size
    scaled: bool = False
    positions: Absolute | None = None
    segments: Annotated[int, Field(ge=0, le=2**24)] = 0
    norm: Norm | None = None
    dropout: Fraction = 0.0


class Patches(Part):
    """An image cut into squares, each projected to a vector; `summary` puts a learned vector in front."""

    kind: Literal["patches"] = "patches"
    image: tuple[Size, Size]  # height, width
    patch: Size
    channels: Size = 3
    summary: bool = True
    positions: Annotated[Sinusoid | Learned, Field(discriminator="kind")] | None = None
    norm: Norm | None = None
    dropout: Fraction = 0.0

    @property
    def count(self) -> int:
        return (self.image[0] // self.patch) * (self.image[1] // self.patch) + self.summary

    @model_validator(mode="after")
    def _tiles(self) -> Self:
        if any(side % self.patch for side in self.image):
            raise ValueError(f"patch ({self.patch}) must divide both sides of the image {self.image}")
        if isinstance(self.positions, Learned) and self.positions.length < self.count:
            raise ValueError(f"positions.length ({self.positions.length}) must hold the {self.count} patches")
        return self


Embed = Annotated[Tokens | Patches, Field(discriminator="kind")]


class Vector(Part):
    """One vector per sequence: its `first`, `last` or `mean` state, through a dense layer if one is named."""

    kind: Literal["vector"] = "vector"
    pool: Literal["first", "last", "mean"] = "first"
    dense: Activation | None = None


class States(Part):
    """The states themselves."""

    kind: Literal["states"] = "states"


class NextToken(Part):
    """Logits over the vocabulary; `tied` to the embedding table; T5 multiplies states by width^−½ first."""

    kind: Literal["next_token"] = "next_token"
    tied: bool = True
    bias: bool = False
    scaled: bool = False


class MaskedToken(Part):
    """BERT's: dense, activation, norm, then logits over the vocabulary with a bias."""

    kind: Literal["masked_token"] = "masked_token"
    tied: bool = True
    activation: Activation = "gelu"
    norm: Norm = LayerNorm(eps=1e-12)


class Classes(Part):
    """Logits over `count` classes for the whole sequence or image."""

    kind: Literal["classes"] = "classes"
    count: Size
    vector: Vector = Vector()
    dropout: Fraction = 0.0


class TokenClasses(Part):
    """Logits over `count` classes for every token."""

    kind: Literal["token_classes"] = "token_classes"
    count: Size
    dropout: Fraction = 0.0


class Spans(Part):
    """Two logits for every token: an answer starts here, an answer ends here."""

    kind: Literal["spans"] = "spans"
    dropout: Fraction = 0.0


Head = Annotated[
    States | Vector | NextToken | MaskedToken | Classes | TokenClasses | Spans, Field(discriminator="kind")
]
