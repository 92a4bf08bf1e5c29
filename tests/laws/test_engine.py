"""The laws of the engine: what a request gets is its own, to the last bit, in any company and at any moment of joining.

The reference is the same request alone in a fresh engine, on one thread, with its prompt read in one piece and nothing
in the prefix cache. The plain model, in static batches, is the truth beside it.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.core.model import EncoderDecoder
from clearformer.errors import CancelledError
from clearformer.generate import paged_batch
from clearformer.generate.batch import Model, StaticBatch
from clearformer.generate.engine import Engine
from clearformer.generate.options import GenerationOptions, plan
from clearformer.generate.paged_batch import PagedBatch
from clearformer.generate.requests import Handle, Request, Written
from clearformer.kernels.pack import pack
from tests.laws.cases import DECODING, Case, loud
from tests.laws.test_packed import FITTING

VOCABULARY = 400  # more than the best logits that a draw is given, so that it may ask for more
FAMILIES = ("llama", "gpt2", "original", "t5")
REQUESTS = 256  # of every model, of which there are eight
PATIENCE = 120.0  # seconds after which a test that hangs fails
each_model = pytest.mark.parametrize("name", FAMILIES)
each_precision = pytest.mark.parametrize("precision", ["float32", "int8"])


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def plain(name: str) -> Model:
    return loud(cf.build(getattr(presets, name)("tiny", vocabulary=VOCABULARY), seed=3)).eval()


@cache
def packed(name: str, precision: str) -> Model:
    return pack(plain(name), precision)


# --- requests of chance ---------------------------------------------------------------------------------------------


def some_tokens(chance: random.Random, least: int, most: int, words: int = VOCABULARY) -> list[int]:
    return [chance.randrange(words) for _ in range(chance.randint(least, most))]


def some_options(chance: random.Random, words: int = VOCABULARY) -> dict[str, Any]:
    """Greedy, drawn or a beam, each with some of the rules or none."""
    found: dict[str, Any] = {"max_new_tokens": chance.randint(1, 8)}
    kind = chance.choice(("greedy", "drawn", "beam"))
    if chance.random() < 0.8:
        found["eos_token_id"] = tuple(chance.sample(range(words), chance.randint(1, 8 if kind == "beam" else 60)))
    if kind == "drawn":
        found |= {"temperature": chance.choice((0.3, 0.7, 1.0, 1.6)), "seed": chance.randrange(1 << 30)}
        for name, values in (("top_k", (1, 3, 20)), ("top_p", (0.2, 0.9, 0.99)), ("min_p", (0.02, 0.3))):
            if chance.random() < 0.4:
                found[name] = chance.choice(values)
        if chance.random() < 0.3:
            found["num_return_sequences"] = chance.randint(2, 4)
    if kind == "beam":
        found["num_beams"] = chance.randint(2, 5)
        found["num_return_sequences"] = chance.randint(1, found["num_beams"])
        found["length_penalty"] = chance.choice((0.0, 0.6, 1.0, 2.0))
        found["early_stopping"] = chance.choice((True, False, "never"))
    elif chance.random() < 0.3:
        found["logprobs"] = chance.randint(1, 6)
    if chance.random() < 0.5:
        return found
    rules: dict[str, Callable[[], Any]] = {
        "repetition_penalty": lambda: chance.choice((0.8, 1.3, 2.0)),
        "no_repeat_ngram_size": lambda: chance.randint(1, 3),
        "suppress_tokens": lambda: tuple(chance.sample(range(words), chance.choice((1, 4, 60, words - 50)))),
        "min_new_tokens": lambda: chance.randint(0, found["max_new_tokens"]),
        "bad_words_ids": lambda: tuple(tuple(some_tokens(chance, 1, 3, words)) for _ in range(3)),
        "forced_bos_token_id": lambda: chance.randrange(words),
        "forced_eos_token_id": lambda: chance.randrange(words),
    }
    for rule in chance.sample(sorted(rules), chance.randint(1, 3)):
        found[rule] = rules[rule]()
    return found


def only_even(tokens: list[int]) -> list[int]:
    return list(range(0, 100, 2))


def some_request(chance: random.Random, two: bool, beginnings: list[list[int]], words: int = VOCABULARY) -> Request:
    """Its prompt begins as others do, more often than not."""
    prompt = some_tokens(chance, 1, 4 if two else 12, words)
    if chance.random() < 0.6:
        shared = chance.choice(beginnings)
        prompt = shared[: chance.randint(1, len(shared))] + prompt
    return Request(
        prompt,
        plan(GenerationOptions(**some_options(chance, words)), len(prompt)),
        source=some_tokens(chance, 1, 14, words) if two else None,
        allowed=only_even if chance.random() < 0.05 else None,
    )


def some_requests(name: str, seed: int, count: int) -> list[Request]:
    chance = random.Random(f"{name} {seed}")
    two = isinstance(plain(name), EncoderDecoder)
    beginnings = [some_tokens(chance, 5, 40) for _ in range(4)]
    return [some_request(chance, two, beginnings) for _ in range(count)]


# --- alone, and in company ------------------------------------------------------------------------------------------

Outcome = list[Written] | str  # what was written, or what went wrong


def outcome(handle: Handle) -> Outcome:
    try:
        return handle.result(PATIENCE)
    except CancelledError:
        return "cancelled"
    except cf.errors.DataError as error:
        return str(error)


def alone(model: Model, request: Request) -> Outcome:
    with Engine(model, kv_cache_tokens=512, max_rows=8, prefix_cache=False) as engine:
        try:
            return engine.run([request])[0]
        except cf.errors.DataError as error:
            return str(error)


class AnyPieces:
    """A budget for prompts that is another one at every step."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def __iter__(self) -> Iterator[int]:
        budget = self.chance.choice((1, 2, 3, 7, 30))
        return iter((budget, budget))


def joined(engine: Engine, requests: list[Request], seed: int, threads: int = 3) -> list[Outcome]:
    """Submitted from several threads at moments of chance, beside others that are cancelled at moments of chance."""
    found: list[Outcome] = [[]] * len(requests)

    def submit(which: list[int], chance: random.Random) -> None:
        handles = []
        for n in which:
            handles.append((n, engine.submit(requests[n])))
            if chance.random() < 0.3:
                company = engine.submit(chance.choice(requests))
                threading.Timer(chance.random() * 0.02, company.cancel).start()
            if chance.random() < 0.3:
                time.sleep(chance.random() * 0.004)
        for n, handle in handles:
            found[n] = outcome(handle)

    order = list(range(len(requests)))
    random.Random(seed).shuffle(order)
    workers = [
        threading.Thread(target=submit, args=(order[n::threads], random.Random(seed + n)), daemon=True)
        for n in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
        assert not worker.is_alive()
    return found


def whole(engine: Engine) -> None:
    """Every cell is free or the prefix cache's, and none is promised."""
    for lane in engine.lanes:
        batch = lane.batch
        assert isinstance(batch, PagedBatch)
        with lane.lock:
            assert not lane.active
            assert not batch.of
            kept = batch.prefixes.size if batch.prefixes is not None else 0
            assert batch.pool.left == batch.pool.size - kept
            assert (batch.pool.promised, batch.memory.promised, batch.reserved_rows) == (0, 0, 0)
            assert batch.memory.left == batch.memory.size


@each_precision
@each_model
def test_a_request_is_its_own(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,048 requests in all, of every kind and with every rule: alone; all at once on two threads; joining at any step,
    in other orders, read in any pieces, after others were cancelled, with what was read before still known."""
    model, requests = packed(name, precision), some_requests(name, 1, REQUESTS)
    expected = [alone(model, request) for request in requests]
    kinds = [bool(r.plan.draws) + 2 * (r.plan.beams > 1) for r in requests]
    assert min(kinds.count(0), kinds.count(1), kinds.count(2)) > REQUESTS // 6
    assert sum(isinstance(each, str) for each in expected) < REQUESTS // 10
    finishes = [text.finish for each in expected if not isinstance(each, str) for text in each]
    assert min(finishes.count("end"), finishes.count("limit")) > REQUESTS // 16
    torch.set_num_threads(2)
    with Engine(model, kv_cache_tokens=2048, max_rows=24) as engine:
        good = [n for n, each in enumerate(expected) if not isinstance(each, str)]
        together = engine.run([requests[n] for n in good])
        assert together == [expected[n] for n in good]
        whole(engine)
        torch.set_num_threads(1)
        monkeypatch.setattr(paged_batch, "PREFILL", AnyPieces(5))
        for n, found in enumerate(joined(engine, requests, seed=7)):
            assert found == expected[n], requests[n]
        if not isinstance(model, EncoderDecoder):
            assert sum(lane.batch.prefixes.hits for lane in engine.lanes) > REQUESTS  # type: ignore[union-attr]


@each_precision
@each_model
def test_a_request_joins_at_any_step(name: str, precision: str) -> None:
    """One text goes on and on; at every one of its tokens another request joins."""
    model, requests = packed(name, precision), some_requests(name, 2, 24)
    expected = [alone(model, request) for request in requests]
    source = [1, 2, 3] if isinstance(model, EncoderDecoder) else None
    prompt, options = [4, 5], GenerationOptions(max_new_tokens=40, suppress_tokens=(7,))
    long = Request(prompt, plan(options, 2), source=source)
    wanted = alone(model, long)
    with Engine(model, kv_cache_tokens=2048) as engine:
        handles: list[Handle] = []

        def join(token: Any) -> None:
            if len(handles) < len(requests):
                handles.append(engine.submit(requests[len(handles)]))

        going = Request(prompt, long.plan, source=source, on_token=join)
        assert engine.run([going]) == [wanted]
        assert [outcome(handle) for handle in handles] == expected


@each_precision
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("budget", [1, 3, 8, 64])
def test_any_chunking_of_a_prompt(name: str, precision: str, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, chance = packed(name, precision), random.Random(3)
    requests = [
        Request(tokens, plan(GenerationOptions(max_new_tokens=3, num_beams=1 + n % 3, logprobs=4), len(tokens)))
        for n, tokens in enumerate(some_tokens(chance, 20, 60) for _ in range(6))
    ]
    expected = [alone(model, request) for request in requests]
    monkeypatch.setattr(paged_batch, "PREFILL", (budget, budget))
    with Engine(model, kv_cache_tokens=1024) as engine:
        assert engine.run(requests) == expected


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_hit_gives_the_same_bits_as_a_miss(name: str) -> None:
    model, chance = packed(name, "int8"), random.Random(4)
    prompt = some_tokens(chance, 60, 60)
    with Engine(model, kv_cache_tokens=1024) as engine:
        for cut in (60, 60, 59, 1, 30, 2):
            for options in ({}, {"num_beams": 3, "num_return_sequences": 3}, {"temperature": 1.0, "seed": 5}):
                request = Request(prompt[:cut], plan(GenerationOptions(max_new_tokens=5, **options), cut))
                assert engine.submit(request).result(PATIENCE) == alone(model, request)


@pytest.mark.parametrize("case", [each for each in FITTING if each in DECODING and not each.images], ids=str)
def test_every_part_that_a_program_can_have(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, positions, norms and pairs of all kinds: prompts in pieces, beginnings that are known, in company."""
    model, chance = pack(case.model(), "int8"), random.Random(case.name)
    two = isinstance(model, EncoderDecoder)
    words = len(model.head.weight)  # type: ignore[arg-type]
    shared = some_tokens(chance, 9, 9, words)
    requests = [some_request(chance, two, [shared], words) for _ in range(12)]
    expected = [alone(model, request) for request in requests]
    monkeypatch.setattr(paged_batch, "PREFILL", AnyPieces(6))
    with Engine(model, kv_cache_tokens=512) as engine:
        for _ in range(2):
            handles = [engine.submit(request) for request in requests]
            assert [outcome(handle) for handle in handles] == expected
        whole(engine)


@each_precision
@each_model
def test_the_others_go_on_when_some_are_cancelled(name: str, precision: str) -> None:
    """Every second one is cancelled, at a token of its own."""
    model, requests = packed(name, precision), some_requests(name, 5, 30)
    expected = [alone(model, request) for request in requests]
    two = isinstance(model, EncoderDecoder)
    with Engine(model, kv_cache_tokens=2048) as engine:
        pairs = []
        for n, request in enumerate(requests):
            mine: list[Handle] = []

            def leave(tokens: list[int], n: int = n, mine: list[Handle] = mine) -> bool:
                if len(tokens) > n % 7 and mine:
                    mine[0].cancel()
                return False

            endless = plan(GenerationOptions(max_new_tokens=60, temperature=1.0, seed=n), 2)
            mine.append(engine.submit(Request([n, 1], endless, source=[n] if two else None, stop=leave)))
            pairs.append((mine[0], engine.submit(request)))
        assert [outcome(handle) for _, handle in pairs] == expected
        assert {outcome(gone) if gone.cancelled else "cancelled" for gone, _ in pairs} == {"cancelled"}
        assert engine.run([requests[0]]) == [expected[0]]


@each_model
def test_the_plain_model_writes_the_same(name: str) -> None:
    """The truth beside it: in float32 the same tokens, but where two are as likely as each other."""
    model, chance = plain(name), random.Random(6)
    two = isinstance(model, EncoderDecoder)
    requests = []
    for n in range(40):
        prompt = some_tokens(chance, 1, 3 if two else 10)
        rules = ({}, {"no_repeat_ngram_size": 2}, {"suppress_tokens": (60, 51, 96)}, {"repetition_penalty": 1.5})[n % 4]
        beams = {"num_beams": 3, "num_return_sequences": 3} if n % 2 else {}
        options = GenerationOptions(max_new_tokens=6, eos_token_id=tuple(range(9)), **beams, **rules)
        requests.append(Request(prompt, plan(options, len(prompt)), source=some_tokens(chance, 1, 9) if two else None))
    with Engine(model) as static, Engine(packed(name, "float32"), kv_cache_tokens=2048) as paged:
        assert isinstance(static.lanes[0].batch, StaticBatch)
        assert isinstance(paged.lanes[0].batch, PagedBatch)
        truth, found = static.run(requests), paged.run(requests)
    same = 0
    for mine, theirs in zip(found, truth, strict=True):
        same += [text.tokens for text in mine] == [text.tokens for text in theirs]
        for one, other in zip(mine, theirs, strict=True):
            if one.tokens == other.tokens:
                assert one.score == pytest.approx(other.score, abs=1e-4)
                assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert same >= len(requests) - 2
