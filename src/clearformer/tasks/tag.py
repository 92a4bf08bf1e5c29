"""Tagging: a label for every word of a text, and the entities that labels such as B-PER and I-PER mark."""

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer import spec
from clearformer.tasks.encoder_task import Batch, Done, Finish, OnLong, Read, Reader


@dataclass(frozen=True)
class Word:
    text: str
    label: str  # that of its first token
    probability: float
    start: int  # its characters in the text
    end: int


@dataclass(frozen=True)
class Entity:
    label: str  # without B- or I-
    text: str
    probability: float  # the mean of its words'
    start: int
    end: int


@dataclass(frozen=True)
class Tagged:
    """The words of one text, in order."""

    words: tuple[Word, ...]
    entities: tuple[Entity, ...]  # none where labels have no B- and I-
    finish: Finish

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Tagger(Reader):
    """A model with a head over the classes of every token."""

    can = ("tag",)
    heads = (spec.TokenClasses,)
    overlap = 0.5

    def tag(
        self,
        texts: str | Sequence[str],
        *,
        on_long: OnLong = "split",
        done: Done | None = None,
        number: int | Sequence[int] = 0,
    ) -> list[Tagged]:
        """The words of each text with their labels. Of a text that is split, a token's label comes from the window in
        which it has most context; of one that is truncated, only the words at its start are there."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        names = self.labels(self.spec.head.count)
        found: list[Tagged] = []
        for reads in self.read(texts, on_long=on_long, number=number):
            for read, windows in zip(reads, self.run(reads, self._probabilities, done), strict=True):
                text = texts[len(found)]
                tokens = [n for n, side in enumerate(read.encoded.sequence) if side == 0]
                best = _joined(read, [rows[_own(read, n)] for n, rows in enumerate(windows)]).max(-1)
                spans = [read.encoded.offsets[n] for n in tokens[: len(best.values)]]
                words = _words(text, spans, [names[n] for n in best.indices.tolist()], best.values.tolist())
                found.append(Tagged(tuple(words), tuple(entities(text, words)), read.finish))
        return found

    def _probabilities(self, batch: Batch) -> list[Tensor]:
        states, places = self.states(batch)
        every = self.model.head(states, places).softmax(-1)
        return [rows[:count] for rows, count in zip(every, batch.lengths(), strict=True)]


def _own(read: Read, number: int) -> slice:
    """Where a window has the text's own tokens: behind the special ones in front."""
    front = read.encoded.sequence.index(0)
    window = read.windows[number]
    return slice(front, front + window.stop - window.start)


def _joined(read: Read, windows: list[Tensor]) -> Tensor:
    """One row a token: where two windows overlap, each gives the half that is farther from its edge."""
    parts, taken = [], 0
    for number, (window, rows) in enumerate(zip(read.windows, windows, strict=True)):
        last = number + 1 == len(read.windows)
        until = window.stop if last else (read.windows[number + 1].start + window.stop) // 2
        parts.append(rows[taken - window.start : until - window.start])
        taken = until
    return torch.cat(parts)


def _words(text: str, spans: list[tuple[int, int]], labels: list[str], probabilities: list[float]) -> list[Word]:
    found: list[Word] = []
    for (start, end), label, probability in zip(spans, labels, probabilities, strict=True):
        while start < end and text[start].isspace():  # some tokenizers count the space in front
            start += 1
        if start == end:
            continue
        before = found[-1] if found else None
        if before is not None and (start < before.end or (start == before.end and _goes_on(text, start))):
            end = max(end, before.end)
            found[-1] = Word(text[before.start : end], before.label, before.probability, before.start, end)
        else:
            found.append(Word(text[start:end], label, probability, start, end))
    return found


def _goes_on(text: str, place: int) -> bool:
    """Whether a word goes on here: letters and digits do, signs and ideographs stand alone."""
    return all(_joins(character) for character in text[place - 1 : place + 1])


def _joins(character: str) -> bool:
    ideograph = "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"
    return not ideograph and (character.isalnum() or unicodedata.category(character).startswith("M"))


def entities(text: str, words: Sequence[Word]) -> list[Entity]:
    """Runs of words that B- (begins), I- (inside) and, in some schemes, E- (ends) and S- (single) mark.

    An I- that continues nothing begins an entity: models say that often, and mean it.
    """
    found: list[list[Word]] = []
    kind, open_ = "", False
    for word in words:
        mark, dash, name = word.label.partition("-")
        if not dash or mark not in ("B", "I", "E", "S", "L", "U"):
            open_ = False
            continue
        if open_ and name == kind and mark in ("I", "E", "L"):
            found[-1].append(word)
        else:
            found.append([word])
        kind, open_ = name, mark in ("B", "I")
    return [
        Entity(
            label=run[0].label.partition("-")[2],
            text=text[run[0].start : run[-1].end],
            probability=sum(word.probability for word in run) / len(run),
            start=run[0].start,
            end=run[-1].end,
        )
        for run in found
    ]
