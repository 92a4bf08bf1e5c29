"""One folder, two processes: the second changes nothing, whatever the first is at."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearformer.errors import TrainingError
from clearformer.training import run as module
from clearformer.training.prepare import ASKED, RUN, STATES
from clearformer.training.run import resume, start
from clearformer.training.settings import to_toml
from tests.training.runs import ONE_THREAD, asking

# A training that comes to a halt where it is told to, says so by a file, and goes on when there is another.
HALTING = """
import sys, time
from pathlib import Path
from clearformer.cli import main
from clearformer.training import loop, prepare

place, folder = sys.argv.pop(1), Path(sys.argv.pop(1))
module, name = {"prepare": (prepare, "lay_out"), "train": (loop, "rate_at")}[place]
true = getattr(module, name)

def halt(*given, **named):
    (folder / "halted").touch()
    while not (folder / "on").exists():
        time.sleep(0.01)
    return true(*given, **named)

setattr(module, name, halt)
main()
"""


def halted(folder: Path, place: str) -> "subprocess.Popen[str]":
    """A process that trains in `folder/run` and has halted."""
    file = folder / "run.toml"
    file.write_text(to_toml(asking(folder, {"length.steps": 6})), encoding="utf-8")
    words = [sys.executable, "-c", HALTING, place, str(folder), "train", str(file)]
    process = subprocess.Popen(words, env=ONE_THREAD, stderr=subprocess.PIPE, text=True)
    while not (folder / "halted").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    return process


def ended(process: "subprocess.Popen[str]", folder: Path) -> None:
    (folder / "on").touch()
    said = process.communicate(timeout=280)[1]
    assert process.returncode == 0, said


@pytest.mark.parametrize("place", ["prepare", "train"])
def test_a_second_process_neither_amends_nor_prepares_a_run_that_goes_on(tmp_path: Path, place: str) -> None:
    """While the first prepares, the second would throw its data away, and the first, failing, its folder; while it
    trains, the second would write another length into run.json."""
    first = halted(tmp_path, place)
    try:
        out = tmp_path / "run"
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        assert (out / RUN).exists() == (place == "train")
        words = [sys.executable, "-m", "clearformer", "train", "--resume", str(out), "--set", "length.steps=9"]
        second = subprocess.run(words, capture_output=True, text=True, env=ONE_THREAD, timeout=280)
        assert second.returncode == 2
        assert f"{out} is in use: another process is training there" in second.stderr
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
        ended(first, tmp_path)
    finally:
        first.kill()
    assert sorted(path.name for path in (out / STATES).iterdir())[-1] == "00000006-0000"
    assert resume(out, changes={"length.steps": 9}).steps == 9  # now it may


def test_a_run_that_began_and_ended_before_the_lock_was_there_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was free when it was looked at first."""
    asked, true = asking(tmp_path, {"length.steps": 2}), module._alone
    with monkeypatch.context() as patch:

        def late(out: Path) -> object:
            patch.undo()
            start(asked)
            return true(out)

        patch.setattr(module, "_alone", late)
        with pytest.raises(TrainingError, match="holds another run"):
            start(asked)
    assert (asked.out / ASKED).is_file()
    assert (asked.out / "weights.safetensors").is_file()


def test_a_lock_that_was_taken_away_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who held it could not begin and removed the folder; a third one may have made it anew."""
    asked, true = asking(tmp_path), module.fcntl.flock

    def flock(*given: object) -> None:
        os.remove(asked.out / ".lock")
        (asked.out / ".lock").touch()
        true(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module.fcntl, "flock", flock)
    with pytest.raises(TrainingError, match="was removed by another process; try again"):
        start(asked)
