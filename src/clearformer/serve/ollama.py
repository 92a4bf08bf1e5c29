"""Ollama's protocol: chats and completions as lines of JSON, which stream unless they are asked not to, and embeddings.

A name may end in `:latest`, as its clients write it.
"""

import time
from collections.abc import AsyncIterator
from typing import Any

from clearformer import __version__
from clearformer.serve.chat import ANY_OBJECT, grammar_of
from clearformer.serve.conversation import Tools, prompt
from clearformer.serve.embeddings import numbers, vectors
from clearformer.serve.endpoint import Answer, Call, Endpoint, Stream, as_json
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.fields import check
from clearformer.serve.ollama_bodies import (
    Asked,
    ChatBody,
    EmbedBody,
    EmbeddingsBody,
    GenerateBody,
    Options,
    ShowBody,
    Turn,
)
from clearformer.serve.registry import ServedModel
from clearformer.serve.writing import Writing, prepare

LINES = "application/x-ndjson"
MEDIA = ("application/json", LINES)
LATEST = ":latest"
REASONS = {"end": "stop", "stop": "stop", "limit": "length"}
GROUP = "clearformer"


def find(call: Call, name: str, verb: str) -> ServedModel:
    known = call.server.registry.models
    return call.server.registry.get(name if name in known else name.removesuffix(LATEST), verb)


def schema_of(format: Any) -> Any:
    return ANY_OBJECT if format == "json" else format or None


async def chat(call: Call, body: ChatBody) -> Answer:
    model = find(call, body.model, "chat")
    if not body.messages:
        raise ApiError(400, "messages is empty; give at least one", param="messages")
    tools = Tools([tool.function.plain() for tool in body.tools or ()])
    tools.check()
    messages = [_message(turn) for turn in body.messages]
    writing = await _prepared(call, model, body, tools, lambda: [prompt(model.task, messages, tools)])

    def said(text: str, last: bool) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if last and (found := tools.call_in(text)) is not None:
            calls = [{"function": {"name": found[0], "arguments": found[1]}}]
            message |= {"content": "", "tool_calls": calls}
        return {"message": message}

    return await _answer(writing, body, said, hold=tools.possible)


def _message(turn: Turn) -> dict[str, Any]:
    made: dict[str, Any] = {"role": turn.role, "content": turn.content or ""}
    if turn.tool_name is not None:
        made["name"] = turn.tool_name
    if turn.tool_calls:
        made["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": each.function.name, "arguments":
             as_json(each.function.arguments).decode()}} for n, each in enumerate(turn.tool_calls)
        ]  # fmt: skip
    return made


async def generate(call: Call, body: GenerateBody) -> Answer:
    model = find(call, body.model, "complete")
    task, given = model.task, body.prompt or ""
    if not body.prompt:  # clients ask so whether a model is there, and for it to be loaded
        return {"model": body.model, "created_at": _stamp(), "response": "", "done": True, "done_reason": "load"}
    templated = task.tokenizer.chat_template is not None and not body.raw
    if body.system and not templated:
        raise ApiError(400, "system needs a model with a chat template, and not raw", param="system")
    messages = [{"role": "system", "content": body.system}] if body.system else []
    messages.append({"role": "user", "content": given})

    def encode() -> list[list[int]]:
        return [prompt(task, messages, Tools()) if templated else task.prompt_ids(given, 1)]

    writing = await _prepared(call, model, body, Tools(), encode)
    return await _answer(writing, body, lambda text, last: {"response": text}, hold=False)


async def _prepared(call: Call, model: ServedModel, body: Asked, tools: Tools, encode: Any) -> Writing:
    schema = schema_of(body.format)
    asked = (body.options or Options()).generation()
    return await prepare(call, model, encode, asked, grammar=lambda: grammar_of(model.task, tools, schema))


async def _answer(writing: Writing, body: Asked, said: Any, *, hold: bool) -> Answer:
    """One line, or many. With tools, the text is held back until it is known whether it is a call."""
    if body.stream is False:
        (piece,) = await writing.whole(lambda _, piece: piece)
        return _last(writing, body, said(piece.text, True), piece.finish)
    return Stream(_lines(writing, body, said, hold), media=LINES, failed=lambda error: _line(plain_shape(error)))


async def _lines(writing: Writing, body: Asked, said: Any, hold: bool) -> AsyncIterator[bytes]:
    text, finish = "", None
    async for new in writing.pieces():
        for _, piece in new:
            text, finish = text + piece.text, piece.finish
            if piece.text and not hold:
                yield _line({"model": body.model, "created_at": _stamp(), **said(piece.text, False), "done": False})
    yield _line(_last(writing, body, said(text if hold else "", True), finish))


def _last(writing: Writing, body: Asked, said: dict[str, Any], finish: str | None) -> dict[str, Any]:
    read, written, _ = writing.usage
    call, ended = writing.call, time.perf_counter()
    handle = writing.handles[0]
    taken, first = handle.taken or ended, handle.first or ended
    return {
        "model": body.model,
        "created_at": _stamp(),
        **said,
        "done": True,
        "done_reason": REASONS[finish or "limit"],
        "total_duration": _nanoseconds(ended - call.started),
        "load_duration": 0,
        "prompt_eval_count": read,
        "prompt_eval_duration": _nanoseconds(first - taken),
        "eval_count": written,
        "eval_duration": _nanoseconds(ended - first),
    }


def _line(content: Any) -> bytes:
    return as_json(content) + b"\n"


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())


def _nanoseconds(seconds: float) -> int:
    return max(1, int(seconds * 1e9))


async def embed(call: Call, body: EmbedBody) -> dict[str, Any]:
    """A text that is too long is cut unless `truncate` is false, as Ollama does."""
    texts = [body.input] if isinstance(body.input, str) else body.input
    model = find(call, body.model, "embed")
    check(call, texts, "input")
    if body.dimensions not in (None, model.task.width):
        raise ApiError(400, f"the vectors of this model have {model.task.width} numbers", param="dimensions")
    rows, tokens = await vectors(call, model, texts, body.truncate is not False, numbers)
    return {
        "model": body.model,
        "embeddings": rows,
        "total_duration": _nanoseconds(time.perf_counter() - call.started),
        "load_duration": 0,
        "prompt_eval_count": tokens,
    }


async def embeddings(call: Call, body: EmbeddingsBody) -> dict[str, Any]:
    model = find(call, body.model, "embed")
    check(call, [body.prompt], "prompt")
    rows, _ = await vectors(call, model, [body.prompt], True, numbers)
    return {"embedding": rows[0]}


# --- about models ---------------------------------------------------------------------------------------------------


def _details(model: ServedModel) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": model.task.metadata.family or GROUP,
        "families": [model.task.metadata.family or GROUP],
        "parameter_size": str(sum(each.numel() for each in model.task.model.parameters())),
        "quantization_level": model.task.precision,
    }


async def tags(call: Call, body: None) -> dict[str, Any]:
    found = []
    for model in call.server.registry.models.values():
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(model.created))
        known = {"name": model.name, "model": model.name, "modified_at": when, "size": 0, "digest": ""}
        found.append({**known, "details": _details(model)})
    return {"models": found}


async def version(call: Call, body: None) -> dict[str, Any]:
    return {"version": __version__}


async def show(call: Call, body: ShowBody) -> dict[str, Any]:
    name, known = body.model or body.name or "", call.server.registry.models
    model = known.get(name) or known.get(name.removesuffix(LATEST))
    if model is None:
        raise ApiError(404, f"there is no model {name[:100]!r} here; there is: {', '.join(known)}", param="model")
    can = {"completion": model.can("complete"), "embedding": model.can("embed"), "tools": _has_template(model)}
    return {
        "modelfile": "",
        "parameters": "",
        "template": model.task.tokenizer.chat_template or "" if _has_template(model) else "",
        "details": _details(model),
        "model_info": {"general.architecture": model.task.metadata.family or GROUP},
        "capabilities": [each for each, does in can.items() if does],
        "modified_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(model.created)),
    }


def _has_template(model: ServedModel) -> bool:
    return bool(getattr(model.task.tokenizer, "chat_template", None))


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("POST", "/api/chat", chat, ChatBody, plain_shape, media=MEDIA, summary="Ollama's chat."),
        Endpoint(
            "POST", "/api/generate", generate, GenerateBody, plain_shape, media=MEDIA, summary="Ollama's completion."
        ),
        Endpoint("POST", "/api/embed", embed, EmbedBody, plain_shape, summary="Ollama's vectors, one for each text."),
        Endpoint("POST", "/api/embeddings", embeddings, EmbeddingsBody, plain_shape, summary="The same for one text."),
        Endpoint("GET", "/api/tags", tags, shape=plain_shape, summary="The models, as Ollama lists them."),
        Endpoint("GET", "/api/version", version, shape=plain_shape, summary="The version of this server."),
        Endpoint("POST", "/api/show", show, ShowBody, plain_shape, summary="One model, as Ollama shows it."),
    ]
