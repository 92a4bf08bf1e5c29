"""Where computing happens: beside the event loop, together where it can be, and only while somebody waits for it."""

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clearformer.errors import CancelledError
from clearformer.generate.cancel import CancelScope, check_cancelled
from clearformer.serve import endpoint, work
from clearformer.serve.endpoint import Call, Endpoint, Stream, as_json, as_json_in_pieces, event
from clearformer.serve.registry import ServedModel
from clearformer.serve.work import Batcher, Job, Work
from tests.generate.engines import PATIENCE, check_whole, model, request
from tests.serve.running import ENDPOINTS, HOUR, Running, Said, read_answer, running, silent, until
from tests.serve.running import request as said
from tests.tasks.writers import completer

MANY = 98_765  # numbers that are no small answer


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
    steps, seen = [0], []
    go = threading.Event()

    def endless(items: list[int]) -> list[int]:
        seen.append(items)
        go.wait(PATIENCE)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            check_cancelled()  # as encoders do between two batches
            steps[0] += 1
            time.sleep(0.001)
        return items

    first = job([0], endless, "first")
    batcher.submit(first)
    until(lambda: batcher.running)
    jobs = [job([1], endless), job([2], endless)]
    for each in jobs:
        batcher.submit(each)
    go.set()
    first.scope.cancel()
    with pytest.raises(CancelledError):
        first.future.result(PATIENCE)
    until(lambda: batcher.running == 2)
    jobs[0].scope.cancel()
    at = steps[0]
    until(lambda: steps[0] > at + 5)
    assert batcher.running == 2  # the other still waits,
    assert seen[-1] == [1, 2]  # and the round that both are in goes on
    jobs[1].scope.cancel()
    for each in jobs:
        with pytest.raises(CancelledError):
            each.future.result(PATIENCE)


def test_a_batcher_that_closes_tells_those_who_wait() -> None:
    made, rounds = Batcher("test"), Rounds()
    first, second = held(made, rounds), job([1], rounds)
    made.submit(second)
    closing = threading.Thread(target=made.close)
    closing.start()
    until(lambda: made.closed)
    rounds.go.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert first.future.result(PATIENCE) == [0]
    with pytest.raises(CancelledError):
        second.future.result(PATIENCE)
    with pytest.raises(CancelledError):
        made.submit(job([1], rounds))


# --- threads --------------------------------------------------------------------------------------------------------


def test_a_model_with_much_to_do_takes_no_thread_of_another() -> None:
    async def both() -> None:
        own, stop, begun = Work(), threading.Event(), []

        def wait() -> bool:
            begun.append(1)
            return stop.wait(PATIENCE)

        busy = [asyncio.ensure_future(own.run(CancelScope(), wait, "busy")) for _ in range(500)]
        try:
            while len(begun) < work.THREADS:
                await asyncio.sleep(0.005)
            assert await asyncio.wait_for(own.run(CancelScope(), lambda: 5, "other"), PATIENCE / 2) == 5
        finally:
            stop.set()
        assert all(await asyncio.gather(*busy))
        own.close()

    asyncio.run(both())


def test_who_stops_waiting_stops_the_work() -> None:
    begun, over, ended = threading.Event(), threading.Event(), threading.Event()

    def compute() -> None:
        begun.set()
        try:
            while not over.wait(0.002):
                check_cancelled()
        except CancelledError:
            ended.set()
            raise

    async def stopped() -> None:
        own, scope = Work(), CancelScope()
        waiting = asyncio.create_task(own.run(scope, compute))
        while not begun.is_set():
            await asyncio.sleep(0.005)
        assert not scope.cancelled
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert scope.cancelled
        own.close()

    try:
        asyncio.run(stopped())
        assert ended.wait(PATIENCE)
    finally:
        over.set()


def test_large_answers_are_the_same_bytes_in_pieces() -> None:
    large = {
        "a": [[n * 0.1 for n in range(200)] for _ in range(80)],
        "ä\n": {"b": None, "c": [True, "\u2028"]},
        "d": [],
    }
    assert as_json_in_pieces(large) == as_json(large)
    assert json.loads(as_json_in_pieces(large)) == large


async def count(call: Call, body: Said) -> dict[str, Any]:
    return {"numbers": list(range(body.times + 1))}


def test_the_event_loop_never_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a request computes, and while a large one is read and answered, others are answered."""
    stages: list[str] = []
    let_on = threading.Semaphore(0)

    def halts(name: str) -> None:
        """Before this is done it waits, in whatever thread it is done."""
        true = getattr(endpoint, name)

        def halting(*given: Any) -> Any:
            if name not in stages and str(MANY) in repr(given):
                stages.append(name)
                assert let_on.acquire(timeout=PATIENCE)
            return true(*given)

        monkeypatch.setattr(endpoint, name, halting)

    halts("validated")
    halts("as_json_in_pieces")
    with running([*ENDPOINTS, Endpoint("POST", "/count", count, Said)]) as up, up.held() as hold:
        slow, large = up.connect(), up.connect()
        slow.sendall(said("POST", "/slow", {"text": "a"}))
        until(lambda: hold.at_work)
        large.sendall(said("POST", "/count", {"text": "x" * endpoint.LARGE, "times": MANY}))
        for wanted in (["validated"], ["validated", "as_json_in_pieces"]):
            until(lambda wanted=wanted: stages == wanted)
            for _ in range(3):
                assert up.ask("GET", "/live").status == 200
            let_on.release()
        assert len(read_answer(large).json["numbers"]) == MANY + 1
        hold.go.set()
        assert read_answer(slow).json == {"text": "a"}
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


class Steps:
    """Counts the steps of a model, and stands still at one of them until it may go on."""

    def __init__(self, batch: Any):
        self.count, self.still_at = 0, 0
        self.still, self.go = threading.Event(), threading.Event()
        self.plain, batch.step = batch.step, self.step

    def step(self) -> Any:
        self.count += 1
        if self.count == self.still_at:
            self.still.set()
            self.go.wait(PATIENCE)
        return self.plain()

    def stand_still(self, at: int) -> None:
        """At the step of that number from now."""
        self.still.clear()
        self.go.clear()
        self.still_at = self.count + at


@pytest.fixture(scope="module")
def written() -> Iterator[tuple[Running, Steps]]:
    task = completer()
    task.model = model()
    steps = Steps(task.engine.lanes[0].batch)
    own = [Endpoint("POST", "/write", write, Said), Endpoint("POST", "/stream", stream, Said)]
    with running(own, [ServedModel("tiny", task, None, 0)], request_seconds=HOUR) as up:  # type: ignore[arg-type]
        yield up, steps


def settled(engine: Any) -> None:
    """Nothing is left of any request, soon."""
    until(lambda: not any(lane.active for lane in engine.lanes))
    check_whole(engine)


@pytest.mark.parametrize("path", ["/write", "/stream"])
@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_client_that_goes_stops_its_computation_within_two_steps(
    written: tuple[Running, Steps], path: str, way: str
) -> None:
    """The step that is under way when the server sees it, and perhaps the next."""
    up, steps = written
    for _ in range(3):
        steps.stand_still(at=4)
        made = up.connect()
        made.sendall(said("POST", path, b"{}"))
        assert steps.still.wait(PATIENCE)
        if way == "reset":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        made.close()
        until(lambda: not up.server.calls)
        at = steps.count
        steps.go.set()
        settled(up.server.registry.models["tiny"].task.engine)
        assert steps.count - at <= 1
    assert up.server.admission.tokens == 0


def test_a_deadline_covers_computing(written: tuple[Running, Steps]) -> None:
    up, steps = written
    steps.stand_still(at=4)
    with up.connect() as made:
        made.sendall(said("POST", "/write", b"{}"))
        assert steps.still.wait(PATIENCE)
        up.pass_by(HOUR - 600)
        assert silent(made)
        up.pass_by(600)
        answer = read_answer(made)
        assert (answer.status, answer.json["error"]["code"]) == (504, "timeout")
        at = steps.count
        steps.go.set()
        settled(up.server.registry.models["tiny"].task.engine)
        assert steps.count - at <= 1
