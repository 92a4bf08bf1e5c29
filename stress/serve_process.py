"""What the stress scripts of the server share: a server process with small models, a client on loopback, and bars."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import clearformer as cf
from clearformer import presets
from clearformer.tasks.complete import Completer
from clearformer.text.learn import learn
from clearformer.text.tokenizer import PublicTokenizer

PATIENCE = 60.0
FIRST = re.compile(r"clearformer: http://127\.0\.0\.1:([0-9]+) serves ")
WORDS = ("the a small old fox cat dog house river sees has finds wants and but then under over near green red").split()  # noqa: SIM905


def tiny(folder: Path) -> Path:
    """A model with random weights that writes as many tokens as it is asked for: it has no end."""
    words = PublicTokenizer.of(learn([" ".join(WORDS)] * 3, "bpe", 320))
    model = cf.build(presets.llama("tiny", vocabulary=len(words)), seed=4)
    generation = {"eos_token_id": [], "bos_token_id": 1, "pad_token_id": 0, "suppress_tokens": [0, 1, 2, 3]}
    task = Completer(model, words, {"task": "complete", "longest": 4096, "generation": generation})  # type: ignore[arg-type]
    cf.save_model(task.model, folder)
    words.save(folder)
    (folder / "task.json").write_text(task.metadata.to_json())
    return folder


class Server:
    """A `clearformer serve` with the tiny model and bundled ones, on a port of its own."""

    def __init__(self, models: list[str], *flags: str, plant: str | None = None):
        words = [word for model in models for word in ("--model", model)]
        # a planted fault is a module of the script's folder that is imported before the server starts
        start = ["-m", "clearformer"] if plant is None else [str(Path(__file__).with_name(f"{plant}.py"))]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 as long as the process
        self.process = subprocess.Popen(
            [sys.executable, *start, "serve", "--port", "0", *words, *flags],
            stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = FIRST.match(line)
        if found is None:
            self.process.wait(PATIENCE)
            self.errors.seek(0)
            raise SystemExit(f"the server did not start: {self.errors.read()[-2000:]}")
        self.port = int(found[1])

    @property
    def memory(self) -> float:
        """Megabytes that it has in memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @property
    def seconds(self) -> float:
        """Of processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(with_signal)
        return self.process.wait(PATIENCE)


# a script that is told to stop ends its server too
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextmanager
def server(*bundled: str, flags: tuple[str, ...] = (), plant: str | None = None) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as home:
        made = Server([f"tiny={tiny(Path(home) / 'tiny')}", *bundled], *flags, plant=plant)
        try:
            yield made
        finally:
            if made.process.poll() is None:
                made.end()


# --- a client -------------------------------------------------------------------------------------------------------

LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
TEXT = re.compile(rb'"(?:text|content)": ?"[^"]')


@dataclass
class Answer:
    head: bytes
    body: bytes  # as it came: chunks with their sizes
    seconds: float
    first: float  # seconds to the first piece of text

    @property
    def status(self) -> int:
        return int(self.head[9:12])

    @property
    def headers(self) -> dict[str, str]:
        lines = (line.partition(": ") for line in self.head.decode("latin-1").split("\r\n")[1:])
        return {name.lower(): value for name, _, value in lines if name}

    @property
    def content(self) -> bytes:
        if "content-length" in self.headers:
            return self.body
        parts, at = [], 0
        while True:
            end = self.body.index(b"\r\n", at)
            size = int(self.body[at:end], 16)
            if not size:
                return b"".join(parts)
            parts.append(self.body[end + 2 : end + 2 + size])
            at = end + 4 + size

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Connection(asyncio.Protocol):
    """One connection that is kept. It does as little as a client can: it shares the cores with what it measures."""

    def __init__(self, port: int, host: str = "127.0.0.1"):
        self.host, self.port = host, port
        self.transport: asyncio.Transport | None = None
        self.waiting: asyncio.Future[Answer] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        if self.transport is None or self.transport.is_closing():
            made, _ = await asyncio.get_running_loop().create_connection(lambda: self, self.host, self.port)
            self.transport = made
        self.waiting = asyncio.get_running_loop().create_future()
        self.buffer, self.begun, self.first, self.length = bytearray(), time.perf_counter(), 0.0, -1
        self.transport.write(request(method, path, body))
        answer = await self.waiting
        if b"\r\nconnection: close" in answer.head.lower():
            await self.close()
        return answer

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.waiting is None or self.waiting.done():
            return
        if self.length < 0:  # of the headers
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self.length = end + 4
            found = LENGTH.search(self.buffer, 0, self.length)
            self.size = int(found[1]) if found else -1
        if not self.first and TEXT.search(self.buffer, self.length):
            self.first = time.perf_counter() - self.begun
        if self.size >= 0:
            whole = len(self.buffer) - self.length == self.size
        else:
            whole = self.buffer.endswith(b"\r\n0\r\n\r\n") and len(self.buffer) > self.length + 3
        if whole:
            seconds = time.perf_counter() - self.begun
            head, rest = bytes(self.buffer[: self.length - 2]), bytes(self.buffer[self.length :])
            self.waiting.set_result(Answer(head, rest, seconds, self.first or seconds))

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(error or ConnectionResetError("closed before its answer was whole"))

    async def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
        self.transport = None


def request(method: str, path: str, body: Any = None) -> bytes:
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "content-type: application/json\r\n" if content else ""
    return (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{kind}content-length: {len(content)}\r\n\r\n".encode()
        + content
    )


async def once(port: int, method: str, path: str, body: Any = None) -> Answer:
    made = Connection(port)
    try:
        return await made.ask(method, path, body)
    finally:
        await made.close()


def completion(number: int, tokens: int = 16, **more: Any) -> dict[str, Any]:
    """A request to the tiny model, another for every number."""
    prompt = " ".join(WORDS[(number * step + step) % len(WORDS)] for step in range(1, 9))
    return {"model": "tiny", "prompt": f"{number} {prompt}", "max_tokens": tokens, **more}


async def settled(port: int, seconds: float = 10.0) -> None:
    """Wait until nothing runs, by what the server says of itself."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = (await once(port, "GET", "/metrics")).content.decode()
        if not any(value for name, value in gauges(text).items() if "num_requests" in name or name == "queue_tokens"):
            return
        await asyncio.sleep(0.01)


def gauges(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("clearformer:"):
            name, _, value = line.rpartition(" ")
            name = name.removeprefix("clearformer:").partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


# --- bars -----------------------------------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


@dataclass
class Bars:
    """What was measured, what it must be, and whether it is."""

    rows: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def told(self, name: str, value: object) -> None:
        self.rows.append((name, str(value), "", True))

    def most(self, name: str, value: float, bar: float, unit: str = "") -> None:
        self.rows.append((name, f"{value:.4g}{unit}", f"≤ {bar:.4g}{unit}", value <= bar))

    def least(self, name: str, value: float, bar: float, unit: str = "") -> None:
        self.rows.append((name, f"{value:.4g}{unit}", f"≥ {bar:.4g}{unit}", value >= bar))

    def end(self) -> None:
        """Print the table, and write it where RECORD says; the exit code says whether all bars are met."""
        if place := os.environ.get("RECORD"):
            names = ("name", "value", "bar", "met")
            Path(place).write_text(json.dumps([dict(zip(names, row, strict=True)) for row in self.rows], indent=1))
        wide = [max(len(row[n]) for row in self.rows) for n in range(3)]
        for name, value, bar, good in self.rows:
            print(f"{name:<{wide[0]}}  {value:>{wide[1]}}  {bar:<{wide[2]}}  {'' if good else 'MISSED'}".rstrip())
        sys.exit(0 if all(row[3] for row in self.rows) else 1)
