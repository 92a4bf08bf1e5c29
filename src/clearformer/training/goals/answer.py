"""Answering from a text: where the answer begins and where it ends (Devlin et al. 2019, section 4.2)."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.checkpoints.metadata import Metadata
from clearformer.data import batches as data
from clearformer.data.corpus import Coder, Corpus
from clearformer.data.lines import lines
from clearformer.data.pairs import Pair, Pairs
from clearformer.errors import DataError
from clearformer.spec import Spans, Transformer
from clearformer.training.goals.base import Say
from clearformer.training.goals.labels import TextGoal
from clearformer.training.settings import Settings


class Questions(NamedTuple):
    """Questions with their contexts, and the first and last token of each answer."""

    ids: Tensor  # b t
    mask: Tensor
    segments: Tensor  # b t
    spans: Tensor  # b 2
    counts: Tensor  # b

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    def nothing(self) -> "Questions":
        first = Questions(*(part[:1] for part in self))
        return first._replace(counts=torch.zeros_like(first.counts))


@dataclass(frozen=True)
class SpanCoder:
    """Source: question and context in the tokenizer's template. Target: first and last token of the answer, then the
    segment of every token. A context too long for the model is cut around the answer."""

    goal: "Answer"

    def __len__(self) -> int:
        return max(self.goal.vocabulary, 2**16)

    def code(self, pairs: Sequence[Pair], to: str | None) -> Iterable[tuple[list[int], list[int]]]:
        for pair in pairs:
            begin, end = (int(number) for number in pair.more)
            context, begin, end = self._near(pair.target, begin, end)
            found = self.goal.words.encode(pair.source, context)
            inside = [
                n
                for n, (side, (a, b)) in enumerate(zip(found.sequence, found.offsets, strict=True))
                if side == 1 and a < end and b > begin
            ]
            if not inside:
                raise DataError(f"{pair.where}: the answer has no tokens")
            yield found.ids, [inside[0], inside[-1], *found.segments]

    def _near(self, context: str, begin: int, end: int) -> tuple[str, int, int]:
        """About as many characters around the answer as the longest input holds tokens for."""
        room = 3 * self.goal.limit
        if len(context) <= room:
            return context, begin, end
        first = max(0, min(begin - room // 2, len(context) - room))
        return context[first : first + room], begin - first, end - first


@dataclass(frozen=True)
class SpanBatches(data.Batches):
    def make(self, rows: Any) -> Any:
        pairs = [self.corpus.pair(int(row)) for row in rows]
        ids, mask = data.pad([pair[0] for pair in pairs], self.pad)
        segments, _ = data.pad([pair[1][2:] for pair in pairs], 0)
        spans = torch.tensor([[int(pair[1][0]), int(pair[1][1])] for pair in pairs])
        return Questions(ids, mask, segments, spans, torch.ones(len(pairs), dtype=torch.bool))


def span_logits(model: Any, batch: Questions) -> Tensor:
    """b t 2, −∞ at padding."""
    segments = batch.segments if model.spec.stack.embed.segments else None
    logits = model(batch.ids, batch.mask, segments=segments)
    return logits.masked_fill(~batch.mask[..., None], -torch.inf)


class SpanLoss(nn.Module):
    """The mean of two cross-entropies, over where it begins and over where it ends."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, batch: Questions) -> Tensor:
        logits = span_logits(self.model, batch)
        losses = F.cross_entropy(logits, batch.spans, reduction="none").mean(1)
        return losses[batch.counts].sum()


class Answer(TextGoal):
    """JSONL with question, context, answer and, where the answer stands more than once, start."""

    name, unit, measure = "answer", "questions", "exact"
    POSITIONS: ClassVar[Literal["rotary", "sinusoid"]] = "sinusoid"  # no public family has spans over rotary ones

    def read(self, part: Pairs) -> Iterator[Pair]:
        return islice(_questions(part), *(part.rows or (None,)))

    def taken(self, part: Pairs) -> None:
        return None  # its format has fields of its own

    def learn(self, total: int, say: Say) -> dict[str, Any]:
        return self.learn_words(self.all_texts(), 8_000, say)

    @property
    def coder(self) -> Coder:
        return SpanCoder(self)

    def spec(self, settings: Settings, vocabulary: int) -> Transformer:
        return self.encoder(settings, vocabulary, Spans())

    def collate(self, corpus: Corpus, tokens: int, seed: int = 0) -> Any:
        return SpanBatches(corpus, tokens, 0, self.pad, seed)

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        return SpanLoss(model)

    @torch.inference_mode()
    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        batches = self.valid_batches()
        exact = total = 0
        for rows in batches.plan(0):
            batch = batches.make(rows)
            found = span_logits(model, batch).argmax(1)
            exact, total = exact + int((found == batch.spans).all(1).sum()), total + len(found)
        return {"exact": exact / max(total, 1)}, []

    def metadata(self, model: Any) -> Metadata:
        return Metadata(task="answer", longest=self.longest)


def _questions(part: Pairs) -> Iterator[Pair]:
    if part.file is None:
        raise DataError("questions are read from one JSONL file; give it as file")
    for number, line in enumerate(lines(part.file), 1):
        where = f"{part.file}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            question, context, answer = (row[name] for name in ("question", "context", "answer"))
            start = row.get("start")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise DataError(
                f"{where}: every line must be an object with question, context and answer, and start if need be"
            ) from None
        if not all(isinstance(text, str) and text.strip() for text in (question, context, answer)):
            raise DataError(f"{where}: question, context and answer must be texts, and not empty")
        begin = start if isinstance(start, int) else context.find(answer)
        if begin < 0 or context[begin : begin + len(answer)] != answer:
            raise DataError(f"{where}: the answer {answer[:40]!r} does not stand in the context where it should")
        yield Pair(question, context, where, (float(begin), float(begin + len(answer))))
