"""A run as a whole: what stops it before it begins, what it leaves behind, and what a dry run tells."""

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from clearformer.data.corpus import Corpus
from clearformer.errors import ClearformerError, DataError, SpecError, TrainingError
from clearformer.tasks.load import load
from clearformer.training import prepare as preparing
from clearformer.training import run as module
from clearformer.training.dry import dry_run
from clearformer.training.export import export
from clearformer.training.loop import Progress
from clearformer.training.machine import choose_gemm, choose_precision
from clearformer.training.prepare import Prepared, reopen
from clearformer.training.run import resume, start
from clearformer.training.settings import Settings, to_toml
from clearformer.training.validate import validate
from tests.training.runs import ONE_THREAD, asking, prepared, saved, write_pairs


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_another_run_is_left_alone(tmp_path: Path) -> None:
    asked = asking(tmp_path, {"length.steps": 2})
    start(asked)
    before = everything(asked.out)
    with pytest.raises(
        TrainingError, match=f"{asked.out} holds another run; go on with it by --resume {asked.out}, or"
    ):
        start(asked)
    assert everything(asked.out) == before


def test_a_folder_with_anything_else_is_left_alone(tmp_path: Path) -> None:
    asked = asking(tmp_path)
    asked.out.mkdir()
    (asked.out / "thesis.tex").write_text("important", encoding="utf-8")
    with pytest.raises(
        TrainingError, match=f"{asked.out} exists and is not an empty folder; give another one as --out"
    ):
        start(asked)
    assert [path.name for path in asked.out.iterdir()] == ["thesis.tex"]
    file = asked.replace(out=asked.out / "thesis.tex")
    with pytest.raises(TrainingError, match="is not an empty folder"):
        start(file)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "a\nb\n", r"source\.txt has 3 lines and .*target\.txt has 2"),
        ("a\n", "a\nb\n", r"source\.txt has 1 lines and .*target\.txt has 2"),
        ("", "", "the training data has no pairs"),
        ("\n \n", "a\nb\n", "no train pairs are left|no valid pairs are left"),
    ],
)
def test_data_that_cannot_be_trained_on(tmp_path: Path, source: str, target: str, message: str) -> None:
    asked = asking(tmp_path)
    files = asked.data.train[0].files()
    for path, text in zip(files, (source, target), strict=True):
        path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        start(asked)
    assert not asked.out.exists()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model.heads": 3}, SpecError, r"model\.heads \(3\) must divide model\.width \(16\)"),
        ({"tokenizer.vocabulary": 3}, DataError, "a vocabulary of 3 has no room for words"),
        ({"data.held_out": 0}, DataError, "no valid pairs are left"),
        ({"data.longest": 1}, DataError, "no train pairs are left"),
        ({"machine.shard": True}, TrainingError, r"machine\.shard needs many processes"),
        ({"model.spec": "none.json"}, ClearformerError, r"cannot read none\.json"),
    ],
)
def test_a_run_that_cannot_begin_leaves_nothing_and_can_be_tried_again(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    asked = asking(tmp_path, {"length.steps": 2})
    with pytest.raises(error, match=message):
        start(asked.replace(changes))
    assert not asked.out.exists()
    assert start(asked).steps == 2


def test_too_little_disk_is_known_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,888 weights of 4 bytes: two states of weights, two moments and an average, and the model, are 211,968 bytes."""
    asked = asking(tmp_path, {"length.steps": 2})
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=211_967))
        with pytest.raises(
            TrainingError, match=r"need 0\.2 MiB of disk, and 0\.2 MiB are free; make room and go on with"
        ):
            start(asked)
        assert not (asked.out / "states").exists()
        patch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=211_968))
        assert resume(asked.out).steps == 2


def test_a_disk_that_fills_up_ends_the_run_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from clearformer.training import state

    asked, true = asking(tmp_path), state.write_flushed

    def write(path: Path, data: bytes) -> None:
        if path.parent.name == ".00000008-0000.partial":
            raise OSError(errno.ENOSPC, "No space left on device")
        true(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(state, "write_flushed", write)
        with pytest.raises(TrainingError, match="No space left on device; the last state is 00000004-0000"):
            start(asked)
    assert saved(asked.out).facts["step"] == 4
    assert resume(asked.out).steps == 12


def test_the_command_refuses_with_code_two(tmp_path: Path) -> None:
    asked = asking(tmp_path)
    file = tmp_path / "run.toml"
    file.write_text(to_toml(asked), encoding="utf-8")
    words = [sys.executable, "-m", "clearformer", "train", str(file), "--set", "model.widht=3"]
    done = subprocess.run(words, capture_output=True, text=True, env=ONE_THREAD, timeout=280)
    assert done.returncode == 2
    assert done.stderr.startswith(f"clearformer: {file}: model.widht: no field 'widht' here; did you mean 'width'?")
    assert "Traceback" not in done.stderr
    assert not asked.out.exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Long enough for the average to differ from the last weights."""
    asked = asking(tmp_path_factory.mktemp("finished"), {"length.steps": 24, "validation.sentences": 5})
    start(asked)
    return asked


def log(asked: Settings, event: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (asked.out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["event"] == event]


def test_the_model_is_the_average_and_has_the_loss_it_was_said_to_have(finished: Settings) -> None:
    kept = saved(finished.out)
    model = load_file(finished.out / "weights.safetensors")
    assert kept.facts["best_step"] == kept.facts["step"] == 24
    for name, weight in model.items():
        assert torch.equal(weight, kept.tensors["average"][name])
    assert any(not torch.equal(weight, kept.tensors["weights"][name]) for name, weight in model.items())

    run, loaded = reopen(finished.out), load(finished.out, precision="float32")
    assert run is not None
    told = log(finished, "validation")[-1]
    assert told["best"]
    assert round(run.goal.loss(loaded.model), 4) == told["loss"]
    found = loaded.translate([sample["given"] for sample in told["samples"]], num_beams=1)
    assert [one.text for one in found] == [sample["made"] for sample in told["samples"]]


def _valid(run: Prepared) -> Corpus:
    return Corpus(run.folder / "data", "valid")


def test_the_validation_loss_by_hand(finished: Settings) -> None:
    """One pair at a time, without padding, through plain cross-entropy."""
    run, model = reopen(finished.out), load(finished.out, precision="float32").model
    assert run is not None
    total, tokens, valid = 0.0, 0.0, _valid(run)
    for number in range(len(valid)):
        source, target = (torch.from_numpy(side.astype("int64"))[None] for side in valid.pair(number))
        given = torch.cat([torch.tensor([[run.goal.tokenizer.start]]), target[:, :-1]], 1)
        with torch.no_grad():
            logits = model(source, given)
        total += float(torch.nn.functional.cross_entropy(logits[0], target[0], reduction="sum"))
        tokens += target.numel()
    weights = model.state_dict()
    assert validate(run, weights).loss == pytest.approx(total / tokens, rel=1e-5)


def test_only_a_better_model_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearformer.training import session

    losses, true = iter([2.0, 3.0]), session.validate
    monkeypatch.setattr(
        session, "validate", lambda *given: SimpleNamespace(**{**true(*given).__dict__, "loss": next(losses)})
    )
    asked = asking(tmp_path, {"save.every": 6, "average.kind": "none"})
    start(asked)
    six, model = (asked.out / "states" / "00000006-0000", load_file(asked.out / "weights.safetensors"))
    weights = load_file(six / "weights.safetensors")
    assert all(torch.equal(model[name], weights[name]) for name in weights)
    assert "After 6 steps" in (asked.out / "README.md").read_text(encoding="utf-8")


EXPORTED = ("weights.safetensors", "spec.json", "task.json", "README.md")


def exported(folder: Path) -> tuple[Prepared, dict[str, torch.Tensor]]:
    asked = asking(folder, {"length.steps": 2})
    start(asked)
    run = reopen(asked.out)
    assert run is not None
    return run, {name: weight + 1 for name, weight in load_file(asked.out / "weights.safetensors").items()}


def test_a_model_is_never_written_over_in_place(tmp_path: Path) -> None:
    """A loaded model maps its file: written in place, it would change under whoever uses it."""
    run, weights = exported(tmp_path)
    for name in EXPORTED:
        (tmp_path / name).hardlink_to(run.folder / name)
    before = {name: (tmp_path / name).read_bytes() for name in EXPORTED}
    export(run, weights, Progress(step=3, scores={"loss": 1.0}))
    for name in EXPORTED:
        assert (tmp_path / name).read_bytes() == before[name], name
        assert not (tmp_path / name).samefile(run.folder / name), name
    now = load_file(run.folder / "weights.safetensors")
    assert all(torch.equal(now[name], weights[name]) for name in weights)


def test_an_export_that_fails_leaves_the_model_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, weights = exported(tmp_path)
    before = everything(run.folder)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrainingError, match=r"cannot write .*spec\.json: No space left on device"):
        export(run, weights, Progress(step=3, scores={"loss": 1.0}))
    assert everything(run.folder) == before


def test_the_log_is_json_and_tells_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(tmp_path, {"log_every": 1, "length.steps": 4})
    true = module.Trainer._step

    def step(self: Any) -> Any:
        if self.progress.step == 1:
            self.progress.part_loss = math.nan
        return true(self)

    monkeypatch.setattr(module.Trainer, "_step", step)
    start(asked)
    text = (asked.out / "log.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in text
    steps = log(asked, "step")
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    assert [row["skipped"] for row in steps] == [0, 1, 1, 1]
    assert [row["loss"] is None for row in steps] == [False, True, False, False]
    assert [row["step"] for row in log(asked, "save")] == [4]


def test_a_length_in_minutes_becomes_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2 seconds each, 28 fit into a minute, which leaves a twentieth for validations and saves."""
    monkeypatch.setattr(module, "seconds_of_a_step", lambda run, group: 2.0)
    monkeypatch.setattr(module.Tried, "validation", lambda self, run: 0.1)
    monkeypatch.setattr(preparing, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    assert start(asking(tmp_path, {"length": {"minutes": 1.0}})).steps == 28


def test_a_dry_run_tells_and_writes_nothing(tmp_path: Path) -> None:
    asked = asking(tmp_path, {"length": {"epochs": 2.0}})
    told: list[str] = []
    found = dry_run(asked, told.append)
    assert not asked.out.exists()
    assert found.settings.out == asked.out
    assert found.parameters == 5_888
    assert found.steps == found.settings.length.steps == start(asked).steps
    assert found.seconds > 0
    assert 'kind = "word"' in str(found)
    assert any(line.startswith("train: ") and "pairs" in line for line in told)


def test_validation_texts_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "valid").mkdir()
    source, target = write_pairs(tmp_path / "valid", count=7)
    asked = asking(tmp_path, {"length.steps": 2, "data.valid": [{"source": source, "target": target}]})
    start(asked)
    run = reopen(asked.out)
    assert run is not None
    assert len(_valid(run)) == len(run.goal.valid_rows) == 7
    assert run.reports["train"].read == 200  # nothing was held out


def test_several_languages_are_told_apart(tmp_path: Path) -> None:
    asked = asking(tmp_path, {"length.steps": 2, "validation.sentences": 4, "data.train.0.to": "rev"})
    source = asked.data.train[0].source
    copy = {"source": source, "target": source, "to": "same"}
    start(asked.replace({"data.train": [*asked.data.train, copy]}))
    made = load(asked.out, precision="float32")
    assert set(made.tokenizer.languages) == {"rev", "same"}
    with pytest.raises(DataError, match="say which one"):
        made.translate(["a b"])


def test_the_number_format_is_decided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(tmp_path, {"machine.precision": "auto", "length.steps": 2})
    chosen = {"machine.precision": "bfloat16", "machine.gemm": "mkl"}
    monkeypatch.setattr(module, "choose", lambda asked, device: (chosen, ["quick"]))
    start(asked)
    monkeypatch.setattr(module, "choose", lambda asked, device: pytest.fail("it was measured again"))
    assert resume(asked.out, changes={"length.steps": 4}).steps == 4
    run = reopen(asked.out)
    assert run is not None
    assert run.settings.machine.precision == "bfloat16"
    assert run.settings.machine.gemm == "mkl"


def test_what_is_asked_for_is_computed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from clearformer.training import machine

    cpu, seconds = torch.device("cpu"), {torch.float32: 1.0, torch.bfloat16: 3.0, torch.float16: 0.5}
    monkeypatch.setattr(machine, "_product_seconds", lambda kind: seconds[kind])
    assert choose_precision("float32", cpu) == ("float32", "")
    assert choose_precision("auto", cpu) == ("float32", "")
    assert choose_precision("float16", cpu) == ("float16", "")
    assert choose_precision("bfloat16", cpu)[1].startswith("bfloat16 is 3 × slower than float32 on this machine")
    seconds[torch.bfloat16] = 0.5
    assert choose_precision("auto", cpu)[0] == "bfloat16"


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5, "onednn"), (0.9, "mkl"), (2.0, "mkl")])
def test_the_faster_library_is_taken(monkeypatch: pytest.MonkeyPatch, seconds: float, chosen: str) -> None:
    from clearformer.training import machine
    from clearformer.training.settings import Machine

    cpu = torch.device("cpu")
    monkeypatch.setattr(machine, "_product_seconds", lambda kind, by=None: 1.0 if by is None else seconds)
    assert choose_gemm("auto", cpu)[0] == chosen
    assert choose_gemm("mkl", cpu) == ("mkl", "")
    assert choose_gemm("onednn", cpu) == ("onednn", "")
    asked = Machine(precision="float32")
    assert machine.choose(asked, cpu)[0] == {"machine.precision": "float32", "machine.gemm": chosen}


def test_a_moved_run_goes_on(tmp_path: Path) -> None:
    asked = asking(tmp_path, {"length.steps": 2})
    start(asked)
    shutil.move(asked.out, tmp_path / "elsewhere")
    done = resume(tmp_path / "elsewhere", changes={"length.steps": 4})
    assert (done.steps, done.folder) == (4, tmp_path / "elsewhere")
    assert not asked.out.exists()


def test_a_run_that_was_prepared_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the folder says the same, so that a process that reads it computes the same."""
    (tmp_path / "a").mkdir()
    made = prepared(tmp_path / "a")
    again = reopen(made.folder)
    assert again is not None
    assert (again.settings, again.spec, again.reports) == (made.settings, made.spec, made.reports)
    assert again.steps_an_epoch == made.steps_an_epoch
    monkeypatch.setattr(module, "reopen", lambda out: pytest.fail("it was read again"))
    (tmp_path / "b").mkdir()
    assert start(asking(tmp_path / "b", {"length.steps": 2})).steps == 2
