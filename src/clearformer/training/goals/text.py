"""Goals of language models: say the next token of running text, or of what follows a prompt; or fill what is masked."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer import arrangements
from clearformer.assemble import count_parameters
from clearformer.checkpoints.metadata import Metadata
from clearformer.data import batches as data
from clearformer.data.blocks import Block, Blocks, write_stream
from clearformer.data.corpus import Coder, Corpus, Report
from clearformer.data.lines import lines
from clearformer.data.pairs import Pair
from clearformer.errors import DataError
from clearformer.generate.search import greedy, sample
from clearformer.spec import LayerNorm, MaskedToken, NextToken, Transformer
from clearformer.text.tokenizer import MASK
from clearformer.training.goals.base import DATA, Say, Worded, check_memory, heads_of
from clearformer.training.goals.labels import TextGoal
from clearformer.training.loss import next_token_loss
from clearformer.training.settings import Settings, known

#   tokens up to: width, layers, dropout, epochs
SIZES = [(3_000_000, (192, 4, 0.2, 10.0)), (50_000_000, (384, 6, 0.1, 3.0)), (math.inf, (512, 8, 0.0, 1.0))]


class NextTokenLoss(nn.Module):
    """Every position of every block at once, given all before it."""

    def __init__(self, model: Any, smoothing: float):
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Block) -> Tensor:
        model, given = self.model, batch.ids[:, :-1]
        states = model.stack(given, model.stack.places(given, None))
        mask = None if bool(batch.counts.all()) else batch.counts[:, 1:]
        return next_token_loss(model.head, states, batch.ids[:, 1:], mask, self.smoothing)[0]


class Language(Worded):
    """What the models of running text and of continued prompts share."""

    def decoder(self, settings: Settings, vocabulary: int) -> Transformer:
        model = settings.model
        found = self.given(settings, vocabulary, lambda what: _has(what, NextToken), "does not say next tokens")
        return found or arrangements.decoder(
            width=known(model.width),
            layers=known(model.layers),
            heads=known(model.heads),
            inner=known(model.inner),
            vocabulary=vocabulary,
            dropout=known(model.dropout),
            context=known(model.context),
        )

    def language_advice(self, asked: Settings, tokens: int, context: int = 256) -> Settings:
        width, layers, dropout, epochs = next(size for limit, size in SIZES if tokens <= limit)
        model, fine = asked.model, asked.model.start is not None
        width = model.width or width
        model = model.replace(
            width=width,
            layers=model.layers or layers,
            heads=heads_of(width, model.heads),
            inner=model.inner or 8 * math.ceil(width * 8 / 3 / 8),
            dropout=dropout if model.dropout is None else model.dropout,
            context=model.context or min(context, self.most() or context),
        )
        rate = 1e-3 if model.lora is not None or not fine else 5e-5
        changes: dict[str, Any] = {"model": model, "optimizer.rate": asked.optimizer.rate or rate}
        changes["optimizer.smoothing"] = asked.optimizer.smoothing or 0.0
        changes["length"] = asked.length.otherwise(3.0 if fine else epochs)
        changes["batch.tokens"] = asked.batch.tokens or min(4_000, max(known(model.context), tokens // 100))
        return asked.replace(changes)

    def most(self) -> int | None:
        """The most tokens that the start can see at once."""
        return None if self.start is None else self.start.metadata.longest

    def metadata(self, model: Any) -> Metadata:
        words, kept = self.words, {} if self.start is None else dict(self.start.metadata.generation or {})
        ends = [] if words.end is None else [words.end]
        said = {"bos_token_id": words.start, "eos_token_id": ends, "pad_token_id": words.pad}
        generation = {name: value for name, value in said.items() if value not in (None, [])} | kept
        return Metadata(task="complete", longest=self.most(), generation=generation)


def _has(what: Any, head: type) -> bool:
    return isinstance(what, Transformer) and isinstance(what.head, head)


class Complete(Language):
    """Running text: plain files, plain or gzip, each one document."""

    name, measure = "complete", None
    SHARE: ClassVar[float] = 0.1  # of the text, its end, is held out where there is no other to validate on

    def _files(self, parts: Iterable[Any]) -> list[Path]:
        return [path for part in parts for path in part.files()]

    def count(self) -> int:
        data = self.settings.data
        self.check_pins()
        decided = self.advise(self.settings, Report(source_tokens=1))
        check_memory(count_parameters(self.spec(decided, self.settings.tokenizer.vocabulary or 1_000)), self.settings)
        if data.valid and not any(line.strip() for path in self._files(data.valid) for line in lines(path)):
            raise DataError("the validation text is empty")
        total = sum(1 for path in self._files(data.train) for line in lines(path) if line.strip())
        if not total:
            raise DataError(f"the training text is empty: {', '.join(map(str, data.train))}")
        return total

    def learn(self, say: Say) -> dict[str, Any]:
        texts = _Lines(tuple(self._files(self.settings.data.train)))
        usual = 1_000 if self.settings.tokenizer.kind == "char" else 4_000
        # without a start: blocks begin anywhere in the text, and so may a prompt
        return self.learn_words(texts, usual, say, self.extra, first=False)

    extra: ClassVar[tuple[str, ...]] = ()

    def fill(self, total: int, say: Say) -> tuple[dict[str, Report], dict[str, Any]]:
        data, folder = self.settings.data, self.out / DATA
        decided = self.learn(say)
        size = write_stream(folder, "train", self._files(data.train), self.words, data.lines)
        cut = size
        if data.valid:
            held = write_stream(folder, "valid", self._files(data.valid), self.words, data.lines)
        else:
            held = max(2, min(int(size * self.SHARE), 1_000_000))
            cut = size - held
        if cut < 2:
            raise DataError(f"{size} tokens of text are too few to learn from")
        self.keep({"cut": cut, "size": size})
        say(f"train: {cut:,} tokens; validation: {held:,} tokens" + ("" if data.valid else ", the end of the text"))
        return {"train": Report(kept=total, source_tokens=cut), "valid": Report(source_tokens=held)}, decided

    def take(self, metadata: Metadata) -> None:
        data = self.settings.data
        write_stream(self.out / DATA, "valid", self._files(data.valid), self.words, data.lines)

    def advise(self, asked: Settings, report: Report) -> Settings:
        return self.language_advice(asked, report.source_tokens)

    def spec(self, settings: Settings, vocabulary: int) -> Transformer:
        return self.decoder(settings, vocabulary)

    def _length(self, settings: Settings) -> int:
        """Of a block, beside the token that is only to be said."""
        return known(settings.model.context)

    def batches(self, settings: Settings) -> Any:
        length, tokens = self._length(settings), known(settings.batch.tokens)
        return Blocks(self.out / DATA, "train", length, tokens, settings.seed, last=self.found["cut"])

    def valid_batches(self) -> Any:
        length = self._length(self.settings)
        if self.settings.data.valid:
            return Blocks(self.out / DATA, "valid", length, 8_000)
        return Blocks(self.out / DATA, "train", length, 8_000, first=self.found["cut"])

    def metadata(self, model: Any) -> Metadata:
        found = super().metadata(model)
        if self.start is None:  # in the text, what stands before a beginning is an end
            return found.replace(generation={**(found.generation or {}), "bos_token_id": self.words.end})
        return found

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        return NextTokenLoss(model, smoothing)

    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        if not self.settings.validation.samples:
            return {}, []
        given = self.valid_batches().make(np.asarray([0])).ids[:, :16]
        room = min(120, (self.most() or 10**9) - given.size(1))
        ways: dict[str, Any] = {"max_new_tokens": room, "eos_token_id": self.words.end}
        found = (
            sample(model, given, seed=0, temperature=0.8, **ways)
            if room > 0
            else greedy(model, given, max_new_tokens=1)
        )
        return {}, [(self.words.decode(given[0].tolist()), "", self.words.decode(found[0].tokens))]


@dataclass(frozen=True)
class _Lines:
    """The lines of files with their ends, as often as a tokenizer asks."""

    files: tuple[Path, ...]

    def __iter__(self) -> Any:
        return (line + "\n" for path in self.files for line in lines(path))


# --- prompts and what follows them -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PromptCoder:
    """Source: the prompt in the tokenizer's template, without an end. Target: the continuation and its end."""

    goal: "Continue"

    def __len__(self) -> int:
        return self.goal.vocabulary

    def code(self, pairs: Sequence[Pair], to: str | None) -> Iterable[tuple[list[int], list[int]]]:
        words = self.goal.words
        for prompt, made in zip(
            words.encode_all([pair.source for pair in pairs]),
            words.encode_all([pair.target for pair in pairs], special=False),
            strict=True,
        ):
            given = prompt.ids[:-1] if prompt.ids[-1:] == [words.end] and len(prompt.ids) > 1 else prompt.ids
            yield given, [*made.ids, words.end] if words.end is not None else made.ids


@dataclass(frozen=True)
class PromptBatches(data.Batches):
    def make(self, rows: Any) -> Any:
        pairs = [self.corpus.pair(int(row)) for row in rows]
        ids, mask = data.pad([np.concatenate(pair) for pair in pairs], self.pad)
        given = torch.tensor([len(pair[0]) for pair in pairs])
        return Block(ids, mask & (torch.arange(ids.size(1)) >= given[:, None]))


class Continue(Language, TextGoal):
    """Prompts and what should follow: the prompt is read, and only the continuation is learned."""

    name, measure = "complete", None

    def learn(self, total: int, say: Say) -> dict[str, Any]:
        return self.learn_words(self.all_texts(), 4_000, say)

    @property
    def coder(self) -> Coder:
        return PromptCoder(self)

    def advise(self, asked: Settings, report: Report) -> Settings:
        together = sum(report.longest) or 256  # a prompt and what follows it
        return self.language_advice(asked, report.source_tokens + report.target_tokens, together)

    def spec(self, settings: Settings, vocabulary: int) -> Transformer:
        return self.decoder(settings, vocabulary)

    def collate(self, corpus: Corpus, tokens: int, seed: int = 0) -> Any:
        return PromptBatches(corpus, tokens, 0, self.pad, seed)

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        return NextTokenLoss(model, smoothing)


# --- what is masked --------------------------------------------------------------------------------------------


class MaskedLoss(nn.Module):
    """Devlin et al. 2019: of 15 % of the tokens, 8 in 10 are masked, 1 is replaced, 1 is left; all are to be said."""

    SHARE = 0.15

    def __init__(self, model: Any, mask: int, vocabulary: int, smoothing: float):
        super().__init__()
        self.model, self.mask, self.vocabulary, self.smoothing = model, mask, vocabulary, smoothing

    def forward(self, batch: Block) -> Tensor:
        ids = batch.ids
        dice = torch.rand(ids.shape, device=ids.device)  # seeded by the step
        chosen = (dice < self.SHARE) & batch.counts
        given = torch.where(chosen & (dice < 0.8 * self.SHARE), self.mask, ids)
        other = torch.randint(self.vocabulary, ids.shape, device=ids.device)
        given = torch.where(chosen & (dice >= 0.9 * self.SHARE), other, given)
        model = self.model
        states = model.stack(given, model.stack.places(given, None))
        hidden = model.head.norm(model.head.active(states[chosen]))
        logits = model.head.logits(hidden)
        losses = F.cross_entropy(logits, ids[chosen], reduction="none", label_smoothing=self.smoothing)
        # a mean over those masked, counted once for every token, so that batches weigh by their size
        return losses.mean() * batch.tokens if len(losses) else logits.sum() * 0.0


class Fill(Complete):
    """Running text with holes: an encoder that says what is masked."""

    name = "fill"
    extra = (MASK,)

    def _length(self, settings: Settings) -> int:
        """All tokens of a block are read."""
        return max(1, known(settings.model.context) - 1)

    def spec(self, settings: Settings, vocabulary: int) -> Transformer:
        model = settings.model
        found = self.given(settings, vocabulary, lambda what: _has(what, MaskedToken), "has no masked-token head")
        if found is not None:
            return found
        return arrangements.encoder(
            width=known(model.width),
            layers=known(model.layers),
            heads=known(model.heads),
            inner=known(model.inner),
            vocabulary=vocabulary,
            head=MaskedToken(norm=LayerNorm()),  # as all other norms: public families have one eps
            dropout=known(model.dropout),
            norm=model.norm,
        )

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        if self.words.mask is None:
            raise DataError("the tokenizer has no mask token")
        return MaskedLoss(model, self.words.mask, self.vocabulary, smoothing)

    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        return {}, []

    def metadata(self, model: Any) -> Metadata:
        return Metadata(task="fill", longest=self.most() or known(self.settings.model.context))
