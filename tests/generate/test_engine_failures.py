"""What goes wrong with one request is a clear error of that request; no other is touched, and the engine goes on."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.errors import CancelledError, ClearformerError, DataError
from clearformer.generate.batch import StaticBatch
from clearformer.generate.engine import Engine
from clearformer.generate.options import GenerationOptions
from clearformer.generate.requests import Handle, Request, Written
from tests.generate.engines import (
    PATIENCE,
    after,
    alone,
    batch,
    check_whole,
    fails,
    model,
    one_lane,
    request,
)

BROKEN = r"writing failed: RuntimeError: broken on purpose"


def in_company(engine: Engine, bad: Request, message: str, good: list[Request], name: str, packed: bool) -> None:
    """The bad one among good ones, all of them in the queue before any is served."""
    held = engine.lanes[0].lock
    with held:
        handles = [engine.submit(each) for each in (good[0], bad, *good[1:])]
    engine._wake(1)
    with pytest.raises(DataError, match=message):
        handles[1].result(PATIENCE)
    for handle in (handles[0], *handles[2:]):
        assert [t.tokens for t in handle.result(PATIENCE)] == [t.tokens for t in alone(handle.request, name, packed)]


HOOKS: dict[str, dict[str, Any]] = {
    "stop": {"stop": fails},
    "allowed": {"allowed": fails},
    "allowed of a beam": {"allowed": fails, "num_beams": 3},
    "allowed later": {"allowed": after(3, fails)},
    "on_token": {"on_token": fails},
    "on_token of a beam": {"on_token": fails, "num_beams": 3},
    "stop of a beam": {"stop": fails, "num_beams": 3},
    "text of a beam": {"text": fails, "num_beams": 3},
    "watch": {"watch": fails, "num_beams": 3},
    "text": {"text": fails},
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("packed", [True, False])
def test_a_hook_that_fails_is_its_requests_own(hook: str, packed: bool) -> None:
    every = lambda tokens: range(100)  # noqa: E731
    given = HOOKS[hook] if hook != "allowed later" else {"allowed": after(3, fails)}
    good = [request(), request(num_beams=3, allowed=every), request(temperature=1.0), request(num_beams=3)]
    with Engine(model(packed=packed), kv_cache_tokens=512) as engine:
        in_company(engine, request(**given), BROKEN, good, "llama", packed)
        assert engine.run([request()])[0][0].tokens == alone(request(), packed=packed)[0].tokens
        if packed:
            check_whole(engine)


def test_what_went_wrong_is_the_cause() -> None:
    with one_lane() as engine:
        handle = engine.submit(request(stop=fails))
        with pytest.raises(DataError) as found:
            handle.result(PATIENCE)
        assert isinstance(found.value.__cause__, RuntimeError)
        with pytest.raises(DataError, match=BROKEN):
            list(handle)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("source", [[1, 100], [-1], [3] * 300], ids=["unknown token", "negative", "too long"])
def test_a_source_that_cannot_be_read_is_its_requests_own(source: list[int], packed: bool) -> None:
    with Engine(model("original", packed), kv_cache_tokens=200) as engine:
        good = [request([1], [2, 3]), request([1], [4]), request([1], [5] * 9, num_beams=3)]
        if len(source) == 300:
            if not packed:
                pytest.skip("a static batch has no pool")
            with pytest.raises(DataError, match=r"longer than the 200 tokens"):
                engine.submit(request([1], source))
            return
        in_company(engine, request([1], source), "outside the vocabulary of 100", good, "original", packed)
        if packed:
            check_whole(engine)


# --- inside a step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["step", "advance"])
@pytest.mark.parametrize("name", ["llama", "original"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_step_that_fails_fails_what_was_in_it(where: str, name: str, packed: bool) -> None:
    """What waited for room is served after it, and so is all that comes later."""
    source = [4, 5] if name == "original" else None
    engine = Engine(model(name, packed), kv_cache_tokens=60, max_rows=3, prefix_cache=False)
    found, calls = engine.lanes[0].batch, [0]
    if isinstance(found, StaticBatch):
        found.most = found.appetite = 2
    once: Callable[..., Any] = getattr(found, where)

    def broken(*given: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise MemoryError("no room")
        return once(*given)

    setattr(found, where, broken)
    with engine:
        with engine.lanes[0].lock:
            handles = [engine.submit(request([n + 1], source, max_new_tokens=25)) for n in range(5)]
        engine._wake(1)
        for handle in handles[:2]:
            with pytest.raises(DataError, match="writing failed: MemoryError: no room"):
                handle.result(PATIENCE)
        for handle in handles[2:]:
            assert handle.result(PATIENCE)[0].tokens == alone(handle.request, name, packed)[0].tokens
        if packed:
            check_whole(engine)


def test_an_encoder_that_fails_leaves_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after some were taken."""
    from clearformer.kernels.native import launch

    with one_lane(name="original", kv_cache_tokens=60) as engine:
        good = engine.run([request([1], [2, 3])])
        with monkeypatch.context() as patch:
            patch.setattr(launch.Job, "run", fails)
            for _ in range(10):
                with pytest.raises(DataError, match=BROKEN):
                    engine.run([request([1], [2, 3])])
                check_whole(engine)
        assert engine.run([request([1], [2, 3])]) == good


def test_in_a_run_the_first_error_is_raised_and_the_others_are_cancelled() -> None:
    with one_lane() as engine:
        other = engine.submit(request([5], max_new_tokens=60))
        with pytest.raises(DataError, match=BROKEN):
            engine.run([request(max_new_tokens=900), request(stop=fails)])
        assert other.result(PATIENCE) == alone(request([5], max_new_tokens=60))
        assert engine.run([request()]) == [alone(request())]
        check_whole(engine)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_progress_callback_that_fails(threads: int) -> None:
    torch.set_num_threads(threads)
    try:
        with Engine(model(), kv_cache_tokens=200) as engine:
            for n in range(6):

                def done(number: int, found: list[Written], n: int = n) -> None:
                    if number == n:
                        fails()

                with pytest.raises(RuntimeError, match="broken on purpose"):
                    engine.run([request([k + 1]) for k in range(6)], done)
                assert engine.submit(request()).result(PATIENCE) == alone(request())
                assert engine.run([request()]) == [alone(request())]
    finally:
        torch.set_num_threads(1)


def test_an_interrupt_in_a_run_leaves_the_others() -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    with one_lane() as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.run([request([2], max_new_tokens=50), request(on_token=interrupt)])
        assert engine.submit(request()).result(PATIENCE) == alone(request())
        assert engine.run([request()]) == [alone(request())]
        check_whole(engine)


# --- bad input --------------------------------------------------------------------------------------------------


def refused(ask: Callable[[Engine], Any], message: str, **given: Any) -> None:
    """At once, while another request is served and served well."""
    seen, go = threading.Event(), threading.Event()

    def hold() -> None:
        seen.set()
        go.wait(PATIENCE)

    with one_lane(**given) as engine:
        source = [2] if given.get("name") == "original" else None
        other: Handle = engine.submit(request([5], source, on_token=after(2, hold)))
        assert seen.wait(PATIENCE)
        with pytest.raises(ClearformerError, match=message):
            ask(engine)
        go.set()
        assert other.result(PATIENCE) == alone(request([5], source), given.get("name", "llama"))
        check_whole(engine)


BAD: dict[str, tuple[Callable[[], Request], str]] = {
    "larger than the pool": (lambda: request(max_new_tokens=2000), r"may need 2,003 tokens .* there are 1,024; lower"),
    "a prompt larger than the pool": (lambda: request([1] * 1500), r"may need 1,508 tokens"),
    "beams larger than the pool": (lambda: request(num_beams=8, max_new_tokens=200), r"8 × 200"),
    "more rows than there are": (lambda: request(num_beams=257, max_new_tokens=1), r"257 rows .* has 256"),
    "no prompt": (lambda: request([]), "no token to go on from"),
    "an unknown token": (lambda: request([100]), r"from 0 to 99, given 100"),
    "a negative token": (lambda: request([-1]), r"from 0 to 99, given -1"),
    "an unknown end": (
        lambda: request(eos_token_id=100),
        r"eos_token_id must be of the vocabulary, 0 to 99, given 100",
    ),
    "an unknown suppressed token": (lambda: request(suppress_tokens=(100,)), "suppress_tokens"),
    "an unknown forced token": (lambda: request(forced_bos_token_id=100), "forced_bos_token_id"),
    "an unknown forced end": (lambda: request(forced_eos_token_id=100), "forced_eos_token_id"),
    "an unknown word": (lambda: request(bad_words_ids=((1, 100),)), "bad_words_ids"),
    "a source for one stack": (lambda: request(source=[1]), "takes no source; put the text in the prompt"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_request_that_cannot_be_served_is_refused(case: str) -> None:
    make, message = BAD[case]
    refused(lambda engine: engine.submit(make()), message)
    refused(lambda engine: engine.run([request(), make()]), message)


def test_an_encoder_decoder_needs_a_source() -> None:
    refused(lambda engine: engine.submit(request([1])), "needs a source", name="original")


def test_an_encoder_of_texts_is_given_an_image() -> None:
    image = torch.rand(3, 8, 8)
    refused(lambda engine: engine.submit(request([1], image)), "reads token ids, given an image", name="original")


def test_a_prompt_longer_than_the_position_table_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lies behind the table but someone else's memory."""
    most = model("gpt2").spec.stack.embed.positions.length
    with Engine(model("gpt2"), kv_cache_tokens=2 * most) as engine:
        with pytest.raises(DataError, match=f"{most + 1} tokens, and this model has {most} positions"):
            engine.submit(request([1] * (most + 1)))
        assert len(engine.run([request([1] * most, max_new_tokens=1)])[0][0].tokens) == 1
        with pytest.raises(DataError, match=f"{most + 1} tokens, and this model has {most} positions"):
            engine.run([request([1] * most, max_new_tokens=3)])
        check_whole(engine)


def test_a_model_in_training_mode() -> None:
    training = copy.deepcopy(model("gpt2", packed=False)).train()
    with Engine(training) as engine:
        with pytest.raises(DataError, match=r"training mode.*model\.eval\(\)"):
            engine.submit(request())
        training.eval()
        assert engine.run([request()])[0][0].tokens == alone(request(), "gpt2", packed=False)[0].tokens


def test_a_model_that_does_not_write() -> None:
    with pytest.raises(DataError, match="does not write"):
        Engine(cf.build(presets.bert("tiny"), seed=0))


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "beams that draw": ({"num_beams": 4, "temperature": 1.0}, "num_beams .* temperature"),
    "beams of the likeliest few": ({"num_beams": 4, "top_p": 0.5}, "num_beams"),
    "more texts than beams": ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences 3 needs num_beams"),
    "a least above the most": ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens 9 is above"),
    "an empty stop text": ({"stop": ("",)}, "an empty text cannot stop another"),
    "an empty stop text among others": ({"stop": ("a", "")}, "an empty text cannot stop another"),
    "no tokens": ({"max_new_tokens": 0}, "max_new_tokens must be a whole number from 1"),
    "a temperature below 0": ({"temperature": -1.0}, "temperature must be 0 or more"),
    "a temperature that is none": ({"temperature": float("nan")}, "temperature"),
    "top_p of nothing": ({"top_p": 0.0}, "top_p must be above 0"),
    "a penalty of nothing": ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
    "an empty word": ({"bad_words_ids": ((),)}, "bad_words_ids"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_options_that_contradict_each_other(case: str) -> None:
    given, message = CONTRADICTIONS[case]
    with pytest.raises(DataError, match=message):
        GenerationOptions(**given)


@pytest.mark.parametrize("way", [{}, {"temperature": 1.0, "seed": 1}, {"num_beams": 3}])
def test_rules_that_leave_nothing(way: dict[str, Any]) -> None:
    nothing = request(**way, suppress_tokens=tuple(range(100)))
    masked = request(**way, allowed=lambda tokens: [] if len(tokens) == 2 else None)
    for bad in (nothing, masked):
        with one_lane() as engine:
            in_company(engine, bad, "leave no token", [request(), request(num_beams=3)], "llama", True)
            check_whole(engine)


@pytest.mark.parametrize("ids", [[100], [-1], np.array([5, 1000])], ids=str)
def test_an_allowed_token_that_is_none(ids: Any) -> None:
    with one_lane() as engine:
        bad = request(allowed=lambda _: ids)
        in_company(engine, bad, "allowed must give token ids from 0 to 99", [request()], "llama", True)


def test_a_cancelled_handle_is_asked_for_its_result() -> None:
    with one_lane() as engine:
        with engine.lanes[0].lock:
            handle, other = engine.submit(request()), engine.submit(request([5]))
            handle.cancel()
        engine._wake(1)
        for ask in (lambda: handle.result(PATIENCE), lambda: list(handle)):
            with pytest.raises(CancelledError, match="cancelled, so it has no result"):
                ask()
        assert other.result(PATIENCE) == alone(request([5]))
        assert batch(engine).prefixes is not None
