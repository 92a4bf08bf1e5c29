"""Word2Vec while it learns: chunk by chunk, each a function of the seed and of where it stands, so that a run that was
interrupted after any of them goes on with the same numbers."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearformer.checkpoints.safe import finite
from clearformer.errors import DataError, TrainingError
from clearformer.static import folder as folders
from clearformer.static.settings import MOST, Settings, usual_epochs
from clearformer.static.skipgram import DRAWS, GROUP, Batch, loss, score, step
from clearformer.static.tokens import END, Read, Tokens, count, nothing
from clearformer.static.vocabulary import Texts, twice
from clearformer.static.word2vec import Trained, Word2Vec

LARGEST = 1_024  # words in a step
PULL = 4.0  # rate × gradients that a step adds up for one word, at most: from about 8 on it can overshoot, and diverge
LEAST = 1e-4  # of the rate is left at the end
SPENT = 2.0  # seconds of trying how fast it goes
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Progress:
    words: int  # seen so far
    total: int
    loss: float  # a pair, in the last step
    rate: float


@contextmanager
def _one_thread() -> Iterator[None]:
    """Products this small lose more by waiting for a second thread than they gain, and with one the bits are the same
    on any machine's number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Run:
    def __init__(self, model: Word2Vec, tokens: Tokens):
        self._model, self.tokens = model, tokens
        self.settings, self.done, self.chunks = model.settings, model.run.done, model.run.chunks
        self.vectors, self.beside = model.vectors, model.beside
        share = model.counts / model.counts.sum()
        kept = np.sqrt(self.settings.subsample / share) + self.settings.subsample / share
        self.kept = np.minimum(kept, 1.0).astype(np.float32)
        drawn = model.counts**0.75 / (model.counts**0.75).sum()
        self.drawn = np.cumsum(drawn)
        left = share * self.kept
        pairs = self.settings.window + 1  # of a centre, in the mean, where the text is long
        most = pairs * float((left / left.sum() + self.settings.negatives * drawn).max())
        self.size = min(max(int(PULL / (self.settings.rate * most)) // GROUP * GROUP, GROUP), LARGEST)
        self.rate = min(self.settings.rate, PULL / (GROUP * most))  # less than was asked for where words are very few

    @classmethod
    def begin(cls, texts: Texts, settings: Settings, read: Read = nothing, *, minutes: float | None = None) -> "Run":
        """Read the texts, twice. With `minutes`, as many passes as fit into what reading leaves of them, tried out."""
        began = time.perf_counter()
        if minutes is not None and not (0 < minutes < math.inf and settings.epochs is None):
            raise DataError("give minutes, more than 0, or epochs, not both", param="minutes")
        vocabulary, counts = count(twice(texts), settings.min_count, read)
        tokens = Tokens(texts, vocabulary, read)
        generator = torch.Generator().manual_seed(settings.seed)
        shape = (len(vocabulary), settings.width)

        def made(epochs: float) -> "Run":
            vectors = (torch.rand(shape, generator=generator.manual_seed(settings.seed)) - 0.5) / settings.width
            chunks = max(1, round(epochs * tokens.chunks))
            run = Trained(tokens.fingerprint, chunks, 0)
            told = replace(settings, epochs=epochs)
            return cls(Word2Vec(vocabulary, counts, vectors, torch.zeros(shape), told, run), tokens)

        if minutes is not None:
            return made(made(float(MOST))._fitting(began + minutes * 60))
        return made(settings.epochs or float(usual_epochs(tokens.words)))

    @classmethod
    def resume(cls, folder: str | Path, texts: Texts, read: Read = nothing) -> "Run":
        """Go on with the run whose folder this is, on the same texts."""
        model = Word2Vec.load(folder)
        tokens = Tokens(twice(texts), model.vocabulary, read)
        if tokens.fingerprint != model.run.text:
            raise TrainingError(f"these are not the texts that {folder} was trained on; give the same ones")
        model.vectors, model.beside = model.vectors.clone(), model.beside.clone()  # the files stay as they are
        return cls(model, tokens)

    def model(self) -> Word2Vec:
        """The words as they are now."""
        run = replace(self._model.run, done=self.done)
        had = self._model
        return Word2Vec(had.vocabulary, had.counts, self.vectors.clone(), self.beside.clone(), had.settings, run)

    def save(self, folder: Path) -> None:
        """A new folder, or what this run has learned since into its own."""
        if not folders.is_static(folder):
            self.model().save(folder)
            return
        waiting = folder / f".{folders.STEM}.partial"
        try:
            folders.write_tensors(waiting, self.model().tensors())
            waiting.replace(folder / f"{folders.STEM}.safetensors")
        finally:
            waiting.unlink(missing_ok=True)

    def go(self) -> Iterator[Progress]:
        """All that is left, a chunk at a time; between two of them the run can be saved."""
        words = self.tokens.words / self.tokens.chunks
        while self.done < self.chunks:
            found = self._chunk(self.done)
            self.done += 1
            yield Progress(int(self.done * words), int(self.chunks * words), found, self._rate(0))

    def _fitting(self, until: float) -> float:
        """As many passes as fit into the time that is left."""
        began, seen = time.perf_counter(), 0
        for _ in self.go():
            seen += 1
            if (spent := time.perf_counter() - began) > SPENT:
                break
        fit = max(until - began - spent, 0.0) / (spent / seen) / self.tokens.chunks
        return min(max(round(fit, 3), 1 / self.tokens.chunks), float(MOST))

    def _rate(self, part: float) -> float:
        """When this part of the chunk has been seen."""
        return self.rate * max(1 - (self.done + part) / self.chunks, LEAST)

    @torch.no_grad()
    @_one_thread()
    def _chunk(self, number: int) -> float:
        epoch, place = divmod(number, self.tokens.chunks)
        order = np.random.default_rng([self.settings.seed, epoch]).permutation(self.tokens.chunks)
        random = np.random.default_rng([self.settings.seed, epoch, int(order[place]) + 1])
        batches = list(self._batches(self.tokens.chunk(int(order[place])), random))
        last = math.nan
        for n, batch in enumerate(batches):
            scored = score(self.vectors, self.beside, batch, self.settings.window, self.settings.negatives)
            if n == len(batches) - 1:
                last = float(loss(scored)) / max(int(scored.sees.sum()), 1)
            step(self.vectors, self.beside, scored, batch, self._rate(n / len(batches)))
        if not (finite(self.vectors) and finite(self.beside)):
            raise TrainingError(f"the vectors grew without end; give a lower rate than {self.settings.rate:g}")
        return last

    def _batches(self, tokens: Array, random: np.random.Generator) -> Iterator[Batch]:
        """A chunk without most of its frequent words, a step at a time."""
        line = np.cumsum(tokens == END)
        stays = (tokens != END) & (random.random(len(tokens), np.float32) < self.kept[tokens])
        ids, line = tokens[stays].astype(np.int64), line[stays]
        reach = random.integers(1, self.settings.window + 1, len(ids))
        for start in range(0, len(ids), self.size):
            here = slice(start, start + self.size)
            more = (0, -len(ids[here]) % GROUP)
            drawn = np.searchsorted(self.drawn, random.random((len(ids[here]) + more[1]) // GROUP * DRAWS))
            yield Batch(
                torch.from_numpy(np.pad(ids[here], more)),
                torch.from_numpy(np.pad(line[here], more, constant_values=-2)),
                torch.from_numpy(np.pad(reach[here], more)),
                torch.from_numpy(np.minimum(drawn, len(self.drawn) - 1)).view(-1, DRAWS),
            )
