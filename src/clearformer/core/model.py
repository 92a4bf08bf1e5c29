"""Whole models: a stack of blocks, one of them with a head (`Transformer`), or two (`EncoderDecoder`).

Masks are True where a token is and False where padding is, on any side. A `Context` carries what a stack may look
at beyond its input: the keys it has cached and the memory it attends to.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearformer import spec
from clearformer.core.attention import Attention
from clearformer.core.block import Block
from clearformer.core.embed import Patches
from clearformer.core.kv import Cached, Keys, Memory
from clearformer.core.places import Places
from clearformer.core.positions import TreeDepth, TreeVectors
from clearformer.errors import DataError

Trees = Sequence[Sequence[int]]


class Encoded(NamedTuple):
    """What an encoder made of a batch: its states and where they are."""

    states: Tensor  # b s m
    places: Places


class Context:
    """The sources of keys for every block of a stack, and how many tokens each row has already had."""

    def __init__(self, stack: "Stack", encoded: Encoded | None = None, cached: bool = False):
        self.stack, self.cached = stack, cached
        self.keys: list[dict[str, Keys]] = [{} for _ in stack.blocks]
        self.past: Tensor | int = 0
        self.batch = None if encoded is None else len(encoded.states)
        for sources, block in zip(self.keys, stack.blocks, strict=True):
            for name, layer in block.layers():
                if isinstance(layer, Attention) and layer.source is None and encoded is not None:
                    sources[name] = Memory(*encoded)
                elif isinstance(layer, Attention) and cached:
                    sources[name] = Cached()

    def check(self, stack: "Stack", batch: int) -> None:
        if self.stack is not stack:
            raise DataError("this context belongs to another model; make one with this model's context()")
        if self.batch not in (None, batch):
            raise DataError(f"{batch} rows given for a context of {self.batch}; give one row for each text")
        self.batch = batch

    def advance(self, places: Places) -> None:
        if not self.cached:
            return
        self.past = places.start + places.length if places.start is not None else self.past + places.real.sum(1)

    def best(
        self, model: "Transformer | EncoderDecoder", tokens: Tensor, count: int, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """b count: the largest log-probabilities of what follows the tokens, best first, and what they belong to."""
        return model.head.best(model.step(tokens, self, mask), count)  # type: ignore[operator]

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.past = self.past if isinstance(self.past, int) else self.past[rows]
        self.batch = len(rows)
        for sources in self.keys:
            for source in sources.values():
                source.select(rows)  # type: ignore[attr-defined]


class Stack(nn.Module):
    def __init__(self, embed: nn.Module, blocks: Sequence[Block], final: nn.Module):
        super().__init__()
        self.embed, self.final = embed, final
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.reads_trees = any(isinstance(module, TreeDepth | TreeVectors) for module in self.modules())

    def forward(
        self, inputs: Tensor, places: Places, context: Context | None = None, segments: Tensor | None = None
    ) -> Tensor:
        x = self.embed(inputs, places, segments)
        sources: Sequence[Mapping[str, Keys]] = context.keys if context is not None else [{}] * len(self.blocks)
        for block, keys in zip(self.blocks, sources, strict=True):
            x = block(x, places, keys)
        if context is not None:
            context.advance(places)
        return self.final(x)

    def context(self, encoded: Encoded | None = None, cached: bool = False) -> Context:
        """What the stack may look at beyond its input: an encoder's output, and, if cached, all that it was given."""
        return Context(self, encoded, cached)

    def places(self, inputs: Tensor, mask: Tensor | None, trees: Trees | None = None, past: Tensor | int = 0) -> Places:
        """Where the inputs are; this is the border at which inputs are checked."""
        for name, given in (("the input", inputs), ("mask", mask)):
            if given is not None and not isinstance(given, Tensor):
                raise DataError(f"{name} must be a tensor, given {type(given).__name__}; use torch.tensor(...)")
        if trees is not None and not self.reads_trees:
            raise DataError("this stack has no positions that read trees; give none, or build it with tree positions")
        if isinstance(self.embed, Patches):
            if mask is not None:
                raise DataError("an image has no padding; give no mask")
            _check_images(inputs, self.embed)
            return Places.span(0, self.embed.count, inputs.device)
        if inputs.dim() != 2 or inputs.dtype not in (torch.int64, torch.int32):
            raise DataError(f"token ids must be integers of shape batch × length, given {_shape(inputs)}")
        if mask is None and trees is None and isinstance(past, int):
            return Places.span(past, past + inputs.size(1), inputs.device)
        if mask is None:
            mask = torch.ones_like(inputs, dtype=torch.bool)
        if mask.shape != inputs.shape or mask.dtype != torch.bool:
            raise DataError(
                f"mask must be bool, True where a token is, and of the ids' shape {tuple(inputs.shape)};"
                f" given {_shape(mask)}"
            )
        places = Places.where(mask, past)
        return places if trees is None else places.rows(len(inputs)).with_trees(trees)


class Transformer(nn.Module):
    """One stack and a head."""

    def __init__(self, what: spec.Transformer, stack: Stack, head: nn.Module):
        super().__init__()
        self.spec, self.stack, self.head = what, stack, head

    def forward(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        trees: Trees | None = None,
        context: Context | None = None,
    ) -> Tensor:
        if context is not None:
            context.check(self.stack, len(inputs))
        places = self.stack.places(inputs, mask, trees, context.past if context is not None else 0)
        return self.head(self.stack(inputs, places, context, segments), places)

    def step(self, inputs: Tensor, context: Context, mask: Tensor | None = None) -> Tensor:
        """b v: the logits of what follows the last token of every row, and only these."""
        context.check(self.stack, len(inputs))
        places = self.stack.places(inputs, mask, None, context.past)
        return self.head(last(self.stack(inputs, places, context), mask), places)[:, 0]

    def context(self) -> Context:
        """An empty cache: pass it to each call, with only the new tokens."""
        if not isinstance(self.spec.head, spec.NextToken):
            head = self.spec.head.kind
            raise DataError(f"this model does not continue texts: its head is {head!r}, and a context needs next_token")
        return self.stack.context(cached=True)


class EncoderDecoder(nn.Module):
    """An encoder, a decoder that attends to its output, and a head over the vocabulary."""

    def __init__(self, what: spec.EncoderDecoder, encoder: Stack, decoder: Stack, head: nn.Module):
        super().__init__()
        self.spec, self.encoder, self.decoder, self.head = what, encoder, decoder, head

    def encode(self, source: Tensor, mask: Tensor | None = None, *, trees: Trees | None = None) -> Encoded:
        places = self.encoder.places(source, mask, trees)
        return Encoded(self.encoder(source, places), places)

    def decode(
        self, target: Tensor, context: Context, mask: Tensor | None = None, *, trees: Trees | None = None
    ) -> Tensor:
        context.check(self.decoder, len(target))
        places = self.decoder.places(target, mask, trees, context.past)
        return self.head(self.decoder(target, places, context), places)

    def step(self, target: Tensor, context: Context, mask: Tensor | None = None) -> Tensor:
        """b v: the logits of what follows the last token of every row, and only these."""
        context.check(self.decoder, len(target))
        places = self.decoder.places(target, mask, None, context.past)
        return self.head(last(self.decoder(target, places, context), mask), places)[:, 0]

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        *,
        trees: Trees | None = None,
        target_trees: Trees | None = None,
    ) -> Tensor:
        """Teacher forcing: all target positions at once."""
        encoded = self.encode(source, source_mask, trees=trees)
        return self.decode(target, self.decoder.context(encoded), target_mask, trees=target_trees)

    def context(self, encoded: Encoded) -> Context:
        """An empty cache over an encoded source: pass it to each `decode`, with only the new tokens."""
        return self.decoder.context(encoded, cached=True)


def last(states: Tensor, mask: Tensor | None) -> Tensor:
    """b 1 m: the state of each row's last token; of its last column where all is padding, for the caller to ignore."""
    if mask is None or states.size(1) == 1:
        return states[:, -1:]
    columns = torch.arange(1, mask.size(1) + 1, device=mask.device)
    where = torch.where(mask.any(1), (mask * columns).argmax(1), mask.size(1) - 1)
    return states[torch.arange(len(where), device=where.device), where][:, None]


def _check_images(images: Tensor, embed: Patches) -> None:
    height, width = embed.image
    wanted = (embed.channels, height, width)
    if images.dim() != 4 or tuple(images.shape[1:]) != wanted or not images.is_floating_point():
        shape = " × ".join(map(str, wanted))
        raise DataError(f"images must be floating-point of shape batch × {shape}, given {_shape(images)}")
    if images.dtype != embed.project.weight.dtype:
        raise DataError(f"images are {images.dtype} and the model {embed.project.weight.dtype}; use images.to(...)")


def _shape(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {' × '.join(map(str, tensor.shape)) or 'one number'}"
