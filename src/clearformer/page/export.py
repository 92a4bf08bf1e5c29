"""A trace as one HTML file: the page and the numbers, without a server and without a network.

Numbers are exact float32. They are kept in order of what one looks at most, up to a budget of bytes; what was left out
is listed in the file, with the command that gets it. What can be made of other numbers is not kept twice (`packing`).
"""

import json
import zlib
from base64 import b64encode
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from clearformer.errors import TraceError
from clearformer.page import files
from clearformer.page.answers import answer
from clearformer.page.packing import Packer

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

SCHEMA = "clearformer.page/1"
BUDGET = 3_000_000
LISTED = 120  # bytes that each address takes, about
# steps in the order of what is looked at first; what is not named comes after them, and logits last
ORDER = (
    ("weights",),
    ("tokens", "positions", "placed", "sided", "squares", "norm", "pooled", "vector"),
    (
        *("q", "k", "v", "short_k", "short_v", "bias", "scores", "mixture", "mixed", "merged", "out", "sum"),
        *("before", "between", "after", "final"),
    ),
    ("inner", "gates", "active"),
)
CELLS = "the arithmetic of single cells, which may need whole matrices of parameters, is not in this file"


@dataclass(frozen=True)
class Frame:
    """A page that a notebook shows in a frame: it can reach nothing outside of itself."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        inside = escape(self.page, quote=True)
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" width="100%" height="{int(self.height)}"'
            f' style="border: 0" title="Clearformer" srcdoc="{inside}"></iframe>'
        )


def to_html(
    trace: "Trace", *, budget: int = BUDGET, title: str = "Clearformer", model: str = "", command: str = ""
) -> str:
    """One file of at most `budget` bytes where that is possible. `command` is how to see all of it, for people."""
    said = _answers(trace)
    said["trace"] |= {"id": None, "model": model, "answer": None, "changed": _changed(trace)}
    frame = len(files.alone("", title).encode()) + LISTED * len(trace)
    packer = Packer(trace, (budget - frame) * 3 // 4)  # base64 takes four bytes for three
    packed = packer.add(zlib.compress(_json(said), 9))
    names = sorted(trace.addresses(), key=_rank)  # of equal rank, in the order they ran
    left = {name for name in names if not packer.keep(name)}
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "title": title,
        "command": command,
        "answers": packed,
        "tensors": packer.kept,
        "left_out": [name for name in trace if name in left],
        "notes": [CELLS],
        "blob": b64encode(b"".join(packer.parts)).decode(),
    }
    return files.alone(_json(data).decode(), title)


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _changed(trace: "Trace") -> list[str]:
    return [name for name in trace if trace.tape.records[name].changed]


def _answers(trace: "Trace") -> dict[str, Any]:
    """All that is asked of the whole, by the question and its address; a question that has no answer has its reason."""
    found: dict[str, Any] = {}

    def ask(question: str, address: str = "", **asked: str) -> None:
        key = f"{question}?address={address}" if address else question
        try:
            found[key] = answer(trace, question, {"address": address, **asked})
        except TraceError as error:
            found[key] = {"error": error.message}

    for question in ("trace", "lens", "top", "heads", "ablations"):
        ask(question)
    for name in trace.addresses(".weights"):
        ask("visible", name.removesuffix(".weights"))
    for address in _chosen(trace):
        ask("attribution", address)
    return found


def _chosen(trace: "Trace") -> list[str]:
    """The logits of what was written, or of the likeliest class."""
    run, logits = trace.run, trace.tape.records.get("head.logits")
    if logits is None:
        return []
    if hasattr(run, "logprobs"):
        first = len(run.read) - 1
        return [f"head.logits[{first + n},{token}]" for n, token in enumerate(run.ids)]
    return [f"head.logits[{int(logits.value[0].argmax())}]"] if len(logits.shape) == 2 else []


def _rank(name: str) -> int:
    step = name.rsplit(".", 1)[-1]
    if name == "head.logits":
        return len(ORDER) + 1
    return next((n for n, steps in enumerate(ORDER) if step in steps), len(ORDER))
