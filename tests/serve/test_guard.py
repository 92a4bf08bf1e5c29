"""Clients that are slow, silent, many, or speak no HTTP: each has its end, and others do not notice."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from clearformer.serve import endpoint, guard
from tests.serve.running import (
    ENDPOINTS,
    HOUR,
    NEVER,
    Running,
    read_answer,
    request,
    rest,
    running,
    silent,
    until,
)

MEGABYTE = 2**20


@pytest.fixture(autouse=True)
def _reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly a client sends what is refused, it is read to its end."""
    monkeypatch.setattr(endpoint, "READ_ON", NEVER)
    monkeypatch.setattr(guard, "LINGER", NEVER)


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    """A server none of whose deadlines strikes."""
    with running(ENDPOINTS, max_body=MEGABYTE, max_header=8_192) as made:
        yield made


def heard(up: Running, size: int) -> None:
    """Wait until so many bytes of a head that is not whole have come to the only connection."""
    until(lambda: up.connections and len(up.connections[0].conn.trailing_data[0]) >= size)


def test_a_client_that_says_nothing_is_let_go() -> None:
    with running(ENDPOINTS, header_seconds=HOUR) as up, up.connect() as made:
        until(lambda: up.connections)
        up.pass_by(HOUR - 600)
        assert silent(made)
        up.pass_by(600)
        assert read_answer(made).status == 408
        assert rest(made) == b""


def test_a_client_that_was_refused_and_stays_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LINGER", HOUR)
    with running(ENDPOINTS) as up, up.connect() as made:
        made.sendall(b"hello\r\n\r\n")
        assert read_answer(made).status == 400
        up.pass_by(HOUR - 600)
        assert len(up.connections) == 1
        up.pass_by(600)
        until(lambda: not up.connections)


def test_headers_that_drip_end_at_the_deadline_and_not_later() -> None:
    start = b"GET /live HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    with running(ENDPOINTS, header_seconds=HOUR) as up, up.connect() as made:
        made.sendall(start)
        for n in range(3):
            heard(up, len(start) + n)
            up.pass_by(HOUR / 4)
            assert silent(made)
            made.sendall(b"x")
        heard(up, len(start) + 3)
        up.pass_by(HOUR / 4)
        assert read_answer(made).status == 408


def test_the_deadline_is_each_requests_own() -> None:
    with running(ENDPOINTS, header_seconds=HOUR) as up, up.connect() as made:
        for _ in range(3):  # together they take longer than one may
            made.sendall(b"GET /live HT")
            heard(up, 12)
            up.pass_by(HOUR / 2)
            made.sendall(b"TP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert read_answer(made).status == 200


def test_the_next_request_must_come_in_time() -> None:
    with running(ENDPOINTS, idle_seconds=HOUR) as up, up.connect() as made:
        for _ in range(3):
            made.sendall(request("GET", "/live"))
            assert read_answer(made).status == 200
            up.pass_by(HOUR / 2)
        assert silent(made)
        up.pass_by(HOUR / 2)
        assert rest(made) == b""
    with running(ENDPOINTS, header_seconds=HOUR) as up, up.connect() as made:  # and once begun it has that of headers
        made.sendall(request("GET", "/live"))
        assert read_answer(made).status == 200
        up.pass_by(2 * HOUR)
        assert silent(made)
        made.sendall(b"GET")
        heard(up, 3)
        up.pass_by(HOUR)
        assert read_answer(made).status == 408


@pytest.mark.parametrize("sent", [0, 5])
def test_a_body_that_stalls_is_told_so(monkeypatch: pytest.MonkeyPatch, sent: int) -> None:
    monkeypatch.setattr(endpoint, "READ_ON", HOUR)
    with running(ENDPOINTS, body_seconds=HOUR) as up, up.connect() as made:
        made.sendall(request("POST", "/echo", content_length="10") + b"{" * sent)
        until(lambda: up.server.calls)
        up.pass_by(HOUR - 600)
        assert silent(made)
        up.pass_by(600)
        answer = read_answer(made)
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert "did not come in time" in answer.json["error"]["message"]
        up.pass_by(HOUR - 600)
        assert silent(made)  # what its client still sends is read
        up.pass_by(600)
        assert rest(made) == b""


def test_a_body_that_drips_is_told_so() -> None:
    with running(ENDPOINTS, body_seconds=HOUR) as up, up.connect() as made:
        made.sendall(request("POST", "/echo", transfer_encoding="chunked"))
        until(lambda: up.server.calls)
        for _ in range(3):
            made.sendall(b"1\r\n \r\n")
            up.pass_by(HOUR / 4)
            assert silent(made)
        made.sendall(b"1\r\n \r\n")
        up.pass_by(HOUR / 4)
        assert read_answer(made).status == 408


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
        assert rest(made) == b""
    assert up.ask("GET", "/live").status == 200


def test_requests_sent_ahead_are_answered_in_order(up: Running) -> None:
    with up.connect() as made:
        sent = [request("POST", "/echo", {"text": f"{n}"}) for n in range(20)]
        made.sendall(b"".join(sent))
        raw = b""
        while raw.count(b'{"text"') < 20:
            raw += made.recv(65_536) or pytest.fail(f"closed after {raw!r}")
        places = [raw.index(f'{{"text":"{n}"}}'.encode()) for n in range(20)]
        assert places == sorted(places)


def test_a_client_that_sent_ahead_and_goes_is_missed(up: Running) -> None:
    with up.held() as hold:
        with up.connect() as made:
            made.sendall(request("POST", "/slow"))
            until(lambda: hold.begun)
            made.sendall(request("GET", "/live"))
            until(lambda: up.connections[0].conn.trailing_data[0])
        until(lambda: not up.server.calls and not hold.at_work)


def test_who_sends_far_too_much_ahead_is_cut_off(up: Running) -> None:
    with up.held() as hold, up.connect() as made:
        made.sendall(request("POST", "/slow"))
        until(lambda: hold.begun)
        with suppress(ConnectionError):
            for _ in range(100):
                made.sendall(b"GET /live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 1_000)
        until(lambda: not up.server.calls and not hold.at_work)
        assert rest(made) == b""


def test_a_half_closed_connection_is_a_client_that_has_gone(up: Running) -> None:
    """A client that has gone looks the same until something is sent to it, and nobody shall compute for that one."""
    with up.held() as hold, up.connect() as made:
        made.sendall(request("POST", "/slow"))
        until(lambda: hold.begun)
        made.shutdown(socket.SHUT_WR)
        until(lambda: not up.server.calls and not hold.at_work)
    with up.connect() as made:
        made.sendall(request("POST", "/echo", content_length="10"))
        made.shutdown(socket.SHUT_WR)
        assert rest(made) == b""


@pytest.mark.parametrize("path", ["/echo", "/drip"])
def test_a_client_that_does_not_read_is_let_go(path: str) -> None:
    with running(ENDPOINTS, send_seconds=HOUR) as up, up.connect() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        made.sendall(request("POST", path, {"text": "x" * 100_000, "times": 300}))
        until(lambda: up.connections and up.connections[0].taking)
        up.pass_by(HOUR - 600)
        assert len(up.connections) == 1

        def gone() -> bool:
            up.pass_by(HOUR)  # the system takes some of it for the client, so that once may not be enough
            return not up.connections

        until(gone)
        until(lambda: not up.server.calls)


def test_a_client_that_reads_slowly_gets_all() -> None:
    with running(ENDPOINTS, send_seconds=HOUR) as up, up.connect() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        made.sendall(request("POST", "/echo", {"text": "x" * 100_000, "times": 600}, connection="close"))
        until(lambda: up.connections and up.connections[0].taking)
        (protocol,), got = up.connections, 0
        # the system may take 8 MB at once, so there is much more
        for _ in range(3):  # each time it takes enough of it, and then nothing for an hour
            before = protocol.transport.get_write_buffer_size()
            while protocol.transport.get_write_buffer_size() > before - guard.TAKEN:
                got += len(made.recv(65_536))
            assert protocol.taking is not None
            up.pass_by(HOUR)
        got += len(rest(made))
        assert got > 60_000_000


def test_there_are_so_many_connections_and_the_silent_make_room() -> None:
    with running(ENDPOINTS, max_connections=4) as up, up.held() as hold:
        busy = [up.connect() for _ in range(4)]
        for each in busy[:3]:
            each.sendall(request("POST", "/slow", {"text": "a"}))
        until(lambda: len(hold.at_work) == 3)
        assert up.ask("GET", "/live").status == 200  # the fourth, which is silent, makes room
        assert rest(busy[3]) == b""
        until(lambda: len(up.connections) == 3)
        late = up.connect()
        late.sendall(request("POST", "/slow", {"text": "a"}))
        until(lambda: len(hold.at_work) == 4)
        refused = up.connect()
        answer = read_answer(refused)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        hold.go.set()
        for each in (*busy[:3], late):
            assert read_answer(each).json == {"text": "a"}
        for each in (*busy, late, refused):
            each.close()


def test_many_slow_sockets_do_not_hold_up_others() -> None:
    with running(ENDPOINTS, header_seconds=HOUR, body_seconds=HOUR) as up:
        slow = [up.connect() for _ in range(100)]
        for n, each in enumerate(slow):
            each.sendall((b"", b"GET /li", request("POST", "/echo", content_length="9"))[n % 3])
        until(lambda: len(up.server.calls) == 33)
        for _ in range(20):
            assert up.ask("POST", "/echo", {"text": "a"}).json == {"text": "a"}
        assert len(up.connections) >= 100  # all of them are still there
        up.pass_by(HOUR)
        for each in slow:
            assert read_answer(each).status == 408
            each.close()
