"""Static word vectors as a task: a text is the mean of its words. So whatever takes vectors of texts takes these."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import nn

from clearformer.errors import DataError
from clearformer.static.word2vec import Word2Vec
from clearformer.tasks.base import Task
from clearformer.tasks.embed import Embedded, Vectors, unit


class WordVectors(Task):
    """`embed` as of any encoder, without an order of words. `words` has the rest: neighbours, analogies."""

    can = ("embed",)

    def __init__(self, words: Word2Vec):
        table = nn.Embedding.from_pretrained(words.vectors)
        super().__init__(table, words.vocabulary, {"task": "embed", "pool": "mean", "normalise": True})
        self.words = words

    @classmethod
    def open(cls, folder: str | Path, precision: str | None = "auto") -> Self:
        if precision == "int8":
            raise DataError(f"{folder} holds word vectors, which are float32; leave precision out", param="precision")
        return cls(Word2Vec.load(folder))

    @property
    def width(self) -> int:
        """The numbers in a vector."""
        return self.words.settings.width

    def embed(self, texts: str | Sequence[str], **options: Any) -> Vectors:
        """A vector for each text, in order: n × width; zeros for a text of which no word is known."""
        return self.embedded(texts, **options).vectors

    def embedded(
        self,
        texts: str | Sequence[str],
        *,
        pool: str | None = None,
        normalise: bool | None = None,
        prompt: str | None = None,
        on_long: str = "error",  # no text is too long
        done: Any = None,
        number: int | Sequence[int] = 0,
    ) -> Embedded:
        """As an `Embedder` has it; there is nothing but a mean, and no prompt."""
        self.pool(pool)
        if prompt:
            raise DataError("word vectors have no order, so a prompt would be words like all others", param="prompt")
        texts = [texts] if isinstance(texts, str) else list(texts)
        for n, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                said = "empty" if isinstance(text, str) else f"no text but {type(text).__name__}"
                raise DataError(f"text {number + n + 1 if isinstance(number, int) else number[n]} is {said}")
        found: Vectors = self.words.text_vectors(texts).numpy()
        if done is not None:
            done(len(texts))
        long = self.metadata.normalise if normalise is None else normalise
        return Embedded(unit(found) if long else found.astype(np.float32), ["whole"] * len(texts))

    def pool(self, asked: str | None = None) -> str:
        if asked not in (None, "mean"):
            raise DataError(f"word vectors have no {asked} state; the vector of a text is their mean", param="pool")
        return "mean"

    def similarity(self, a: str | Sequence[str], b: str | Sequence[str], **options: Any) -> Vectors:
        """The cosine of every text in `a` with every text in `b`."""
        first, second = (unit(self.embed(texts, **{**options, "normalise": False})) for texts in (a, b))
        return first @ second.T

    def unseen(self, text: str) -> list[str]:
        """The words of a text that have no vector."""
        return self.words.unseen(text)
