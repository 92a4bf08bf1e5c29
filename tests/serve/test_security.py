"""Who may ask, under which name, from which page; and what is never said: keys, texts, control characters."""

import json
import threading
import time
from pathlib import Path

import pytest

from clearformer.errors import DataError
from clearformer.serve import logs
from clearformer.serve.app import _bare
from clearformer.serve.endpoint import Endpoint
from clearformer.serve.errors import plain_shape
from tests.serve.asking import Asking
from tests.serve.models import completer, served
from tests.serve.running import ENDPOINTS, PATIENCE, Said, echo, read_answer, request, running, until

KEYS = ("first-key-123", "second-key-456")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(f"# those of our two clients\n{KEYS[0]}\n\n  {KEYS[1]}  \n")
    return file


# --- keys -----------------------------------------------------------------------------------------------------------


def test_every_route_but_live_wants_a_key(key_file: Path) -> None:
    with running(ENDPOINTS, key_file=key_file) as up:
        assert up.ask("GET", "/live").status == 200
        asked = [(each.method, each.path) for each in up.server.endpoints if each.path != "/live"]
        for method, path in [*asked, ("GET", "/nowhere"), ("PATCH", "/echo"), ("OPTIONS", "/echo")]:
            answer = up.ask(method, path, b"{}" if method == "POST" else b"")
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        for header in ("Bearer {}", "bearer {}", "DeepL-Auth-Key {}"):
            for key in KEYS:
                assert up.ask("POST", "/echo", b"{}", authorization=header.format(key)).status == 200
        assert up.ask("GET", "/ready", x_api_key=KEYS[1]).status == 200
        for wrong in ("Bearer", "Bearer ", f"Basic {KEYS[0]}", f"Bearer {KEYS[0]}x", f"Bearer {KEYS[0][:-1]}",
                      "Bearer #", "Bearer \xe9", f"Bearer {KEYS[0]} {KEYS[1]}"):  # fmt: skip
            assert up.ask("GET", "/ready", authorization=wrong).status == 401, wrong
        assert not any(key in up.out.getvalue() for key in KEYS)


def test_a_key_may_come_in_the_body_where_a_protocol_has_it_there(key_file: Path) -> None:
    own = Endpoint("POST", "/keyed", echo, Said, key_field="text", shape=plain_shape)
    with running([own], key_file=key_file) as up:
        assert up.ask("POST", "/keyed", {"text": KEYS[0]}).status == 200
        assert up.ask("POST", "/keyed", {"text": "no"}, x_api_key=KEYS[0]).status == 200
        answer = up.ask("POST", "/keyed", {"text": "no"})
        assert answer.status == 401
        assert "wants a key" in answer.json["error"]
        assert KEYS[0] not in up.out.getvalue()


def test_what_one_key_made_is_not_found_with_another(key_file: Path) -> None:
    asking = Asking(registry=served(plain=completer(None)), key_file=key_file)
    one, other = ({"authorization": f"Bearer {key}"} for key in KEYS)
    made = asking.post("/v1/completions", {"prompt": "one", "max_tokens": 2}, {**one, "x-request-id": "mine"})
    for name in ("mine", made.json()["id"]):
        assert asking.get(f"/runs/{name}", one).status == 200
        assert asking.get(f"/runs/{name}", other).status == 404
        assert asking.get(f"/trace/{name}", other).status == 404
    trace = asking.get("/trace/mine", one).json()["id"]
    other_trace = asking.post("/trace", {"text": "one"}, other).json()["id"]
    assert asking.get(f"/trace/{trace}", one).status == 200
    assert asking.get(f"/trace/{trace}", other).status == 404
    assert asking.get(f"/trace/{other_trace}", one).status == 404
    again = asking.post("/v1/completions", {"prompt": "two", "max_tokens": 1}, {**other, "x-request-id": "mine"})
    assert again.status == 200  # the same name, and neither takes the other's place
    assert asking.get("/runs/mine", one).json() != asking.get("/runs/mine", other).json()


def test_keys_are_compared_as_wholes_in_constant_time(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    with running(ENDPOINTS, key_file=key_file) as up:
        for key in ("x", KEYS[0], KEYS[1]):
            up.ask("GET", "/ready", authorization=f"Bearer {key}")
    assert len(compared) == 6  # each with all of them
    assert {len(part) for pair in compared for part in pair} == {32}  # and lengths tell nothing


@pytest.mark.parametrize("content", ["", "# only words\n", None])
def test_a_key_file_without_keys_is_an_error(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=r"holds no key|cannot read"), running(key_file=file):
        pass


# --- names and pages ------------------------------------------------------------------------------------------------


def test_the_server_is_asked_under_its_own_names_alone() -> None:
    with running(ENDPOINTS, allow_host=("Models.example.org",)) as up:
        for host in ("127.0.0.1", "127.0.0.1:8000", "localhost:1", "LOCALHOST", "localhost.", "[::1]", "[::1]:80",
                     "models.example.org", "models.example.org:443"):  # fmt: skip
            assert up.ask("POST", "/echo", b"{}", host=host).status == 200, host
        for host in ("evil.example.org", "127.0.0.1.evil.org", "evil.org:8000", "10.0.0.1", "", "localhost@evil.org"):
            answer = up.ask("POST", "/echo", b"{}", host=host)
            assert answer.status == 421, host
            assert "--allow-host" in answer.json["error"]["message"]
        assert up.ask("GET", "/live", host="evil.example.org").status == 200  # a probe may say anything


def test_beyond_this_machine_addresses_are_names_too(key_file: Path) -> None:
    with running(ENDPOINTS, host="0.0.0.0", key_file=key_file) as up:
        key = f"Bearer {KEYS[0]}"
        assert up.ask("POST", "/echo", b"{}", host="10.1.2.3:8000", authorization=key).status == 200
        assert up.ask("POST", "/echo", b"{}", host="evil.example.org", authorization=key).status == 421


@pytest.mark.parametrize(
    ("host", "bare"),
    [("a:1", "a"), ("a", "a"), ("[::1]:2", "::1"), ("[::1]", "::1"), ("::1", "::1"), ("A.", "a"), ("", "")],
)
def test_a_host_without_its_port(host: str, bare: str) -> None:
    assert _bare(host) == bare


def test_pages_of_other_origins_are_refused() -> None:
    with running(ENDPOINTS) as up:
        for origin in ("https://evil.example.org", "null", "http://localhost:1", "http://127.0.0.1:1"):
            answer = up.ask("POST", "/echo", b"{}", origin=origin)
            assert (answer.status, answer.json["error"]["code"]) == (403, "origin")
            assert up.ask("OPTIONS", "/echo", origin=origin, access_control_request_method="POST").status == 403
            read = up.ask("GET", "/live", origin=origin)
            assert not any(name.startswith("access-control") for name in read.headers)  # so no page can read it
        own = f"http://127.0.0.1:{up.port}"
        assert up.ask("POST", "/echo", b"{}", origin=own, host=f"127.0.0.1:{up.port}").status == 200


def test_an_origin_can_be_allowed(key_file: Path) -> None:
    page = "https://page.example.org"
    with running(ENDPOINTS, allow_origin=(page,), key_file=key_file) as up:
        first = up.ask("OPTIONS", "/echo", origin=page, access_control_request_method="POST")  # browsers send no key
        assert first.status == 200
        assert first.headers["access-control-allow-origin"] == page
        assert "POST" in first.headers["access-control-allow-methods"]
        assert "authorization" in first.headers["access-control-allow-headers"]
        answer = up.ask("POST", "/echo", b"{}", origin=page, authorization=f"Bearer {KEYS[0]}")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, page)
        refused = up.ask("POST", "/echo", b"{}", origin=page)
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, page)  # the page can read why
        assert up.ask("POST", "/echo", b"{}", origin="https://other.org").status == 403


# --- methods and shapes ---------------------------------------------------------------------------------------------


def test_methods() -> None:
    with running([*ENDPOINTS, Endpoint("POST", "/plain", echo, Said, shape=plain_shape)]) as up:
        whole, head = up.ask("GET", "/live"), up.ask("HEAD", "/live")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]
        wrong = up.ask("DELETE", "/echo")
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
        assert wrong.json["error"]["code"] == "method_not_allowed"
        plain = up.ask("GET", "/plain")
        assert (plain.status, plain.headers["allow"]) == (405, "OPTIONS, POST")
        assert plain.json == {"error": "/plain takes OPTIONS, POST", "error_type": "invalid_request_error"}
        assert up.ask("OPTIONS", "/plain").headers["allow"] == "OPTIONS, POST"
        nothing = up.ask("GET", "/live/")
        assert nothing.status == 404
        assert "/echo" in nothing.json["error"]["message"]
        assert "server" not in whole.headers


def test_bodies_are_json_whatever_curl_says_of_them() -> None:
    with running(ENDPOINTS) as up:
        for kind in ("application/json", "application/json; charset=utf-8", "application/x-www-form-urlencoded"):
            assert up.ask("POST", "/echo", {"text": "a"}, content_type=kind).json == {"text": "a"}
        for kind in ("text/html", "multipart/form-data; boundary=x", "application/octet-stream"):
            assert up.ask("POST", "/echo", {"text": "a"}, content_type=kind).status == 415
        assert up.ask("POST", "/echo", b"text=a", content_type="application/x-www-form-urlencoded").status == 415


# --- what is said ---------------------------------------------------------------------------------------------------


def test_the_log_has_times_and_ids_and_no_texts() -> None:
    with running(ENDPOINTS) as up:
        begun = time.perf_counter()
        up.ask(
            "POST", "/echo?hidden=1", {"text": "a hidden text"}, x_request_id="mine-1", authorization="Bearer hidden"
        )
        answer = up.ask("POST", "/broken", {"text": "hidden too"})
        assert (answer.status, answer.json["error"]["type"]) == (500, "server_error")
        up.ask("POST", "/echo", {"hidden": 1})
        up.ask("POST", "/echo", b"hidden")
        assert up.ask("GET", "/hidden\x1b[31m").status == 400
        first, second, *others = up.log
        assert "hidden" not in up.out.getvalue()
        assert first | {"time": "", "seconds": 0} == {
            "time": "", "event": "request", "id": "mine-1", "method": "POST", "path": "/echo", "status": 200,
            "seconds": 0,
        }  # fmt: skip
        assert 0 <= first["seconds"] <= time.perf_counter() - begun + 1e-4  # it is rounded
        assert time.strptime(first["time"][:19], "%Y-%m-%dT%H:%M:%S")
        assert second["id"] == answer.headers["x-request-id"]
        assert second["error"].startswith("RuntimeError at ")
        assert "running.py:" in second["error"]
        assert [each["status"] for each in others] == [400, 400]


def test_an_id_that_could_do_harm_is_not_taken() -> None:
    with running(ENDPOINTS) as up:
        for bad in ("a b", "x" * 65, "a\tb", "../a", "é"):
            given = up.ask("GET", "/live", x_request_id=bad).headers["x-request-id"]
            assert len(given) == 32
            assert given.isalnum()


def test_a_line_of_the_log_is_printable_whatever_it_holds() -> None:
    wild = "".join(chr(n) for n in [*range(160), 0x2028, 0x202E, 0xFEFF, 0x1F600]) + "\ud800"
    text = logs.line({"model": wild})
    assert all(" " <= letter <= "~" for letter in text)
    assert json.loads(text) == {"model": wild}


def test_a_log_that_nobody_reads_holds_up_nobody() -> None:
    class Stuck:
        def __init__(self) -> None:
            self.go, self.lines = threading.Event(), 0

        def write(self, text: str) -> None:
            assert self.go.wait(PATIENCE)
            self.lines += text.count("\n")

        def flush(self) -> None:
            pass

    out = Stuck()
    log = logs.Log(out)  # type: ignore[arg-type]
    for n in range(logs.WAITING + 100):  # more than are kept, and the first of them cannot be written yet
        log.write(number=n)
    assert log.dropped >= 98
    assert out.lines == 0
    out.go.set()
    until(lambda: log._lines.empty())
    log.write(number=-1)
    log.close(PATIENCE)
    assert out.lines <= logs.WAITING + 2


def test_a_log_whose_reader_has_gone_ends_nothing() -> None:
    class Gone:
        def write(self, text: str) -> None:
            raise BrokenPipeError

    log = logs.Log(Gone())  # type: ignore[arg-type]
    for n in range(3):
        log.write(number=n)
    log.close()
    assert log._lines.empty()


def test_an_error_in_the_middle_of_a_stream_is_no_end_of_it() -> None:
    from tests.serve.running import Call, Stream

    async def breaks(call: Call, body: Said) -> Stream:
        async def parts():  # type: ignore[no-untyped-def]
            yield b"data: 1\n\n"
            raise RuntimeError("hidden")

        return Stream(parts())

    with running([Endpoint("POST", "/breaks", breaks, Said)]) as up, up.connect() as made:
        made.sendall(request("POST", "/breaks", b"{}"))
        answer = read_answer(made)
        assert b"data: 1" in answer.body
        assert b"\r\n0\r\n\r\n" not in answer.body  # chunked, and without the last chunk
        assert "hidden" not in up.out.getvalue()
