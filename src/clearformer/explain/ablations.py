"""What if this head were gone: every head set to zero, each in a row of one batch.

A row of the batch is the text again with one head's mixed values at zero. Matrix products of several rows may add in
another order than those of one, so the numbers are those of `change={"….h3.mixed": 0}` up to rounding (about 1e-6 of
the logit), and not always to the bit.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from clearformer.errors import TraceError
from clearformer.explain.record import rerun
from clearformer.explain.streams import single

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

NOTE = (
    "Each row is the run again with one head's values set to zero: a logit that falls needed the head. It does not show"
    " what the head does, and small numbers do not show that it does nothing: other heads may do the same, and zero is"
    " not what the head gives on average."
)
SCHEMA = "clearformer.ablations/1"
BUDGET = 4_096  # tokens run at once


class Ablated(NamedTuple):
    """Without this head: the logit and its probability, and how much each has changed."""

    address: str  # decoder.2.cross.h3
    logit: float
    probability: float
    logit_change: float
    probability_change: float


@dataclass(frozen=True)
class Ablations:
    address: str
    word: str
    logit: float
    probability: float
    heads: list[Ablated]
    note: str = NOTE

    def best(self, count: int = 10) -> list[Ablated]:
        """Those that change the logit most."""
        return sorted(self.heads, key=lambda head: -abs(head.logit_change))[:count]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "address": self.address,
            "word": self.word,
            "logit": self.logit,
            "probability": self.probability,
            "heads": [head._asdict() for head in self.heads],
            "note": self.note,
        }

    def __str__(self) -> str:
        word = f" “{self.word}”" if self.word else ""
        rows = [f"{h.logit_change:+9.4f} {h.probability_change:+8.4f}  {h.address}" for h in self.best(20)]
        head = (
            f"{self.address}{word} = {self.logit:.4f}, probability {self.probability:.4f}; without a head it changes by"
        )
        return "\n".join([*(row.replace("-", "−") for row in (head, "    logit  probab.", *rows)), self.note])

    def _repr_html_(self) -> str:
        from clearformer.explain.html import table

        rows = [[h.address, f"{h.logit_change:+.4f}", f"{h.probability_change:+.4f}"] for h in self.best(40)]
        return table(["without", "logit", "probability"], rows, self.note)


def ablations(trace: "Trace", text: str | None = None) -> Ablations:
    single(trace, "ablations")
    if trace.ran.changed:
        raise TraceError("ablations: this run was changed already; trace it without changes")
    where, cells, address = _asked(trace, text)
    every = [
        (name.removesuffix(".mixed"), n)
        for name in trace
        if name.endswith(".mixed")
        for n in range(trace.tape.records[name].shape[1])
    ]
    longest = max(places.length for places in trace.tape.places.values())
    some = max(1, BUDGET // longest)
    found: list[Tensor] = []
    for start in range(0, len(every), some):
        found += _without(trace, every[start : start + some])
    before = trace.result[0]
    word = where[cells[-1]] if where else ""
    logit, chance = _numbers(before, cells)
    rows = []
    for (name, n), result in zip(every, found, strict=True):
        new, new_chance = _numbers(result, cells)
        rows.append(Ablated(f"{name}.h{n}", new, new_chance, new - logit, new_chance - chance))
    return Ablations(address, word, logit, chance, rows)


def _asked(trace: "Trace", text: str | None) -> tuple[list[str], tuple[int, ...], str]:
    """The words, the cell that is asked about without the batch, and its address."""
    if "head.logits" not in trace.tape.records:
        raise TraceError("ablations: this model has no logits, so there is none to look at")
    found = trace.tape.records["head.logits"]
    if text is None:  # the likeliest answer, at the end
        last = found.value[0] if found.value.dim() == 2 else found.value[0, -1]
        best = int(last.argmax())
        cells: tuple[int, ...] = (best,) if found.value.dim() == 2 else (found.value.size(1) - 1, best)
    else:
        where, named = trace.find(text)
        if named is not found:
            raise TraceError(f"{text}: a logit is asked for, such as head.logits[3, 17]")
        index = trace.index(where, text, named)[1:]
        if any(not isinstance(which, int) for which in index):
            raise TraceError(f"{text}: name one logit; its axes are {' '.join(found.axes[1:])}")
        cells = tuple(which % size for which, size in zip(index, found.value.shape[1:], strict=True))
    return trace.labels("head.logits", found.axes[-1]), cells, f"head.logits[{','.join(map(str, cells))}]"


def _numbers(logits: Tensor, cells: tuple[int, ...]) -> tuple[float, float]:
    row = logits[cells[:-1]].double()
    return float(row[cells[-1]]), float(row.softmax(-1)[cells[-1]])


def _without(trace: "Trace", heads: list[tuple[str, int]]) -> list[Tensor]:
    """The results of the run without each of these heads, all at once."""
    ran, count = trace.ran, len(heads)

    def drop(name: str, value: Tensor, axes: list[str]) -> Tensor | None:
        mine = [(row, n) for row, (own, n) in enumerate(heads) if f"{own}.mixed" == name]
        if not mine:
            return None
        value = value.clone()
        rows, numbers = zip(*mine, strict=True)
        value[torch.tensor(rows), torch.tensor(numbers)] = 0.0
        return value

    inputs = [_several(each, count) for each in ran.inputs]
    options = {name: _several(each, count) for name, each in ran.options.items()}
    return list(rerun(ran.model, drop, lambda twin: twin(*inputs, **options)))


def _several(given: Any, count: int) -> Any:
    """The one row of an input, as often as there are heads; trees are lists."""
    if isinstance(given, Tensor):
        return given.expand(count, *given.shape[1:])
    return list(given) * count if isinstance(given, list | tuple) else given
