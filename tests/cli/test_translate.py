"""`translate`, `score` and `explain` as a person uses them: lines in, lines out, errors of one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_commands import run
from tests.tasks.conftest import TEXTS, save


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("models") / "tiny"))


def test_every_line_in_is_a_line_out(model: str, tmp_path: Path) -> None:
    """U+2028, form feeds and carriage returns are no line ends, and blank lines stay."""
    lines = [TEXTS[0], "", "one\u2028two", "three\x0cfour", "five\r six", TEXTS[1]]
    command = [sys.executable, "-m", "clearformer", "translate", "--model", model, "--num-beams", "2"]
    done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True, timeout=280)
    assert done.returncode == 0, done.stderr
    out = done.stdout.decode().split("\n")
    assert len(out) == len(lines) + 1
    assert out[1] == ""
    (tmp_path / "in.txt").write_bytes("\n".join(lines).encode())
    written = tmp_path / "out.txt"
    again = run(
        "translate", "--model", model, "--num-beams", "2", "--file", str(tmp_path / "in.txt"), "--out", str(written)
    )
    assert again.returncode == 0, again.stderr
    assert written.read_bytes() == done.stdout
    refused = run("translate", "--model", model, "one", "--out", str(written))
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    assert written.read_bytes() == done.stdout


def test_columns_and_json(model: str) -> None:
    plain = run("translate", "--model", model, "--num-return-sequences", "3", "--scores", "--alignments", *TEXTS[:2])
    rows = [line.split("\t") for line in plain.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    assert all(float(row[1]) < 0 and "-" in row[3] for row in rows)
    found = json.loads(run("translate", "--model", model, "--json", TEXTS[0]).stdout)
    assert found["text"] == rows[0][2]
    assert found["finish"] in ("end", "limit")
    assert set(found) == {"text", "score", "tokens", "finish", "source_tokens"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "/", "one"), "not a model folder"),
        (("--to", "tlh", "one"), "'tlh'"),
        (("--file", "/nowhere/at/all"), "no file /nowhere/at/all"),
        (("--out", "/nowhere/at/all", "one"), "no folder /nowhere/at to write all in"),
        (("--model", "MODEL", "--to", "fr", "one"), "does not translate to 'fr'; it translates to xx"),
        (("--model", "MODEL", "--on-long", "error", "one " * 60), "split or truncate"),
        (("--model", "MODEL", "--num-beams", "0", "one"), "num_beams must be a whole number from 1"),
        (("--model", "MODEL", "--num-beams", "4", "--temperature", "0.5", "one"), "give one of them"),
    ],
)
def test_what_cannot_be_done_is_one_message(model: str, words: tuple[str, ...], said: str) -> None:
    done = run("translate", *(model if word == "MODEL" else word for word in words))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_score_tells_measures_signatures_speed_and_the_worst(model: str, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("one two three\nfour\n")
    (tmp_path / "t").write_text("drei\nvier\n")
    done = run("score", "--model", model, "--source", str(tmp_path / "s"), "--target", str(tmp_path / "t"))
    assert done.returncode == 0, done.stderr
    for word in ("BLEU", "chrF", "tok:13a", "100.0% of the pairs", "sentences/s", "reference  vier"):
        assert word in done.stdout
    facts = json.loads(
        run(
            "score", "--model", model, "--source", str(tmp_path / "s"), "--target", str(tmp_path / "t"), "--json"
        ).stdout
    )
    assert facts["overlap"] == {"sources": 1.0, "pairs": 1.0}
    (tmp_path / "t").write_text("drei\n")
    short = run("score", "--model", model, "--source", str(tmp_path / "s"), "--target", str(tmp_path / "t"))
    assert short.returncode == 2
    assert "has 2 lines" in short.stderr
    assert "has 1" in short.stderr


def test_explain_shows_and_answers_for_a_cell(model: str) -> None:
    done = run("explain", "--model", model, "Do you know him?")
    assert done.returncode == 0, done.stderr
    for word in ("▁know", "decoder.1.cross.weights", "the likeliest tokens", "beam of 4"):
        assert word in done.stdout
    cell = run("explain", "--model", model, "Do you know him?", "--address", "decoder.1.cross.h3.weights[0,2]")
    assert "exp(" in cell.stdout
    assert "key 2" in cell.stdout
    wrong = run("explain", "--model", model, "one", "--address", "decoder.1.cros.weights")
    assert wrong.returncode == 2
    assert "did you mean 'decoder.1.cross.weights'" in wrong.stderr


def test_a_pipe_is_read_like_a_file(model: str) -> None:
    command = [sys.executable, "-m", "clearformer", "translate", "--model", model, "--file", "/dev/stdin"]
    piped = subprocess.run(command, input=TEXTS[0].encode(), capture_output=True, timeout=280)
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout.decode() == run("translate", "--model", model, TEXTS[0]).stdout


def test_numbers_that_make_no_sense_are_refused_before_the_work(model: str, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("one\n")
    files = ("--source", str(tmp_path / "s"), "--target", str(tmp_path / "s"))
    for words in (
        ("score", "--model", model, *files, "--worst", "-1"),
        ("score", "--model", model, *files, "--out", str(tmp_path / "nowhere" / "out")),
        ("explain", "--model", model, "--top", "0", "one"),
    ):
        done = run(*words)
        assert done.returncode == 2, words
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
