"""Connections with limits: how many there are, how long a client takes for its headers and to take its answer.

uvicorn's protocol waits for ever for headers that come slowly. This one closes the connection when its time is over,
and makes room for new ones by closing the one that has been silent longest. Bodies have their limits in `endpoint`.
"""

import asyncio
import sys
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from clearformer.serve.endpoint import as_json
from clearformer.serve.errors import ApiError, openai_shape
from clearformer.serve.refusals import Refusals, likeness
from clearformer.serve.settings import ServerSettings

TAKEN = 16_384  # bytes that a client must take of its answer within `send_seconds`
AHEAD = 65_536  # bytes of later requests that a client may send before it has its answer
LINGER = 1.0  # seconds for which a connection that was refused is still read, or its client would see a reset


class GuardedProtocol(H11Protocol):
    settings: ServerSettings  # of the server, set by `guarded`
    refusals: Refusals

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self.timeout_keep_alive = self.settings.idle_seconds  # type: ignore[assignment]
        self.silent_since = time.monotonic()
        self.refused = False
        self.head: asyncio.TimerHandle | None = None  # ends the wait for headers
        self.taking: asyncio.TimerHandle | None = None  # ends the wait for a client that does not read

    # --- how many ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        full = len(self.connections) >= self.settings.max_connections
        others = [each for each in self.connections if isinstance(each, GuardedProtocol)] if full else []
        if silent := [each for each in others if each.waits]:
            min(silent, key=lambda each: each.silent_since).transport.abort()
            full = False
        super().connection_made(transport)
        if full:
            error = ApiError(503, "all connections are in use", kind="overloaded_error", headers={"retry-after": "1"})
            self._refuse(error)
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        self._taken()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    # --- headers ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        self.silent_since = time.monotonic()
        like = likeness(data) if self.refusals.crowded and self._between else None
        if like is not None and (answer := self.refusals.answer(like, self.server_state.default_headers)) is not None:
            self._heard()
            self.transport.write(answer)
            self.on_response_complete()
            return
        super().data_received(data)
        if like is not None and self.scope is not None:
            self.scope["clearformer.like"] = like  # type: ignore[typeddict-unknown-key]
        if self.transport.is_closing():
            return
        if self.conn.their_state is not h11.IDLE:
            self._heard()
        elif self.head is None:
            self._wait_for_head()
        if self.flow.read_paused and not self.waits and not self.cycle.more_body:
            self._ahead()

    @property
    def _between(self) -> bool:
        """Whether what comes now is the beginning of a request, and its answer can be written at once."""
        if not self.waits or self.flow.write_paused or self.conn.their_state is not h11.IDLE:
            return False
        return self.conn.our_state is h11.IDLE and not self.conn.trailing_data[0]

    def _ahead(self) -> None:
        """The next request has come before this one is answered. Read on, or its client could go and nobody would
        see it."""
        if len(self.conn.trailing_data[0]) > AHEAD:
            self.transport.abort()
        else:
            self.flow.resume_reading()

    def _wait_for_head(self) -> None:
        self.head = self.loop.call_later(self.settings.header_seconds, self._too_slow)

    def _heard(self) -> None:
        if self.head is not None:
            self.head.cancel()
            self.head = None

    def _too_slow(self) -> None:
        self.head = None
        if not self.transport.is_closing() and not self.refused:
            self._refuse(ApiError(408, "the headers did not come in time", code="timeout"))

    # --- answers ----------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def _wait_for_reader(self, left: int) -> None:
        self.taking = self.loop.call_later(self.settings.send_seconds, self._look, left)

    def _look(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left > before - TAKEN:
            self.transport.abort()
        else:
            self._wait_for_reader(left)

    def _taken(self) -> None:
        if self.taking is not None:
            self.taking.cancel()
            self.taking = None

    # --- refusing ---------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Called where something is no HTTP, while its error is handled."""
        error = sys.exception()
        status = getattr(error, "error_status_hint", 400)
        said = "the headers are too long" if status == 431 else f"this is no HTTP/1.1: {str(error)[:200]}"
        if self.waits or not self.cycle.response_started:
            self._refuse(ApiError(status, said, code="too_large" if status == 431 else "bad_http"))
        else:
            self.transport.abort()

    def _refuse(self, error: ApiError) -> None:
        """Say it past h11, which may be in any state, and close when the client has had the time to read it."""
        self.refused = True
        self._heard()
        self._unset_keepalive_if_required()
        content = as_json(openai_shape(error))
        headers = {"content-type": "application/json", "content-length": str(len(content)), "connection": "close"}
        lines = [f"{name}: {value}\r\n" for name, value in {**headers, **error.headers}.items()]
        start = f"HTTP/1.1 {error.status} {STATUS_PHRASES[error.status].decode()}\r\n"
        self.transport.write((start + "".join(lines) + "\r\n").encode("latin-1") + content)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER, self.transport.abort)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


def guarded(given: ServerSettings, refusals: Refusals) -> type[GuardedProtocol]:
    """The protocol of a server with these settings."""
    return type("ServersProtocol", (GuardedProtocol,), {"settings": given, "refusals": refusals})
