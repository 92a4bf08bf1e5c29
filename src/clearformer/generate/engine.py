"""The engine: whatever writes text is a request to it. Continuous batching, one thread a lane, a handle a request.

Thread-safe: `submit`, `run`, `cancel` and `close` may be called from any thread. The model is only read. A request's
tokens and log-probabilities are its own: the same alone, in any company and at any moment of joining.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from clearformer import spec
from clearformer.core.model import EncoderDecoder, Transformer
from clearformer.errors import CancelledError, DataError
from clearformer.generate import cancel
from clearformer.generate.batch import Batch, Model, StaticBatch
from clearformer.generate.collector import collector_paused
from clearformer.generate.lane import Lane
from clearformer.generate.options import Plan, check_tokens
from clearformer.generate.requests import Handle, Request, Written
from clearformer.kernels.native.contention import Contention
from clearformer.kernels.native.processor import threads

Done = Callable[[int, list[Written]], None]
LOST = 0.25  # the share of its time that a lane may wait for a core, or for Python's lock, before it is to work alone
PATIENCE = 0.05  # seconds after which a lane that may not take requests looks again
FED = 32  # requests that are put in the queue at a time


class Engine:
    """Writes with one model, whose weights stay as they are: what was read with them is kept.

    `kv_cache_tokens` is the hard size of its KV cache, in tokens; requests that do not fit wait, in the order of their
    arrival. `max_rows` texts are written side by side in a lane.
    """

    def __init__(
        self,
        model: Model,
        *,
        kv_cache_tokens: int | None = None,
        max_rows: int | None = None,
        prefix_cache: bool = True,
    ):
        if not isinstance(model, Transformer | EncoderDecoder) or not isinstance(model.spec.head, spec.NextToken):
            raise DataError("this model does not write: to be served by an engine, it needs the head 'next_token'")
        from clearformer.generate.paged_batch import lanes_for

        self.model, self.process = model, os.getpid()
        self.vocabulary = len(model.head.weight)  # type: ignore[arg-type]
        stack = model.spec.decoder if isinstance(model.spec, spec.EncoderDecoder) else model.spec.stack
        self.positions: int | None = getattr(stack.embed.positions, "length", None)
        options: dict[str, Any] = {"kv_cache_tokens": kv_cache_tokens, "max_rows": max_rows}
        paged = lanes_for(model, **options, prefix_cache=prefix_cache)
        batches: Sequence[Batch] = paged or [StaticBatch(model)]
        self.lanes = [Lane(self, batch) for batch in batches]
        self.contention = Contention(LOST)
        self.waiting: deque[Handle] = deque()
        self.changed = threading.Condition()  # guards all that follows
        self.threads: list[threading.Thread | None] = [None] * len(self.lanes)
        self.closed = False
        self.checked: Plan | None = None  # the last plan that was found to be right
        self.cancelled = False  # whether some that wait were, since that was last looked at

    # --- for callers ------------------------------------------------------------------------------------------

    def submit(
        self,
        request: Request,
        on_done: Callable[[Handle], None] | None = None,
        on_step: Callable[[Handle], None] | None = None,
    ) -> Handle:
        """Put a request in the queue; its handle gives tokens as they come and the result. `on_done` is told when it
        has ended, in whatever way, by the thread that ended it; `on_step` when there are new tokens before that."""
        handle = self._enqueue([request], on_done, on_step=on_step)[0]
        self._wake(1)
        return handle

    def run(self, requests: Iterable[Request], done: Done | None = None) -> list[list[Written]]:
        """The results of requests, in order; `done` is told the number and the results of each when it is finished.
        Requests are taken as they are needed, so that the first are written while the last are made. Where one fails,
        the others are cancelled and its error is raised. The caller's own thread drives the first lane meanwhile."""
        feed = _Feed(self, iter(requests), done)
        lane = self.lanes[0]
        try:
            if feed.fill() > 1:
                self._wake(len(self.lanes) - 1, first=1)
            if lane.lock.acquire(blocking=False):
                try:
                    with collector_paused():
                        while not feed.stopped():
                            lane.work(feed.stopped)
                            if feed.exhausted:
                                break
                finally:
                    lane.lock.release()
                if lane.active or self.waiting:
                    self._wake(1)  # what others asked for goes on
            while not feed.exhausted:  # another thread drives this lane
                feed.take()
                self._wake(1)
            if not feed.over.is_set():
                self._wake(1)
            feed.over.wait()
            if feed.errors:
                raise feed.errors[0]
            return [handle.result() for handle in feed.handles]
        except BaseException:
            for handle in feed.handles:
                handle.cancel()
            raise

    def clear_prefix_cache(self) -> None:
        """Forget what was read before; prompts in use stay."""
        for lane in self.lanes:
            with lane.lock:
                lane.batch.forget()

    def close(self) -> None:
        """Cancel what is left and end the threads; nothing can be submitted after it."""
        with self.changed:
            self.closed = True
            waiting, self.waiting = list(self.waiting), deque()
            self.changed.notify_all()
        for handle in waiting:
            handle.finish(None, CancelledError("the engine was closed before this request was served"))
        for lane in self.lanes:
            with lane.lock:
                for entry in list(lane.active):
                    lane._let_go([entry])
                    entry.handle.finish(None, CancelledError("the engine was closed while this request was served"))

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for lanes --------------------------------------------------------------------------------------------

    def share(self, lane: Lane) -> list[Handle]:
        """What a lane may take from the queue: so much that all have the same, and no more than it has use for."""
        if not self.waiting or lane.taken:
            return []
        lanes = self._open_lanes()
        if lane not in lanes:
            return []
        with self.changed:
            at_work = sum(len(each.active) for each in lanes)
            fair = -(-(at_work + len(self.waiting)) // len(lanes))
            count = max(0, min(fair, lane.batch.appetite) - len(lane.active))
            count = min(count, len(self.waiting))
            return [self.waiting.popleft() for _ in range(count)]

    def forget_cancelled(self) -> None:
        """What was cancelled while it waited leaves the queue."""
        if not self.cancelled:
            return
        with self.changed:
            self.cancelled = False
            gone = [handle for handle in self.waiting if handle.cancelled]
            if gone:
                self.waiting = deque(handle for handle in self.waiting if not handle.cancelled)
        for handle in gone:
            handle.finish(None)

    def _open_lanes(self) -> list[Lane]:
        """Those that take requests: all, or the first while others use the cores."""
        return self.lanes[:1] if self.contention.alone() else self.lanes

    def _has_work(self, lane: Lane) -> bool:
        return bool(lane.active or (self.waiting and lane in self._open_lanes()))

    @property
    def side_by_side(self) -> bool:
        """Whether several lanes have work."""
        return sum(1 for lane in self.lanes if lane.active) > 1

    def threads_for(self, lane: Lane) -> int:
        """The cores are shared by the lanes that have work; one of several lanes keeps to one while others use them."""
        if self.contention.alone():
            return 1
        return max(1, threads() // max(1, sum(1 for each in self.lanes if each.active or each is lane)))

    def _enqueue(
        self,
        requests: Sequence[Request],
        on_done: Callable[[Handle], None] | None = None,
        first: int = 0,
        on_step: Callable[[Handle], None] | None = None,
    ) -> list[Handle]:
        cancel.check_cancelled()
        for request in requests:
            self._check(request)
        with self.changed:
            if self.closed:
                raise DataError("this engine was closed; make another one")
            handles = []
            for number, request in enumerate(requests, first):
                handles.append(Handle(request, number, on_done=on_done, on_step=on_step, wake=self._awake))
            self.waiting.extend(handles)
        if (scope := cancel.current()) is not None:
            for handle in handles:
                scope.add(handle)
        return handles

    def _check(self, request: Request) -> None:
        if self.model.training:
            raise DataError(
                "the model is in training mode, so dropout would blur what it says; call model.eval() first"
            )
        two = isinstance(self.model, EncoderDecoder)
        if two and request.source is None:
            raise DataError("an encoder–decoder needs a source to decode from; pass source=")
        if not two and request.source is not None:
            raise DataError("this model has one stack and takes no source; put the text in the prompt")
        if not len(request.prompt):
            raise DataError("a prompt has no token to go on from; give at least one")
        if self.positions is not None and (length := len(request.prompt)) > self.positions:
            raise DataError(f"a text has {length} tokens, and this model has {self.positions} positions")
        if any(not 0 <= token < self.vocabulary for token in request.prompt):
            bad = next(token for token in request.prompt if not 0 <= token < self.vocabulary)
            raise DataError(f"token ids must be from 0 to {self.vocabulary - 1}, given {bad}")
        self._check_plan(request.plan)
        if why := self.lanes[0].batch.too_large(request):
            raise DataError(why)

    def _check_plan(self, plan: Plan) -> None:
        if plan is self.checked:  # many have the same
            return
        if plan.limit < 1:
            raise DataError(f"max_new_tokens must be at least 1, given {plan.limit}", param="max_new_tokens")
        check_tokens(plan, self.vocabulary)
        self.checked = plan

    def _awake(self) -> None:
        with self.changed:
            self.cancelled = True
            for lane in self.lanes:
                lane.look = True
            self.changed.notify_all()

    def _wake(self, count: int, first: int = 0) -> None:
        """Let some lanes' own threads look for work."""
        with self.changed:
            for n in range(first, min(first + count, len(self.lanes))):
                if self.threads[n] is None:
                    name = f"clearformer-engine-{n}"
                    thread = threading.Thread(target=self._drive, args=(self.lanes[n],), name=name, daemon=True)
                    self.threads[n] = thread
                    thread.start()
            self.changed.notify_all()

    def _drive(self, lane: Lane) -> None:
        """The life of a lane's own thread: it sleeps while there is nothing to do or a caller drives."""
        while True:
            with self.changed:
                while not (self.closed or (self._has_work(lane) and not lane.lock.locked())):
                    self.changed.wait(PATIENCE if self.contention.alone() else None)
                if self.closed:
                    return
            if lane.lock.acquire(blocking=False):
                try:
                    lane.work(lambda: self.closed)
                finally:
                    lane.lock.release()
            with self.changed:
                self.changed.notify_all()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("an engine has threads and cannot be copied to another process; make one there")


class _Feed:
    """The requests of one caller of `run`, on their way into the queue, and what is left to wait for."""

    def __init__(self, engine: Engine, requests: Iterator[Request], done: Done | None):
        self.engine, self.requests, self.done = engine, requests, done
        self.handles: list[Handle] = []
        self.errors: list[BaseException] = []
        self.exhausted = False
        self.over = threading.Event()
        self.ended, self.counted = 0, threading.Lock()
        self.ahead = sum(lane.batch.appetite for lane in engine.lanes)

    def fill(self) -> int:
        """Keep so many in the queue that no lane is without; how many there are in all."""
        while not self.exhausted and len(self.engine.waiting) < self.ahead:
            self.take()
        return len(self.handles)

    def take(self) -> None:
        some = list(islice(self.requests, FED))
        if some:
            self.handles += self.engine._enqueue(some, self._ended, first=len(self.handles))
        if len(some) < FED:
            with self.counted:
                self.exhausted = True
                if self.ended == len(self.handles):
                    self.over.set()

    def stopped(self) -> bool:
        """Asked between two steps: whether there is no more to do."""
        if not self.exhausted and not self.over.is_set():
            self.fill()
        return self.over.is_set() or self.engine.closed

    def _ended(self, handle: Handle) -> None:
        error = handle.error
        if self.done is not None and handle.results is not None:
            try:
                self.done(handle.number, handle.results)
            except BaseException as raised:  # the caller's, who is told; a lane has others to serve
                error = raised
        with self.counted:
            self.ended += 1
            if error is not None:
                self.errors.append(error)
            if error is not None or (self.exhausted and self.ended == len(self.handles)):
                self.over.set()
