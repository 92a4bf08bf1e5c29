"""How one request goes, whatever its protocol: checked, read, validated, run, answered; given up when its client goes.

A protocol is a list of endpoints; its handlers get a `Call` and a validated body and give back what is to be said.
"""

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json
from starlette.datastructures import Headers, QueryParams
from starlette.types import Message, Receive, Scope, Send

from clearformer.generate.cancel import CancelScope
from clearformer.serve.errors import ApiError, Overloaded, Shape, as_api_error, openai_shape, stopped

if TYPE_CHECKING:
    from clearformer.serve.app import Server

Result = TypeVar("Result")
SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
UNTRACED = ("", "0", "false")  # what the header x-trace says where nobody asks for a trace
READ_ON = 1.0  # seconds for which a body that was refused is still read, so that its client gets to hear why
READ_ON_BYTES = 64 * 2**20
LARGE = 10_000  # values of an answer, or bytes of a body, that are better not written or read on the event loop


class Body(BaseModel):
    """What a request may hold. Fields that are not named are refused, or passed over by a lenient server."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


@dataclass(frozen=True)
class Reply:
    """Bytes as they are."""

    content: bytes
    media: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """Parts as they come. `failed` says an error in the middle of it, as the protocol does."""

    parts: AsyncIterator[bytes]
    media: str = "text/event-stream"
    failed: Callable[[ApiError], bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Reply | Stream | dict[str, Any] | list[Any]
Handler = Callable[["Call", Any], Awaitable[Answer]]


def as_json(content: Any) -> bytes:
    """Pydantic's writer takes an eighth of the time of the standard library's; what is no number is null."""
    return to_json(content, inf_nan_mode="null")


def _size(content: Any, most: int = LARGE) -> int:
    """How many values there are, counted up to a number."""
    if not isinstance(content, dict | list | tuple):
        return 1
    count = 1
    for each in content.values() if isinstance(content, dict) else content:
        if count >= most:
            break
        count += _size(each, most - count)
    return count


def as_json_in_pieces(content: Any) -> bytes:
    """The same bytes as `as_json`, for a thread: between two pieces others can run, within one nobody can."""
    if _size(content) < LARGE:
        return as_json(content)
    if isinstance(content, dict):
        return b"{" + b",".join(as_json(str(k)) + b":" + as_json_in_pieces(v) for k, v in content.items()) + b"}"
    return b"[" + b",".join(as_json_in_pieces(each) for each in content) + b"]"


def event(content: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + as_json(content) + b"\n\n"


@dataclass(eq=False)
class Call:
    """One request under way."""

    server: "Server"
    id: str
    headers: Headers
    query: QueryParams
    path: Mapping[str, str]
    raw: bytes = b""
    scope: CancelScope = field(default_factory=CancelScope)
    started: float = field(default_factory=time.perf_counter)
    # for log and metrics: model, prompt_tokens, completion_tokens, cached_tokens, first_token_seconds; never texts
    told: dict[str, Any] = field(default_factory=dict)
    arrived: bool = False  # whether all of its body has come
    recorded: bool = False  # whether its run is kept
    like: Hashable = None  # what others must have in common with it to be refused as it is

    @property
    def traced(self) -> bool:
        """Whether the client asks for the trace of this very run."""
        return self.headers.get("x-trace", "0") not in UNTRACED

    def asked(self, kind: type[Body]) -> Any:
        """What stands behind the question mark, validated."""
        return validated(kind, dict(self.query), self.server.settings.lenient)

    async def run(self, tokens: int, compute: Callable[[], Result]) -> Result:
        """The result of a call that takes long, in a thread, while so many tokens of the queue are held."""
        model = str(self.told.get("model", ""))
        with self.server.admission.enter(tokens, model):
            return await self.server.work.run(self.scope, compute, model)


@dataclass(frozen=True)
class Endpoint:
    """A route: an ASGI application of its own."""

    method: str
    path: str
    handler: Handler
    body: type[Body] | None = None
    shape: Shape = openai_shape
    forms: bool = False  # whether bodies may be form-encoded too
    summary: str = ""
    open: bool = False  # asked without a key, under any name of the host
    no_key: int = 401  # the status without a key, or with a wrong one, as the protocol has it
    key_field: str | None = None  # a field of the body that may hold the key instead of a header
    raw: bool = False  # the handler reads the body itself: uploads
    answer: type[BaseModel] | None = None  # for the OpenAPI document
    media: tuple[str, ...] = ("application/json",)  # what answers may come as, for the same
    query: type[Body] | None = None  # what may stand behind the question mark; `asked` validates it
    server: "Server | None" = None  # set where the application is put together

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.server is not None
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        name = asked if SAFE_ID.fullmatch(asked) else f"{uuid.uuid4().hex}"
        call = Call(self.server, name, headers, QueryParams(scope["query_string"]), scope.get("path_params", {}))
        call.like = scope.get("clearformer.like")
        sender = _Sender(send, call)
        with self.server.watching(self, call, sender):
            try:
                self.server.gate(scope, headers, self)
                body = await self._body(call, receive)
                if self.key_field is not None:
                    self.server.check_key(headers, getattr(body, self.key_field, None))
                await self._answered(call, body, receive, sender)
            except _GoneError:
                call.scope.cancel()
                sender.status = sender.status or 499
            except asyncio.CancelledError:
                if not self.server.stopping:
                    raise
                await self._fail(sender, stopped(), receive)  # its time of grace is over
            except Exception as error:
                call.scope.cancel()
                await self._fail(sender, error, receive)

    # --- reading ----------------------------------------------------------------------------------------------

    async def _body(self, call: Call, receive: Receive) -> Any:
        try:
            async with asyncio.timeout(call.server.settings.body_seconds):
                call.raw = await self._read(call, receive)
        except TimeoutError:
            raise ApiError(408, "the body did not come in time", code="timeout") from None
        call.arrived = True
        if self.raw or self.body is None:
            return None
        if len(call.raw) < LARGE:
            return self._validated(call)
        return await call.server.work.aside(lambda: self._validated(call))

    async def _read(self, call: Call, receive: Receive) -> bytes:
        most, content = call.server.settings.max_body, bytearray()
        length = call.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise ApiError(413, f"a body may have {most:,} bytes, and this one has {int(length):,}", code="too_large")
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            content += message.get("body", b"")
            if len(content) > most:
                raise ApiError(413, f"a body may have {most:,} bytes, and this one has more", code="too_large")
            if not message.get("more_body"):
                return bytes(content)

    def _validated(self, call: Call) -> Body:
        assert self.body is not None
        kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/x-www-form-urlencoded" and call.raw.lstrip().startswith(b"{"):
            kind = "application/json"  # what `curl -d` says of anything
        if self.forms and kind == "application/x-www-form-urlencoded":
            given: Any = self._form(call.raw)
        elif kind in ("", "application/json", "text/plain") or kind.endswith("+json"):
            try:
                given = json.loads(call.raw.decode() or "{}")
            except (ValueError, RecursionError) as error:
                raise ApiError(400, f"the body is no JSON: {str(error)[:200]}") from None
            if b"\\ud" in call.raw.lower():
                _check_whole(given)
        else:
            known = "JSON or form-encoded" if self.forms else "JSON (application/json)"
            raise ApiError(415, f"the body must be {known}, and its content-type says {kind[:80]!r}")
        return validated(self.body, given, call.server.settings.lenient)

    def _form(self, raw: bytes) -> dict[str, Any]:
        """Fields of a form; one that the body has a list for may come several times."""
        assert self.body is not None
        try:
            found = parse_qs(raw.decode(), keep_blank_values=True, strict_parsing=bool(raw), max_num_fields=10_000)
        except (UnicodeDecodeError, ValueError) as error:
            raise ApiError(400, f"the body is no form: {str(error)[:200]}") from None
        several = {name for name, each in self.body.model_fields.items() if "list" in str(each.annotation)}
        return {name: values if name in several else values[-1] for name, values in found.items()}

    # --- answering --------------------------------------------------------------------------------------------

    async def _answered(self, call: Call, body: Any, receive: Receive, sender: "_Sender") -> None:
        """Run the handler and say what it gives, as long as the client is there and there is time."""
        left = call.server.settings.request_seconds - (time.perf_counter() - call.started)
        work = asyncio.create_task(self._work(call, body, sender))
        watch = asyncio.create_task(_gone(receive))
        try:
            done, _ = await asyncio.wait({work, watch}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if work in done:
                await work
            elif watch in done:
                raise _GoneError
            else:
                raise ApiError(504, f"there was no answer within {call.server.settings.request_seconds:g} s",
                               kind="server_error", code="timeout")  # fmt: skip
        finally:
            call.scope.cancel()  # what is left of its work ends here; what is done stays
            for task in (work, watch):
                task.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    async def _work(self, call: Call, body: Any, sender: "_Sender") -> None:
        answer = await self.handler(call, body)
        if isinstance(answer, Stream):
            await self._stream(answer, sender)
            return
        if isinstance(answer, Reply):
            reply = answer
        elif _size(answer) < LARGE:
            reply = Reply(as_json(answer))
        else:
            reply = Reply(await call.server.work.aside(lambda: as_json_in_pieces(answer)))
        await sender.whole(reply.status, reply.content, reply.media, reply.headers)

    async def _stream(self, answer: Stream, sender: "_Sender") -> None:
        try:
            async for part in answer.parts:
                await sender.part(part, answer.media, answer.headers)
            await sender.end(answer.media, answer.headers)
        except Exception as error:
            if not sender.begun or answer.failed is None:
                raise
            told = as_api_error(error)
            sender.failed = error
            await sender.part(answer.failed(told), answer.media, answer.headers)
            await sender.end(answer.media, answer.headers)
        finally:
            await answer.parts.aclose()  # type: ignore[attr-defined]

    async def _fail(self, sender: "_Sender", error: Exception, receive: Receive) -> None:
        """Say what went wrong. In the middle of an answer nothing can be said: the connection is closed before its
        end, so that nobody takes this for all."""
        sender.failed = error
        if sender.begun:
            return
        told, call = as_api_error(error), sender.call
        status = self.no_key if told.status == 401 else told.status
        content = as_json(self.shape(told))
        if call.arrived or not _has_body(call.headers):
            await sender.whole(status, content, "application/json", told.headers)
            if isinstance(error, Overloaded):
                call.server.refusals.remember(call, error, self.path, sender.headers, content)
            return
        # a connection that is closed while its client still sends is reset, and the client reads nothing
        await sender.part(content, "application/json", {**told.headers, "content-length": str(len(content)),
                                                        "connection": "close"}, status)  # fmt: skip
        await _read_on(receive)
        await sender.end("application/json", {})


class _GoneError(Exception):
    """The client has gone."""


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_on(receive: Receive) -> None:
    """What comes of a body that nobody wants, for a while."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(READ_ON):
            while size < READ_ON_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


class _Sender:
    """What is sent of an answer, with the headers that every answer has."""

    def __init__(self, send: Send, call: Call):
        self.send, self.call, self.begun, self.status = send, call, False, 0
        self.failed: BaseException | None = None
        self.headers: list[tuple[bytes, bytes]] = []

    async def whole(self, status: int, content: bytes, media: str, headers: Mapping[str, str]) -> None:
        await self._start(status, media, {"content-length": str(len(content)), **headers})
        await self.send({"type": "http.response.body", "body": content})

    async def part(self, content: bytes, media: str, headers: Mapping[str, str], status: int = 200) -> None:
        if not self.begun:
            await self._start(status, media, {"cache-control": "no-cache", **headers})
        await self.send({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self, media: str, headers: Mapping[str, str]) -> None:
        if not self.begun:
            await self._start(200, media, headers)
        await self.send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, media: str, headers: Mapping[str, str]) -> None:
        self.begun, self.status = True, status
        said = {"content-type": media, "x-request-id": self.call.id, "x-content-type-options": "nosniff", **headers}
        if self.call.traced and (self.call.recorded or "content-length" not in headers):  # a stream is kept at its end
            said["x-trace-id"] = self.call.id
        said |= self.call.server.cors(self.call.headers)
        self.headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said.items()]
        message: Message = {"type": "http.response.start", "status": status, "headers": self.headers}
        await self.send(message)


def validated(kind: type[Body], given: Any, lenient: bool) -> Body:
    """A body, or an error that names every field that is wrong."""
    if not isinstance(given, dict):
        raise ApiError(400, f"the body must be an object, given {type(given).__name__}")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        unknown = [fault["loc"] for fault in faults if fault["type"] == "extra_forbidden"]
        if lenient and unknown:
            return validated(kind, _without(given, unknown), lenient) if _reachable(given, unknown) else _raise(faults)
        return _raise(faults)


def _check_whole(given: Any) -> None:
    """JSON can hold half a character (`"\\ud800"`), which no text has and no answer could say."""
    try:
        as_json(given)
    except (UnicodeEncodeError, RecursionError):
        raise ApiError(400, "the body holds half a character (a lone surrogate); send whole ones") from None
    except ValueError:  # not a number, which is for the fields to refuse
        return


def _raise(faults: list[Any]) -> Any:
    said = []
    for fault in faults[:5]:
        where = ".".join(str(part) for part in fault["loc"])
        unknown = fault["type"] == "extra_forbidden"
        said.append(f"{where}: " + ("this field is not supported here" if unknown else fault["msg"]))
    more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
    raise ApiError(400, "; ".join(said)[:2000] + more, param=str(faults[0]["loc"][0]) if faults[0]["loc"] else None)


def _reachable(given: Any, places: list[tuple[Any, ...]]) -> bool:
    """Whether all places can be found in what was given: those inside alternatives cannot."""
    for place in places:
        at = given
        for part in place:
            try:
                at = at[part]
            except (KeyError, IndexError, TypeError):
                return False
    return True


def _without(given: Any, places: list[tuple[Any, ...]]) -> Any:
    copy = json.loads(json.dumps(given))
    for *way, last in places:
        at = copy
        for part in way:
            at = at[part]
        at.pop(last, None)
    return copy
