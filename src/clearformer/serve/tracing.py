"""Traces of served models: of a text, or of the very run that gave an answer, on the very weights that are served.

A run is gone through once more with its ids, all positions at once (teacher forcing), module by module: what was
written is not searched for again, so that the trace is that of this answer whatever search or draw it came from.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from clearformer.assemble import count_parameters
from clearformer.explain.trace import Trace
from clearformer.kernels.int8 import Matrix
from clearformer.kernels.pack import plain
from clearformer.page.answers import answer
from clearformer.serve.errors import ApiError
from clearformer.serve.registry import ServedModel
from clearformer.serve.runs import TRACE_BYTES, Part
from clearformer.tasks.wrote import Wrote

Change = Mapping[str, Any]
COPY_BYTES = 2**31  # of a model's weights as plain floats, which are kept once one of its runs was traced
_PLAIN: WeakKeyDictionary[ServedModel, Any] = WeakKeyDictionary()
_MAKING = threading.Lock()  # one at a time: a trace takes more memory than the run it is of


@dataclass(frozen=True, eq=False)
class Kept:
    """A trace that was made for somebody."""

    id: str
    model: ServedModel
    trace: Trace
    changed: tuple[str, ...]
    answer: str | None = None  # the id of the answer that it is of


def make(model: ServedModel, given: Any, pair: str | None, change: Change | None, **told: Any) -> tuple[Trace, int]:
    """What the model's `trace` gives, and its bytes without those of the model."""
    changes = {address: _value(address, value) for address, value in (change or {}).items()}
    with _MAKING:
        own = _plain(model)
        made = model.task.trace(given, pair, change=changes or None, model=own, **told)
    size = 2 * made.tape.bytes  # explaining cells notes where they came from, and keeps that
    if size > TRACE_BYTES:
        raise ApiError(413, f"the trace has {size // 2**20:,} MB, and {TRACE_BYTES // 2**20:,} is the most; trace a"
                       " shorter text", code="too_large")  # fmt: skip
    return made, size


def of_part(model: ServedModel, part: Part, change: Change | None) -> tuple[Trace, int]:
    """The trace of what a run read and wrote."""
    told: dict[str, Any] = {}
    if part.start or part.written:  # what a decoder begins with besides its start was forced
        told["target"] = [*part.start[1:], *part.written]
    if part.segments:
        told["segments"] = part.segments
    given = part.source if isinstance(part.source, Tensor) else list(part.source)
    return make(model, given, None, change, **told)


class Unpacked(Matrix):
    """A matrix of int8 with its whole numbers as floats beside it, so that not every trace has them anew."""

    floats: Tensor

    @property
    def whole(self) -> Tensor:
        return self.floats


def _plain(model: ServedModel) -> Any:
    """The served model as it can be traced: made once, on the same weights, and the same numbers come out of it."""
    if model in _PLAIN:
        return _PLAIN[model]
    count = count_parameters(model.task.spec)
    if 4 * count > COPY_BYTES:
        raise ApiError(413, f"the model {model.name!r} has {count:,} parameters, and those with more than"
                       f" {COPY_BYTES // 4:,} are not traced by a server; trace it in Python",
                       code="too_large")  # fmt: skip
    made = plain(model.task.model)
    for module in made.modules():
        if isinstance(module, Matrix):
            floats = module.whole.float()
            module.__class__ = Unpacked
            module.register_buffer("floats", floats)
    _PLAIN[model] = made
    return made


def pieces(model: ServedModel, ids: Sequence[int], target: bool = False) -> list[str]:
    """The tokens of ids, for people to look at."""
    tokenizer = model.task.tokenizer.target() if target else model.task.tokenizer
    return tokenizer.pieces(ids)


def _value(address: str, value: Any) -> Any:
    """A number, or a tensor from lists of numbers."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return torch.tensor(value, dtype=torch.float32)
    except (ValueError, TypeError, RuntimeError):
        raise ApiError(400, f"change: {address[:100]!r} is given values that are no rows of one length; give a number,"
                       " or lists of numbers in the shape of what is changed", param="change") from None  # fmt: skip


def listed(kept: Kept) -> dict[str, Any]:
    """What there is in a trace, and what was done."""
    run = kept.trace.run
    written = run.ids if isinstance(run, Wrote) else []
    own = {"id": kept.id, "model": kept.model.name, "answer": kept.answer, "changed": list(kept.changed)}
    return {**own, "written": written, **answer(kept.trace, "trace")}
