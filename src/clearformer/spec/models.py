"""Whole models: a stack with a head, or two stacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from clearformer.errors import SpecError
from clearformer.spec import paths
from clearformer.spec.base import Part, Positive, Size
from clearformer.spec.blocks import Block, CrossAttention, Gated, Norm, Plain, SelfAttention, _Attention
from clearformer.spec.ends import Embed, Head, MaskedToken, NextToken, Tokens
from clearformer.spec.positions import Rotary, Sinusoid, TreeDepth


class Stack(Part):
    """Embedding, blocks, final norm; `initial` is the standard deviation of fresh weight matrices
    (None: Glorot's uniform, as the original)."""

    width: Size
    embed: Embed
    blocks: tuple[Block, ...] = Field(min_length=1)
    final: Norm | None = None
    initial: Positive | None = None

    @model_validator(mode="after")
    def _widths(self) -> Self:
        for number, name, layer in self.layers():
            if not isinstance(layer, _Attention):
                continue
            where = f"blocks.{number}.{name}"
            if layer.head_width is None and self.width % layer.heads:
                raise ValueError(
                    f"{where}.heads ({layer.heads}) must divide width ({self.width}), or head_width be given"
                )
            width = layer.head_width or self.width // layer.heads
            if isinstance(layer, SelfAttention) and isinstance(layer.positions, Rotary) and width % 2:
                raise ValueError(f"{where}.positions: rotary needs an even head width, given {width}")
        if isinstance(self.embed.positions, Sinusoid | TreeDepth) and self.width % 2:
            raise ValueError(f"embed.positions: sinusoids need an even width, given {self.width}")
        return self

    def layers(self) -> Iterator[tuple[int, str, SelfAttention | CrossAttention | Plain | Gated]]:
        """Every layer with the number of its block and the name of its branch."""
        for number, block in enumerate(self.blocks):
            for branch in block.branches:
                yield number, branch.name, branch.layer

    def _require_causal(self, own: str, why: str) -> None:
        for number, name, layer in self.layers():
            if isinstance(layer, SelfAttention) and not layer.pattern.causal:
                asked = "compressed keys" if layer.compressed else f"pattern {layer.pattern.kind!r}"
                raise ValueError(
                    f"{own}.blocks.{number}.{name}: {asked} would see the future, and {why};"
                    " use causal, window, or combine with & causal"
                )

    @property
    def causal(self) -> bool:
        return all(layer.pattern.causal for _, _, layer in self.layers() if isinstance(layer, SelfAttention))


class _Model(Part):
    def _head_fits(self, own: str, stack: Stack, head: Any) -> None:
        if isinstance(head, NextToken):
            stack._require_causal(own, "the head predicts the next token")
        if isinstance(head, NextToken | MaskedToken) and not isinstance(stack.embed, Tokens):
            raise ValueError(f"head {head.kind!r} needs a stack that embeds tokens, given {stack.embed.kind!r}")


class Transformer(_Model):
    """One stack: encoder-only or decoder-only, by its patterns and its head."""

    kind: Literal["transformer"] = "transformer"
    stack: Stack
    head: Head

    @property
    def stacks(self) -> dict[str, Stack]:
        """By the names of their modules, in the order in which they run."""
        return {"stack": self.stack}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self._head_fits("stack", self.stack, self.head)
        for number, name, layer in self.stack.layers():
            if isinstance(layer, CrossAttention):
                raise ValueError(f"stack.blocks.{number}.{name}: cross-attention has no memory in a single stack")
        return self


class EncoderDecoder(_Model):
    """Two stacks: the second attends to the first's output. `shared`: one embedding table serves both."""

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    encoder: Stack
    decoder: Stack
    head: NextToken
    shared: bool = True

    @property
    def stacks(self) -> dict[str, Stack]:
        """By the names of their modules, in the order in which they run."""
        return {"encoder": self.encoder, "decoder": self.decoder}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self._head_fits("decoder", self.decoder, self.head)
        for number, name, layer in self.encoder.layers():
            if isinstance(layer, CrossAttention):
                raise ValueError(f"encoder.blocks.{number}.{name}: cross-attention has no memory in the encoder")
        if not any(isinstance(layer, CrossAttention) for _, _, layer in self.decoder.layers()):
            raise ValueError("decoder: no block has cross-attention, so it would never see the encoder's output")
        if self.shared:
            encoder, decoder = self.encoder, self.decoder
            if not (isinstance(encoder.embed, Tokens) and isinstance(decoder.embed, Tokens)):
                raise ValueError("shared: only two token embeddings can share a table; set shared=False")
            sizes = [(s.embed.vocabulary, s.width) for s in (encoder, decoder) if isinstance(s.embed, Tokens)]
            if sizes[0] != sizes[1]:
                raise ValueError(f"shared: (vocabulary, width) must agree, given {sizes[0]} and {sizes[1]}")
        return self


AnySpec = Annotated[Transformer | EncoderDecoder, Field(discriminator="kind")]


class Spec:
    """Reads either kind of model: `Spec.from_json(text)`."""

    @staticmethod
    def from_json(text: str | bytes) -> Transformer | EncoderDecoder:
        try:
            return TypeAdapter(AnySpec).validate_json(text)
        except ValidationError as error:
            raise SpecError(paths.explain(error, AnySpec, text)) from None
