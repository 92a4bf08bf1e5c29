"""Embedding: one vector for each text, pooled from the last states; near vectors are near meanings."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from clearformer.checkpoints.metadata import Metadata, Pool
from clearformer.core.heads import Vector
from clearformer.errors import DataError
from clearformer.tasks.encoder_task import Batch, Compute, Done, Finish, OnLong, Read, Reader

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class Embedded(NamedTuple):
    vectors: Vectors
    finish: list[Finish]  # "whole", "split" or "truncated", for each text


class Options(TypedDict, total=False):
    """What `embed` and `embedded` are told."""

    pool: Pool | None
    normalise: bool | None
    prompt: str | None
    on_long: OnLong
    done: Done | None
    number: int | Sequence[int]


class Embedder(Reader):
    """An encoder. Its metadata may say how it pools (`pool`), whether its vectors have length one (`normalise`), what
    is put before each text (`prompt`), and that the states of a prompt are left out of the pool (`skips_prompt`)."""

    can: tuple[str, ...] = ("embed",)

    @classmethod
    def verbs(cls, metadata: Metadata) -> tuple[str, ...]:
        return cls.can if metadata.image is None else ()  # images are seen by heads alone

    @property
    def width(self) -> int:
        """The numbers in a vector."""
        return self.spec.stack.width

    def embed(self, texts: str | Sequence[str], **options: Unpack[Options]) -> Vectors:
        """A vector for each text, in order: n × width.

        `pool` is the `mean` of all tokens' states, special ones included, or the state of the `first` or `last` token;
        without it, and without `normalise`, what the model says, else the mean, as it is. `prompt` is put before each
        text; without one, the model's own, where it has one. A text that is split into windows gets the mean of their
        vectors, weighted by their tokens.
        """
        return self.embedded(texts, **options).vectors

    def embedded(
        self,
        texts: str | Sequence[str],
        *,
        pool: Pool | None = None,
        normalise: bool | None = None,
        prompt: str | None = None,
        on_long: OnLong = "error",
        done: Done | None = None,
        number: int | Sequence[int] = 0,
    ) -> Embedded:
        """As `embed`, with what became of each text."""
        prompt = self.metadata.prompt or "" if prompt is None else prompt
        skipped = self._tokens(prompt) if prompt and self.metadata.skips_prompt else 0
        pooled = self._pooled(self.pool(pool), skipped)
        normalise = self.metadata.normalise if normalise is None else normalise
        parts, finish = [np.zeros((0, self.width), np.float32)], []
        for reads in self.read(_after(prompt, texts), on_long=on_long, number=number):
            if skipped and any(read.finish == "split" for read in reads):
                raise DataError(
                    "this model leaves its prompt out of the vector, and only the first part of a text that is split"
                    " has one; truncate long texts with on_long"
                )
            made = zip(reads, self.run(reads, pooled, done), strict=True)
            parts.append(torch.stack([_mean(read, each) for read, each in made]).float().cpu().numpy())
            finish += [read.finish for read in reads]
        found = np.concatenate(parts)
        return Embedded(unit(found) if normalise else found, finish)

    def pool(self, asked: Pool | None = None) -> Pool:
        """How vectors are pooled, if nothing else is asked for."""
        pool = asked or self.metadata.pool or "mean"
        if pool not in ("mean", "first", "last"):
            raise DataError(f"pool must be mean, first or last, given {pool!r}", param="pool")
        return pool

    def similarity(self, a: str | Sequence[str], b: str | Sequence[str], **options: Any) -> Vectors:
        """The cosine of every text in `a` with every text in `b`. Options are those of `embed`."""
        first, second = (unit(self.embed(texts, **{**options, "normalise": False})) for texts in (a, b))
        return first @ second.T

    def _pooled(self, pool: Pool, skipped: int = 0) -> Compute:
        """Pooling; so many tokens at the start of every text are left out."""
        head = Vector(pool, None, None)

        def compute(batch: Batch) -> Tensor:
            packed = self.packed(batch)
            if packed is not None:
                return _pooled_rows(*packed, pool, skipped)
            states, places = self.states(batch)
            return head.pooled(states, places.after(skipped) if skipped else places)

        return compute

    def _tokens(self, prompt: str) -> int:
        """How many tokens a prompt has, with what the tokenizer puts before a text and without what it puts behind."""
        encoded = self.tokenizer.encode(prompt)
        return len(encoded.ids) - sum(encoded.special[-1:])


def _after(prompt: str, texts: str | Sequence[str]) -> list[str]:
    """The texts with the prompt in front; what is no text, or blank, is left for the reader to refuse."""
    given = [texts] if isinstance(texts, str) else list(texts)
    return [prompt + text if isinstance(text, str) and text.strip() else text for text in given]


def unit(vectors: Vectors) -> Vectors:
    """The same directions, with length one; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)


def _pooled_rows(rows: Tensor, counts: Sequence[int], pool: Pool, skipped: int) -> Tensor:
    """What `Vector` makes of texts that lie one after the other, without padding."""
    count = np.array(counts)
    end = np.cumsum(count)
    left = np.maximum(count - skipped, 0)
    out = rows.new_zeros(len(counts), rows.size(1))
    if pool == "mean":
        text = np.repeat(np.arange(len(counts)), count)
        if skipped:
            kept = np.arange(len(rows)) >= np.repeat(end - left, count)
            rows, text = rows[torch.from_numpy(kept)], text[kept]
        return out.index_add_(0, torch.from_numpy(text), rows) / torch.from_numpy(np.maximum(left, 1))[:, None]
    some = left > 0
    out[torch.from_numpy(some)] = rows[torch.from_numpy((end - left if pool == "first" else end - 1)[some])]
    return out


def _mean(read: Read, vectors: list[Tensor]) -> Tensor:
    if len(vectors) == 1:
        return vectors[0]
    tokens = torch.tensor([window.stop - window.start for window in read.windows], dtype=vectors[0].dtype)
    return (tokens / tokens.sum()).to(vectors[0].device) @ torch.stack(vectors)
