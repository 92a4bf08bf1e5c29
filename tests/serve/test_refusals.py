"""While the queue is full, requests like one that was refused get its answer without being parsed; others do not."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from clearformer.serve import refusals
from clearformer.serve.refusals import likeness
from tests.serve.running import ENDPOINTS, HOUR, Answer, Running, read_answer, request, running

TOKENS = 10  # that /slow asks for


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server that counts the requests that come to its gate."""
    with running(ENDPOINTS, queue_tokens=1_000) as made:
        counted(made, monkeypatch)
        yield made


def counted(made: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, seen = made.server.gate, []

    def counting(*given: Any) -> None:
        seen.append(1)
        gate(*given)

    monkeypatch.setattr(made.server, "gate", counting)
    monkeypatch.setattr(made.server, "seen", seen, raising=False)


def seen(up: Running) -> int:
    return len(up.server.seen)  # type: ignore[attr-defined]


def asked(up: Running, made: Any, path: str = "/slow", text: str = "a", **headers: str) -> Answer:
    made.sendall(request("POST", path, {"text": text}, **headers))
    return read_answer(made)


def still(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    passing = ("x-request-id", "date")
    return answer.status, {name: said for name, said in answer.headers.items() if name not in passing}, answer.body


def test_one_like_a_refused_one_has_its_answer_without_being_parsed(up: Running) -> None:
    with up.connect() as made, up.server.admission.enter(1_000 - TOKENS + 1):
        first = asked(up, made)
        assert (first.status, seen(up)) == (429, 1)
        assert "retry-after" in first.headers
        others = [asked(up, made, text="another text " * n) for n in range(5)]
        assert seen(up) == 1
        assert all(still(each) == still(first) for each in others)
        assert len({each.headers["x-request-id"] for each in [first, *others]}) == 6
    with up.connect() as made:
        assert asked(up, made).json == {"text": "a"}


def test_it_is_asked_again_once_something_has_left_the_queue(up: Running) -> None:
    with up.connect() as made, up.server.admission.enter(600):
        with up.server.admission.enter(400 - TOKENS + 1):
            assert [asked(up, made).status for _ in range(3)] == [429] * 3
        assert asked(up, made).status == 200


def test_others_go_their_own_way(up: Running) -> None:
    with up.connect() as made, up.server.admission.enter(1_000 - TOKENS + 1):
        assert asked(up, made).status == 429
        assert asked(up, made, "/echo").json == {"text": "a"}  # another path
        with up.connect() as other:
            assert asked(up, other, host="another.name").status == 421  # another gate
        assert asked(up, made, x_request_id="mine").headers["x-request-id"] == "mine"
        assert seen(up) == 4
        assert (asked(up, made).status, seen(up)) == (429, 4)
        made.sendall(2 * request("POST", "/slow", {"text": "a"}))  # two at once
        answers = b""
        while answers.count(b"HTTP/1.1 429 ") < 2:
            answers += made.recv(65_536)


def test_one_that_is_large_says_nothing_about_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(ENDPOINTS, queue_tokens=100) as up:
        counted(up, monkeypatch)
        with up.connect() as made, up.server.admission.enter(95):
            assert [asked(up, made).status for _ in range(3)] == [429] * 3
            assert seen(up) == 3


def test_a_server_that_stops_says_so(up: Running) -> None:
    with up.connect() as made, up.server.admission.enter(1_000 - TOKENS + 1):
        assert asked(up, made).status == 429
        up.server.stopping = True
        assert asked(up, made).status == 503


def test_all_are_counted_and_told_to_the_log_together(up: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "TELL", HOUR)
    with up.connect() as made, up.server.admission.enter(1_000 - TOKENS + 1):
        for _ in range(5):
            asked(up, made)
    count = 'clearformer:http_requests_total{endpoint="/slow",model="",status="429"} 5.0'
    assert count in up.ask("GET", "/metrics").body.decode()
    assert not any(line["event"] == "refused" for line in up.log)
    up.pass_by(HOUR)
    assert [line["requests"] for line in up.log if line["event"] == "refused"] == [4]


HEAD = b"POST /translate HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\naccept: */*\r\n\r\n"


def whole(head: bytes = HEAD, **fields: Any) -> bytes:
    content = json.dumps(fields).encode()
    return head % len(content) + content


def test_likeness_is_of_headers_path_model_and_key() -> None:
    one = likeness(whole(q="a", target="de"))
    assert one is not None
    assert one == likeness(whole(q="much longer than that", target="de"))
    assert one != likeness(whole(q="a", target="hi"))
    assert one != likeness(whole(q="a", target="de", model="x"))
    assert one != likeness(whole(q="a", target="de", api_key="k"))
    assert one != likeness(whole(HEAD.replace(b"accept", b"authorization"), q="a", target="de"))
    assert one != likeness(whole(HEAD.replace(b"/translate", b"/detect"), q="a", target="de"))


@pytest.mark.parametrize(
    "data",
    [
        whole(q="a")[:-1],  # not all of it
        whole(q="a") + b"P",  # more than that
        whole(HEAD.replace(b"POST", b"PUT"), q="a"),
        whole(HEAD.replace(b"accept: */*", b"connection: close"), q="a"),
        whole(HEAD.replace(b"accept: */*", b"Expect: 100-continue"), q="a"),
        whole(HEAD.replace(b"content-length: %d", b"transfer-encoding: chunked%.0d"), q="a"),
        whole(q="a", model=["a"]),
        whole(q="a" * 100_000),
        HEAD % 2 + b"[]",
        HEAD % 2 + b"{]",
        b"",
        b"\r\n\r\n",
    ],
)
def test_what_is_unusual_is_like_nothing(data: bytes) -> None:
    assert likeness(data) is None
