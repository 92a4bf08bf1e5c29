"""Refusing at next to no cost: while the queue is full, a request like one that was just refused is not even parsed.

Like it is one with the same headers but for its length, so that it passes the same gate, to the same path and for the
same model. That holds until something leaves the queue. What is refused so is counted, and told to the log once a
second.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import STATUS_PHRASES

from clearformer.serve.errors import Overloaded

if TYPE_CHECKING:
    from clearformer.serve.app import Server
    from clearformer.serve.endpoint import Call

CHOOSING = ("model", "source", "target", "source_lang", "target_lang", "api_key")  # what a model, or a key, depends on
LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,7})(?=\r\n|$)", re.IGNORECASE)
UNUSUAL = re.compile(rb"\r\n(transfer-encoding|expect|upgrade|connection: *close)", re.IGNORECASE)
LARGE = 16_384  # bytes of a request that is not looked at here
MOST = 1_000  # kinds of requests that are kept
TELL = 1.0  # seconds between two lines of the log

Headers = Iterable[tuple[bytes, bytes]]


class Refusals:
    def __init__(self, server: "Server"):
        self.server = server
        self._kept: dict[Hashable, tuple[int, str, str, list[bytes], bytes]] = {}
        self._count = 0

    @property
    def crowded(self) -> bool:
        """Whether it is worth looking at all."""
        admission = self.server.admission
        return 2 * admission.tokens > admission.most and not self.server.stopping

    def remember(self, call: "Call", error: Overloaded, path: str, headers: Headers, content: bytes) -> None:
        """A request was refused for want of room: the next one like it has the same answer."""
        if call.like is None or error.left is None:
            return
        if len(self._kept) >= MOST:
            self._kept.clear()
        lines = [name + b": " + value + b"\r\n" for name, value in headers if name != b"x-request-id"]
        model = str(call.told.get("model", ""))
        self._kept[call.like] = error.left, path, model, lines, content

    def answer(self, like: Hashable, headers: Headers) -> bytes | None:
        """What a request like this is told, with `headers` that all answers have; None where nobody knows."""
        found = self._kept.get(like)
        if found is None or found[0] != self.server.admission.left:
            return None
        _, path, model, lines, content = found
        self.server.metrics.refused(path, model)
        if not self._count:
            asyncio.get_running_loop().call_later(TELL, self._tell)
        self._count += 1
        name = b"x-request-id: " + uuid.uuid4().hex.encode() + b"\r\n"
        also = [each + b": " + value + b"\r\n" for each, value in headers]
        start = b"HTTP/1.1 429 " + STATUS_PHRASES[429] + b"\r\n"
        return b"".join([start, *also, *lines, name, b"\r\n", content])

    def _tell(self) -> None:
        self.server.log.write(event="refused", requests=self._count)
        self._count = 0


def likeness(data: bytes) -> Hashable | None:
    """What two requests have in common of which one can be answered as the other; None where this is no whole request,
    or no usual one."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found or len(data) > LARGE or not head.startswith(b"POST ") or UNUSUAL.search(head):
        return None
    length = LENGTH.search(head)
    if length is None or int(length[1]) != len(body) or not body.startswith(b"{"):
        return None
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return None
    chosen = tuple(given.get(name) for name in CHOOSING)
    if any(value is not None and not isinstance(value, str) for value in chosen):
        return None
    return head[: length.start()], head[length.end() :], chosen
