"""Goals whose examples are texts with labels: of the whole text, or of every word of it."""

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from tokenizers import models
from torch import Tensor, nn

from clearformer import arrangements
from clearformer.checkpoints.match_family import family_for
from clearformer.checkpoints.metadata import Metadata
from clearformer.checkpoints.relatives import family_of
from clearformer.data import batches as data
from clearformer.data.corpus import Coder, Corpus, Report
from clearformer.data.pairs import Pair, Pairs
from clearformer.data.trees import JOINED, read_trees, words_of
from clearformer.errors import CheckpointError, DataError, nearest
from clearformer.spec import Classes, Head, Sinusoid, TokenClasses, Transformer, TreeDepth, TreeDistance, Vector
from clearformer.training.goals.base import DATA, FOUND, Say, Worded, accuracy, given_spec, heads_of
from clearformer.training.goals.pairs import PairGoal
from clearformer.training.settings import Settings, known

#   texts up to: width, layers, dropout, epochs
HEADINGS = {"label", "labels", "class", "category", "sentiment", "target", "tag", "rating"}  # no one's label, alone
SIZES = [(20_000, (128, 2, 0.3, 20.0)), (200_000, (256, 4, 0.2, 10.0)), (float("inf"), (256, 6, 0.1, 5.0))]


class Labelled(NamedTuple):
    """Texts with a label each."""

    ids: Tensor  # b t
    mask: Tensor
    labels: Tensor  # b
    counts: Tensor  # b: whether it counts

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    def nothing(self) -> "Labelled":
        first = Labelled(*(part[:1] for part in self))
        return first._replace(counts=torch.zeros_like(first.counts))


class TextGoal(PairGoal, Worded):
    """What all goals of an encoder over texts share: its vocabulary, its size, what it begins with."""

    POSITIONS: ClassVar[Literal["rotary", "sinusoid"]] = "rotary"  # where the settings do not say

    def rotary(self, settings: Settings) -> bool:
        """Whether a fresh encoder is in EuroBERT's arrangement; that has its norms before."""
        return settings.model.norm == "before" and (settings.model.positions or self.POSITIONS) == "rotary"

    @property
    def pad(self) -> int:
        return self.words.pad if self.words.pad is not None else 0

    def advise(self, asked: Settings, report: Report) -> Settings:
        width, layers, dropout, epochs = next(size for limit, size in SIZES if report.kept <= limit)
        model, fine = asked.model, asked.model.start is not None
        width = model.width or width
        model = model.replace(
            width=width,
            layers=model.layers or layers,
            heads=heads_of(width, model.heads),
            inner=model.inner
            or (8 * math.ceil(width * 8 / 3 / 8) if self.rotary(asked) else 4 * width),  # as many weights
            dropout=dropout if model.dropout is None else model.dropout,
        )
        rate = 1e-3 if model.lora is not None else 5e-5 if fine else 1e-3 if width < 512 else 5e-4
        optimizer = asked.optimizer.replace(rate=asked.optimizer.rate or rate)
        length = asked.length.otherwise(3.0 if fine else epochs)
        tokens = asked.batch.tokens or min(4_000, max(256, report.source_tokens // 100))
        return asked.replace(model=model, optimizer=optimizer, length=length, batch=asked.batch.replace(tokens=tokens))

    def encoder(self, settings: Settings, vocabulary: int, head: Head) -> Transformer:
        """The specification: given, begun with, or of the settings' size; with this head."""
        model = settings.model
        found = self.given(settings, vocabulary, lambda spec: isinstance(spec, Transformer), "is no model of one stack")
        if found is not None:
            return found.replace(head=head)
        sizes = {name: known(getattr(model, name)) for name in ("width", "layers", "heads", "inner", "dropout")}
        sizes |= {"vocabulary": vocabulary, "head": head}
        if self.rotary(settings):
            return arrangements.rotary_encoder(**sizes)
        tree = model.positions == "tree"
        return arrangements.encoder(
            **sizes,
            norm=model.norm,
            positions=TreeDepth() if tree else Sinusoid(),
            relative=TreeDistance(reach=8, sequential=8) if tree else None,
        )

    @property
    def labels(self) -> list[str]:
        return self.found["labels"]

    @property
    def count_of_labels(self) -> int:
        """Two before the data was read, when only sizes are checked."""
        return len(self.labels) if (self.out / DATA / FOUND).is_file() else 2

    def hidden(self) -> "Hidden":
        return Hidden(self.settings.model.word_dropout, self.words.unknown)

    @property
    def longest(self) -> int:
        """Tokens of an input at most, in use: what was trained on, or what the start takes."""
        there = None if self.start is None else self.start.metadata.longest
        return there or self.settings.data.longest

    @property
    def limit(self) -> int:
        return min(self.longest, super().limit)


@dataclass(frozen=True)
class LabelCoder:
    goal: "Classify"

    def __len__(self) -> int:
        return max(self.goal.vocabulary, len(self.goal.labels))

    def code(self, pairs: Sequence[Pair], to: str | None) -> Iterable[tuple[list[int], list[int]]]:
        labels = {label: number for number, label in enumerate(self.goal.labels)}
        found = self.goal.words.encode_all([pair.source for pair in pairs])
        for pair, encoded in zip(pairs, found, strict=True):
            if pair.target not in labels:
                raise DataError(
                    f"{pair.where}: no training text has the label {pair.target!r}{nearest(pair.target, labels)}"
                )
            yield encoded.ids, [labels[pair.target]]


@dataclass(frozen=True)
class LabelBatches(data.Batches):
    def make(self, rows: Any) -> Any:
        pairs = [self.corpus.pair(int(row)) for row in rows]
        ids, mask = data.pad([pair[0] for pair in pairs], self.pad)
        labels = torch.tensor([int(pair[1][0]) for pair in pairs])
        return Labelled(ids, mask, labels, torch.ones(len(pairs), dtype=torch.bool))


class Hidden(nn.Module):
    """Ids with some replaced by the unknown token while training, so that no label hangs on a single word."""

    def __init__(self, share: float, unknown: int | None):
        super().__init__()
        self.share, self.unknown = (0.0, 0) if unknown is None else (share, unknown)

    def forward(self, ids: Tensor) -> Tensor:
        if not self.training or not self.share:
            return ids
        return torch.where(
            torch.rand(ids.shape, device=ids.device) < self.share, self.unknown, ids
        )  # seeded by the step


class ClassLoss(nn.Module):
    def __init__(self, model: nn.Module, hidden: Hidden, smoothing: float):
        super().__init__()
        self.model, self.hidden, self.smoothing = model, hidden, smoothing

    def forward(self, batch: Labelled) -> Tensor:
        mask = None if bool(batch.mask.all()) else batch.mask
        logits = self.model(self.hidden(batch.ids), mask)
        losses = F.cross_entropy(logits, batch.labels, reduction="none", label_smoothing=self.smoothing)
        return losses[batch.counts].sum()


class Classify(TextGoal):
    """A label for a text: TSV, CSV or JSONL with the text and its label."""

    may = PairGoal.may | {"noise"}
    name, unit, measure = "classify", "texts", "accuracy"
    LABELS: ClassVar[int] = 10_000

    def texts(self, pair: Pair) -> Iterable[str]:
        return (pair.source,)

    def learn(self, total: int, say: Say) -> dict[str, Any]:
        pairs = (pair for part in self.settings.data.train for pair in self.read(part) if pair.target.strip())
        top = next(pairs, None)
        counts = Counter(pair.target for pair in pairs)
        if top is not None and top.target.lower() in HEADINGS and top.target not in counts:
            raise DataError(
                f"{top.where} looks like names of columns: {top.source!r}, {top.target!r}; say so with fields, such as"
                f" --fields {top.source},{top.target}, and the line is no example"
            )
        labels = {*counts, *([] if top is None else [top.target])}
        if len(labels) < 2:
            raise DataError(f"the training data has {len(labels)} label; there must be at least two to tell apart")
        if len(labels) > self.LABELS:
            raise DataError(
                f"the training data has {len(labels):,} different labels, such as {min(labels)!r}; is the label the"
                " second column? Say which with fields"
            )
        self.keep({"labels": sorted(labels)})
        say(f"labels: {', '.join(sorted(labels)[:20])}{' …' if len(labels) > 20 else ''}")
        return self.learn_words(self.all_texts(), 8_000 if total <= 200_000 else 16_000, say)

    @property
    def coder(self) -> Coder:
        return LabelCoder(self)

    def told(self, report: Report) -> str:
        return (
            f"{report.kept:,} texts, {report.source_tokens:,} tokens, longest {report.longest[0]}" + report.left_out()
        )

    def spec(self, settings: Settings, vocabulary: int) -> Transformer:
        return self.encoder(settings, vocabulary, self._head(settings, self.count_of_labels))

    def _head(self, settings: Settings, count: int) -> Classes:
        if self.start is None:
            given = given_spec(settings)
            if given is not None and isinstance(given.head, Classes):
                return given.head.replace(count=count)
            vector = Vector(pool="mean", dense="gelu" if given is None and self.rotary(settings) else None)
            return Classes(count=count, vector=vector, dropout=settings.model.dropout or 0.0)
        head = self.start.spec.head
        if isinstance(head, Classes):
            return head.replace(count=count)
        return Classes(count=count, vector=head if isinstance(head, Vector) else self._vector(), dropout=0.1)

    def _vector(self) -> Vector:
        """The vector that the start's public family tells classes from, so that the model can be given back to it."""
        assert self.start is not None
        vectors = (Vector(dense="tanh"), Vector(dense="relu"), Vector(pool="mean", dense="gelu"))
        for held in (family_for, family_of):  # as it stands, or as a relative
            for vector in vectors:
                what = self.start.spec.replace(head=Classes(count=2, vector=vector))
                with suppress(CheckpointError):
                    held(what, self.start.metadata.family)
                    return vector
        return Vector(pool="mean")

    def collate(self, corpus: Corpus, tokens: int, seed: int = 0) -> data.Batches:
        return LabelBatches(corpus, tokens, 0, self.pad, seed)

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        return ClassLoss(model, self.hidden(), smoothing)

    @torch.inference_mode()
    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        found = accuracy(self.valid_batches(), lambda batch: model(batch.ids, batch.mask).argmax(-1) == batch.labels)
        chosen = random.Random(0).sample(self.valid_rows, min(self.settings.validation.samples, len(self.valid_rows)))
        return found, [self._sample(model, row) for row in chosen]

    def _sample(self, model: Any, row: dict[str, Any]) -> tuple[str, str, str]:
        ids = torch.tensor([self.words.encode(row["source"]).ids[: self.longest]])
        return row["source"], row["target"], self.labels[int(model(ids).argmax())]

    def metadata(self, model: Any) -> Metadata:
        return Metadata(task="classify", labels=tuple(self.labels), longest=self.longest, several=False)


# --- a label for every word --------------------------------------------------------------------------------------


class Tagged(NamedTuple):
    """Texts with a label for every token (−1 where none is asked), and the heads of their trees."""

    ids: Tensor  # b t
    mask: Tensor
    labels: Tensor  # b t
    heads: Tensor  # b t

    @property
    def tokens(self) -> int:
        return int((self.labels >= 0).sum())

    def nothing(self) -> "Tagged":
        first = Tagged(*(part[:1] for part in self))
        return first._replace(labels=torch.full_like(first.labels, -1))


@dataclass(frozen=True)
class TagCoder:
    """Source: the pieces of all words. Target: the tag of every piece (0: not a word's first), then, for models that
    read trees, all heads."""

    goal: "Tag"

    def __len__(self) -> int:
        return max(self.goal.vocabulary, 2**16)

    def code(self, pairs: Sequence[Pair], to: str | None) -> Iterable[tuple[list[int], list[int]]]:
        numbers = {label: number for number, label in enumerate(self.goal.labels, 1)}
        texts = [pair.source.replace(JOINED, self._gap) for pair in pairs]
        found = self.goal.words.encode_all(texts, special=not self.goal.trees)
        for pair, text, encoded in zip(pairs, texts, found, strict=True):
            firsts: dict[int, int] = {}
            at = 0
            for word, tag in zip(words_of(pair.source), pair.target.split(" "), strict=True):
                if tag not in numbers:
                    raise DataError(f"{pair.where}: no training word has the tag {tag!r}{nearest(tag, numbers)}")
                at += text[at : at + 1] == " " and bool(firsts)
                firsts[at] = numbers[tag]
                at += len(word)
            starts = [
                self._start(text, side, *span) for side, span in zip(encoded.sequence, encoded.offsets, strict=True)
            ]
            labels = [firsts.pop(start, 0) for start in starts]  # of a word's first piece only
            heads = [int(head) for head in pair.more] if self.goal.trees else []
            if self.goal.trees and len(heads) != len(labels):
                raise DataError(
                    f"{pair.where}: {len(heads)} words became {len(labels)} tokens, so its tree does not fit"
                )
            yield encoded.ids, labels + heads

    @property
    def _gap(self) -> str:
        """What stands between a word and a sign behind it: nothing, as in texts that people write, but a space for
        tokenizers that know whole words only."""
        return " " if self.goal.trees or isinstance(self.goal.words.engine.model, models.WordLevel) else ""

    def _start(self, text: str, side: int | None, start: int, end: int) -> int:
        """Where a piece begins, without the space that some tokenizers count with it; −1 for a special token."""
        if side is None:
            return -1
        return start + len(text[start:end]) - len(text[start:end].lstrip(" "))


@dataclass(frozen=True)
class TagBatches(data.Batches):
    def make(self, rows: Any) -> Any:
        pairs = [self.corpus.pair(int(row)) for row in rows]
        ids, mask = data.pad([pair[0] for pair in pairs], self.pad)
        labels, _ = data.pad([pair[1][: len(pair[0])] for pair in pairs], 0)
        trees = all(len(pair[1]) > len(pair[0]) for pair in pairs)
        heads = data.pad([pair[1][len(pair[0]) :] for pair in pairs], 0)[0] if trees else torch.zeros_like(labels)
        return Tagged(ids, mask, labels - 1, heads)


class TagLoss(nn.Module):
    def __init__(self, model: Any, hidden: Hidden, smoothing: float):
        super().__init__()
        self.model, self.hidden, self.smoothing = model, hidden, smoothing

    def forward(self, batch: Tagged) -> Tensor:
        logits = tagged(self.model, batch._replace(ids=self.hidden(batch.ids)))
        wanted = batch.labels >= 0
        return F.cross_entropy(logits[wanted], batch.labels[wanted], reduction="sum", label_smoothing=self.smoothing)


def tagged(model: Any, batch: Tagged) -> Tensor:
    trees = None
    if model.stack.reads_trees:
        counts = batch.mask.sum(1).tolist()
        trees = [row[:count] for row, count in zip(batch.heads.tolist(), counts, strict=True)]
    return model(batch.ids, batch.mask, trees=trees)


class Tag(TextGoal):
    """A tag for every word: CoNLL-U with the column to learn as its second field (upos, xpos, deprel)."""

    name, unit, measure = "tag", "words", "accuracy"

    def read(self, part: Pairs) -> Iterator[Pair]:
        return read_trees(part)

    def taken(self, part: Pairs) -> None:
        return None  # its format has fields of its own

    def texts(self, pair: Pair) -> Iterable[str]:
        whole = self.settings.tokenizer.kind == "word"
        return words_of(pair.source) if not whole else (pair.source.replace(JOINED, " "),)

    def learn(self, total: int, say: Say) -> dict[str, Any]:
        tags = {tag for part in self.settings.data.train for pair in self.read(part) for tag in pair.target.split(" ")}
        self.keep({"labels": sorted(tags)})
        say(f"tags: {', '.join(sorted(tags)[:30])}{' …' if len(tags) > 30 else ''}")
        if self.trees and (self.start or self.settings.tokenizer.kind != "word"):
            raise DataError('model.positions = "tree" needs whole words: set tokenizer.kind = "word", without a start')
        return self.learn_words(self.all_texts(), 8_000, say)

    @property
    def coder(self) -> Coder:
        return TagCoder(self)

    def told(self, report: Report) -> str:
        return f"{report.kept:,} sentences, {report.source_tokens:,} tokens" + report.left_out()

    def spec(self, settings: Settings, vocabulary: int) -> Transformer:
        head = TokenClasses(count=self.count_of_labels, dropout=settings.model.dropout or 0.0)
        return self.encoder(settings, vocabulary, head)

    def collate(self, corpus: Corpus, tokens: int, seed: int = 0) -> data.Batches:
        return TagBatches(corpus, tokens, 0, self.pad, seed)

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        return TagLoss(model, self.hidden(), smoothing)

    @torch.inference_mode()
    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        def judge(batch: Tagged) -> Tensor:
            return (tagged(model, batch).argmax(-1) == batch.labels)[batch.labels >= 0]

        return accuracy(self.valid_batches(), judge), []

    def metadata(self, model: Any) -> Metadata:
        return Metadata(task="tag", labels=tuple(self.labels), longest=self.longest, trees=self.trees)

    @property
    def trees(self) -> bool:
        """Whether the model is given the tree of every sentence, which has no place for special tokens."""
        return self.settings.model.positions == "tree"
