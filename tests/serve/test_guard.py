"""Clients that are slow, silent, many, or speak no HTTP: each has its end, and others do not notice."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.serve.running import ENDPOINTS, Running, closed_after, read_answer, request, running, until

MEGABYTE = 2**20


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    with running(
        ENDPOINTS, header_seconds=0.5, body_seconds=0.5, send_seconds=0.5, idle_seconds=0.7, max_body=MEGABYTE,
        max_header=8_192, request_seconds=20.0,
    ) as made:  # fmt: skip
        yield made


def test_a_client_that_says_nothing_is_let_go(up: Running) -> None:
    with up.connect() as made:
        begun = time.monotonic()
        assert read_answer(made).status == 408
        closed_after(made)
        assert 0.4 < time.monotonic() - begun < 2.0


def test_headers_that_drip_end_at_the_deadline_and_not_later(up: Running) -> None:
    with up.connect() as made:
        begun = time.monotonic()
        made.sendall(b"GET /live HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        made.setblocking(False)
        answered = b""
        while time.monotonic() - begun < 3.0 and not answered:
            try:
                made.sendall(b"x")
                answered = made.recv(1_000)
            except BlockingIOError:
                time.sleep(0.05)
        assert answered.startswith(b"HTTP/1.1 408 ")
        assert 0.4 < time.monotonic() - begun < 1.5


def test_the_deadline_is_each_requests_own(up: Running) -> None:
    with up.connect() as made:
        for _ in range(3):  # together they take longer than one may
            made.sendall(b"GET /live HT")
            time.sleep(0.3)
            made.sendall(b"TP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert read_answer(made).status == 200


def test_the_next_request_must_come_in_time(up: Running) -> None:
    with up.connect() as made:
        made.sendall(request("GET", "/live"))
        assert read_answer(made).status == 200
        assert 0.5 < closed_after(made) < 2.0
    with up.connect() as made:  # and once begun it has the time of headers
        made.sendall(request("GET", "/live"))
        assert read_answer(made).status == 200
        time.sleep(0.4)
        made.sendall(b"GET")
        assert read_answer(made).status == 408


@pytest.mark.parametrize("sent", [0, 5])
def test_a_body_that_stalls_is_told_so(up: Running, sent: int) -> None:
    with up.connect() as made:
        begun = time.monotonic()
        made.sendall(request("POST", "/echo", content_length="10") + b"{" * sent)
        answer = read_answer(made)
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert "did not come in time" in answer.json["error"]["message"]
        assert 0.4 < time.monotonic() - begun < 1.5
        assert closed_after(made) < 1.5


def test_a_body_that_drips_is_told_so(up: Running) -> None:
    with up.connect() as made:
        begun = time.monotonic()
        made.sendall(request("POST", "/echo", transfer_encoding="chunked"))
        made.settimeout(0.05)
        answered = b""
        while not answered and time.monotonic() - begun < 3.0:
            made.sendall(b"1\r\n \r\n")
            try:
                answered = made.recv(1_000)
            except TimeoutError:
                continue
        assert answered.startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - begun < 1.5


@pytest.mark.parametrize("size", [MEGABYTE + 1, 12 * MEGABYTE])
@pytest.mark.parametrize("told", [True, False])
def test_a_body_that_is_too_large_is_refused_and_its_client_can_read_why(up: Running, size: int, told: bool) -> None:
    head = {"content_length": str(size)} if told else {"transfer_encoding": "chunked"}
    with up.connect() as made:
        made.sendall(request("POST", "/echo", **head))
        piece = b"x" * 65_536
        for at in range(0, size, len(piece)):  # sent to the end before anything is read, as many clients do
            part = piece[: size - at]
            made.sendall(part if told else f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if not told:
            made.sendall(b"0\r\n\r\n")
        answer = read_answer(made)
        assert answer.status == 413
        assert "1,048,576 bytes" in answer.json["error"]["message"]


def test_a_client_that_asks_first_need_not_send_a_body_that_is_too_large(up: Running) -> None:
    with up.connect() as made:
        made.sendall(request("POST", "/echo", content_length=str(5 * MEGABYTE), expect="100-continue"))
        assert read_answer(made).status == 413
    with up.connect() as made:
        made.sendall(request("POST", "/echo", content_length="2", expect="100-continue"))
        assert made.recv(100).startswith(b"HTTP/1.1 100 ")
        made.sendall(b"{}")
        assert read_answer(made).status == 200


@pytest.mark.parametrize("size", [9_000, 40_000, 300_000])
def test_headers_that_are_too_long_are_refused(up: Running, size: int) -> None:
    with up.connect() as made:
        made.sendall(request("GET", "/live", x_long="x" * size))
        assert read_answer(made).status == 431


@pytest.mark.parametrize(
    "said",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50) + b"\r\n\r\n",  # TLS
        b"GET /live HTTP/1.1\r\n\r\n",  # no host
        b"GET /live HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: gzip\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /live HTTP/1.1\r\nhost: 127.0.0.1\r\nx: a\x00b\r\n\r\n",
        b"GET " + b"/\xff" + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_told_so(up: Running, said: bytes) -> None:
    with up.connect() as made:
        made.sendall(said)
        answer = read_answer(made)
        assert 400 <= answer.status < 500 or answer.status == 501
        assert answer.json["error"]["message"]
        assert closed_after(made) < 2.0
    assert up.ask("GET", "/live").status == 200


def test_requests_sent_ahead_are_answered_in_order(up: Running) -> None:
    with up.connect() as made:
        sent = [request("POST", "/echo", {"text": f"{n}"}) for n in range(20)]
        made.sendall(b"".join(sent))
        raw = b""
        while raw.count(b'{"text"') < 20:
            raw += made.recv(65_536)
        places = [raw.index(f'{{"text":"{n}"}}'.encode()) for n in range(20)]
        assert places == sorted(places)


def test_a_client_that_sent_ahead_and_goes_is_missed(up: Running) -> None:
    up.server.done = []  # type: ignore[attr-defined]
    with up.connect() as made:
        made.sendall(request("POST", "/slow", {"times": 100, "text": "ahead"}))
        until(lambda: up.server.done)  # type: ignore[attr-defined]
        made.sendall(request("GET", "/live"))
        time.sleep(0.1)
    until(lambda: not up.server.calls, 1.0)
    assert len(up.server.done) < 50  # type: ignore[attr-defined]


def test_who_sends_far_too_much_ahead_is_cut_off(up: Running) -> None:
    with up.connect() as made:
        made.sendall(request("POST", "/slow", {"times": 100}))
        try:
            for _ in range(100):
                made.sendall(b"GET /live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 1_000)
        except ConnectionError:
            pass
        until(lambda: not up.server.calls, 1.0)


def test_a_half_closed_connection_is_a_client_that_has_gone(up: Running) -> None:
    """A client that has gone looks the same until something is sent to it, and nobody shall compute for that one."""
    up.server.done = []  # type: ignore[attr-defined]
    with up.connect() as made:
        made.sendall(request("POST", "/slow", {"times": 100}))
        until(lambda: up.server.done)  # type: ignore[attr-defined]
        made.shutdown(socket.SHUT_WR)
        until(lambda: not up.server.calls, 1.0)
    with up.connect() as made:
        made.sendall(request("POST", "/echo", content_length="10"))
        made.shutdown(socket.SHUT_WR)
        assert closed_after(made) < 1.0


def test_a_client_that_does_not_read_is_let_go(up: Running) -> None:
    for path in ("/echo", "/drip"):
        with up.connect() as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            body = {"text": "x" * 100_000, "times": 300}
            made.sendall(request("POST", path, body))
            until(lambda: up.process.server_state.connections, 5.0)
            until(lambda: not up.process.server_state.connections, 10.0)
    assert not up.server.calls


def test_a_client_that_reads_slowly_gets_all(up: Running) -> None:
    with up.connect() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        made.sendall(request("POST", "/echo", {"text": "x" * 50_000, "times": 200}, connection="close"))
        got = 0
        while more := made.recv(MEGABYTE // 2):
            got += len(more)
            time.sleep(0.02)
        assert got > 10_000_000


def test_there_are_so_many_connections_and_the_silent_make_room() -> None:
    with running(ENDPOINTS, max_connections=4, header_seconds=20.0) as up:
        busy = [up.connect() for _ in range(4)]
        for each in busy[:3]:
            each.sendall(request("POST", "/slow", {"times": 40}))
        until(lambda: len(up.server.calls) == 3)
        assert up.ask("GET", "/live").status == 200  # the fourth, which is silent, makes room
        assert closed_after(busy[3]) < 1.0
        until(lambda: len(up.process.server_state.connections) == 3)
        late = up.connect()
        late.sendall(request("POST", "/slow", {"times": 40}))
        until(lambda: len(up.server.calls) == 4)
        refused = up.connect()
        answer = read_answer(refused)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        for each in (*busy[:3], late):
            assert read_answer(each).json == {"steps": 40}
        for each in (*busy, late, refused):
            each.close()


def test_many_slow_sockets_do_not_hold_up_others(up: Running) -> None:
    slow = [up.connect() for _ in range(100)]
    for n, each in enumerate(slow):
        each.sendall((b"", b"GET /li", request("POST", "/echo", content_length="9"))[n % 3])
    begun = time.monotonic()
    for _ in range(20):
        assert up.ask("POST", "/echo", {"text": "a"}).json == {"text": "a"}
    assert time.monotonic() - begun < 1.0
    for each in slow:
        closed_after(each)
        each.close()
    assert time.monotonic() - begun < 3.0
