"""What heads look at, and what they bring from there."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from clearformer.core.attention import Attention
from clearformer.core.kernel import spread
from clearformer.errors import TraceError, nearest
from clearformer.explain.streams import single
from clearformer.explain.view import View

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

CARRIED = (
    "The length of what each key adds to a query through W_o, ‖α v W_o‖: a weight on an empty value is small here, so a"
    " head that rests on a sink shows as one that does nothing. It does not show in which direction it pushes, and"
    " parts of equal length may cancel each other."
)
NOTE = (
    "Shares of attention, a mean over queries: on the first token (a sink where it is large), on the token before, on"
    " itself, and on what followed the last time the same token was read (induction). The first token is left out of"
    " the last three, because heads that have nothing to do rest on it. A label says where a head looked in this text"
    " alone, not what it is for."
)
CLEAR = 0.5  # a share above this gives a head its label
SINK = 0.6


class Head(NamedTuple):
    address: str  # stack.2.self.h3
    label: str
    first: float  # shares of attention
    previous: float | None  # None where there is nothing to measure it on
    itself: float | None
    induction: float | None
    entropy: float  # of the weights, in bits, a mean over queries; and as a share of the most there could be
    evenness: float

    @property
    def note(self) -> str:
        return NOTE

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "note": NOTE}


def heads(trace: "Trace", of: str | None = None) -> list[Head]:
    """Every head of the run, or of one attention, `stack.2.self`."""
    single(trace, "heads")
    found = []
    names = [name for name, _ in attentions(trace)]
    if of is not None and of not in names:
        raise TraceError(f"{of[:100]}: name an attention{nearest(of, names)}")
    for name in names if of is None else [of]:
        weights = trace.tape.records[f"{name}.weights"].value[0].double()  # h t s
        own = weights.size(1) == weights.size(2) and name not in trace.crossing and f"{name}.short_k" not in trace
        ids = _ids(trace, name) if own else None
        found += [_head(f"{name}.h{n}", one, own, ids) for n, one in enumerate(weights)]
    return found


def _ids(trace: "Trace", name: str) -> list[int] | None:
    """The tokens that a self-attention reads; patches of an image are none."""
    side = "source" if name.startswith("encoder") else "target" if name.startswith("decoder") else "input"
    value = trace.tape.records[side].value
    return value[0].tolist() if value.dim() == 2 else None


def _head(address: str, weights: Tensor, own: bool, ids: list[int] | None) -> Head:
    entropy = torch.special.entr(weights).sum(-1) / math.log(2)
    most = (weights > 0).sum(-1).clamp(min=1).double().log2()
    several = most > 0
    even = float((entropy[several] / most[several]).mean()) if bool(several.any()) else 0.0
    first = float(weights[1:, 0].mean()) if len(weights) > 1 else float(weights[0, 0])
    previous = itself = induction = None
    if own and len(weights) > 2:
        rest = weights[:, 1:] / weights[:, 1:].sum(-1, keepdim=True).clamp(min=1e-30)  # the first token left out
        previous, itself = (float(rest[2:, skip:].diagonal().mean()) for skip in (0, 1))  # columns t − 2 and t − 1
        induction = _mean([float(rest[t, list(after)].sum()) for t, after in _repeats(ids or [])])
    label = _label(first, previous, itself, induction, even)
    return Head(address, label, first, previous, itself, induction, float(entropy.mean()), even)


def _repeats(ids: list[int]) -> Iterator[tuple[int, set[int]]]:
    """Positions whose token was there before, and the columns, without the first, of what followed it then."""
    places: dict[int, list[int]] = {}
    for t, token in enumerate(ids):
        after = {n for n in places.setdefault(token, []) if n < t - 1}  # token n + 1 is column n
        if after:
            yield t, after
        places[token].append(t)


def _mean(numbers: list[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def _label(first: float, previous: float | None, itself: float | None, induction: float | None, even: float) -> str:
    named = {"induction": induction, "previous token": previous, "itself": itself}
    best = max(named, key=lambda name: named[name] or 0.0)
    if (named[best] or 0.0) > CLEAR:
        return f"{best}, mostly at rest on the first token" if first > SINK else best
    if first > SINK:
        return "first token (sink)"
    return "even" if even > 0.9 else ""


def attentions(trace: "Trace") -> Iterator[tuple[str, Attention]]:
    for name, module in trace.ran.attentions.items():
        if f"{name}.weights" in trace.tape.records:
            yield name, module


@torch.no_grad()
def carried(trace: "Trace", text: str) -> View:
    """h t s of one attention, `stack.2.self`, or t s of one of its heads, `stack.2.self.h3`."""
    single(trace, "carried")
    own, _, head = text.rpartition(".")
    own, number = (own, int(head[1:])) if head[:1] == "h" and head[1:].isdigit() else (text, None)
    layers = dict(attentions(trace))
    if own not in layers:
        raise TraceError(
            f"{text}: name an attention, such as {next(iter(layers), 'stack.0.self')}, or one of its heads"
        )
    records, layer = trace.tape.records, layers[own]
    if f"{own}.mixture" in records:
        raise TraceError(f"{text}: values of this attention depend on the distance too, so a key has no one value")
    weights = records[f"{own}.weights"].value[0]
    kept = records.get(f"{own}.short_v", records[f"{own}.v"])
    values = spread(kept.value, layer.heads)[0]  # h s d
    split = trace.ran.weight(layer.output).unflatten(1, (layer.heads, -1))  # m h d
    lengths = torch.einsum("hsd,mhd->hsm", values, split).norm(dim=-1)
    found = weights * lengths[:, None]
    labels = {axis: words for axis in ("t", "s") if (words := trace.labels(f"{own}.weights", axis))}
    if number is None:
        return View(f"{own}.carried", ["h", "t", "s"], found, [f"{own}.weights", kept.name], labels, {}, True, CARRIED)
    if not 0 <= number < layer.heads:
        raise TraceError(f"{text}: there are {layer.heads} heads, 0 to {layer.heads - 1}")
    operands = [f"{own}.weights", kept.name]
    return View(f"{own}.h{number}.carried", ["t", "s"], found[number], operands, labels, {}, True, CARRIED)


def attended(trace: "Trace", layer: int | None = None, head: int | None = None) -> View:
    """t s: where the answer's stack looks: at the source where there is one. Without a layer the last, without a head
    the mean of all."""
    names = [name for name, _ in attentions(trace)]
    kind = "decoder" if any(name.startswith("decoder") for name in names) else "stack"
    names = [name for name in names if name.startswith(f"{kind}.")]
    names = [name for name in names if name in trace.crossing] or names
    numbers = [int(name.split(".")[1]) for name in names]
    if layer is not None and layer not in numbers:
        raise TraceError(f"there is no attention in layer {layer}; layers are 0 to {max(numbers, default=0)}")
    own = names[numbers.index(layer) if layer is not None else -1]
    if head is not None:
        return trace[f"{own}.h{head}.weights"]
    whole = trace[f"{own}.weights"]
    note = f"the mean of {whole.values.size(0)} heads"
    return View(f"{own}.weights", ["t", "s"], whole.values.mean(0), [], whole.labels, {}, True, note)
