"""Two runs of one model side by side: which steps differ, and by how much."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from clearformer.errors import TraceError

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

NOTE = (
    "`share` is the length of the difference over that of the first run's numbers: 0 is the same, 1 as much as there"
    " was. The first step that differs is where the runs part; steps behind it differ because of it. It does not show"
    " which difference mattered for the answer: patch values from one run into the other with change= to see that."
)
SCHEMA = "clearformer.comparison/1"


class Difference(NamedTuple):
    address: str
    largest: float
    mean: float
    share: float


@dataclass(frozen=True)
class Comparison:
    """The steps of two runs, in the order they ran; `left_out` are those of other shapes, where texts differ in
    length."""

    steps: list[Difference]
    left_out: list[str]
    note: str = NOTE

    @property
    def first(self) -> str | None:
        """The first step that differs."""
        return next((step.address for step in self.steps if step.largest > 0), None)

    def best(self, count: int = 10) -> list[Difference]:
        return sorted(self.steps, key=lambda step: -step.share)[:count]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "first": self.first,
            "steps": [step._asdict() for step in self.steps],
            "left_out": self.left_out,
            "note": self.note,
        }

    def __str__(self) -> str:
        rows = [f"{s.largest:10.4g} {s.mean:10.4g} {s.share:7.3f}  {s.address}" for s in self.steps if s.largest > 0]
        left = [f"{len(self.left_out)} steps have other shapes, such as {self.left_out[0]}"] if self.left_out else []
        head = f"first difference: {self.first}" if self.first else "no step differs"
        return "\n".join([head, f"{'largest':>10} {'mean':>10} {'share':>7}", *rows, *left, self.note])

    def _repr_html_(self) -> str:
        from clearformer.explain.html import table

        rows = [[s.address, f"{s.largest:.4g}", f"{s.mean:.4g}", f"{s.share:.3f}"] for s in self.steps]
        return table(["step", "largest", "mean", "share"], rows, self.note)


def compare(one: "Trace", other: "Trace") -> Comparison:
    mine, theirs = one.tape.records, other.tape.records
    names = one.addresses()
    if set(names) != set(other.addresses()):
        raise TraceError("compare: the runs have different steps; two runs of one model can be compared")
    steps, left_out = [], []
    for name in names:
        a, b = mine[name].value.detach().double(), theirs[name].value.detach().double()
        if a.shape != b.shape:
            left_out.append(name)
        elif a.numel():
            apart = (a - b).abs()
            share = float(apart.norm() / a.norm().clamp(min=1e-30))
            steps.append(Difference(name, float(apart.max()), float(apart.mean()), share))
    return Comparison(steps, left_out)
