"""Answers that can be looked into later: of every run the ids that were read and written, of some their traces.

Ids take little room, so that they are kept of every answer, and the trace of that very run is made from them when it is
asked for. Both are bounded, in number and in bytes: the oldest go first. Where the server wants keys, what a request
with one key made can be found with that key alone.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torch import Tensor

from clearformer.generate.requests import Handle
from clearformer.serve.errors import ApiError
from clearformer.serve.registry import ServedModel

RUN_BYTES = 64 * 2**20  # of all runs that are kept
TRACE_BYTES = 512 * 2**20  # of all traces that are kept; one alone may not be larger either
ID_BYTES = 8
OWNER: ContextVar[str] = ContextVar("owner", default="")  # whose request is being answered: the number of its key
Kept = TypeVar("Kept")
Ids = Sequence[int]


@dataclass(frozen=True, eq=False)
class Part:
    """One text of a run, as the model read and wrote it."""

    source: Ids | Tensor  # what was read: a source, a prompt, a text with its special tokens, or an image c h w
    start: Ids = ()  # what a decoder of two stacks began with
    written: Ids = ()
    segments: Ids = ()  # of a pair of texts


@dataclass(frozen=True, eq=False)
class Run:
    """What one request made a model do. Parts are made when they are asked for: what reads a text again reads the
    same."""

    id: str
    model: ServedModel
    verb: str
    parts: Callable[[], list[Part]]
    also: tuple[str, ...] = ()  # other names: the id of the response
    created: float = field(default_factory=time.time)


class Store(Generic[Kept]):
    """Things by their names, each owner's for itself, so many and so many bytes at most. Safe from any thread."""

    def __init__(self, most: int, most_bytes: int):
        self.most, self.most_bytes = most, most_bytes
        self.bytes = 0
        self._kept: OrderedDict[str, tuple[Kept, int, tuple[str, ...]]] = OrderedDict()
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, name: str, thing: Kept, size: int, also: Iterable[str] = ()) -> None:
        name, also = _own(name), [_own(each) for each in also]
        with self._lock:
            self._drop(name)
            if size > self.most_bytes:
                return
            self._kept[name] = thing, size, tuple(also)
            self._names |= dict.fromkeys(also, name)
            self.bytes += size
            while len(self._kept) > self.most or self.bytes > self.most_bytes:
                self._drop(next(iter(self._kept)))

    def get(self, name: str) -> Kept | None:
        name = _own(name)
        with self._lock:
            found = self._kept.get(self._names.get(name, name))
            return None if found is None else found[0]

    def drop(self, name: str) -> bool:
        with self._lock:
            return self._drop(_own(name))

    def _drop(self, name: str) -> bool:
        found = self._kept.pop(name, None)
        if found is None:
            return False
        self.bytes -= found[1]
        for other in found[2]:
            if self._names.get(other) == name:
                del self._names[other]
        return True


def _own(name: str) -> str:
    return f"{OWNER.get()}/{name}"


class Runs:
    """The runs of a server. Those that were asked for with `X-Trace` have a place of their own, from which a busy
    server's other answers do not push them."""

    def __init__(self, most: int):
        self.most = most
        self.every: Store[Run] = Store(most, RUN_BYTES)
        self.asked: Store[Run] = Store(most, RUN_BYTES)

    def keep(self, run: Run, size: int, asked: bool) -> None:
        if self.most:
            (self.asked if asked else self.every).keep(run.id, run, size, run.also)

    def find(self, name: str) -> Run:
        self.check()
        found = self.asked.get(name) or self.every.get(name)
        if found is None:
            raise ApiError(
                404,
                f"no run is called {name[:100]!r}, or it was long ago: the last {self.most} are kept. A run has the id"
                " of its response, or what the header x-request-id of the answer says",
                code="no_such_run",
            )
        return found

    def check(self) -> None:
        """Whether there is anything to find."""
        if not self.most:
            raise ApiError(404, OFF, code="runs_are_off")


OFF = "this server keeps no runs and no traces; start it with --traces N to keep the last N"


def written(handles: Iterable[Handle]) -> list[Part]:
    """All texts that requests to an engine have become: the best of each, or each of several that were asked for."""
    found = []
    for handle in handles:
        request = handle.request
        for one in handle.results or []:
            if request.source is None:
                found.append(Part(tuple(request.prompt), written=tuple(one.tokens)))
            else:
                source = request.source if isinstance(request.source, Tensor) else tuple(request.source)
                found.append(Part(source, tuple(request.prompt), tuple(one.tokens)))
    return found


def paired(source: Sequence[Ids], target: Sequence[Ids], start: Ids = ()) -> list[Part]:
    """Parts from what was read and what was written, given side by side."""
    targets = target or [()] * len(source)
    return [Part(tuple(read), tuple(start), tuple(wrote)) for read, wrote in zip(source, targets, strict=True)]


def size_of(parts: Iterable[Part]) -> int:
    """Bytes, roughly."""
    total = 0
    for part in parts:
        image = isinstance(part.source, Tensor)
        total += part.source.numel() * 4 if isinstance(part.source, Tensor) else 0
        total += ID_BYTES * ((0 if image else len(part.source)) + len(part.start) + len(part.written))
    return total
