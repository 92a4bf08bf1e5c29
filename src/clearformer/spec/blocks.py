"""The parts of a block: norms, feed-forward layers, attention, and the residual branches around them."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from clearformer.spec.base import Activation, Fraction, Part, Positive, Size
from clearformer.spec.patterns import Everyone, Pattern
from clearformer.spec.positions import Buckets, Relative


class LayerNorm(Part):
    kind: Literal["layer"] = "layer"
    eps: Positive = 1e-5
    bias: bool = True


class RMSNorm(Part):
    kind: Literal["rms"] = "rms"
    eps: Positive = 1e-6


Norm = Annotated[LayerNorm | RMSNorm, Field(discriminator="kind")]


class Plain(Part):
    """W2 · activation(W1 x + b1) + b2."""

    kind: Literal["plain"] = "plain"
    inner: Size
    activation: Activation = "relu"
    bias: bool = True
    inner_dropout: Fraction = 0.0


class Gated(Part):
    """W2 · (activation(Wg x) ∘ W1 x); Shazeer 2020."""

    kind: Literal["gated"] = "gated"
    inner: Size
    activation: Activation = "silu"
    bias: bool = False
    inner_dropout: Fraction = 0.0


class _Attention(Part):
    heads: Size
    key_heads: Size | None = None  # fewer than heads: grouped-query attention (GQA); None: as many
    head_width: Size | None = None  # None: width / heads
    bias: bool = True  # of queries, keys and values
    output_bias: bool = True
    scale: Positive | None = None  # None: 1/√d
    norm: RMSNorm | None = None  # of each query and key head (Qwen 3)
    weight_dropout: Fraction = 0.0  # of the attention weights

    @model_validator(mode="after")
    def _groups(self) -> Self:
        if self.heads % (self.key_heads or self.heads):
            raise ValueError(f"key_heads ({self.key_heads}) must divide heads ({self.heads})")
        return self


class Compressed(Part):
    """Linformer (Wang et al. 2020): the length axis of keys and values is projected to `rank` rows.

    `length` is the longest text; `shared` uses one projection for keys and values.
    """

    kind: Literal["compressed"] = "compressed"
    length: Size
    rank: Size
    shared: bool = False


class SelfAttention(_Attention):
    kind: Literal["self"] = "self"
    pattern: Pattern = Everyone()
    positions: Relative | None = None
    compressed: Compressed | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.compressed and self.pattern != Everyone():
            raise ValueError(
                f"compressed keys mix all positions, so pattern {self.pattern.kind!r} cannot hold"
                " and a causal one would leak the future; use pattern everyone, or no compression"
            )
        if self.compressed and self.positions is not None:
            raise ValueError(
                f"compressed keys have no positions of their own for {self.positions.kind!r}; use absolute positions"
            )
        if isinstance(self.positions, Buckets) and self.positions.two_way and self.pattern.causal:
            raise ValueError("two_way buckets waste half their rows under a causal pattern; set two_way=False")
        return self


class CrossAttention(_Attention):
    kind: Literal["cross"] = "cross"


Layer = Annotated[SelfAttention | CrossAttention | Plain | Gated, Field(discriminator="kind")]


class Residual(Part):
    """after(x + dropout(between(layer(before(x))))): a missing norm is the identity."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")  # the name of the branch in addresses and paths
    layer: Layer
    before: Norm | None = None
    between: Norm | None = None
    after: Norm | None = None
    dropout: Fraction = 0.0


# words that addresses leave out or read as heads, and names that PyTorch's modules have already
_TAKEN = {"blocks", "branches", "layer", "kernel", "source", "relative", "parts", "forward", "keys", "values", "items"}
_TAKEN |= {
    "pop",
    "clear",
    "update",
    "type",
    "train",
    "eval",
    "apply",
    "half",
    "float",
    "double",
    "to",
    "cpu",
    "training",
}


class Block(Part):
    """Branches in the order they run."""

    branches: tuple[Residual, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [branch.name for branch in self.branches]
        if len(set(names)) < len(names):
            raise ValueError(f"branch names must differ, given {', '.join(names)}")
        for name in names:
            if name in _TAKEN or re.fullmatch(r"[hg]\d+", name):
                raise ValueError(
                    f"{name!r} cannot name a branch: it means something else in addresses; use another word"
                )
        return self
