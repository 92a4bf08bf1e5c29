"""Where computing happens: never on the event loop.

What writes runs in a thread of a pool and is a client of its model's engine, which batches all of them. What reads
(embed, classify, tag, ...) goes through one `Batcher` a model, which puts the texts of several requests together.
"""

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clearformer.errors import CancelledError, ClearformerError
from clearformer.generate.cancel import CancelScope

Result = TypeVar("Result")
THREADS = 64  # of a model: callers of its engine at a time; a thread that waits costs little
ROUND = 256  # texts that a batcher runs before it looks for others


@dataclass(eq=False)
class Job:
    """Texts of one request. Those of jobs with the same key are run together: `compute` gives a result for each."""

    key: Hashable
    items: Sequence[Any]
    compute: Callable[[list[Any]], Sequence[Any]]
    scope: CancelScope
    future: "Future[list[Any]]" = field(default_factory=Future)
    results: list[Any] = field(default_factory=list)

    @property
    def left(self) -> Sequence[Any]:
        return self.items[len(self.results) :]

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _AnyOf(CancelScope):
    """The scope of a round: cancelled once nobody waits for any of it."""

    def __init__(self, jobs: list[Job]):
        super().__init__()
        self.jobs = jobs

    def check(self) -> None:
        if all(job.scope.cancelled for job in self.jobs):
            raise CancelledError("the clients have gone")


class Batcher:
    """One thread that runs the texts of all requests to one encoder. Every round takes some of each job, so that a long
    one holds up no short one; while a round is run, more jobs come, and the next round has them."""

    def __init__(self, name: str):
        self.jobs: list[Job] = []
        self.changed = threading.Condition()
        self.closed = False
        self.running = 0  # jobs of the round that is run
        self.thread = threading.Thread(target=self._life, name=f"clearformer-{name}", daemon=True)
        self.thread.start()

    def submit(self, job: Job) -> "Future[list[Any]]":
        with self.changed:
            if self.closed:
                raise CancelledError("the server is stopping")
            self.jobs.append(job)
            self.changed.notify()
        return job.future

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _life(self) -> None:
        while True:
            with self.changed:
                while not self.jobs and not self.closed:
                    self.changed.wait()
                if self.closed:
                    for job in self.jobs:
                        job.fail(CancelledError("the server is stopping"))
                    return
                jobs = self._together()
                self.running = len(jobs)
            self._round(jobs)
            with self.changed:
                self.running = 0
                self.jobs = [job for job in self.jobs if not job.future.done()]

    def _together(self) -> list[Job]:
        """The jobs of the next round: those like the first in the queue, which goes to the end if it is not done."""
        for job in self.jobs:
            if job.scope.cancelled:
                job.fail(CancelledError("the client has gone"))
        self.jobs = [job for job in self.jobs if not job.future.done()]
        if not self.jobs:
            return []
        first = self.jobs[0]
        alike = [job for job in self.jobs if job.key == first.key]
        self.jobs = [job for job in self.jobs if job.key != first.key] + alike
        return alike

    def _round(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        share = max(1, ROUND // len(jobs))
        parts = [list(job.left[:share]) for job in jobs]
        try:
            with _AnyOf(jobs):
                found = list(jobs[0].compute([item for part in parts for item in part]))
        except Exception:  # of one of them, it may be: each is run by itself, and only what is wrong fails
            for job, part in zip(jobs, parts, strict=True):
                try:
                    with job.scope:
                        self._take(job, list(job.compute(part)))
                except Exception as error:
                    job.fail(error)
            return
        at = 0
        for job, part in zip(jobs, parts, strict=True):
            self._take(job, found[at : at + len(part)])
            at += len(part)

    def _take(self, job: Job, results: list[Any]) -> None:
        job.results += results
        if len(job.results) == len(job.items) and not job.future.done():
            job.future.set_result(job.results)


class Work:
    """Threads for every model, so that one with much to do takes none of another's."""

    def __init__(self) -> None:
        self.pools: dict[str, ThreadPoolExecutor] = {}
        self.batchers: dict[str, Batcher] = {}
        self._aside = ThreadPoolExecutor(2, "clearformer-aside")
        self._lock = threading.Lock()

    async def run(self, scope: CancelScope, compute: Callable[[], Result], model: str = "") -> Result:
        """The result of a call that may take long, run in a thread of a model and in a cancel scope."""

        def inside() -> Result:
            with scope:
                scope.check()
                return compute()

        with self._lock:
            if model not in self.pools:
                self.pools[model] = ThreadPoolExecutor(THREADS, f"clearformer-{model}")
        whose = copy_context()  # the thread's is another one
        future = asyncio.get_running_loop().run_in_executor(self.pools[model], whose.run, inside)
        return await self._until(scope, future)

    async def aside(self, compute: Callable[[], Result]) -> Result:
        """The result of something short that has nothing to do with a model: large bodies are read and written so."""
        return await asyncio.get_running_loop().run_in_executor(self._aside, compute)

    async def read(self, model: str, job: Job) -> list[Any]:
        """The results of a job of an encoder."""
        if not job.items:
            return []
        with self._lock:
            if model not in self.batchers:
                self.batchers[model] = Batcher(model)
        return await self._until(job.scope, asyncio.wrap_future(self.batchers[model].submit(job)))

    async def _until(self, scope: CancelScope, future: "asyncio.Future[Result]") -> Result:
        """Wait; who stops waiting stops the work too."""
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            scope.cancel()
            future.add_done_callback(_seen)
            raise

    def close(self) -> None:
        for batcher in self.batchers.values():
            batcher.close()
        for pool in (*self.pools.values(), self._aside):
            pool.shutdown(wait=False, cancel_futures=True)


def _seen(future: "asyncio.Future[Any]") -> None:
    """An error that nobody waits for any more is nobody's."""
    if not future.cancelled() and isinstance(future.exception(), ClearformerError):
        return
