"""Who wrote this word: a logit as a sum over everything that was added to the stream.

The stream behind the last block is the embedding plus what every branch added, and a branch of attention is the sum of
its heads. Norms divide by a spread that depends on all of it; with each norm's spread held at what it was in this run,
all that is left is linear, and the parts sum to the logit exactly, with norms before the branches or after them. The
biases of norms, of outputs and of the head are parts of their own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from clearformer.core import heads as kinds
from clearformer.errors import TraceError
from clearformer.explain.parts import branch_of, stream
from clearformer.explain.streams import Writer, first, single, writer
from clearformer.kernels.int8 import Matrix

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

NOTE = (
    "Each part is what the embedding, a head, a feed-forward layer or a bias added to this logit; together they are the"
    " logit. It does not show what would happen without a part: later layers read the stream and would answer"
    " differently, and every norm's spread is held at what it was. Ablations show that."
)
SCHEMA = "clearformer.attribution/1"
CLOSE = 1e-3


class Part(NamedTuple):
    address: str
    value: float


@dataclass(frozen=True)
class Attribution:
    """The parts of one logit, in the order they were added."""

    address: str
    word: str
    logit: float
    parts: list[Part]
    note: str = NOTE

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)

    def best(self, count: int = 10) -> list[Part]:
        """The largest parts, for the logit or against it."""
        return sorted(self.parts, key=lambda part: -abs(part.value))[:count]

    def branches(self) -> list[Part]:
        """The same with the heads of each attention, and its bias, as one."""
        found: dict[str, float] = {}
        for part in self.parts:
            name = branch_of(part.address)
            found[name] = found.get(name, 0.0) + part.value
        return [Part(*each) for each in found.items()]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "address": self.address,
            "word": self.word,
            "logit": self.logit,
            "parts": [part._asdict() for part in self.parts],
            "total": self.total,
            "note": self.note,
        }

    def __str__(self) -> str:
        most = max((abs(part.value) for part in self.parts), default=0.0) or 1.0
        shown = self.best(20)
        rows = [f"{p.value:+9.4f} {'█' * round(20 * abs(p.value) / most):20} {p.address}" for p in shown]
        if rest := self.parts[len(shown) :]:
            left = self.total - sum(part.value for part in shown)
            rows.append(f"{left:+9.4f} {'':20} {len(rest)} smaller ones")
        word = f" “{self.word}”" if self.word else ""
        head = f"{self.address}{word} = {self.logit:.4f}, the sum of"
        return "\n".join([*(row.replace("-", "−") for row in (head, *rows)), self.note])

    def _repr_html_(self) -> str:
        from clearformer.explain.html import table

        return table(
            [self.address, f"{self.logit:.4f}"], [[p.address, f"{p.value:+.4f}"] for p in self.best(40)], self.note
        )


@torch.no_grad()
def attribution(trace: "Trace", text: str) -> Attribution:
    single(trace, "attribution")
    where, found = trace.find(text)
    if found.name != "head.logits":
        raise TraceError(f"{text}: a logit is asked for, such as head.logits[3, 17]")
    cells = dict(zip(found.axes, trace.index(where, text, found), strict=True))
    cells["b"] = 0
    if any(not isinstance(which, int) for which in cells.values()):
        raise TraceError(f"{text}: name one logit; its axes are {' '.join(found.axes[1:])}")
    of, label = writer(trace), "v" if "v" in cells else "c"
    exact = {axis: which % found.value.size(n) for n, (axis, which) in enumerate(cells.items())}
    number, logit = exact[label], float(found.value[tuple(exact.values())])
    weight, shares = _reader(trace, of, number, exact.get("t"))
    rows = shares.nonzero()[:, 0]  # the positions that the logit is read from
    parts = stream(trace, of, rows)
    made = [(name, float(shares[rows] @ (part @ weight))) for name, part in parts.items()]
    if (bias := _bias(of.head, number)) is not None:
        made.append((f"{_output(of.head)}.bias[{number}]", bias))
    total = sum(value for _, value in made)
    if abs(total - logit) > CLOSE * max(1.0, sum(abs(value) for _, value in made)):
        raise TraceError(f"{text}: the parts do not sum to the logit, because a change replaced a part of the stream")
    place = exact.get("t")
    at = "" if place is None else f"[{place}]"
    names = trace.labels(found.name, label)
    listed = [Part(name if name.endswith(("]", ".bias")) else f"{name}{at}", value) for name, value in made]
    cells_said = ",".join(str(exact[axis]) for axis in found.axes[1:])
    return Attribution(f"head.logits[{cells_said}]", names[number] if names else "", logit, listed)


def _reader(trace: "Trace", of: Writer, number: int, place: int | None) -> tuple[Tensor, Tensor]:
    """What a logit multiplies the stream behind the last norm with, and how much of each position it takes."""
    head = of.head
    count = first(trace, of).size(1)
    one = torch.zeros(count, dtype=torch.float64)
    if place is not None:
        one[place] = 1.0
    match head:
        case kinds.NextToken():
            return _row(head.weight, number) * head.scale, one
        case kinds.TokenClasses():
            return _row(head.output.weight, number), one
        case kinds.Classes() if head.vector.dense is None or head.vector.activation is None:
            places = trace.tape.places[of.name]
            shares = head.vector._shares(places, trace.result).double().expand(1, -1)[0]
            return _row(head.output.weight, number), shares
    bent = "its dense layer's activation" if isinstance(head, kinds.MaskedToken) else "its pooled vector's activation"
    raise TraceError(
        f"attribution: between the stream and the logits of this model is {bent}, which is no sum of parts: what it"
        " makes of two of them together is not what it makes of each; ask ablations() instead"
    )


def _row(weight: Any, number: int) -> Tensor:
    found = weight.rows(torch.tensor([number]))[0] if isinstance(weight, Matrix) else weight[number]
    return found.detach().double()


def _output(head: nn.Module) -> str:
    return "head" if isinstance(head, kinds.NextToken) else "head.output"


def _bias(head: Any, number: int) -> float | None:
    bias = head.bias if isinstance(head, kinds.NextToken) else head.output.bias
    return None if bias is None else float(bias[number])
