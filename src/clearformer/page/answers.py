"""One function answers all questions about a trace: for the server, for an exported file and for tests.

What is asked stands behind a question mark in an URL, so it is text; answers are JSON, and most are the `to_dict` of
what the method of the same name gives in Python.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import adaptive_max_pool2d

from clearformer.core.patterns import Visible
from clearformer.errors import TraceError, nearest
from clearformer.explain.heads import NOTE, attentions
from clearformer.page.facts import facts

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

Asked = Mapping[str, str]
Others = Callable[[str], "Trace"]  # the name of another trace → that trace
TOP = 10
POOLED = 256


def answer(trace: "Trace", question: str, asked: Asked | None = None, others: Others | None = None) -> dict[str, Any]:
    """The answer to a question, such as `explain`, with what it asks for, such as `{"address": "head.logits[3,8]"}`."""
    asked = asked or {}
    if question not in QUESTIONS:
        raise TraceError(f"there is no question {question[:100]!r}{nearest(question, QUESTIONS)}")
    if question == "compare":
        if others is None or "other" not in asked:
            raise TraceError("compare: name the other trace with other")
        return trace.compare(others(asked["other"])).to_dict()
    return QUESTIONS[question](trace, asked)


def _address(asked: Asked, like: str) -> str:
    if not asked.get("address", "").strip():
        raise TraceError(f"address is missing; give one, such as {like}")
    return asked["address"]


def _number(asked: Asked, name: str, usual: int) -> int:
    try:
        return int(asked.get(name, usual))
    except ValueError:
        raise TraceError(f"{name} must be a whole number, given {asked[name][:40]!r}") from None


def _listing(trace: "Trace", asked: Asked) -> dict[str, Any]:
    return trace.to_dict() | {"facts": facts(trace)}


def _tensor(trace: "Trace", asked: Asked) -> dict[str, Any]:
    return trace[_address(asked, "head.logits")].to_dict(packed=asked.get("format") == "base64")


def _explain(trace: "Trace", asked: Asked) -> dict[str, Any]:
    found = trace.explain(_address(asked, "head.logits[0,0]"))
    return found.to_dict() | {"text": str(found)}


def _lens(trace: "Trace", asked: Asked) -> dict[str, Any]:
    return trace.lens(top=_number(asked, "top", 5)).to_dict()


def _top(trace: "Trace", asked: Asked) -> dict[str, Any]:
    """The likeliest outputs at each position."""
    if "head.logits" not in trace.tape.records:
        raise TraceError("top: this model has no logits")
    found = trace.tape.records["head.logits"]
    logits = found.value[0].double()
    rows = logits.reshape(-1, logits.size(-1))
    best = rows.topk(min(max(1, _number(asked, "top", TOP)), rows.size(-1)))
    chances = rows.softmax(-1).gather(-1, best.indices)
    names = trace.outputs
    return {
        "schema": "clearformer.top/1",
        "address": found.name,
        "words": trace.labels(found.name, "t") if "t" in found.axes else [],
        "rows": [
            [{"id": i, "word": names[i] if names else str(i), "logit": x, "probability": p} for i, x, p in
             zip(*row, strict=True)]
            for row in zip(best.indices.tolist(), best.values.tolist(), chances.tolist(), strict=True)
        ],
    }  # fmt: skip


def _outputs(trace: "Trace", asked: Asked) -> dict[str, Any]:
    """The tokens of the vocabulary, or the classes, by their numbers."""
    return {"schema": "clearformer.outputs/1", "outputs": trace.outputs}


def _heads(trace: "Trace", asked: Asked) -> dict[str, Any]:
    found = trace.heads(asked.get("address") or None)
    return {"schema": "clearformer.heads/1", "heads": [head._asdict() for head in found], "note": NOTE}


def _pooled(trace: "Trace", asked: Asked) -> dict[str, Any]:
    """A tensor as pictures of at most `top` × `top` cells: each is the number that is farthest from 0 there."""
    view = trace[_address(asked, "stack.0.self.weights")]
    if view.values.dim() < 2:
        raise TraceError(f"{view.address}: a picture has rows and columns; name less of it")
    most = max(1, _number(asked, "top", POOLED))
    size = [min(most, length) for length in view.values.shape[-2:]]
    numbers = view.values.float().reshape(-1, *view.values.shape[-2:])
    high, low = (sign * adaptive_max_pool2d(sign * numbers, size) for sign in (1, -1))
    found = torch.where(high >= -low, high, low).reshape(*view.values.shape[:-2], *size)
    return {
        "schema": "clearformer.pooled/1",
        "address": view.address,
        "axes": view.axes,
        "whole": list(view.values.shape),
        "shape": list(found.shape),
        "float32": b64encode(found.contiguous().numpy().astype("<f4").tobytes()).decode(),
    }


def _score(trace: "Trace", asked: Asked) -> dict[str, Any]:
    address = _address(asked, "stack.0.self.h0.scores[0,0]")
    return trace.score(address, by=asked.get("by", "branch")).to_dict()


def _visible(trace: "Trace", asked: Asked) -> dict[str, Any]:
    """Which keys each query of an attention may see; a row is a text of 0 and 1."""
    name = _address(asked, "stack.0.self")
    layers = dict(attentions(trace))
    if name not in layers:
        raise TraceError(f"{name[:100]}: name an attention{nearest(name, layers)}")
    places = trace.tape.places[name.split(".")[0]]
    keys = trace.tape.places["encoder"] if name in trace.crossing else places
    weights = trace.tape.records[f"{name}.weights"]
    rows, columns = weights.shape[-2:]
    if f"{name}.short_k" in trace.tape.records:
        seen = [[True] * columns] * rows
    else:
        seen = Visible(layers[name].pattern, places, keys).dense().expand(1, 1, rows, columns)[0, 0].tolist()
    lines = ["".join("1" if each else "0" for each in row) for row in seen]
    return {"schema": "clearformer.visible/1", "address": name, "rows": lines}


QUESTIONS: dict[str, Callable[["Trace", Asked], dict[str, Any]]] = {
    "trace": _listing,
    "tensor": _tensor,
    "explain": _explain,
    "lens": _lens,
    "top": _top,
    "outputs": _outputs,
    "attribution": lambda trace, asked: trace.attribution(_address(asked, "head.logits[0,0]")).to_dict(),
    "ablations": lambda trace, asked: trace.ablations(asked.get("address") or None).to_dict(),
    "heads": _heads,
    "pooled": _pooled,
    "carried": lambda trace, asked: trace.carried(_address(asked, "stack.0.self.h0")).to_dict(),
    "score": _score,
    "visible": _visible,
    "compare": lambda trace, asked: {},  # by `answer`, which knows other traces
}
