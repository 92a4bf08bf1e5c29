"""Training in one pass, inference word by word (N3), and the vocabulary at the top (N1–N4)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer import presets
from clearformer.assemble import build
from clearformer.core.model import EncoderDecoder
from clearformer.notes.layers import furthest
from clearformer.notes.parts import (
    Check,
    Equation,
    Heading,
    Ours,
    Prose,
    Section,
    Slip,
    Table,
    matrix,
    tiny,
)
from clearformer.notes.small import END, START, Translator

SOURCE, TARGET = "How are you", "aap kaise hain"


class Passes:
    """Counts how often a decoder runs, and on how many positions, while it is watched."""

    def __init__(self, model: EncoderDecoder):
        self.positions: list[int] = []
        self.hook = model.decoder.register_forward_pre_hook(self._count)

    def _count(self, module: object, inputs: tuple[Any, ...]) -> None:
        self.positions.append(inputs[0].size(1))

    def done(self) -> tuple[int, int]:
        self.hook.remove()
        return len(self.positions), sum(self.positions)


def teacher_forcing() -> list[Section]:
    small = Translator(SOURCE, TARGET)
    given, wanted = [START, *TARGET.split()], [*TARGET.split(), END]
    with torch.no_grad():
        together, parallel = _together(small, given)
        cached, stepwise = _stepwise(small, given)
        again, repeated = _repeated(small, given)
        said, free = _free(small, 4)
    probabilities = together.softmax(-1)
    labels = small.ids(wanted)[0]
    loss = float(F.cross_entropy(together, labels))
    rows = tuple(
        (before, want, small.words[int(p.argmax())], f"{float(p[label]):.4f}")
        for before, want, p, label in zip(given, wanted, probabilities, labels, strict=True)
    )
    apart = max(furthest(together, cached), furthest(together, again))
    return [
        Heading("Training: the right words are given, all at once"),
        Prose("How are you → आप कैसे हैं (aap kaise hain). The target is moved one place right behind <start>."),
        Ours("a tiny model, untrained, seed 0: what it says is chance, how it runs is not."),
        Table("One pass", ("given", "wanted", "model says", "probability of the wanted"), rows),
        Equation(f"loss = mean of −ln(probability of the wanted) = {loss:.4f}"),
        Prose("Even where the model is wrong, the next position is given the right word: that is teacher forcing."),
        Heading("Inference: one word at a time"),
        Table(
            "The same four positions, three ways",
            ("", "passes in sequence", "positions computed"),
            (
                ("teacher forcing", *map(str, parallel)),
                ("step by step, with a cache", *map(str, stepwise)),
                ("step by step, all again each time", *map(str, repeated)),
            ),
        ),
        Check(
            "the same logits all three ways: the mask hides what has not been said yet",
            apart < 1e-5,
            f"largest difference {tiny(apart)}",
        ),
        Prose("Without the right words the model is fed its own: the next cannot begin before the last is known."),
        Check(
            "left to itself it takes one pass for each word",
            free[0] == len(said),
            f"{free[0]} passes for «{' '.join(said)}»",
        ),
        Slip(
            "right shift by append <start> token",
            "<start> put in front",
            "each position must be given the word before the one it predicts",
            "N3, decoder architecture",
        ),
    ]


def _together(small: Translator, given: list[str]) -> tuple[Tensor, tuple[int, int]]:
    passes = Passes(small.model)
    return small.model(small.ids(SOURCE), small.ids(given))[0], passes.done()


def _stepwise(small: Translator, given: list[str]) -> tuple[Tensor, tuple[int, int]]:
    passes = Passes(small.model)
    context = small.model.context(small.model.encode(small.ids(SOURCE)))
    return torch.cat([small.model.decode(small.ids([word]), context)[0] for word in given]), passes.done()


def _repeated(small: Translator, given: list[str]) -> tuple[Tensor, tuple[int, int]]:
    passes = Passes(small.model)
    encoded = small.model.encode(small.ids(SOURCE))
    prefixes = [small.ids(given[:n]) for n in range(1, len(given) + 1)]
    last = [small.model.decode(prefix, small.model.context(encoded))[0, -1:] for prefix in prefixes]
    return torch.cat(last), passes.done()


def _free(small: Translator, longest: int) -> tuple[list[str], tuple[int, int]]:
    passes = Passes(small.model)
    context = small.model.context(small.model.encode(small.ids(SOURCE)))
    said = [START]
    while len(said) <= longest and said[-1] != END:
        best = small.model.decode(small.ids(said[-1:]), context)[0, -1].argmax()
        said.append(small.words[int(best)])
    return said[1:], passes.done()


def vocabulary() -> list[Section]:
    source, target = "I am good", "Mai badiya hoon"
    small = Translator(source, target)
    logits = small.logits(source, f"{START} Mai")
    probabilities = logits.softmax(-1)
    best = small.words[int(probabilities[-1].argmax())]
    words, width = 10_000, presets.original("base").decoder.width
    with torch.device("meta"):
        full = build(presets.original("base", vocabulary=words))
    head, total = full.get_parameter("head.weight"), sum(p.numel() for p in full.parameters())
    return [
        Heading("From a state to a word"),
        Equation("logits = state · Wᵀ    probability(w) = e^logit(w) / Σ e^logit"),
        Ours("«I am good» → «Mai …» on a tiny model, untrained: nearly chance."),
        matrix(
            "after <start> Mai", torch.stack([logits[-1], probabilities[-1]], 1), small.words, ("logit", "probability")
        ),
        Check(
            "one probability for every word, and they sum to 1",
            abs(float(probabilities[-1].sum()) - 1) < 1e-6,
            f"{len(small.words)} words, sum {float(probabilities[-1].sum()):.4f}; the likeliest is {best}",
        ),
        Heading("10K Hindi words, 10K neurons"),
        Prose("5K sentences hold 10K different words, so the last layer has 10K neurons, one for each word."),
        Table(
            "The base model with that vocabulary",
            ("", "numbers"),
            (
                ("state", f"{width}"),
                ("matrix, words × width", f"{head.size(0):,}·{head.size(1)}".replace("·", "×")),
                ("its weights", f"{head.numel():,}"),
                ("of the whole model", f"{head.numel() / total:.1%}"),
            ),
        ),
        Check("neurons = words", head.size(0) == words, f"{head.size(0):,} × {head.size(1)} = {head.numel():,}"),
        Prose("A few more are needed in practice: without a neuron for <end>, a decoder could never stop."),
        Prose("The original uses the same table for the embeddings, so these weights are counted once."),
    ]
