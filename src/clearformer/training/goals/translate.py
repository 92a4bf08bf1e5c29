"""Translating, or any text that becomes another: an encoder–decoder, teacher-forced."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import sacrebleu
import torch
from torch import Tensor, nn

from clearformer import arrangements
from clearformer.assemble import assemble
from clearformer.checkpoints.metadata import Metadata
from clearformer.core.model import Context
from clearformer.core.model import EncoderDecoder as Model
from clearformer.data.batches import Batch, Batches
from clearformer.data.corpus import Coder, Corpus, Report
from clearformer.data.noise import Noiser
from clearformer.data.pairs import Pair
from clearformer.data.training_pairs import Noise, TrainingPairs, names_of
from clearformer.errors import DataError, SpecError
from clearformer.spec import EncoderDecoder, NextToken, Spec, Tokens
from clearformer.tasks.split import LETTER, sentences
from clearformer.tasks.text_to_text import Writer
from clearformer.tasks.translate import Translator
from clearformer.text.learn import LearnedTokenizer, learn
from clearformer.text.subwords import Subwords
from clearformer.text.tokenizer import OURS, PublicTokenizer
from clearformer.text.translation import TranslationCodec
from clearformer.training import defaults
from clearformer.training.goals.base import DATA, FOUND, Say
from clearformer.training.goals.pairs import PairGoal
from clearformer.training.loss import next_token_loss
from clearformer.training.settings import Settings, known
from clearformer.training.state import replace_file

TOKENIZER = "tokenizer.json"
LOOKED_AT = 20_000  # pairs of each set, to learn how they treat texts


class TeacherForced(nn.Module):
    """A batch in, the sum of its losses out: every position of the target at once, given all before it.

    Where the pairs are of several `sets`, `by_set` is what each of them had in the last batch: loss and tokens.
    """

    def __init__(self, model: Model, smoothing: float, sets: int = 1):
        super().__init__()
        self.model, self.smoothing, self.sets = model, smoothing, sets
        self.by_set: Tensor | None = None  # sets 2

    def forward(self, batch: Batch) -> Tensor:
        model, mask = self.model, batch.target_mask
        context = Context(model.decoder, model.encode(batch.source, batch.source_mask))
        places = model.decoder.places(batch.target, mask)
        states = model.decoder(batch.target, places, context)
        each = states.new_empty(batch.tokens, dtype=torch.float32) if self.sets > 1 else None
        loss, _ = next_token_loss(model.head, states, batch.labels, mask, self.smoothing, each)  # type: ignore[arg-type]
        if each is not None:
            of = batch.sets[:, None].expand_as(mask)[mask]
            told = torch.stack([each.double(), torch.ones_like(each, dtype=torch.float64)], 1)
            self.by_set = torch.zeros(self.sets, 2, dtype=torch.float64, device=each.device).index_add_(0, of, told)
        return loss


def _writes(what: Any) -> bool:
    texts = isinstance(what, EncoderDecoder) and isinstance(what.encoder.embed, Tokens)
    return texts and isinstance(what.head, NextToken)


def _scores(made: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    right = [row["target"] for row in rows]
    return {
        "bleu": sacrebleu.corpus_bleu(made, [right]).score,
        "chrf": sacrebleu.corpus_chrf(made, [right]).score,
    }


def _evenly(rows: Sequence[dict[str, Any]], many: int) -> list[dict[str, Any]]:
    """The first rows, of each set in turn."""
    seen, ranked = Counter[int](), list[tuple[int, dict[str, Any]]]()
    for row in rows:
        number = row.get("set", 0)
        ranked.append((seen[number], row))
        seen[number] += 1
    return [row for _, row in sorted(ranked, key=lambda each: each[0])[:many]]


class Translate(PairGoal):
    name, measure = "translate", "bleu"
    may = PairGoal.may | {"tag", "script", "noise", "subwords", "ratio", "copies"}

    @property
    def public(self) -> bool:
        """Whether the run goes on from a public model, whose tokenizer is another kind."""
        return (self.out / OURS).is_file()

    @cached_property
    def tokenizer(self) -> TranslationCodec:
        """Of our own tokenizer, or of a public model's, whose prompts stand in front of sources."""
        if not self.public:
            return TranslationCodec.of(LearnedTokenizer.load(self.out / TOKENIZER))
        writer = self._writer(None)
        return replace(writer.sides, front=writer.language)

    def _writer(self, model: Model | None) -> Writer:
        if model is None:  # only its words are asked
            with torch.device("meta"):
                model = assemble(Spec.from_json(json.dumps(self.found["spec"])))  # type: ignore[assignment]
        assert model is not None
        return Writer(model, PublicTokenizer.load(self.out), self.found.get("metadata") or self.found["facts"])

    @property
    def coder(self) -> Coder:
        return self.tokenizer

    @property
    def vocabulary(self) -> int:
        return len(self.tokenizer)

    def learn(self, total: int, say: Say) -> dict[str, Any]:
        asked, wanted = self.settings, self.settings.tokenizer
        vocabulary = wanted.vocabulary or defaults.vocabulary_for(total, asked.length.minutes)
        languages = asked.languages if len(asked.languages) > 1 else []  # with one, nothing is to be told apart
        if self.start is not None:
            if self.start.metadata.task == "write":
                self.start.words.save(self.out)
                kept = {"metadata": self.start.metadata.to_dict(), "spec": json.loads(self.start.spec.to_json())}
                self.keep(kept)
            else:
                replace_file(self.out / TOKENIZER, self.start.tokenizer_file().read_bytes())
            say(f"tokenizer: of {asked.model.start}, {len(self.tokenizer):,} tokens")
            return {"tokenizer.vocabulary": len(self.tokenizer)}
        tags = sorted({f"<tag:{part.tag}>" for part in asked.data.train if part.tag})
        self.keep(habits(pair for part in self.sources(asked.data.train) for pair in islice(part.read(), LOOKED_AT)))
        found = learn(self.all_texts(), wanted.kind, vocabulary, wanted.form, languages, tags)
        replace_file(self.out / TOKENIZER, found.to_json().encode())
        say(f"tokenizer: {wanted.kind}, {len(found):,} tokens" + (f", to {', '.join(languages)}" if languages else ""))
        return {"tokenizer.vocabulary": vocabulary}

    def front(self, part: TrainingPairs) -> tuple[int, ...]:
        if part.tag is None:
            return ()
        tokenizer, token = self.tokenizer.tokenizer, f"<tag:{part.tag}>"
        if not isinstance(tokenizer, LearnedTokenizer) or token not in tokenizer.tags:
            raise DataError(
                f"tag = {part.tag!r}: the tokenizer of {self.settings.model.start} has no token {token}; leave the tag"
                " out, or begin with a model that was trained with it"
            )
        return (tokenizer.tags[token],)

    def noiser(self, noise: Noise, number: int, coded: bool) -> Noiser:
        made = super().noiser(noise, number, coded)
        if not coded:
            return made
        if not noise.subwords:
            return replace(made, encode=self.tokenizer.sources)
        tokenizer = self.tokenizer.tokenizer
        if not isinstance(tokenizer, LearnedTokenizer):
            raise DataError("noise.subwords needs a tokenizer that was learned here; public ones are not sampled from")
        subwords = Subwords(tokenizer, noise.subwords, made.address)
        return replace(made, sample=partial(self.tokenizer.sample, subwords))

    def advise(self, asked: Settings, report: Report) -> Settings:
        return defaults.advise(asked, report.target_tokens, report.kept)

    def choices(self, asked: Settings, report: Report) -> list[Settings]:
        return defaults.choices(asked, report.target_tokens, report.kept)

    def paced(self, settings: Settings, asked: Settings, tokens: float, epochs: float) -> Settings:
        return defaults.paced(settings, asked, tokens, epochs)

    def most_epochs(self, settings: Settings) -> float:
        without = self.settings.replace({"length": {}})
        report_epochs = known(defaults.advise(without, int(self.corpus.targets.sum()), len(self.corpus)).length.epochs)
        return defaults.MOST_EPOCHS * report_epochs

    def spec(self, settings: Settings, vocabulary: int) -> EncoderDecoder:
        model = settings.model
        found = self.given(settings, vocabulary, _writes, "is no encoder–decoder of texts with a next-token head")
        if found is not None:
            return found
        width, heads = known(model.width), known(model.heads)
        if width % heads:
            raise SpecError(f"model.heads ({heads}) must divide model.width ({width})")
        return arrangements.encoder_decoder(
            width=width,
            layers=(known(model.layers), known(model.decoder_layers)),
            heads=heads,
            inner=known(model.inner),
            vocabulary=vocabulary,
            dropout=known(model.dropout),
            norm=model.norm,
            activation=model.activation,
        )

    def collate(self, corpus: Corpus, tokens: int, seed: int = 0) -> Batches:
        return Batches(corpus, tokens, self.tokenizer.start, self.tokenizer.pad, seed)

    @property
    def train_sets(self) -> list[str]:
        found = names_of(self.settings.data.train)
        return found if 1 < len(found) == len(self.corpus.stretches) else []

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        return TeacherForced(model, smoothing, max(len(self.corpus.stretches), len(self.valid_corpus.stretches)))

    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        settings = self.settings.validation
        chosen = _evenly(self.valid_rows, settings.sentences)
        if not chosen:
            return {}, []
        found = self._translations(model, chosen)
        scores = _scores(found, chosen)
        for number, name in enumerate(self.valid_sets if len(self.valid_sets) > 1 else ()):
            mine = [n for n, row in enumerate(chosen) if row["set"] == number]
            if mine:
                scores[f"bleu {name}"] = _scores([found[n] for n in mine], [chosen[n] for n in mine])["bleu"]
        samples = [(row["source"], row["target"], text) for row, text in zip(chosen, found, strict=True)]
        return scores, samples[: settings.samples]

    def _translations(self, model: Model, rows: Sequence[dict[str, Any]]) -> list[str]:
        longest, languages = self.settings.data.longest, self.settings.languages
        translator = (
            self._writer(model)
            if self.public
            else Translator(model, self.tokenizer.tokenizer, longest, languages, **self.habits)
        )
        found: dict[int, str] = {}
        for to in {row["to"] for row in rows}:
            numbers = [n for n, row in enumerate(rows) if row["to"] == to]
            made = translator.translate([rows[n]["source"] for n in numbers], to=to, num_beams=1, on_long="truncate")
            found |= {n: one.text for n, one in zip(numbers, made, strict=True)}
        return [found[n] for n in range(len(rows))]

    def metadata(self, model: Any) -> Metadata:
        if self.public:
            return Metadata.of(self.found.get("metadata") or self.found["facts"])
        sources, targets = self.corpus.sources, self.corpus.targets
        source, to = self.settings.data.source_language, tuple(self.settings.languages)
        if self.start is not None and not to:
            source, to = self.start.metadata.source or source, self.start.metadata.to or to
        usual = Metadata()
        odd: dict[str, Any] = {name: value for name, value in self.habits.items() if value != getattr(usual, name)}
        return Metadata(
            task="translate",
            source=source,
            to=to,
            longest=int(sources.max()),
            usual=int(np.quantile(sources, 0.99)),
            growth=round(float(np.quantile(targets / sources, 0.999)), 2),
            **odd,
        )

    @property
    def habits(self) -> dict[str, bool]:
        """Of this data, or of the model begun with."""
        if self.start is not None:
            names = ("by_sentence", "copies", "placeholders")
            return {name: getattr(self.start.metadata, name) for name in names}
        there = (self.out / DATA / FOUND).is_file()  # runs of before have none
        return {name: self.found.get(name, True) for name in ("by_sentence", "copies")} if there else {}


def habits(pairs: Iterable[Pair]) -> dict[str, bool]:
    """How the data treats texts: mostly one sentence at a time, and what has no letters as it is. A model of
    paragraphs, or one that makes words of numbers, must be given what it was trained on."""
    read = several = signs = changed = 0
    for pair in pairs:
        read += 1
        several += len(sentences(pair.source)) > 1
        if pair.source.strip() and not LETTER.search(pair.source):
            signs += 1
            changed += pair.source.strip() != pair.target.strip()
    return {"by_sentence": 2 * several <= read, "copies": 2 * changed <= signs}
