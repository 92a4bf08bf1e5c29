"""/v1/chat/completions."""

from collections.abc import AsyncIterator
from typing import Any

from clearformer.serve.conversation import Tools, prompt
from clearformer.serve.endpoint import Answer, Call, Stream, event
from clearformer.serve.errors import ApiError, openai_shape
from clearformer.serve.grammar import Grammar, of_schema
from clearformer.serve.logprobs import Names, in_chat, names_of
from clearformer.serve.openai_bodies import ChatBody, Message, NamedTool, ResponseFormat
from clearformer.serve.writing import Piece, Writing, now, prepare

REASONS = {"end": "stop", "stop": "stop", "limit": "length"}
DONE = b"data: [DONE]\n\n"
FINGERPRINT = "clearformer"
ANY_OBJECT = {"type": "object"}


def failed(error: ApiError) -> bytes:
    """An error in the middle of a stream."""
    return event(openai_shape(error))


def usage(writing: Writing) -> dict[str, Any]:
    prompt_tokens, written, cached = writing.usage
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": written,
        "total_tokens": prompt_tokens + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def for_template(message: Message) -> dict[str, Any]:
    """A message in the words that templates know; what it does not say is not there."""
    made: dict[str, Any] = {"role": message.role, "content": message.said}
    if message.name is not None:
        made["name"] = message.name
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        made["tool_calls"] = [call.model_dump(exclude={"index"}) for call in message.tool_calls]
    return made


def tools_of(body: ChatBody) -> Tools:
    functions = [each.function.plain() for each in body.tools or ()]
    if isinstance(body.tool_choice, NamedTool):
        found = Tools(functions, only=body.tool_choice.function.name)
    else:
        found = Tools(functions, body.tool_choice or "auto")
    found.check()
    return found


def schema_of(format: ResponseFormat | None) -> Any:
    """The schema that an answer must fit, or None."""
    if format is None or format.type == "text":
        return None
    if format.type == "json_object":
        return ANY_OBJECT
    if format.json_schema is None:
        raise ApiError(400, "response_format of type json_schema needs json_schema", param="response_format")
    return format.json_schema.schema_ if format.json_schema.schema_ is not None else ANY_OBJECT


def grammar_of(task: Any, tools: Tools, schema: Any) -> Grammar | None:
    """What the answer must be. A call that must be made comes before a format; one that may be, with a format, is left
    to the tools: an answer that is no call then has no format to fit, so that is refused."""
    if tools.possible and schema is not None and not tools.must:
        raise ApiError(400, "response_format goes with tools only if tool_choice is required, a name, or none",
                       param="response_format")  # fmt: skip
    if tools.possible:
        return tools.grammar(task)
    return None if schema is None else Grammar(task, of_schema(schema), "response_format")


async def begin(call: Call, body: ChatBody) -> tuple[Writing, Tools]:
    model = call.server.registry.get(body.model, "chat")
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    limits = [limit for limit in (body.max_completion_tokens, body.max_tokens) if limit is not None]
    if 0 in limits:
        raise ApiError(400, "max_tokens must be at least 1", param="max_tokens")
    if (body.top_logprobs or 0) > call.server.settings.max_logprobs:
        raise ApiError(400, f"this server tells {call.server.settings.max_logprobs} of the likeliest tokens at most",
                       param="top_logprobs")  # fmt: skip
    tools, schema = tools_of(body), schema_of(body.response_format)
    messages = [for_template(message) for message in body.messages]
    writing = await prepare(
        call,
        model,
        lambda: [prompt(model.task, messages, tools)],
        body.options(body.top_logprobs, min(limits, default=None)),
        each=body.n or 1,
        detailed=bool(body.logprobs),
        grammar=lambda: grammar_of(model.task, tools, schema),
        name=f"chatcmpl-{call.id}",
    )
    return writing, tools


async def chat(call: Call, body: ChatBody) -> Answer:
    writing, tools = await begin(call, body)
    head = {"id": writing.name, "object": "chat.completion", "created": now(), "model": writing.model.name}
    head |= {"system_fingerprint": FINGERPRINT}
    if body.stream:
        return Stream(_streamed(writing, tools, body, {**head, "object": "chat.completion.chunk"}), failed=failed)

    def choice(index: int, piece: Piece) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": piece.text, "refusal": None}
        reason = REASONS[piece.finish or "limit"]
        if (found := tools.call_in(piece.text)) is not None:
            message |= {"content": None, "tool_calls": [tool_call(call.id, index, found)]}
            reason = "tool_calls"
        told = in_chat(names_of(writing.model.task.tokenizer), piece.tokens) if body.logprobs else None
        return {"index": index, "message": message, "logprobs": told, "finish_reason": reason}

    choices = await writing.whole(choice)
    return {**head, "choices": choices, "usage": usage(writing)}


def tool_call(name: str, index: int, found: tuple[str, str]) -> dict[str, Any]:
    return {
        "id": f"call_{name}_{index}",
        "type": "function",
        "function": {"name": found[0], "arguments": found[1]},
    }


async def _streamed(writing: Writing, tools: Tools, body: ChatBody, head: dict[str, Any]) -> AsyncIterator[bytes]:
    names = names_of(writing.model.task.tokenizer) if body.logprobs else None
    if body.with_usage:
        head["usage"] = None
    choices = [_Choice(index, tools, writing.call.id, names) for index in range(body.n or 1)]

    def chunk(index: int, delta: dict[str, Any], logprobs: Any = None, reason: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return event({**head, "choices": [choice]})

    begun = False
    async for new in writing.pieces():
        if not begun:
            begun = True
            for choice in choices:
                yield chunk(choice.index, {"role": "assistant", "content": "", "refusal": None})
        parts = [chunk(*each) for index, piece in new for each in choices[index].deltas(piece)]
        if parts:
            yield b"".join(parts)
    if body.with_usage:
        yield event({**head, "choices": [], "usage": usage(writing)})
    yield DONE


class _Choice:
    """One answer on its way: text as it comes, but what begins like a call of a tool is held back until it is one."""

    def __init__(self, index: int, tools: Tools, name: str, names: Names | None):
        self.index, self.tools, self.name, self.names = index, tools, name, names
        self.held = ""
        self.text = False  # whether it is known to be no call

    def deltas(self, piece: Piece) -> list[tuple[int, dict[str, Any], Any, str | None]]:
        logprobs = in_chat(self.names, piece.tokens) if self.names is not None and piece.tokens else None
        self.held += piece.text
        self.text = self.text or not self.tools.possible or (self.held != "" and not self.held.startswith("{"))
        made: list[tuple[int, dict[str, Any], Any, str | None]] = []
        reason = None if piece.finish is None else REASONS[piece.finish]
        if piece.finish is not None and not self.text and (found := self.tools.call_in(self.held)) is not None:
            call = {"index": 0, **tool_call(self.name, self.index, found)}
            made.append((self.index, {"tool_calls": [call]}, logprobs, None))
            reason = "tool_calls"
        elif self.text or piece.finish is not None:
            if self.held or logprobs:
                made.append((self.index, {"content": self.held}, logprobs, None))
            self.held = ""
        elif logprobs:
            made.append((self.index, {}, logprobs, None))
        if reason is not None:
            made.append((self.index, {}, None, reason))
        return made
