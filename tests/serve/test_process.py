"""The process: what it says when it starts, why it does not start, and how it ends."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from clearformer.serve import run
from clearformer.serve.run import bound
from tests.serve.processes import PATIENCE, Served, served, tiny_translator
from tests.serve.running import ENDPOINTS, HOUR, read_answer, request, running, silent, until

LONG = " ".join(["one two three four five six seven"] * 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_translator(tmp_path_factory.mktemp("models") / "tiny")


def refused(*words: str) -> str:
    """What a server that cannot start says; it ends with 2 and without a traceback."""
    command = [sys.executable, "-m", "clearformer", "serve", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_first_line_says_all_and_a_second_server_says_why_not(folder: Path) -> None:
    with served("--model", f"mine={folder}", "--precision", "float32", "--queue-tokens", "12345") as up:
        said = up.first_line
        for word in ("mine (float32)", f"http://127.0.0.1:{up.port}", "12,345 tokens", "no key needed", "page http://"):
            assert word in said
        assert up.port != 0
        status, headers, body = up.ask("GET", "/health")
        assert (status, json.loads(body)["models"]["mine"]["verbs"]) == (200, ["translate"])
        assert "server" not in headers
        wrong = refused("--model", str(folder), "--port", str(up.port))
        assert f"cannot listen at http://127.0.0.1:{up.port}: Address already in use" in wrong
        assert "--port" in wrong
        assert up.end() == 0
        assert [line["event"] for line in up.log] == ["start", "request", "stop", "end"]
        assert up.log[0]["models"] == {"mine": "float32"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nowhere/at/all"], "nowhere/at/all"),
        (["--host", "0.0.0.0"], "key_file"),
        (["--host", "999.0.0.1", "--insecure"], "no address '999.0.0.1'"),
        (["--key-file", "nowhere"], "cannot read the key file nowhere"),
        (["--port", "99999"], "port"),
        (["--config", "nowhere.toml"], "cannot read nowhere.toml"),
    ],
)
def test_why_it_does_not_start(words: list[str], said: str) -> None:
    assert said in refused(*words)


def _requests(up: Served) -> int:
    """That wait or run, by what the server says."""
    return int(json.loads(up.ask("GET", "/health")[2])["queue"]["requests"])


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_finishes_what_runs_and_takes_nothing_new(
    folder: Path, tmp_path: Path, with_signal: signal.Signals
) -> None:
    go = tmp_path / "go"
    with served("--model", str(folder), "--grace-seconds", "600", go=go) as up:
        body = json.dumps({"q": [f"{LONG} {n}" for n in range(5)], "source": "en", "target": "xx"}).encode()
        busy = http.client.HTTPConnection("127.0.0.1", up.port, timeout=PATIENCE)
        busy.request("POST", "/translate", body, {"content-type": "application/json"})
        until(lambda: _requests(up) == 1)
        idle = socket.create_connection(("127.0.0.1", up.port))
        up.process.send_signal(with_signal)
        until(lambda: "stop" in up.events)
        status, headers, _ = up.ask("POST", "/translate", {"q": "one", "source": "en", "target": "xx"})
        assert status == 503
        assert int(headers["retry-after"]) >= 1
        assert up.ask("GET", "/ready")[0] == 503
        assert up.ask("GET", "/live")[0] == 200
        go.touch()
        answer = busy.getresponse()
        found = json.loads(answer.read())
        assert answer.status == 200
        assert len(found["translatedText"]) == 5
        assert up.process.wait(PATIENCE) == 0
        up._reader.join(PATIENCE)
        assert up.events == ["start", "stop", "end"]
        idle.close()
        busy.close()


@pytest.mark.parametrize("twice", [False, True])
def test_what_takes_longer_than_the_grace_is_told_so(folder: Path, tmp_path: Path, twice: bool) -> None:
    """What runs never ends by itself."""
    with served("--model", str(folder), "--grace-seconds", "600" if twice else "0.3", go=tmp_path / "never") as up:
        answers: list[int] = []
        body = {"q": LONG, "source": "en", "target": "xx"}
        asking = threading.Thread(target=lambda: answers.append(up.ask("POST", "/translate", body)[0]))
        asking.start()
        until(lambda: _requests(up) == 1)
        up.process.send_signal(signal.SIGTERM)
        until(lambda: "stop" in up.events)
        if twice:
            up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(PATIENCE) == 0
        asking.join(PATIENCE)
        assert answers == [503]
        up._reader.join(PATIENCE)
        assert "cut" in up.events


def test_the_grace_is_as_long_as_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = [0.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0]))
    with running(ENDPOINTS, grace_seconds=HOUR) as up, up.held() as hold, up.connect() as made:
        made.sendall(request("POST", "/slow"))
        until(lambda: hold.at_work)
        up.process.should_exit = True
        until(lambda: up.server.stopping)
        for passed in (0.0, HOUR - 600):
            ahead[0] = passed
            up.pass_by(run.LOOK)
            assert silent(made)
        ahead[0] = HOUR
        assert read_answer(made).status == 503


def test_answers_are_not_held_back() -> None:
    """Headers and body are sent one after the other, and a system that waits for more adds 40 ms to each."""

    def at_once(made: socket.socket) -> bool:
        return bool(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with bound("127.0.0.1", 0) as listener:
        assert at_once(listener)
    with running() as up, up.connect() as made:
        until(lambda: up.connections)
        assert at_once(up.connections[0].transport.get_extra_info("socket"))
        assert not at_once(made)
