"""How much is let in: in tokens, at once, and so that no model keeps the others out."""

import threading
from contextlib import ExitStack

import pytest

from clearformer.serve import admission
from clearformer.serve.admission import Admission
from clearformer.serve.errors import Overloaded
from tests.serve.running import ENDPOINTS, read_answer, request, running, until


def test_tokens_are_held_and_given_back() -> None:
    queue = Admission(100)
    with queue.enter(60), queue.enter(40):
        assert (queue.tokens, queue.requests) == (100, 2)
        with pytest.raises(Overloaded), queue.enter(1):
            pass
    assert (queue.tokens, queue.requests) == (0, 0)
    with pytest.raises(RuntimeError), queue.enter(100):
        raise RuntimeError
    assert (queue.tokens, queue.requests) == (0, 0)


def test_one_that_is_larger_than_the_queue_is_served_alone() -> None:
    queue = Admission(100)
    with queue.enter(500), pytest.raises(Overloaded), queue.enter(1):
        pass
    with queue.enter(1), pytest.raises(Overloaded), queue.enter(500):
        pass


def test_one_of_several_models_leaves_room_for_the_others() -> None:
    queue = Admission(100, models=2)
    with ExitStack() as held:
        for _ in range(7):
            held.enter_context(queue.enter(10, "greedy"))
        with pytest.raises(Overloaded), queue.enter(10, "greedy"):
            pass
        held.enter_context(queue.enter(25, "other"))
        with pytest.raises(Overloaded), queue.enter(10, "other"):  # all is all
            pass


def test_when_to_come_again_follows_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(admission.time, "monotonic", lambda: now[0])
    queue = Admission(1_000)
    for _ in range(200):  # 50 tokens a second
        now[0] += 2.0
        with queue.enter(100):
            pass
        with queue.enter(1_000), pytest.raises(Overloaded), queue.enter(1):
            pass
        queue._finished -= 1_000
    with queue.enter(1_000), pytest.raises(Overloaded) as refused, queue.enter(500):
        pass
    assert float(refused.value.headers["retry-after"]) == pytest.approx(10, abs=2)
    assert float(refused.value.headers["retry-after-ms"]) == pytest.approx(10_000, rel=0.2)


def test_many_threads_leave_nothing_behind() -> None:
    queue = Admission(50)

    def come_and_go() -> None:
        for _ in range(500):
            try:
                with queue.enter(7, "a"):
                    pass
            except Overloaded:
                continue

    several = [threading.Thread(target=come_and_go) for _ in range(8)]
    for each in several:
        each.start()
    for each in several:
        each.join()
    assert (queue.tokens, queue.requests, queue.held["a"]) == (0, 0, 0)


def test_beyond_the_queue_clients_are_told_at_once() -> None:
    """They have their answer while all that was let in before them is still at work."""
    with running(ENDPOINTS, queue_tokens=30) as up, up.held() as hold:  # /slow holds ten
        under_way = [up.connect() for _ in range(3)]
        for each in under_way:
            each.sendall(request("POST", "/slow", {"text": "a"}))
        until(lambda: len(hold.at_work) == 3)
        assert up.server.admission.tokens == 30
        for _ in range(20):
            answer = up.ask("POST", "/slow")
            assert answer.status == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert int(answer.headers["retry-after-ms"]) >= 1
            assert answer.json["error"]["code"] == "rate_limit_exceeded"
        assert len(hold.at_work) == 3
        hold.go.set()
        for each in under_way:  # what was let in is answered
            assert read_answer(each).json == {"text": "a"}
            each.close()
        until(lambda: up.server.admission.tokens == 0)
        assert up.ask("POST", "/slow").status == 200
