"""`clearformer bench` as a person runs it."""

import json
from pathlib import Path

import pytest

from tests.cli.test_commands import run


def test_a_whole_run(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    words = ("--shape", "tiny", "--against", "", "--rounds", "1", "--threads", "1", "--json", "--out", str(out))
    done = run("bench", "train", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert json.loads(out.read_text())["contenders"][0]["speeds"]["step"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["translate", "--against", "onnx"], "known: transformers, ctranslate2, llama.cpp, sentence-transformers"),
        (["translate", "--model", "no/such"], "there is no folder no/such"),
        (["translate", "--out", "no/such/file.json"], "there is no folder no/such"),
        (["translate", "--cores", "4096"], "4096 cores asked for"),
        (["translate", "--plot", "bars.gif"], ".png or .svg"),
        (["translate", "--shape", "tiny", "--texts", __file__], "translate with random weights makes its own"),
        (["train", "--texts", __file__], "--texts is for a model that reads text"),
        (["embed", "--texts", "no-such.txt"], "there is no file no-such.txt"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str) -> None:
    done = run("bench", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
