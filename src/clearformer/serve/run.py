"""The process: the port is taken, models are loaded, and SIGTERM ends it when what runs is done."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from clearformer.errors import ClearformerError
from clearformer.serve.app import Server
from clearformer.serve.guard import guarded
from clearformer.serve.logs import FromLogging, Log
from clearformer.serve.registry import Registry
from clearformer.serve.settings import ServerSettings

BACKLOG = 2_048  # connections that wait to be taken
SWITCH = 0.0005  # seconds after which a thread that computes lets the event loop have Python's lock
LOOK = 0.05  # seconds between two looks at whether all have finished
OTHER_FILES = 256  # that a process has open besides its connections


def serve(settings: ServerSettings, told: Callable[[str], None] | None = None) -> None:
    """Serve until a signal comes. Where somebody is to be `told` the address, that is all that is said on stdout."""
    listener = bound(settings.host, settings.port)
    settings.read_keys()  # what is wrong with them is to be said before models are read, too
    log = Log()
    server = Server(settings, Registry.load(settings), log)
    _allow_files(settings.max_connections)
    with _said(settings.host, settings.port):
        listener.listen(BACKLOG)
    address = url(settings.host, listener.getsockname()[1])
    if told is None:
        print(start_line(server, address), flush=True)
    else:
        told(address)
    if settings.insecure and not settings.on_loopback:
        log.write(event="warning", message=f"{settings.host} is open to other machines, and no key is asked for")
    names = {name: model.task.precision for name, model in server.registry.models.items()}
    log.write(event="start", address=address, models=names)
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).handlers[:] = [FromLogging(log)]
        logging.getLogger(name).propagate = False
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # models and modules stay: to look through them for cycles would stop all threads for 50 ms and more
    for each in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again at its end, where nothing is left to end
        signal.signal(each, lambda *_: None)
    try:
        Process(server).run(sockets=[listener])
        log.write(event="end")
    finally:
        server.close()


class Process(uvicorn.Server):
    """uvicorn, ended in order: told to stop, it refuses what comes and waits for what runs; told again, it goes."""

    def __init__(self, server: Server):
        settings = server.settings
        super().__init__(
            uvicorn.Config(
                server.application(),
                http=guarded(settings, server.refusals),
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                h11_max_incomplete_event_size=settings.max_header,
                timeout_graceful_shutdown=1,
            )
        )
        self.served = server
        server.connections = lambda: len(self.server_state.connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.served.ready = True

    async def main_loop(self) -> None:
        await super().main_loop()
        served, settings = self.served, self.served.settings
        served.stopping = True
        running, end = set(served.calls), time.monotonic() + settings.grace_seconds
        served.log.write(event="stop", running=len(running))
        while running & served.calls and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(LOOK)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if left := len(self.served.calls):
            self.served.log.write(event="cut", running=left)
            for task in list(self.server_state.tasks):
                task.cancel()  # each answers 503 to what it has not begun to answer
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
        super().handle_exit(sig, frame)


def bound(host: str, port: int) -> socket.socket:
    """A socket on this address, taken before models are read, which takes longer. It does not listen yet: who asks
    too early is told so at once."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ClearformerError(f"there is no address {host!r} to listen at: {error.strerror}", param="host") from None
    with _said(host, port):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or every answer is late by 40 ms
        made.bind(address)
    return made


@contextlib.contextmanager
def _said(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "stop what listens there, or choose another with --port (0 takes one that is free)"
        raise ClearformerError(
            f"cannot listen at {url(host, port)}: {error.strerror}; {hint}", param="port", hint=hint
        ) from None


def url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def start_line(server: Server, address: str) -> str:
    settings = server.settings
    names = ", ".join(f"{name} ({model.task.precision})" for name, model in server.registry.models.items())
    limits = (
        f"queue {settings.queue_tokens:,} tokens, prompt {settings.max_prompt_tokens:,},"
        f" new {settings.max_new_tokens:,}, body {settings.max_body // 2**20} MiB,"
        f" {settings.max_connections:,} connections"
    )
    keys = f"{len(server.keys)} keys" if server.keys else "no key needed"
    page = f"; page {address}/" if settings.page else ""
    return f"clearformer: {address} serves {names}; {keys}; limits: {limits}{page}"


def _allow_files(connections: int) -> None:
    """Every connection is a file, and the usual limit is 1,024."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + OTHER_FILES
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
