"""Classifying: a label for each text, or pair of texts, with the probability of every label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer import spec
from clearformer.tasks.encoder_task import Batch, Done, Finish, OnLong, Read, Reader


@dataclass(frozen=True)
class Classification:
    """What one text is."""

    label: str  # the likeliest
    probability: float
    probabilities: dict[str, float]  # of every label, in the model's order
    finish: Finish  # "whole", "split" (the mean over its windows) or "truncated"

    def best(self, count: int) -> list[tuple[str, float]]:
        """The likeliest labels, best first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:count]

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "probability": self.probability,
            "probabilities": self.probabilities,
            "finish": self.finish,
        }


class Classifier(Reader):
    """A model with a head over classes. `metadata.several` says that a text may have several labels at once."""

    can = ("classify",)
    heads = (spec.Classes,)
    overlap = 0.25

    def classify(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        on_long: OnLong = "error",
        several: bool | None = None,
        done: Done | None = None,
        number: int | Sequence[int] = 0,
    ) -> list[Classification]:
        """One classification for each text, in order; with `pairs`, of each text and its second one together.

        Probabilities sum to one; where there may be `several` labels, or the model has only one, each stands for
        itself. A text that is split into windows gets the mean of theirs, weighted by their tokens.
        """
        several = self.metadata.several if several is None else several
        names = self.labels(self.spec.head.count)
        found = []
        for reads in self.read(texts, pairs, on_long=on_long, number=number):
            for read, logits in zip(reads, self.run(reads, self._logits, done), strict=True):
                found.append(_classified(names, _mean(read, logits, several or len(names) == 1), read.finish))
        return found

    def _logits(self, batch: Batch) -> Tensor:
        states, places = self.states(batch)
        return self.model.head(states, places)


def _mean(read: Read, logits: list[Tensor], each: bool) -> list[float]:
    scores = torch.stack(logits).double()
    probabilities = scores.sigmoid() if each else scores.softmax(-1)
    tokens = torch.tensor([window.stop - window.start for window in read.windows], dtype=torch.float64)
    return ((tokens / tokens.sum()).to(probabilities.device) @ probabilities).tolist()


def _classified(names: list[str], probabilities: list[float], finish: Finish) -> Classification:
    best = max(range(len(names)), key=probabilities.__getitem__)
    return Classification(names[best], probabilities[best], dict(zip(names, probabilities, strict=True)), finish)
