"""The command line as a person uses it: help, answers, and errors of one line with exit code 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clearformer as cf


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "clearformer", *words], capture_output=True, text=True, timeout=280, env=environment
    )


def test_help_names_every_verb() -> None:
    done = run("--help")
    assert done.returncode == 0
    for verb in ("translate", "train", "score", "plot", "explain", "notes", "spec"):
        assert verb in done.stdout
        assert run(verb, "--help").returncode == 0
    assert run("--version").stdout.strip() == f"clearformer {cf.__version__}"


def test_notes_lists_and_shows() -> None:
    listed = run("notes")
    assert listed.returncode == 0
    assert "numerical" in listed.stdout
    shown = run("notes", "numerical", "--plain")
    assert shown.returncode == 0
    for number in ("1.9366", "6.6831", "1.5951", "1.8639"):
        assert number in shown.stdout
    assert run("notes", "4", "--plain").stdout == shown.stdout


def test_spec_prints_and_writes(tmp_path: Path) -> None:
    printed = run("spec", "bert", "base")
    assert "109,482,240 parameters" in printed.stdout
    assert "blocks 0–11: Block" in printed.stdout
    out = tmp_path / "spec.json"
    assert run("spec", "gpt2", "tiny", "--set", "stack.blocks.*.self.heads=8", "--out", str(out)).returncode == 0
    assert cf.Spec.from_json(out.read_text()).at("stack.blocks.1.self.heads") == 8
    assert json.loads(run("spec", "vit", "tiny", "--json").stdout)["head"]["kind"] == "classes"
    kernels = run("spec", "bigbird", "tiny", "--kernels").stdout
    assert "stack.0.self: sparse" in kernels
    every = run("spec").stdout
    for family in cf.presets.FAMILIES:
        assert family in every


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["notes", "numericl"], "did you mean 'numerical'"),
        (["spec", "brt"], "did you mean 'bert'"),
        (["spec", "bert", "bass"], "did you mean 'base'"),
        (["spec", "gpt2", "tiny", "--set", "stack.blocks.*.self.heads=5"], "(5) must divide width (32)"),
        (["spec", "gpt2", "tiny", "--set", "stack.width"], "write PATH=VALUE"),
        (["spec", "gpt2", "tiny", "--set", 'stack.blocks.0.self.pattern={"kind":"everyone"}'], "would see the future"),
        (["spec", "gpt2", "tiny", "--out", "no/such/folder/spec.json"], "cannot write no/such/folder/spec.json"),
    ],
)
def test_errors_are_one_message(words: list[str], message: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("clearformer: ")


def test_an_unknown_verb() -> None:
    done = run("transalte")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m clearformer notes --plain | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_dry_run_never_goes_on_with_a_run(tmp_path: Path) -> None:
    done = run("train", "--resume", str(tmp_path), "--dry-run")
    assert done.returncode == 2
    assert "--dry-run is for a run that has not begun" in done.stderr


def test_a_number_of_thousands_of_digits_is_no_traceback() -> None:
    done = run("spec", "gpt2", "tiny", "--set", "stack.width=" + "1" * 5000)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
