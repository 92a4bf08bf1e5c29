"""Sentence vectors: texts that mean the same close together.

With scores, the cosine of two vectors is to be the score (Reimers & Gurevych 2019). Without, each text's own partner
is to be nearer than the partners of all others in the batch (van den Oord et al. 2018).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.checkpoints.metadata import Metadata
from clearformer.data import batches as data
from clearformer.data.corpus import Coder, Corpus, Report
from clearformer.data.pairs import Pair
from clearformer.errors import DataError
from clearformer.spec import Transformer, Vector
from clearformer.training.goals.base import Say
from clearformer.training.goals.labels import TextGoal
from clearformer.training.settings import Settings

STEPS = 10_000  # a score is kept as one of so many steps between the lowest and the highest


class Couples(NamedTuple):
    """Texts, their partners, and how alike they are (0 to 1), or −1 where that is not told."""

    one: Tensor  # b t
    one_mask: Tensor
    other: Tensor  # b t
    other_mask: Tensor
    scores: Tensor  # b
    counts: Tensor  # b

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    def nothing(self) -> "Couples":
        first = Couples(*(part[:1] for part in self))
        return first._replace(counts=torch.zeros_like(first.counts))


@dataclass(frozen=True)
class CoupleCoder:
    """Target: the partner's ids, then the score as a number of steps, from 1; 0 is none."""

    goal: "Embed"

    def __len__(self) -> int:
        return max(self.goal.vocabulary, STEPS + 2)

    def code(self, pairs: Sequence[Pair], to: str | None) -> Iterable[tuple[list[int], list[int]]]:
        words = self.goal.words
        ones, others = (words.encode_all(side) for side in ([p.source for p in pairs], [p.target for p in pairs]))
        for pair, one, other in zip(pairs, ones, others, strict=True):
            yield one.ids, [*other.ids, self._step(pair)]

    def _step(self, pair: Pair) -> int:
        if not self.goal.scored:
            return 0
        low, high = self.goal.found["range"]
        share = (pair.more[0] - low) / (high - low)
        if not 0 <= share <= 1:
            raise DataError(
                f"{pair.where}: a score of {pair.more[0]:g}, and those of the training data are {low:g} to {high:g}"
            )
        return 1 + round(share * STEPS)


@dataclass(frozen=True)
class CoupleBatches(data.Batches):
    def make(self, rows: Any) -> Any:
        pairs = [self.corpus.pair(int(row)) for row in rows]
        one = data.pad([pair[0] for pair in pairs], self.pad)
        other = data.pad([pair[1][:-1] for pair in pairs], self.pad)
        scores = torch.tensor([(int(pair[1][-1]) - 1) / STEPS for pair in pairs])
        return Couples(*one, *other, scores, torch.ones(len(pairs), dtype=torch.bool))


class Likeness(nn.Module):
    TEMPERATURE = 0.05

    def __init__(self, model: Any, scored: bool):
        super().__init__()
        self.model, self.scored = model, scored

    def forward(self, batch: Couples) -> Tensor:
        one, other = vectors(self.model, batch)
        if self.scored:
            return (((one * other).sum(-1) - batch.scores) ** 2)[batch.counts].sum()
        logits = one @ other.T / self.TEMPERATURE
        own = torch.arange(len(one), device=one.device)
        losses = (F.cross_entropy(logits, own, reduction="none") + F.cross_entropy(logits.T, own, reduction="none")) / 2
        return losses[batch.counts].sum()


def vectors(model: Any, batch: Couples) -> tuple[Tensor, Tensor]:
    """Unit vectors of both sides."""
    one, other = model(batch.one, batch.one_mask), model(batch.other, batch.other_mask)
    return F.normalize(one, dim=-1), F.normalize(other, dim=-1)


class Embed(TextGoal):
    """Pairs of texts that mean the same; with a third field, how much so."""

    may = TextGoal.may | {"noise", "script", "ratio", "copies"}
    name, unit, measure = "embed", "pairs", "spearman"

    @property
    def scored(self) -> bool:
        return all(part.fields is not None and len(part.fields) == 3 for part in self.settings.data.train)

    def learn(self, total: int, say: Say) -> dict[str, Any]:
        self.keep(self.known(Metadata()))
        return self.learn_words(self.all_texts(), 8_000, say)

    def known(self, metadata: Metadata) -> dict[str, Any]:
        pairs = (pair for part in self.settings.data.train for pair in self.read(part))
        scores = [pair.more[0] for pair in pairs if pair.more] if self.scored else []  # a blank line has none
        if scores and min(scores) == max(scores):
            raise DataError(f"all pairs have the same score, {scores[0]:g}; there is nothing to learn from it")
        return {"range": [min(scores), max(scores)]} if scores else {}

    @property
    def coder(self) -> Coder:
        return CoupleCoder(self)

    def spec(self, settings: Settings, vocabulary: int) -> Transformer:
        pool = "mean" if self.start is None else self.start.metadata.pool or "mean"
        return self.encoder(settings, vocabulary, Vector(pool=pool))

    def advise(self, asked: Settings, report: Report) -> Settings:
        settings = super().advise(asked, report)
        return (
            settings
            if asked.validation.best != "loss" or not self.scored
            else settings.replace({"validation.best": "score"})
        )

    def collate(self, corpus: Corpus, tokens: int, seed: int = 0) -> Any:
        return CoupleBatches(corpus, tokens, 0, self.pad, seed)

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        return Likeness(model, self.scored)

    @torch.inference_mode()
    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        batches = self.valid_batches()
        made, wanted = [], []
        nearest = total = 0
        for rows in batches.plan(0):
            batch = batches.make(rows)
            one, other = vectors(model, batch)
            made.append((one * other).sum(-1))
            wanted.append(batch.scores)
            nearest += int(((one @ other.T).argmax(-1) == torch.arange(len(one))).sum())
            total += len(one)
        if self.scored:
            return {"spearman": spearman(torch.cat(made).numpy(), torch.cat(wanted).numpy())}, []
        return {"nearest": nearest / max(total, 1)}, []

    def metadata(self, model: Any) -> Metadata:
        return Metadata(task="embed", longest=self.longest, pool=model.head.pool, normalise=True)


def spearman(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """The correlation of ranks; equal values share the mean of theirs."""
    a, b = (_ranks(values) for values in (one, other))
    a, b = a - a.mean(), b - b.mean()
    norm = math.sqrt(float((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm else 0.0


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2)[place]
