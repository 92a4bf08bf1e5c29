"""A server on a free port of this machine, in a thread of the test, with endpoints of its own; raw sockets to it."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any

from clearformer.serve import health, metrics
from clearformer.serve.app import Server
from clearformer.serve.endpoint import Body, Call, Endpoint, Stream, event
from clearformer.serve.logs import Log
from clearformer.serve.registry import Registry, ServedModel
from clearformer.serve.run import Process, bound
from clearformer.serve.settings import ServerSettings

PATIENCE = 30.0  # seconds after which a test that hangs fails


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    server: Server
    process: Process
    port: int
    out: StringIO

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, method: str, path: str, body: bytes | Any = b"", **headers: str) -> Answer:
        """One request on a connection of its own."""
        with self.connect() as made:
            made.sendall(request(method, path, body, connection="close", **headers))
            return read_answer(made, head=method == "HEAD")

    @property
    def log(self) -> list[dict[str, Any]]:
        """All lines so far; the thread that writes them is given a moment."""
        until(lambda: self.server.log._lines.empty())
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


@contextmanager
def running(
    endpoints: Iterable[Endpoint] = (), models: Iterable[ServedModel] = (), **settings: Any
) -> Iterator[Running]:
    listener = bound("127.0.0.1", 0)
    listener.listen(512)
    out = StringIO()
    own = [*health.endpoints(), *metrics.endpoints(), *endpoints]
    server = Server(ServerSettings(**settings), Registry(list(models)), Log(out), own)
    process = Process(server)
    thread = threading.Thread(target=process.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.ready)
    try:
        yield Running(server, process, listener.getsockname()[1], out)
    finally:
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


def closed_after(made: socket.socket) -> float:
    """Seconds until the other side closes."""
    begun = time.monotonic()
    try:
        while made.recv(65_536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - begun


# --- endpoints of tests ---------------------------------------------------------------------------------------------


class Said(Body):
    text: str = ""
    times: int = 1


async def echo(call: Call, body: Said) -> dict[str, Any]:
    return {"text": body.text * body.times}


async def slow(call: Call, body: Said) -> dict[str, Any]:
    """Computes for `times` steps of 20 ms in a thread, and says how many it did."""
    done = getattr(call.server, "done", [])

    def compute() -> int:
        for _ in range(body.times):
            call.scope.check()
            time.sleep(0.02)
            done.append(body.text)
        return body.times

    return {"steps": await call.run(10, compute)}


async def drip(call: Call, body: Said) -> Stream:
    async def parts() -> Any:
        for n in range(body.times):
            await asyncio.sleep(0.02)
            getattr(call.server, "done", []).append(n)
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
