"""A server on a free port of this machine, in a thread of the test, with endpoints of its own; raw sockets to it.

No test waits for a deadline or hopes to be faster than one: the server's clock is put forward (`Running.pass_by`), and
what must still be at work is held until the test lets it go (`Running.held`).
"""

import asyncio
import json
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import Any
from weakref import WeakKeyDictionary

from clearformer.serve import health, metrics
from clearformer.serve.app import Server
from clearformer.serve.endpoint import Body, Call, Endpoint, Stream, event
from clearformer.serve.guard import GuardedProtocol
from clearformer.serve.logs import Log
from clearformer.serve.registry import Registry, ServedModel
from clearformer.serve.run import Process, bound
from clearformer.serve.settings import ServerSettings

PATIENCE = 60.0  # seconds after which a test that hangs fails
HOUR, NEVER = 3_600.0, 1e8  # seconds of a deadline that a test lets pass, and of one that is not to strike
DEADLINES = ("header_seconds", "body_seconds", "send_seconds", "idle_seconds", "request_seconds")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Clocked(Process):
    """A process whose loop has a clock that can be put forward."""

    loop: asyncio.AbstractEventLoop
    ahead = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.time = lambda: time.monotonic() + self.ahead  # type: ignore[method-assign]
        await super().startup(sockets)

    async def pass_by(self, seconds: float) -> None:
        self.ahead += seconds
        for _ in range(10):  # what is due is done, and what follows from it
            await asyncio.sleep(0)


@dataclass
class Hold:
    """What `/slow` waits for."""

    go: threading.Event = field(default_factory=threading.Event)
    begun: int = 0
    at_work: set[str] = field(default_factory=set)  # ids of the calls that compute


HOLDS: WeakKeyDictionary[Server, Hold] = WeakKeyDictionary()


@dataclass
class Running:
    server: Server
    process: Clocked
    port: int
    out: StringIO

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, method: str, path: str, body: bytes | Any = b"", **headers: str) -> Answer:
        """One request on a connection of its own."""
        with self.connect() as made:
            made.sendall(request(method, path, body, connection="close", **headers))
            return read_answer(made, head=method == "HEAD")

    def pass_by(self, seconds: float = 0.0) -> None:
        """Let so much time pass on the server's clock, between two steps of its loop, and let what is due happen."""
        asyncio.run_coroutine_threadsafe(self.process.pass_by(seconds), self.process.loop).result(PATIENCE)

    @contextmanager
    def held(self) -> Iterator[Hold]:
        """In here `/slow` ends only when it is let go, or when nobody waits for it any more."""
        hold = HOLDS[self.server]
        hold.go.clear()
        hold.begun = 0
        try:
            yield hold
        finally:
            hold.go.set()

    @property
    def connections(self) -> list[GuardedProtocol]:
        """Those that are open."""
        return [each for each in list(self.process.server_state.connections) if isinstance(each, GuardedProtocol)]

    @property
    def log(self) -> list[dict[str, Any]]:
        """All lines of requests that were answered."""
        until(lambda: not self.server.calls)
        self.pass_by()  # the last of them has been told to the log
        mark = f"mark {len(self.out.getvalue())}"
        self.server.log.write(event=mark)
        until(lambda: mark in self.out.getvalue() and self.out.getvalue().endswith("\n"))
        lines = [json.loads(line) for line in self.out.getvalue().splitlines()]
        return [line for line in lines if not line["event"].startswith("mark ")]


@contextmanager
def running(
    endpoints: Iterable[Endpoint] = (), models: Iterable[ServedModel] = (), **settings: Any
) -> Iterator[Running]:
    """A server whose deadlines strike only where they are given."""
    listener = bound("127.0.0.1", 0)
    listener.listen(512)
    out = StringIO()
    own = [*health.endpoints(), *metrics.endpoints(), *endpoints]
    settings = dict.fromkeys(DEADLINES, NEVER) | settings
    server = Server(ServerSettings(**settings), Registry(list(models)), Log(out), own)
    process = Clocked(server)
    hold = HOLDS.setdefault(server, Hold())
    hold.go.set()
    thread = threading.Thread(target=process.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.ready)
    try:
        yield Running(server, process, listener.getsockname()[1], out)
    finally:
        hold.go.set()
        process.should_exit = True
        thread.join(PATIENCE)
        server.close()
        assert not thread.is_alive(), "the server did not end"


def request(method: str, path: str, body: bytes | Any = b"", **headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    said = {"host": "127.0.0.1", **({"content-length": str(len(content))} if content else {})}
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + content


def read_answer(made: socket.socket, head: bool = False) -> Answer:
    """The next answer on a connection; one of no known length goes to its end."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        if not (more := made.recv(65_536)):
            raise ConnectionError(f"closed after {raw!r}")
        raw += more
    start, _, body = raw.partition(b"\r\n\r\n")
    lines = start.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    length = 0 if head else int(headers["content-length"]) if "content-length" in headers else None
    while length is None or len(body) < length:
        if not (more := made.recv(65_536)):
            break
        body += more
    return Answer(int(lines[0].split()[1]), headers, body)


def until(so: Any, seconds: float = PATIENCE) -> None:
    """Wait for something to be so."""
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def rest(made: socket.socket) -> bytes:
    """What comes until the other side closes, which is waited for."""
    found = b""
    try:
        while more := made.recv(65_536):
            found += more
    except ConnectionError:
        pass
    return found


def silent(made: socket.socket) -> bool:
    """Whether nothing has come, and the other side has not closed."""
    return not select.select([made], [], [], 0)[0]


# --- endpoints of tests ---------------------------------------------------------------------------------------------


class Said(Body):
    text: str = ""
    times: int = 1


async def echo(call: Call, body: Said) -> dict[str, Any]:
    return {"text": body.text * body.times}


async def slow(call: Call, body: Said) -> dict[str, Any]:
    """Computes in a thread for as long as the test holds it and somebody waits for it."""
    hold = HOLDS[call.server]

    def compute() -> None:
        hold.at_work.add(call.id)
        hold.begun += 1
        try:
            while not hold.go.wait(0.005):
                call.scope.check()
        finally:
            hold.at_work.discard(call.id)

    await call.run(10, compute)
    return {"text": body.text}


async def drip(call: Call, body: Said) -> Stream:
    async def parts() -> Any:
        for n in range(body.times):
            await asyncio.sleep(0)
            yield event({"n": n, "text": body.text})

    return Stream(parts())


async def broken(call: Call, body: Said) -> dict[str, Any]:
    raise RuntimeError(f"the secret text {body.text}")


ENDPOINTS = [
    Endpoint("POST", "/echo", echo, Said),
    Endpoint("GET", "/echo", echo),
    Endpoint("POST", "/slow", slow, Said),
    Endpoint("POST", "/drip", drip, Said),
    Endpoint("POST", "/broken", broken, Said),
]
