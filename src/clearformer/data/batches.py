"""Batches by a budget of tokens: pairs of like length together, in an order that seed and epoch alone decide.

Nothing here has a state: batch n of epoch e is a function of the corpus, the seed, e and n, so a run that is resumed
sees the very batches it would have seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearformer.data.corpus import Corpus
from clearformer.data.sampler import Sampler
from clearformer.errors import DataError

AHEAD = 4  # batches that are prefetched while the model is at work


class Batch(NamedTuple):
    """Ids and masks (True where a token is). `target` starts with the start token, `labels` ends with the end."""

    source: Tensor  # b s
    source_mask: Tensor
    target: Tensor  # b t
    labels: Tensor  # b t
    target_mask: Tensor
    sets: Tensor  # b: the number of the set that a row is of

    @property
    def tokens(self) -> int:
        return int(self.target_mask.sum())

    def nothing(self) -> "Batch":
        """One row that does not count."""
        first = Batch(*(part[:1] for part in self))
        return first._replace(target_mask=torch.zeros_like(first.target_mask))


@dataclass(frozen=True)
class Batches:
    corpus: Corpus
    tokens: int  # rows × the longer side of the longest pair are at most this
    start: int  # ids of the start token and of padding
    pad: int
    seed: int = 0
    sampler: Sampler | None = None  # without one, every row once an epoch

    def plan(self, epoch: int) -> list[np.ndarray[Any, Any]]:
        """The pairs of every batch of an epoch: sorted by length, equal lengths in random order, cut, shuffled.

        The longer side counts first, in steps of a tenth, then the source, then the target: both get little padding.
        """
        if not len(self.corpus):
            raise DataError("there are no pairs to make batches of")
        random = np.random.default_rng((self.seed, epoch))
        rows = np.arange(len(self.corpus)) if self.sampler is None else self.sampler.rows(epoch)
        sources, targets = self.corpus.sources[rows], self.corpus.targets[rows]
        longer = np.maximum(sources, targets)
        order = np.lexsort((random.random(len(rows)), targets, sources, np.log(longer) // 0.1))
        sizes = longer[order]
        cuts, many, widest = [0], 0, 0
        for place, size in enumerate(sizes.tolist()):
            widest = max(widest, size)
            if many and (many + 1) * widest > self.tokens:
                cuts.append(place)
                many, widest = 0, size
            many += 1
        found = np.split(rows[order], cuts[1:])
        return [found[i] for i in random.permutation(len(found))]

    def padding(self, epoch: int = 0) -> float:
        """The share of cells that hold padding."""
        cells = real = 0
        for rows in self.plan(epoch):
            for lengths in (self.corpus.sources[rows], self.corpus.targets[rows]):
                cells, real = cells + len(rows) * int(lengths.max()), real + int(lengths.sum())
        return 1 - real / cells

    def make(self, rows: np.ndarray[Any, Any]) -> Batch:
        """The pairs with these numbers as tensors."""
        pairs = [self.corpus.pair(int(row)) for row in rows]
        source, source_mask = pad([pair[0] for pair in pairs], self.pad)
        labels, target_mask = pad([pair[1] for pair in pairs], self.pad)
        target = torch.cat([torch.full((len(pairs), 1), self.start), labels[:, :-1]], 1)
        sets = torch.from_numpy(self.corpus.sets_of(rows))
        return Batch(source, source_mask, target, labels, target_mask, sets)


def pad(rows: list[Any], filler: int) -> tuple[Tensor, Tensor]:
    """Rows of ids side by side, and where they are."""
    lengths = [len(row) for row in rows]
    ids = np.full((len(rows), max(lengths, default=0)), filler, np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    mask = np.arange(ids.shape[1])[None] < np.asarray(lengths)[:, None]
    return torch.from_numpy(ids), torch.from_numpy(mask)


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """Prefetch: the same items, made by a thread while the caller works on earlier ones; errors come in their place."""
    ready: Queue[tuple[Any, BaseException | None]] = Queue(AHEAD)
    done = Event()

    def put(item: Any, error: BaseException | None) -> bool:
        while not done.is_set():
            try:
                ready.put((item, error), timeout=0.1)
                return True
            except Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item, None):
                    return
            put(None, StopIteration())
        except BaseException as error:
            put(None, error)

    thread = Thread(target=work, daemon=True, name="batches")
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item
    finally:
        done.set()
        thread.join()
