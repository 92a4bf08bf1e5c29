"""/v1/responses in its simple form: a text or messages in, a text out, whole or as events. Nothing is kept: a
conversation is sent whole every time."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import Field

from clearformer.generate.options import GenerationOptions
from clearformer.serve.chat import ANY_OBJECT, grammar_of
from clearformer.serve.conversation import Tools, prompt
from clearformer.serve.endpoint import Answer, Call, Stream, as_json
from clearformer.serve.errors import openai_shape
from clearformer.serve.openai_bodies import Content, Finite, Part, Strict
from clearformer.serve.writing import Writing, now, prepare


class Item(Strict):
    """A message. `id` and `status` of one that was an answer mean nothing here."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: str | None = None
    status: str | None = None

    @property
    def said(self) -> str:
        parts: list[Part] = self.content if isinstance(self.content, list) else []
        return "".join(part.said for part in parts) or (self.content if isinstance(self.content, str) else "")


class Format(Strict):
    """`name`, `description` and `strict` mean nothing here: every schema is kept to."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextFormat(Strict):
    format: Format | None = None


class ResponseBody(Strict):
    """`store` and `metadata` mean nothing here: no response is kept for another request to go on from. `truncation` may
    be disabled: nothing is ever cut."""

    model: str | None = None
    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    temperature: Annotated[Finite, Field(ge=0, le=10)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    stream: bool | None = None
    text: TextFormat | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    user: str | None = None
    truncation: Literal["disabled"] | None = None
    parallel_tool_calls: bool | None = None

    def messages(self) -> list[dict[str, Any]]:
        items = [Item(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        first = [{"role": "system", "content": self.instructions}] if self.instructions else []
        return first + [{"role": item.role, "content": item.said} for item in items]

    def options(self) -> GenerationOptions:
        top_p = None if self.top_p == 1 and self.temperature is None else self.top_p
        said = {"temperature": self.temperature, "top_p": top_p, "max_new_tokens": self.max_output_tokens}
        return GenerationOptions.of({name: value for name, value in said.items() if value is not None})

    def schema_asked(self) -> Any:
        format = self.text.format if self.text is not None else None
        if format is None or format.type == "text":
            return None
        return ANY_OBJECT if format.schema_ is None else format.schema_


async def responses(call: Call, body: ResponseBody) -> Answer:
    model = call.server.registry.get(body.model, "chat")
    task, tools, messages, schema = model.task, Tools(), body.messages(), body.schema_asked()
    writing = await prepare(
        call,
        model,
        lambda: [prompt(task, messages, tools)],
        body.options(),
        name=f"resp_{call.id}",
        grammar=lambda: grammar_of(task, tools, schema),
    )
    made = _Response(writing, body)
    if body.stream:
        return Stream(made.events(), failed=lambda error: made.event("error", **openai_shape(error)["error"]))
    (piece,) = await writing.whole(lambda _, piece: piece)
    return made.whole(piece.text, piece.finish)


class _Response:
    """An answer, and the events that it is told by."""

    def __init__(self, writing: Writing, body: ResponseBody):
        self.writing, self.body, self.created, self.number = writing, body, now(), -1
        self.item = f"msg_{writing.call.id}"

    def whole(self, text: str, finish: str | None) -> dict[str, Any]:
        read, written, cached = self.writing.usage
        cut = finish == "limit"
        used = {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        }
        status = "incomplete" if cut else "completed"
        reason = {"reason": "max_output_tokens"} if cut else None
        return self._object(status, [self._message(text, status)]) | {"usage": used, "incomplete_details": reason}

    def _object(self, status: str, output: list[Any]) -> dict[str, Any]:
        body = self.body
        return {
            "id": self.writing.name,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": self.writing.model.name,
            "output": output,
            "parallel_tool_calls": True,
            "temperature": body.temperature,
            "tool_choice": "auto",
            "tools": [],
            "top_p": body.top_p,
            "truncation": "disabled",
            "metadata": body.metadata or {},
            "usage": None,
        }

    def _message(self, text: str | None, status: str) -> dict[str, Any]:
        content = [] if text is None else [_part(text)]
        return {"type": "message", "id": self.item, "status": status, "role": "assistant", "content": content}

    def event(self, kind: str, **fields: Any) -> bytes:
        self.number += 1
        content = as_json({"type": kind, "sequence_number": self.number, **fields})
        return b"event: " + kind.encode() + b"\ndata: " + content + b"\n\n"

    async def events(self) -> AsyncIterator[bytes]:
        place = {"item_id": self.item, "output_index": 0, "content_index": 0}
        text, finish, begun = "", None, False
        async for new in self.writing.pieces():
            if not begun:
                begun, running = True, self._object("in_progress", [])
                yield self.event("response.created", response=running)
                yield self.event("response.in_progress", response=running)
                item = self._message(None, "in_progress")
                yield self.event("response.output_item.added", output_index=0, item=item)
                yield self.event("response.content_part.added", **place, part=_part(""))
            for _, piece in new:
                text, finish = text + piece.text, piece.finish
                if piece.text:
                    yield self.event("response.output_text.delta", **place, delta=piece.text, logprobs=[])
        done = self.whole(text, finish)
        yield self.event("response.output_text.done", **place, text=text, logprobs=[])
        yield self.event("response.content_part.done", **place, part=_part(text))
        yield self.event("response.output_item.done", output_index=0, item=done["output"][0])
        yield self.event(f"response.{done['status']}", response=done)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
