"""Streams that are closed or narrow, and files that cannot be written: one message, no traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clearformer.cli.output import output
from clearformer.errors import DataError
from tests.tasks.encoders import save
from tests.tasks.writers import completer
from tests.tasks.writers import save as save_writer


def shell(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **environment}
    line = f"'{sys.executable}' -m clearformer {words}"
    return subprocess.run(line, shell=True, capture_output=True, text=True, timeout=280, env=given)


@pytest.mark.parametrize("words", ["translate hi", "explain hi", "inspect en-de", "inspect en-de --json", "notes mask"])
def test_a_closed_stdout_is_an_error_of_one_line(words: str) -> None:
    done = shell(f"{words} >&-")
    assert (done.returncode, done.stderr) == (2, "clearformer: cannot write: stdout is closed\n")


def test_a_closed_stdout_of_other_verbs(tmp_path: Path) -> None:
    classify = save(tmp_path / "classify", "DistilBertForSequenceClassification", num_labels=3)[0]
    embed = save(tmp_path / "embed", "BertModel")[0]
    complete = save_writer(completer(), tmp_path / "complete")
    for words in (
        f"classify --model {classify} a",
        f"embed --model {embed} --on-long truncate --whole <{__file__}",
        f"complete --model {complete} a",
    ):
        done = shell(f"{words} >&-")
        assert (done.returncode, done.stderr) == (2, "clearformer: cannot write: stdout is closed\n")


def test_a_closed_stdout_does_not_matter_beside_a_file(tmp_path: Path) -> None:
    done = shell(f"translate Hello. --model en-de --out '{tmp_path / 'out'}' >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").read_text(encoding="utf-8").strip()


def test_all_streams_closed() -> None:
    assert shell("translate hi >&- 2>&- <&-").returncode == 2
    assert shell("translate hi 2>&- <&-").returncode == 0


NARROW = [
    "inspect en-de",
    "explain hi --model en-de",
    "explain hi --model en-de --addresses",
    "notes mask",
    "spec bert",
]


@pytest.mark.parametrize("words", NARROW)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_narrow_encoding_is_no_traceback(words: str, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clearformer", *words.split()],
        capture_output=True,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout


def test_a_minus_stays_one_in_ascii() -> None:
    done = shell("explain hi --addresses", PYTHONIOENCODING="ascii")
    assert "position 3 x feature 256 in [-6.0" in done.stdout


def test_texts_are_utf_8_whatever_the_terminal_says() -> None:
    assert shell("translate 'How are you?' --to hi", PYTHONIOENCODING="ascii").stdout.strip().isascii() is False


def test_an_out_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 250)  # there is no room in the name for that of the file beside it
    done = shell(f"translate hi --model en-de --out '{long}'")
    assert (done.returncode, done.stderr) == (2, f"clearformer: cannot write {long}: File name too long\n")


@pytest.mark.parametrize("when", ["written", "renamed"])
def test_an_out_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def work() -> None:
        with output(tmp_path / "out.txt") as stream:
            if when == "written":
                full()
            stream.write("x")
            monkeypatch.setattr(Path, "replace", full)

    with pytest.raises(DataError, match=r"cannot write .*out\.txt: No space left"):
        work()
    assert list(tmp_path.iterdir()) == []
