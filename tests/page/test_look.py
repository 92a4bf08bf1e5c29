"""`clearformer look`, the page's switch, and who may ask without a key."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from clearformer.cli.look import fragment
from clearformer.errors import DataError
from tests.serve.asking import Asking
from tests.serve.bundled import bundled


def test_what_the_page_is_told() -> None:
    assert fragment(None, False) == "/"
    assert fragment("a & b # <c> ü", False) == "/#text=a%20%26%20b%20%23%20%3Cc%3E%20%C3%BC"
    assert fragment(None, True) == "/#lesson=index"
    assert fragment("positions", True) == "/#lesson=positions"
    with pytest.raises(DataError, match=r"no lesson 'positionz'.*positions"):
        fragment("positionz", True)


def test_look_serves_the_page_on_this_machine_and_ends_when_told() -> None:
    command = [sys.executable, "-m", "clearformer", "look", "How are you?", "--model", "en-de", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        where = line.split()[3]
        assert where.startswith("http://127.0.0.1:")
        assert where.endswith("/#text=How%20are%20you%3F")
        base = where.partition("/#")[0]
        with urllib.request.urlopen(f"{base}/", timeout=60) as answer:
            assert b"importmap" in answer.read()
        with urllib.request.urlopen(f"{base}/models", timeout=60) as answer:
            assert [each["name"] for each in json.load(answer)] == ["en-de"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("words", [["look", " "], ["look", "--model", "nowhere", "--no-browser"]])
def test_what_cannot_be_looked_at_is_said(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "clearformer", *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert done.stderr.startswith("clearformer: ")
    assert "Traceback" not in done.stderr


def test_explain_writes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "why.html"
    command = [sys.executable, "-m", "clearformer", "explain", "--model", "en-de", "How are you?", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    page = out.read_text(encoding="utf-8")
    assert "clearformer look --model en-de 'How are you?'" in page
    assert len(page.encode()) <= 3_000_000


def test_the_page_is_open_and_its_data_wants_the_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    locked = Asking(registry=bundled().server.registry, key_file=keys)
    assert locked.get("/").status == 200
    assert locked.get("/assets/app.js").status == 200
    assert locked.get("/models").status == 401
    assert locked.post("/trace", {"text": "a"}).status == 401
    assert locked.get("/models", headers={"authorization": "Bearer secret"}).status == 200
    off = Asking(registry=bundled().server.registry, page=False)
    assert off.get("/").status == off.get("/assets/app.js").status == 404
    assert "--page" in off.get("/").json()["error"]


def test_a_trace_is_exported_over_http() -> None:
    asking = bundled()
    made = asking.post("/trace", {"text": "Hi", "model": "en-de"}).json()
    answer = asking.get(f"/trace/{made['id']}/export")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="en-de.html"'
    assert b'id="clearformer-data"' in answer.content
