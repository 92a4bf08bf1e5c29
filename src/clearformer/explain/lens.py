"""The logit lens: what each layer would say if it were the last one (nostalgebraist 2020)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clearformer import spec
from clearformer.errors import TraceError
from clearformer.explain.streams import layers, single, writer

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

NOTE = (
    "Read it from top to bottom: the final norm and the head are applied to the stream behind each layer, so each row"
    " is what the model would say if it stopped there. It does not show that a layer works with these words: it was"
    " never trained to be read this way, and what it holds in another form does not show."
)
SCHEMA = "clearformer.lens/1"
WITHOUT = {
    "states": "its head gives states, and there is no word to say",
    "vector": "its head gives one vector, and there is no word to say",
    "spans": "its head ranks places of the text against each other, and not words",
}


class Guess(NamedTuple):
    word: str
    probability: float
    id: int


@dataclass(frozen=True)
class Lens:
    """The likeliest words behind each layer (`layers` are the addresses of the streams), at each position."""

    layers: list[str]
    words: list[str]  # at the positions, or one for a head that gives one answer
    guesses: list[list[list[Guess]]]  # layer, position, best first
    note: str = NOTE

    def to_dict(self) -> dict[str, Any]:
        rows = [[[guess._asdict() for guess in best] for best in row] for row in self.guesses]
        return {"schema": SCHEMA, "layers": self.layers, "words": self.words, "guesses": rows, "note": self.note}

    def _rows(self) -> list[list[str]]:
        return [
            [name, *(f"{best[0].word} {best[0].probability:.2f}" for best in row)]
            for name, row in zip(self.layers, self.guesses, strict=True)
        ]

    def lines(self, width: int = 160) -> str:
        """The best word behind each layer, as a table that fits."""
        from clearformer.explain.table import Column, Row, fitted

        rows = [Row(name, [(cell, "") for cell in cells]) for name, *cells in self._rows()]
        columns = [Column(f"{n} {word}".strip(), right=False) for n, word in enumerate(self.words)]
        return f"{fitted('layer ↓ position →', columns, rows, width)}\n{self.note}"

    def __str__(self) -> str:
        return self.lines()

    def _repr_html_(self) -> str:
        from clearformer.explain.html import table

        return table(["", *(f"{n} {word}" for n, word in enumerate(self.words))], self._rows(), self.note)


@torch.no_grad()
def lens(trace: "Trace", top: int = 5) -> Lens:
    single(trace, "lens")
    if top < 1:
        raise TraceError(f"lens: top must be at least 1, given {top}")
    what = trace.ran.model.spec.head
    if (why := WITHOUT.get(what.kind)) is not None:
        raise TraceError(f"lens: this model has no logits over words: {why}")
    of = writer(trace)
    places, names = trace.tape.places[of.name], trace.outputs
    found, guesses = [], []
    for name, stream in layers(trace, of):
        logits = of.head(of.stack.final(stream), places)[0]  # t v, or c of a whole text
        best = logits.reshape(-1, logits.size(-1)).double().softmax(-1).topk(min(top, logits.size(-1)))
        found.append(name)
        guesses.append(
            [
                [Guess(names[i] if names else str(i), p, i) for p, i in zip(*pair, strict=True)]
                for pair in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            ]
        )
    words = trace.labels(found[-1], "t")
    if isinstance(what, spec.Classes):
        words = [""]
    return Lens(found, words or [""] * len(guesses[0]), guesses)
