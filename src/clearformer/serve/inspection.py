"""Looking inside over HTTP: traces of texts and of answers, any tensor and any cell of them by its address."""

import binascii
import re
import shlex
import uuid
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from clearformer.data.pixels import decode
from clearformer.errors import nearest
from clearformer.explain.trace import Trace
from clearformer.generate.options import GenerationOptions
from clearformer.page.answers import QUESTIONS, answer
from clearformer.page.export import to_html
from clearformer.serve import openapi, tokens, tracing
from clearformer.serve.endpoint import Call, Endpoint, Reply
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.fields import check, tokens_of
from clearformer.serve.registry import ServedModel
from clearformer.serve.runs import Part, Run
from clearformer.serve.settings import ServerSettings
from clearformer.serve.tokens import any_model
from clearformer.serve.trace_bodies import (
    Deleted,
    Listing,
    Question,
    RunRecord,
    RunTraceBody,
    Tensor,
    TensorQuery,
    TraceBody,
    Values,
)
from clearformer.serve.tracing import Kept

Result = TypeVar("Result")
MOST_NUMBERS = 1_000_000  # of a tensor as JSON
MOST_BYTES = 64 * 2**20  # of a tensor as it is


async def trace(call: Call, body: TraceBody) -> dict[str, Any]:
    call.server.runs.check()
    model = any_model(call, body.model)
    given = [name for name in ("text", "ids", "image") if getattr(body, name) is not None]
    if len(given) != 1:
        raise ApiError(400, "give a text, or ids, or an image, and not both", param="text")
    if model.sees != (given == ["image"]):  # a text would be taken for the name of a file
        wants = "an image" if model.sees else "a text, or ids"
        raise ApiError(400, f"the model {model.name!r} is given {wants}, and not {given[0]}", param=given[0])
    for name in ("text", "pair", "target"):
        if text := getattr(body, name):
            check(call, [text], name)
    call.told["model"] = model.name
    tokens = len(body.ids or ()) + tokens_of([body.text or "", body.pair or ""])
    told = _told(body, model, call.server.settings)
    read = body.text if body.text is not None else body.ids
    pixels = call.server.settings.max_pixels

    def compute() -> tuple[Trace, int]:
        seen = read if body.image is None else decode(_bytes(body.image), pixels)
        return tracing.make(model, seen, body.pair, body.change, **told)

    return tracing.listed(await _make(call, model, compute, 2 * tokens, uuid.uuid4().hex, body.change, None))


def _told(body: TraceBody, model: ServedModel, settings: ServerSettings) -> dict[str, Any]:
    """What a task's `trace` is told; what nobody said is left to it."""
    if body.target is not None and body.target_ids is not None:
        raise ApiError(400, "give a target, or target_ids, and not both", param="target")
    target = body.target if body.target is not None else body.target_ids
    options = GenerationOptions.of(dict(body.options or {}))
    asked = options.max_new_tokens
    if asked is not None and asked > settings.max_new_tokens:
        raise ApiError(400, f"max_new_tokens may be {settings.max_new_tokens:,}, given {asked:,}", param="options")
    if max(options.num_beams or 1, options.num_return_sequences or 1) > settings.max_rows:
        raise ApiError(400, f"a request may have {settings.max_rows} texts written side by side", param="options")
    told = {
        "target": target, "goes_on": body.goes_on or None, "to": body.to, "verb": body.verb, "top": body.top,
        "window": body.window, "on_long": body.on_long, "options": options,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value is not None}


def _bytes(image: str) -> bytes:
    """An image from base64, or from a data: URL."""
    try:
        return b64decode(image.partition(",")[2] if image.startswith("data:") else image, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "image must be base64 of an image's file, or a data: URL of one", param="image") from None


async def _make(
    call: Call,
    model: ServedModel,
    compute: Callable[[], tuple[Trace, int]],
    tokens: int,
    name: str,
    change: dict[str, Values] | None,
    answer: str | None,
) -> Kept:
    """A trace, made beside the event loop and kept."""
    made, size = await call.run(max(1, tokens), compute)
    kept = Kept(name, model, made, tuple(change or ()), answer)
    call.server.traces.keep(name, kept, size)
    return kept


async def _kept(call: Call) -> Kept:
    """The trace of an id. That of an answer is made when it is first asked for."""
    server, name = call.server, call.path["id"]
    server.runs.check()
    found: Kept | None = server.traces.get(name)
    if found is not None:
        return found
    try:
        run = server.runs.find(name)
    except ApiError:
        raise ApiError(404, f"no trace is called {name[:100]!r}, or it was long ago; POST /trace makes one, and so does"
                       " POST /runs/{id}/trace of an answer", code="no_such_trace") from None  # fmt: skip
    return await _of_run(call, run, RunTraceBody(), name)


async def listing(call: Call, body: None) -> dict[str, Any]:
    return tracing.listed(await _kept(call))


async def tensor(call: Call, body: None) -> Any:
    asked: TensorQuery = call.asked(TensorQuery)
    kept = await _kept(call)
    view = await _asked(call, kept, lambda: kept.trace[asked.address])
    count = view.values.numel()
    most = MOST_NUMBERS if asked.format == "json" else MOST_BYTES // 4
    if count > most:
        raise ApiError(413, f"{asked.address[:100]} has {count:,} numbers, and {most:,} are sent at a time; choose"
                       f" cells, as in {view.address.partition('[')[0][:100]}[0:10], or format=float32",
                       param="address", code="too_large")  # fmt: skip
    if asked.format == "json":
        return await call.server.work.aside(view.to_dict)
    exact = await call.server.work.aside(lambda: view.values.float().contiguous().numpy().astype("<f4").tobytes())
    headers = {
        "x-shape": ",".join(map(str, view.values.shape)),
        "x-axes": ",".join(axis.replace(" ", "-") for axis in view.axes),
        "x-dtype": "float32",
    }
    return Reply(exact, "application/octet-stream", headers=headers)


async def question(call: Call, body: None) -> dict[str, Any]:
    """All but tensors, whose numbers may come as they are."""
    kept, name = await _kept(call), call.path["question"]
    if name not in QUESTIONS:
        raise ApiError(404, f"there is no question {name[:100]!r}{nearest(name, QUESTIONS)}", code="no_such_question")
    asked = dict(call.query)
    known = {"address", "top", "other", "by", "format"}
    if odd := [each for each in asked if each not in known]:
        raise ApiError(400, f"{odd[0][:100]}: this field is not supported here; known: {', '.join(sorted(known))}")
    return await _asked(call, kept, lambda: answer(kept.trace, name, asked, lambda other: _other(call, other)))


def _other(call: Call, name: str) -> Trace:
    found: Kept | None = call.server.traces.get(name)
    if found is None:
        raise ApiError(404, f"no trace is called {name[:100]!r}; POST /trace makes one", code="no_such_trace")
    return found.trace


async def export(call: Call, body: None) -> Reply:
    """The page and the numbers as one file."""
    kept = await _kept(call)
    name, run = kept.model.name, kept.trace.run
    text = getattr(run, "text", None) or name
    command = f"clearformer look --model {shlex.quote(str(kept.model.folder))}"
    made = await _asked(call, kept, lambda: to_html(kept.trace, title=text[:80], model=name, command=command).encode())
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:60]
    headers = {"content-disposition": f'attachment; filename="{safe}.html"'}
    return Reply(made, "text/html; charset=utf-8", headers=headers)


async def _asked(call: Call, kept: Kept, compute: Callable[[], Result]) -> Result:
    call.told["model"] = kept.model.name
    return await call.run(1, compute)


async def delete(call: Call, body: None) -> dict[str, Any]:
    call.server.runs.check()
    name = call.path["id"]
    if not call.server.traces.drop(name):
        raise ApiError(404, f"no trace is called {name[:100]!r}", code="no_such_trace")
    return {"id": name, "deleted": True}


# --- runs -------------------------------------------------------------------------------------------------


async def run_record(call: Call, body: None) -> dict[str, Any]:
    run = call.server.runs.find(call.path["id"])
    parts = await call.server.work.aside(run.parts)
    return {
        "id": run.id,
        "model": run.model.name,
        "verb": run.verb,
        "created": run.created,
        "parts": [_said(run, part) for part in parts],
    }


def _said(run: Run, part: Part) -> dict[str, Any]:
    """Ids with their tokens."""

    def tokens(ids: Sequence[int], target: bool) -> dict[str, Any]:
        return {"ids": list(ids), "words": tracing.pieces(run.model, ids, target) if ids else []}

    source = None if isinstance(part.source, torch.Tensor) else tokens(part.source, False)
    return {"source": source, "start": tokens(part.start, True), "written": tokens(part.written, True)}


async def run_trace(call: Call, body: RunTraceBody) -> dict[str, Any]:
    run = call.server.runs.find(call.path["id"])
    name = uuid.uuid4().hex if body.change else run.id if body.part == 0 else f"{run.id}.{body.part}"
    found: Kept | None = call.server.traces.get(name)
    return tracing.listed(found or await _of_run(call, run, body, name))


async def _of_run(call: Call, run: Run, body: RunTraceBody, name: str) -> Kept:
    parts = await call.server.work.aside(run.parts)
    if body.part >= len(parts):
        raise ApiError(400, f"this run has {len(parts)} parts, from 0; given {body.part}", param="part")
    call.told["model"], part = run.model.name, parts[body.part]
    image = isinstance(part.source, torch.Tensor)
    tokens = (1 if image else len(part.source)) + len(part.start) + len(part.written)

    def compute() -> tuple[Trace, int]:
        return tracing.of_part(run.model, part, body.change)

    return await _make(call, run.model, compute, tokens, name, body.change, run.id)


def endpoints() -> list[Endpoint]:
    common: dict[str, Any] = {"shape": plain_shape}
    return [
        *tokens.endpoints(),
        Endpoint("POST", "/trace", trace, TraceBody, answer=Listing, **common,
                 summary="Run a text through a model and keep every number; the answer lists what there is."),
        Endpoint("GET", "/trace/{id}", listing, answer=Listing, **common, summary="What there is in a trace."),
        Endpoint("GET", "/trace/{id}/tensor", tensor, query=TensorQuery, answer=Tensor, **common,
                 media=("application/json", "application/octet-stream"),
                 summary="Any tensor of a trace, or a part of it, by its address: as JSON or exact float32."),
        Endpoint("GET", "/trace/{id}/export", export, media=("text/html",), **common,
                 summary="A trace and the page to look at it, as one file."),
        Endpoint("GET", "/trace/{id}/{question}", question, query=Question, **common,
                 summary="A question about a trace: explain, lens, top, outputs, attribution, ablations, heads,"
                 " carried, score, visible, compare."),
        Endpoint("DELETE", "/trace/{id}", delete, answer=Deleted, **common, summary="Forget a trace."),
        Endpoint("GET", "/runs/{id}", run_record, answer=RunRecord, **common,
                 summary="What an answer was made of: the ids that were read and written."),
        Endpoint("POST", "/runs/{id}/trace", run_trace, RunTraceBody, answer=Listing, **common,
                 summary="The trace of the very run that gave an answer."),
        *openapi.endpoints(),
    ]  # fmt: skip
