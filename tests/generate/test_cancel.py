"""A cancel scope ends what was begun in it, from any thread, and nothing else."""

import threading

import pytest

from clearformer.errors import CancelledError
from clearformer.generate.cancel import CancelScope, check_cancelled, current
from tests.generate.engines import PATIENCE, after, check_whole, one_lane, request


def test_work_knows_its_scope() -> None:
    assert current() is None
    check_cancelled()
    outer, inner = CancelScope(), CancelScope()
    with outer:
        assert current() is outer
        with inner:
            assert current() is inner
        with outer:  # again
            assert current() is outer
        assert current() is outer
        inner.cancel()
        check_cancelled()
        outer.cancel()
        with pytest.raises(CancelledError):
            check_cancelled()
    assert current() is None
    check_cancelled()


def test_several_threads_may_work_in_one_scope() -> None:
    scope, inside, errors = CancelScope(), threading.Barrier(4), []

    def work() -> None:
        try:
            with scope:
                inside.wait(PATIENCE)
                assert current() is scope
                inside.wait(PATIENCE)
            assert current() is None
        except BaseException as error:
            errors.append(error)

    several = [threading.Thread(target=work) for _ in range(4)]
    for each in several:
        each.start()
    for each in several:
        each.join(PATIENCE)
    assert errors == []


def test_what_an_engine_was_asked_in_a_scope_ends_with_it() -> None:
    scope = CancelScope()
    with one_lane() as engine:
        other = engine.submit(request(max_new_tokens=30))
        with pytest.raises(CancelledError), scope:
            engine.run([request(max_new_tokens=500, on_token=after(3, scope.cancel)), request(max_new_tokens=500)])
        assert len(other.result(PATIENCE)[0].tokens) <= 30
        with pytest.raises(CancelledError), scope:  # nothing new begins in it
            engine.run([request()])
        assert engine.run([request()])[0][0].tokens
        check_whole(engine)


def test_a_scope_cancelled_from_another_thread() -> None:
    """While the first of them stands still in the middle of its text."""
    scope, reached, go = CancelScope(), threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go.wait(PATIENCE)

    with one_lane() as engine:
        with scope:
            handles = [engine.submit(request(max_new_tokens=900, on_token=after(3, hold)))]
            handles += [engine.submit(request(max_new_tokens=900)) for _ in range(4)]
        assert scope.begun == tuple(handles)
        assert reached.wait(PATIENCE)
        cancelling = threading.Thread(target=scope.cancel)
        cancelling.start()
        cancelling.join(PATIENCE)
        go.set()
        for each in handles:
            with pytest.raises(CancelledError):
                each.result(PATIENCE)
        check_whole(engine)


def test_cancelling_what_is_done_changes_nothing() -> None:
    scope = CancelScope()
    with one_lane() as engine, scope:
        handle = engine.submit(request())
        tokens = handle.result(PATIENCE)[0].tokens
        scope.cancel()
        assert handle.result(PATIENCE)[0].tokens == tokens
