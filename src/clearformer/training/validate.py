"""How good a model is on texts it does not learn from: loss, BLEU and chrF, and a few translations to look at."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import sacrebleu
import torch
from torch import Tensor

from clearformer.assemble import assemble
from clearformer.core.model import EncoderDecoder
from clearformer.data.batches import Batches
from clearformer.tasks.translate import Translator
from clearformer.training.loop import TeacherForced
from clearformer.training.prepare import Prepared


@dataclass(frozen=True)
class Scores:
    loss: float  # a target token, without smoothing
    bleu: float | None
    chrf: float | None
    seconds: float
    samples: list[tuple[str, str, str]]  # source, reference, translation


def validate(run: Prepared, weights: Mapping[str, Tensor]) -> Scores:
    started = time.perf_counter()
    model = assemble(run.spec)
    for name, parameter in model.named_parameters():
        parameter.data = weights[name]
    assert isinstance(model, EncoderDecoder)
    model.eval()
    loss = valid_loss(run, model)
    settings = run.settings.validation
    chosen = run.valid_texts[: settings.sentences]
    bleu = chrf = None
    found: list[str] = []
    if chosen:
        found = _translations(run, model, chosen)
        references = [row[1] for row in chosen]
        bleu = sacrebleu.corpus_bleu(found, [references]).score
        chrf = sacrebleu.corpus_chrf(found, [references]).score
    samples = [(row[0], row[1], text) for row, text in zip(chosen, found, strict=True)][: settings.samples]
    return Scores(loss, bleu, chrf, time.perf_counter() - started, samples)


def _translations(run: Prepared, model: EncoderDecoder, rows: list[tuple[str, str, str | None]]) -> list[str]:
    translator = Translator(model, run.tokenizer, run.settings.data.longest, run.settings.languages)
    found: dict[int, str] = {}
    for to in {row[2] for row in rows}:
        numbers = [n for n, row in enumerate(rows) if row[2] == to]
        made = translator.translate([rows[n][0] for n in numbers], to=to, beam=1, on_long="truncate")
        found |= {n: one.text for n, one in zip(numbers, made, strict=True)}
    return [found[n] for n in range(len(rows))]


@torch.inference_mode()
def valid_loss(run: Prepared, model: EncoderDecoder) -> float:
    batches = Batches(run.valid, 4_000, run.tokenizer.start, run.tokenizer.pad)
    forced, loss, tokens = TeacherForced(model, smoothing=0.0), 0.0, 0
    for rows in batches.plan(0):
        batch = batches.make(rows)
        loss, tokens = loss + float(forced(batch)), tokens + batch.tokens
    return loss / max(tokens, 1)
