"""An engine as its callers see it: handles, order, waiting for room, threads, and cells that come back."""

import math
import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from clearformer.errors import CancelledError, DataError
from clearformer.generate.engine import Engine
from clearformer.generate.requests import Handle, Request, Token, Written
from clearformer.kernels.native import processor
from tests.generate.engines import PATIENCE, after, alone, batch, check_whole, model, one_lane, request


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As many lanes as threads, whatever the machine has."""
    monkeypatch.setattr(processor, "cores", lambda: 2)
    yield
    torch.set_num_threads(1)


# --- results and streams ----------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_requests() -> None:
    """Short and long ones, so that they do not end in this order."""
    requests = [request([n + 1, 2], max_new_tokens=1 + n * 7 % 11) for n in range(30)]
    with one_lane(max_rows=7) as engine:
        found = engine.run(requests)
        assert [len(each[0].tokens) for each in found] == [r.plan.limit for r in requests]
        assert found == [alone(r) for r in requests]
        assert engine.run([]) == []


@pytest.mark.parametrize("packed", [True, False])
def test_tokens_come_one_by_one_and_end_with_the_reason(packed: bool) -> None:
    each = request(temperature=1.0, seed=4, logprobs=3, max_new_tokens=9)
    with Engine(model(packed=packed)) as engine:
        handle = engine.submit(each)
        tokens = list(handle)
        (text,) = handle.result(PATIENCE)
        again = list(handle)
    assert [token.id for token in tokens] == text.tokens
    assert [token.logprob for token in tokens] == text.logprobs
    assert [token.top for token in tokens] == text.top
    assert [token.finish for token in tokens] == [None] * 8 + ["limit"]
    assert again == tokens


def test_a_stream_is_there_before_the_text_is_done() -> None:
    """The second token is only chosen after the first was read by the one who waits for it."""
    seen, first = threading.Event(), []
    hook = after(2, lambda: first.append(seen.wait(PATIENCE)))
    with one_lane() as engine:
        tokens = iter(engine.submit(request(max_new_tokens=3, on_token=hook)))
        next(tokens)
        seen.set()
        assert len(list(tokens)) == 2
    assert first == [True]


def test_a_token_is_told_when_it_is_known_whether_it_is_the_last() -> None:
    """A caller who asks while the stop hook still thinks about it waits for the answer."""
    asked = threading.Event()

    def stop(tokens: list[int]) -> bool:
        if len(tokens) == 2:
            asked.set()
            threading.Event().wait(0.2)
        return len(tokens) == 2

    with one_lane() as engine:
        tokens = iter(engine.submit(request(stop=stop)))
        assert next(tokens).finish is None
        assert asked.wait(PATIENCE)
        assert next(tokens).finish == "stop"
        assert list(tokens) == []


def test_an_end_a_stop_and_a_limit() -> None:
    free = alone(request())[0].tokens
    with one_lane() as engine:
        end = request(eos_token_id=free[2])
        stop = request(stop=lambda tokens: len(tokens) == 4)
        found = [each[0] for each in engine.run([end, stop, request()])]
    cut = free.index(free[2]) + 1
    assert [(each.tokens, each.finish) for each in found] == [
        (free[:cut], "end"),
        (free[:4], "stop"),
        (free, "limit"),
    ]


def test_a_beam_gives_its_tokens_at_its_end() -> None:
    heard: list[Token] = []
    with one_lane() as engine:
        handle = engine.submit(request(num_beams=3, num_return_sequences=3, on_token=heard.append))
        tokens = [token.id for token in handle]
        best, second, third = handle.result(PATIENCE)
    assert tokens == best.tokens == [token.id for token in heard]
    assert best.score >= second.score >= third.score
    assert len({tuple(each.tokens) for each in (best, second, third)}) == 3


def test_the_first_of_several_texts_is_told_once() -> None:
    """Also where it ends before the others."""
    shorter = 0
    for seed in range(8):
        heard: list[Token] = []
        ways = {"temperature": 1.5, "seed": seed, "num_return_sequences": 3, "eos_token_id": tuple(range(0, 100, 3))}
        with one_lane() as engine:
            handle = engine.submit(request(**ways, max_new_tokens=12, on_token=heard.append))
            streamed = list(handle)
            texts = handle.result(PATIENCE)
        assert [token.id for token in heard] == [token.id for token in streamed] == texts[0].tokens
        assert [token.finish for token in streamed] == [None] * (len(streamed) - 1) + [texts[0].finish]
        assert heard == streamed
        shorter += len(texts[0].tokens) < max(len(text.tokens) for text in texts)
    assert shorter > 1


@pytest.mark.parametrize("packed", [True, False])
def test_a_hypothesis_of_a_beam_stops_where_its_caller_says(packed: bool) -> None:
    """As at an end token; it is not written on from there, and others are."""
    way = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 6}
    ends = tuple(range(0, 100, 2))
    with Engine(model(packed=packed), kv_cache_tokens=512) as engine:
        even, wanted = engine.run(
            [request(**way, stop=lambda tokens: tokens[-1] % 2 == 0), request(**way, eos_token_id=ends)]
        )
        assert {text.finish for text in even} >= {"stop"}
        for text in even:
            assert all(token % 2 for token in text.tokens[:-1])
            assert (text.tokens[-1] % 2 == 0) == (text.finish == "stop")
        assert {text.finish for text in wanted} >= {"end"}


def test_a_text_stream_gives_what_is_certain_and_stops() -> None:
    class Letters:
        def add(self, token: int, *, last: bool) -> str:
            return f"<{token}>" + "." * last

        def stops(self, tokens: list[int]) -> bool:
            return len(tokens) == 3

    free = alone(request())[0].tokens
    with one_lane() as engine:
        found = list(engine.submit(request(text=Letters)))
    assert [token.text for token in found] == [f"<{free[0]}>", f"<{free[1]}>", f"<{free[2]}>."]
    assert found[-1].finish == "stop"


@pytest.mark.parametrize("lanes", [1, 2])
def test_every_request_that_is_done_is_told_once(lanes: int, two_cores: None) -> None:
    """Before `run` returns, whichever lane served it."""
    torch.set_num_threads(lanes)
    with Engine(model(), kv_cache_tokens=512, max_rows=4) as engine:
        for _ in range(10):
            told: list[tuple[int, list[Written]]] = []
            found = engine.run([request([n + 1]) for n in range(12)], lambda n, best, told=told: told.append((n, best)))
            assert sorted(told) == list(enumerate(found))


def test_beside_other_processes_one_lane_serves_all(two_cores: None) -> None:
    """The others take nothing while it is so, finish what they have, and are there again afterwards."""
    torch.set_num_threads(2)
    wanted = [alone(request([n % 20 + 1])) for n in range(20)]
    with Engine(model(), kv_cache_tokens=512, max_rows=4) as engine:
        took: list[set[int]] = [set(), set()]

        def look(number: int, found: list[Written]) -> None:
            for n, lane in enumerate(engine.lanes):
                took[n] |= {entry.handle.number for entry in lane.active}
            if number == 30 and switching:
                engine.contention.until = switching.pop()

        requests = [request([n % 20 + 1]) for n in range(200)]
        switching: list[float] = []
        engine.contention.until = math.inf
        assert engine.run(requests, look) == wanted * 10
        assert took[0]
        assert not took[1]
        switching, engine.contention.until = [math.inf], 0.0  # begins on the way
        assert engine.run(requests, look) == wanted * 10
        engine.contention.until = 0.0
        assert engine.run(requests, look) == wanted * 10
        assert took[1]
        check_whole(engine)


def test_requests_are_made_while_others_are_written() -> None:
    """No more of them wait than lanes have use for, and all are answered in order."""
    ended: list[int] = []
    ahead: list[int] = []

    def requests() -> Iterator[Request]:
        for n in range(400):
            ahead.append(n - len(ended))
            yield request([n % 20 + 1])

    with one_lane(max_rows=8) as engine:
        found = engine.run(requests(), lambda n, best: ended.append(n))
        check_whole(engine)
    each = {n: alone(request([n + 1])) for n in range(20)}
    assert found == [each[n % 20] for n in range(400)]
    assert sorted(ended) == list(range(400))
    assert max(ahead) < 100  # a few at a time, those that are written, and those that join next


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("good", [0, 3, 70])
def test_an_error_while_requests_are_made_is_the_callers(good: int, lanes: int, two_cores: None) -> None:
    torch.set_num_threads(lanes)

    def requests() -> Iterator[Request]:
        for n in range(good):
            yield request([n % 20 + 1])
        raise ValueError("no more of them")

    with Engine(model(), kv_cache_tokens=512, max_rows=4) as engine:
        with pytest.raises(ValueError, match="no more of them"):
            engine.run(requests())
        assert engine.run(iter([request()])) == [alone(request())]
        assert engine.run(iter(())) == []


# --- options ----------------------------------------------------------------------------------------------------


def test_several_drawn_texts_are_the_seeds_own() -> None:
    """The first is the one that is drawn alone; all differ, and each is a text by itself."""
    with one_lane() as engine:
        several = engine.run([request(temperature=1.5, seed=3, num_return_sequences=4, logprobs=1)])[0]
        single = engine.run([request(temperature=1.5, seed=3, logprobs=1)])[0]
        other = engine.run([request(temperature=1.5, seed=4, logprobs=1)])[0]
        check_whole(engine)
    assert several[0] == single[0]
    assert single != other
    assert len({tuple(each.tokens) for each in several}) == 4
    assert all(each.score == pytest.approx(sum(each.logprobs)) for each in several)


def test_logprobs_are_the_likeliest_of_every_step_best_first() -> None:
    with one_lane() as engine:
        (text,) = engine.run([request(logprobs=5)])[0]
        (drawn,) = engine.run([request(logprobs=100, temperature=2.0, seed=1)])[0]
    for token, logprob, top in zip(text.tokens, text.logprobs, text.top, strict=True):
        assert len(top) == 5
        assert top[0] == (token, pytest.approx(logprob))
        assert [score for _, score in top] == sorted((score for _, score in top), reverse=True)
    for token, logprob, top in zip(drawn.tokens, drawn.logprobs, drawn.top, strict=True):
        assert dict(top)[token] == pytest.approx(logprob)
        assert len(top) == 100


@pytest.mark.parametrize("way", [{}, {"temperature": 1.0, "seed": 2, "top_p": 0.9}, {"num_beams": 3}])
@pytest.mark.parametrize("packed", [True, False])
def test_only_allowed_tokens_come(way: dict[str, Any], packed: bool) -> None:
    """A mask for every step, by what was written so far: here numbers that rise."""

    def rising(tokens: list[int]) -> range | None:
        return range(tokens[-1] + 1, 100) if tokens else None

    with Engine(model(packed=packed), kv_cache_tokens=512) as engine:
        one = request(**way, max_new_tokens=4, suppress_tokens=tuple(range(50, 100)))
        free, masked, free_again = engine.run([one, Request(one.prompt, one.plan, allowed=rising), one])
    (text,) = masked
    assert text.tokens == sorted(set(text.tokens))
    assert [each.tokens for each in free] == [each.tokens for each in free_again] != [text.tokens]


def test_the_hook_is_told_what_was_written_and_not_the_prompt() -> None:
    asked: list[list[int]] = []
    with one_lane() as engine:
        each = request([9, 8], max_new_tokens=3, allowed=lambda tokens: asked.append(tokens))  # type: ignore[func-returns-value]
        (text,) = engine.run([each])[0]
    assert asked == [text.tokens[:n] for n in range(3)]


def test_a_watcher_sees_every_hypothesis() -> None:
    seen: list[tuple[tuple[int, ...], float, bool]] = []
    with one_lane() as engine:
        each = request(num_beams=3, num_return_sequences=3, max_new_tokens=4)
        watched = Request(each.prompt, each.plan, watch=lambda text, score, end: seen.append((tuple(text), score, end)))
        found = engine.run([watched])[0]
    assert {(tuple(text.tokens), text.score, True) for text in found} <= set(seen)
    kept = {text for text, _, _ in seen}
    assert all(text[:-1] in kept or len(text) == 1 for text in kept)


# --- cancelling -------------------------------------------------------------------------------------------------


def stopped_at(engine: Engine, step: int, **given: Any) -> tuple[Handle, threading.Event]:
    """A request that stands still at one of its steps until it is let go."""
    reached, go = threading.Event(), threading.Event()

    def hook() -> None:
        reached.set()
        go.wait(PATIENCE)

    handle = engine.submit(request(on_token=after(step, hook), **given))
    assert reached.wait(PATIENCE)
    return handle, go


@pytest.mark.parametrize("name", ["llama", "original"])
def test_a_cancelled_request_frees_its_cells(name: str) -> None:
    source = [4, 5] if name == "original" else None
    with one_lane(name=name) as engine:
        handle, go = stopped_at(engine, 3, max_new_tokens=500, source=source)
        beam = engine.submit(request(num_beams=4, max_new_tokens=50, source=source))
        assert not handle.done
        handle.cancel()
        beam.cancel()
        go.set()
        for each in (handle, beam):
            with pytest.raises(CancelledError, match="cancelled"):
                each.result(PATIENCE)
        heard: list[Token] = []
        with pytest.raises(CancelledError):
            heard.extend(handle)
        after_it = engine.run([request(source=source)])
        check_whole(engine)
    assert after_it == [alone(request(source=source), name)]
    assert len(heard) == 3


def test_what_waits_in_the_queue_is_cancelled_at_once() -> None:
    """It needs no room for that: the one before it is not done until they are gone."""
    gone, in_time, last = threading.Event(), [], []

    def later(tokens: list[int]) -> None:
        if len(tokens) == 10:  # by now those that wait have been seen, and these are not
            last.extend(engine.submit(request(max_new_tokens=30)) for _ in range(2))
            last[0].cancel()
        if len(tokens) == 20:
            in_time.append(gone.wait(PATIENCE))

    with one_lane(kv_cache_tokens=40, prefix_cache=False) as engine:
        first, go = stopped_at(engine, 1, max_new_tokens=30, stop=later)
        waiting = [engine.submit(request(max_new_tokens=30)) for _ in range(4)]
        for each in waiting[1:]:
            each.cancel()
        go.set()
        for each in waiting[1:]:
            with pytest.raises(CancelledError):
                each.result(PATIENCE)
        while not last:
            gone.wait(0.01)
        with pytest.raises(CancelledError):
            last[0].result(PATIENCE)
        gone.set()
        assert last[1].result(PATIENCE) == alone(request(max_new_tokens=30))
        assert first.result(PATIENCE) == alone(request(max_new_tokens=30))
        assert in_time == [True]
        assert waiting[0].result(PATIENCE) == alone(waiting[0].request)
        check_whole(engine)


def test_a_request_that_is_done_cannot_be_cancelled() -> None:
    with one_lane() as engine:
        handle = engine.submit(request())
        found = handle.result(PATIENCE)
        handle.cancel()
        assert handle.result(PATIENCE) is found
        assert [token.id for token in handle] == found[0].tokens


def test_a_result_that_does_not_come_in_time() -> None:
    with one_lane() as engine:
        handle, go = stopped_at(engine, 1)
        with pytest.raises(DataError, match=r"not done after 0.01 s"):
            handle.result(0.01)
        go.set()
        assert handle.result(PATIENCE) == alone(request())


@pytest.mark.parametrize("name", ["llama", "original"])
@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize("prompts", [([1], [2], [3], [4]), ([1, 2], [3], [4, 5, 6], [7])], ids=["even", "padded"])
def test_some_leave_a_static_batch(name: str, step: int, prompts: tuple[list[int], ...]) -> None:
    """A model that is no program: its batch is read as one, and goes on without those that were cancelled."""
    source = [4, 5] if name == "original" else None
    handles: list[Handle] = []

    def leave(tokens: list[int]) -> bool:
        if len(tokens) == step:
            handles[0].cancel()
            handles[2].cancel()
        return False

    with Engine(model(name, packed=False)) as engine:
        with engine.lanes[0].lock:
            handles += [engine.submit(request(each, source, num_beams=1 + n % 2)) for n, each in enumerate(prompts[:3])]
            handles.append(engine.submit(request(prompts[3], source, stop=leave)))
            if step == 0:
                leave([])
        engine._wake(1)
        for n in (1, 3):
            wanted = alone(handles[n].request, name, packed=False)
            assert [text.tokens for text in handles[n].result(PATIENCE)] == [text.tokens for text in wanted]
        for n in (0, 2):
            with pytest.raises(CancelledError):
                handles[n].result(PATIENCE)
        assert engine.run([request([3], source)])[0][0].tokens == alone(request([3], source), name, False)[0].tokens


# --- room -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"kv_cache_tokens": 24}, {"max_rows": 2}, {"kv_cache_tokens": 60, "max_rows": 3}])
def test_what_does_not_fit_waits_and_is_served_in_order(limits: dict[str, int]) -> None:
    began: list[int] = []
    requests = [
        request([n + 1], on_token=after(1, lambda n=n: began.append(n)), max_new_tokens=6 + n % 5) for n in range(20)
    ]
    with one_lane(**limits) as engine:
        found = engine.run(requests)
        check_whole(engine)
    assert found == [alone(each) for each in requests]
    assert began[:20] == list(range(20))


def test_a_small_one_does_not_overtake_a_large_one() -> None:
    """Else a large one might wait for ever."""
    ended: list[str] = []
    with one_lane(kv_cache_tokens=64, prefix_cache=False) as engine:
        first, go = stopped_at(engine, 1, max_new_tokens=40)
        large = engine.submit(request(max_new_tokens=60, on_token=after(1, lambda: ended.append("large"))))
        small = engine.submit(request(max_new_tokens=2, on_token=after(1, lambda: ended.append("small"))))
        go.set()
        for each in (small, large, first):
            each.result(PATIENCE)
    assert ended == ["large", "small"]


def test_no_cell_is_lost_in_200_requests() -> None:
    chance = random.Random(1)
    for name in ("llama", "t5"):
        source = [1, 2, 3] if name == "t5" else None
        with one_lane(name=name, kv_cache_tokens=300, max_rows=10) as engine:
            handles = []
            for n in range(200):
                way: dict[str, Any] = chance.choice(({}, {"num_beams": 3}, {"temperature": 1.0, "seed": n}))
                prompt = [chance.randrange(5) for _ in range(chance.randint(1, 20))]
                handles.append(engine.submit(request(prompt, source, **way, max_new_tokens=chance.randint(1, 12))))
                if chance.random() < 0.3:
                    chance.choice(handles).cancel()
            for handle in handles:
                try:
                    handle.result(PATIENCE)
                except CancelledError:
                    assert handle.cancelled
            engine.run([request(source=source)])
            check_whole(engine)


# --- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "original"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_eight_threads(name: str, lanes: int, two_cores: None) -> None:
    """They submit, run, iterate and cancel as they like; each gets what it would have got alone."""
    source = [5, 6, 7] if name == "original" else None
    ways: list[dict[str, Any]] = [{}, {"num_beams": 3}, {"temperature": 1.0, "seed": 1}, {"no_repeat_ngram_size": 2}]
    requests = [request([n + 1, n + 2], source, **ways[n % 4], max_new_tokens=2 + n % 7) for n in range(16)]
    expected = [alone(each, name) for each in requests]
    wrong: list[str] = []

    def use(engine: Engine, seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(12):
                n, what = chance.randrange(16), chance.randrange(4)
                if what == 0:
                    found = engine.submit(requests[n]).result(PATIENCE)
                elif what == 1:
                    handle = engine.submit(requests[n])
                    tokens = [token.id for token in handle]
                    found = handle.result(PATIENCE)
                    assert tokens == found[0].tokens
                elif what == 2:
                    (found, other) = engine.run([requests[n], requests[(n + 5) % 16]])
                    assert other == expected[(n + 5) % 16]
                else:
                    gone, handle = engine.submit(requests[(n + 1) % 16]), engine.submit(requests[n])
                    gone.cancel()
                    found = handle.result(PATIENCE)
                assert found == expected[n]
        except BaseException as error:
            wrong.append(f"{type(error).__name__}: {error}")

    torch.set_num_threads(lanes)
    with Engine(model(name), kv_cache_tokens=400, max_rows=12) as engine:
        threads = [threading.Thread(target=use, args=(engine, seed), daemon=True) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert wrong == []
        engine.run(requests)
        check_whole(engine)


def test_a_request_may_be_made_from_a_hook() -> None:
    """Nothing is locked while a caller's hook runs."""
    made: list[Handle] = []
    with one_lane() as engine:
        engine.run([request(on_token=lambda _: made.append(engine.submit(request([7]))))])
        assert {tuple(each.result(PATIENCE)[0].tokens) for each in made} == {tuple(alone(request([7]))[0].tokens)}
    assert len(made) == 8


# --- the end ----------------------------------------------------------------------------------------------------


def test_close_ends_everything_and_nothing_comes_after_it() -> None:
    engine = one_lane(kv_cache_tokens=200, prefix_cache=False)
    with engine:
        early = engine.submit(request()).result(PATIENCE)
        handle, go = stopped_at(engine, 2, max_new_tokens=150)
        waiting = engine.submit(request(max_new_tokens=150))
        closing = threading.Thread(target=engine.close, daemon=True)
        closing.start()
        with pytest.raises(CancelledError, match="closed"):
            waiting.result(PATIENCE)
        go.set()
        closing.join(PATIENCE)
        assert not closing.is_alive()
        with pytest.raises(CancelledError, match="closed"):
            handle.result(PATIENCE)
    assert early == alone(request())
    check_whole(engine)
    for ask in (lambda: engine.submit(request()), lambda: engine.run([request()])):
        with pytest.raises(DataError, match="closed; make another"):
            ask()
    engine.close()
    for thread in engine.threads:
        if thread is not None:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_close_ends_a_run_under_way() -> None:
    engine, closers = one_lane(), []

    def close() -> None:
        closers.append(threading.Thread(target=engine.close, daemon=True))
        closers[0].start()
        while not engine.closed:
            pass

    with pytest.raises(CancelledError, match="closed"):
        engine.run([request(max_new_tokens=500, on_token=after(2, close))])
    closers[0].join(PATIENCE)
    assert not closers[0].is_alive()


def test_an_engine_stays_in_its_process() -> None:
    with one_lane() as engine, pytest.raises(TypeError, match="make one there"):
        pickle.dumps(engine)


def test_requests_join_a_batch_that_is_running() -> None:
    """Continuous batching: the second is done before the first."""
    looked = threading.Event()

    def waits(tokens: list[int]) -> None:
        if len(tokens) == 200:
            looked.wait(PATIENCE)

    with one_lane() as engine:
        long, go = stopped_at(engine, 1, max_new_tokens=400, stop=waits)
        short = engine.submit(request(max_new_tokens=2, on_token=after(2, lambda: together.append(len(rows.entries)))))
        rows, together = batch(engine), []
        go.set()
        short.result(PATIENCE)
        assert not long.done
        looked.set()
        long.result(PATIENCE)
    assert together == [2]
