"""Where computing happens: beside the event loop, together where it can be, and only while somebody waits for it."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clearformer.errors import CancelledError
from clearformer.generate.cancel import CancelScope, check_cancelled
from clearformer.serve import work
from clearformer.serve.endpoint import Call, Endpoint, Stream, as_json, as_json_in_pieces, event
from clearformer.serve.registry import ServedModel
from clearformer.serve.work import Batcher, Job, Work
from tests.generate.engines import PATIENCE, check_whole, model, request
from tests.serve.running import ENDPOINTS, Running, Said, read_answer, running, until
from tests.serve.running import request as said
from tests.tasks.writers import completer

STEP = 0.02  # seconds of a step of the slow model


# --- encoders -------------------------------------------------------------------------------------------------------


class Rounds:
    """Stands for an encoder: doubles numbers, writes down what it was given at once, and waits when told to."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, items: list[int]) -> list[int]:
        self.seen.append(items)
        self.go.wait(PATIENCE)
        if -1 in items:
            raise ValueError("poison")
        return [2 * item for item in items]


@pytest.fixture
def batcher() -> Iterator[Batcher]:
    made = Batcher("test")
    yield made
    made.close()


def job(items: list[int], compute: Callable[[list[int]], Any], key: str = "a") -> Job:
    return Job(key, items, compute, CancelScope())


def held(batcher: Batcher, rounds: Rounds) -> Job:
    """A job that is being run and waits, so that what comes next is together."""
    rounds.go.clear()
    first = job([0], rounds)
    batcher.submit(first)
    until(lambda: rounds.seen)
    return first


def test_what_comes_while_another_runs_is_run_together(batcher: Batcher) -> None:
    rounds = Rounds()
    held(batcher, rounds)
    jobs = [job(list(range(n, n + 3)), rounds) for n in range(10)]
    for each in jobs:
        batcher.submit(each)
    rounds.go.set()
    assert [each.future.result(PATIENCE) for each in jobs] == [[2 * i for i in each.items] for each in jobs]
    assert [len(items) for items in rounds.seen] == [1, 30]


def test_jobs_of_other_options_are_not_mixed(batcher: Batcher) -> None:
    rounds, other = Rounds(), Rounds()
    held(batcher, rounds)
    jobs = [job([n], rounds if n % 2 else other, "odd" if n % 2 else "even") for n in range(10)]
    for each in jobs:
        batcher.submit(each)
    rounds.go.set()
    assert [each.future.result(PATIENCE) for each in jobs] == [[2 * n] for n in range(10)]
    assert rounds.seen[1:] == [[1, 3, 5, 7, 9]]
    assert other.seen == [[0, 2, 4, 6, 8]]


def test_a_long_job_does_not_hold_up_a_short_one(batcher: Batcher) -> None:
    ended: list[str] = []
    rounds = Rounds()
    held(batcher, rounds)
    long, short = job(list(range(20 * work.ROUND)), rounds), job([1], rounds)
    long.future.add_done_callback(lambda _: ended.append("long"))
    short.future.add_done_callback(lambda _: ended.append("short"))
    batcher.submit(long)
    batcher.submit(short)
    rounds.go.set()
    assert long.future.result(PATIENCE) == [2 * n for n in range(20 * work.ROUND)]
    assert ended == ["short", "long"]
    assert max(len(items) for items in rounds.seen) <= work.ROUND


def test_poison_fails_alone(batcher: Batcher) -> None:
    rounds = Rounds()
    held(batcher, rounds)
    jobs = [job([n, n if n != 3 else -1], rounds) for n in range(6)]
    for each in jobs:
        batcher.submit(each)
    rounds.go.set()
    for n, each in enumerate(jobs):
        if n == 3:
            with pytest.raises(ValueError, match="poison"):
                each.future.result(PATIENCE)
        else:
            assert each.future.result(PATIENCE) == [2 * n, 2 * n]


def test_what_nobody_waits_for_is_not_run(batcher: Batcher) -> None:
    rounds = Rounds()
    held(batcher, rounds)
    gone, stays = job([5], rounds), job([6], rounds)
    batcher.submit(gone)
    batcher.submit(stays)
    gone.scope.cancel()
    rounds.go.set()
    assert stays.future.result(PATIENCE) == [12]
    with pytest.raises(CancelledError):
        gone.future.result(PATIENCE)
    assert rounds.seen == [[0], [6]]


def test_a_round_ends_when_the_last_who_waits_has_gone(batcher: Batcher) -> None:
    steps = [0]
    go = threading.Event()

    def long(items: list[int]) -> list[int]:
        go.wait(PATIENCE)
        for _ in range(1_000):
            check_cancelled()  # as encoders do between two batches
            steps[0] += 1
            time.sleep(0.001)
        return items

    first = job([0], long, "first")
    batcher.submit(first)
    until(lambda: batcher.running)
    jobs = [job([1], long), job([2], long)]
    for each in jobs:
        batcher.submit(each)
    go.set()
    first.scope.cancel()
    with pytest.raises(CancelledError):
        first.future.result(PATIENCE)
    until(lambda: batcher.running == 2)
    steps[0] = 0
    jobs[0].scope.cancel()
    time.sleep(0.05)
    assert batcher.running == 2  # the other still waits
    jobs[1].scope.cancel()
    for each in jobs:
        with pytest.raises(CancelledError):
            each.future.result(PATIENCE)
    assert steps[0] < 500


def test_a_batcher_that_closes_tells_those_who_wait() -> None:
    made, rounds = Batcher("test"), Rounds()
    first, second = held(made, rounds), job([1], rounds)
    made.submit(second)
    threading.Timer(0.05, rounds.go.set).start()
    made.close()
    assert first.future.result(PATIENCE) == [0]
    with pytest.raises(CancelledError):
        second.future.result(PATIENCE)
    with pytest.raises(CancelledError):
        made.submit(job([1], rounds))


# --- threads --------------------------------------------------------------------------------------------------------


def test_a_model_with_much_to_do_takes_no_thread_of_another() -> None:
    async def both() -> float:
        own, stop = Work(), threading.Event()
        busy = [asyncio.ensure_future(own.run(CancelScope(), lambda: stop.wait(PATIENCE), "busy")) for _ in range(500)]
        await asyncio.sleep(0.05)
        begun = time.perf_counter()
        assert await own.run(CancelScope(), lambda: 5, "other") == 5
        took = time.perf_counter() - begun
        stop.set()
        await asyncio.gather(*busy)
        own.close()
        return took

    assert asyncio.run(both()) < 1.0


def test_who_stops_waiting_stops_the_work() -> None:
    seen: list[bool] = []

    def compute() -> None:
        for _ in range(1_000):
            check_cancelled()
            time.sleep(0.002)
        seen.append(True)

    async def stopped() -> None:
        own, scope = Work(), CancelScope()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(own.run(scope, compute), 0.05)
        assert scope.cancelled
        own.close()

    asyncio.run(stopped())
    time.sleep(0.05)
    assert seen == []


def test_large_answers_are_the_same_bytes_in_pieces() -> None:
    large = {
        "a": [[n * 0.1 for n in range(200)] for _ in range(80)],
        "ä\n": {"b": None, "c": [True, "\u2028"]},
        "d": [],
    }
    assert as_json_in_pieces(large) == as_json(large)
    assert json.loads(as_json_in_pieces(large)) == large


def test_the_event_loop_never_computes() -> None:
    """While a request computes, and while a large one is read and answered, others are answered at once."""
    with running(ENDPOINTS) as up:
        slow, large = up.connect(), up.connect()
        slow.sendall(said("POST", "/slow", {"times": 30}))
        text = "x" * 1_000_000
        large.sendall(said("POST", "/echo", {"text": text, "times": 5}))
        times = []
        for _ in range(30):
            begun = time.perf_counter()
            assert up.ask("GET", "/live").status == 200
            times.append(time.perf_counter() - begun)
        assert sorted(times)[-3] < 0.15
        assert read_answer(slow).json == {"steps": 30}
        assert len(read_answer(large).body) > 5_000_000
        slow.close()
        large.close()


# --- clients that go ------------------------------------------------------------------------------------------------


async def write(call: Call, body: Said) -> dict[str, Any]:
    task = call.server.registry.models["tiny"].task
    handle = await call.run(10, lambda: task.engine.run([request(max_new_tokens=400)]))
    return {"tokens": len(handle[0][0].tokens)}


async def stream(call: Call, body: Said) -> Stream:
    task = call.server.registry.models["tiny"].task
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[int | None]()

    def compute() -> None:
        told = lambda token: loop.call_soon_threadsafe(queue.put_nowait, token.id)  # noqa: E731
        try:
            task.engine.run([request(max_new_tokens=400, on_token=told)])
        finally:
            loop.call_soon_threadsafe(queue.put_nowait, None)

    async def parts() -> Any:
        working = asyncio.ensure_future(call.run(10, compute))
        while (token := await queue.get()) is not None:
            yield event({"token": token})
        await working

    return Stream(parts())


@pytest.fixture(scope="module")
def written() -> Iterator[Running]:
    """A model that takes 20 ms for a step, and counts them."""
    task = completer()
    task.model = model()
    batch = task.engine.lanes[0].batch
    plain = batch.step

    def step() -> Any:
        batch.steps += 1  # type: ignore[attr-defined]
        time.sleep(STEP)
        return plain()

    batch.steps = 0  # type: ignore[attr-defined]
    batch.step = step  # type: ignore[method-assign]
    own = [Endpoint("POST", "/write", write, Said), Endpoint("POST", "/stream", stream, Said)]
    with running(own, [ServedModel("tiny", task, None, 0)], request_seconds=20.0) as up:  # type: ignore[arg-type]
        up.server.batch = batch  # type: ignore[attr-defined]
        yield up


@pytest.mark.parametrize("path", ["/write", "/stream"])
@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_client_that_goes_stops_its_computation_within_two_steps(written: Running, path: str, way: str) -> None:
    import socket
    import struct

    batch: Any = written.server.batch  # type: ignore[attr-defined]
    for _ in range(3):
        before = batch.steps
        made = written.connect()
        made.sendall(said("POST", path, b"{}"))
        until(lambda before=before: batch.steps > before + 3)
        if way == "reset":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        at = batch.steps
        made.close()
        until(lambda: not written.server.calls, 2.0)
        time.sleep(5 * STEP)
        assert batch.steps - at <= 2 + 1  # one was under way when the client went
        check_whole(written.server.registry.models["tiny"].task.engine)
    assert written.server.admission.tokens == 0


def test_a_deadline_covers_waiting_and_computing(written: Running) -> None:
    own = [Endpoint("POST", "/write", write, Said)]
    task = written.server.registry.models["tiny"].task
    with running(own, [ServedModel("tiny", task, None, 0)], request_seconds=0.3) as up:  # type: ignore[arg-type]
        batch: Any = written.server.batch  # type: ignore[attr-defined]
        task.engine.close = lambda: None
        begun = time.monotonic()
        answer = up.ask("POST", "/write", b"{}")
        assert (answer.status, answer.json["error"]["code"]) == (504, "timeout")
        assert 0.25 < time.monotonic() - begun < 1.0
        at = batch.steps
        time.sleep(5 * STEP)
        assert batch.steps - at <= 2
        check_whole(task.engine)
        del task.engine.close
