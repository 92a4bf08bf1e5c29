"""A run that was interrupted anywhere ends as if it had not been, to the last bit; and what makes it another run is
refused by name."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from clearformer.data.batches import Batch
from clearformer.errors import SpecError, TrainingError
from clearformer.training import session
from clearformer.training.goals.base import Scores
from clearformer.training.loop import Trainer
from clearformer.training.prepare import RUN, STATES, read_facts
from clearformer.training.run import resume, start
from clearformer.training.session import Signals, Stopped
from clearformer.training.settings import Settings, to_toml
from tests.training.runs import ONE_THREAD, asking, assert_same, flat, saved

ROOT = Path(__file__).parents[2]


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """A SIGTERM while the batch of that number, counted from 1, is computed."""
    true, seen = Trainer._accumulate, []

    def accumulate(self: Trainer, batch: Batch) -> None:
        true(self, batch)
        seen.append(batch)
        if len(seen) == after:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Trainer, "_accumulate", accumulate)


def fresh(folder: Path, name: str, changes: dict[str, Any] | None = None) -> Settings:
    (folder / name).mkdir()
    return asking(folder / name, changes)


def seen_batches(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the model was given from now on, batch after batch."""
    true, seen = Trainer._accumulate, list[bytes]()

    def accumulate(self: Trainer, batch: Batch) -> None:
        seen.append(b"".join(part.numpy().tobytes() for part in batch))
        true(self, batch)

    monkeypatch.setattr(Trainer, "_accumulate", accumulate)
    return seen


@pytest.mark.parametrize(
    ("stops", "changes"),
    [
        ([7], {}),  # in the middle of an accumulation
        ([8], {}),  # after a whole step
        ([1], {"average.kind": "last", "average.last": 2}),  # before there is any step
        ([3, 9, 1, 8], {"average.kind": "last", "average.last": 2}),  # again and again
        ([25, 5], {"average.kind": "none", "batch.accumulate": 3, "optimizer.weight_decay": 0.1}),
        ([11], {"machine.precision": "bfloat16"}),
        ([9], {"machine.gemm": "onednn"}),
        ([11], {"optimizer.kind": "muon", "optimizer.weight_decay": 0.1}),
        ([8], {"optimizer.kind": "muon", "machine.precision": "bfloat16"}),
    ],
)
def test_a_resumed_run_is_the_same_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: list[int], changes: dict[str, Any]
) -> None:
    """Weights, moments, averages, counters, order of the data and the model; with dropout, over several epochs."""
    whole = fresh(tmp_path, "whole", changes)
    with monkeypatch.context() as patch:
        through = seen_batches(patch)
        start(whole)
    assert saved(whole.out).facts["epoch"] >= 1  # the order of more than one epoch was needed

    broken = fresh(tmp_path, "broken", changes)
    with monkeypatch.context() as patch:
        pieces = seen_batches(patch)
        for number, after in enumerate(stops):
            with patch.context() as inner:
                interrupt(inner, after)
                with pytest.raises(Stopped, match="stopped by SIGTERM"):
                    resume(broken.out) if number else start(broken)
        assert sum(stops) == len(pieces)
        assert saved(broken.out).facts["part"] == sum(stops) % broken.batch.accumulate
        assert saved(broken.out).facts["step"] == sum(stops) // broken.batch.accumulate
        resume(broken.out)
    assert pieces == through
    assert_same(saved(whole.out), saved(broken.out))
    one, other = (load_file(asked.out / "weights.safetensors") for asked in (whole, broken))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_lost_steps_makes_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that just ends after step 7 is at its last save, of step 4; the end is the same."""
    whole, broken = fresh(tmp_path, "whole"), fresh(tmp_path, "broken")
    start(whole)
    true = Trainer._step

    def step(self: Trainer) -> Any:
        if self.progress.step == 7:
            raise MemoryError
        return true(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        with pytest.raises(MemoryError):
            start(broken)
    assert saved(broken.out).facts["step"] == 4
    resume(broken.out)
    assert_same(saved(whole.out), saved(broken.out))


def test_a_damaged_newest_state_is_passed_over_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = fresh(tmp_path, "whole")
    start(whole)
    end = saved(whole.out)
    assert end.folder.name == "00000012-0000"
    weights = end.folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    capsys.readouterr()
    assert resume(whole.out).steps == 12
    told = capsys.readouterr().err
    assert f"passed over a damaged state: {weights} has" in told
    assert "resumed at step 8 of 12" in told
    assert_same(end, saved(whole.out))


def test_resuming_a_finished_run_does_nothing(tmp_path: Path) -> None:
    asked = asking(tmp_path)
    done = start(asked)

    def files() -> dict[Path, tuple[int, bytes]]:
        every = (path for path in asked.out.rglob("*") if path.is_file() and path.name != "log.jsonl")
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in every}

    before = files()
    assert resume(asked.out) == done
    assert (done.steps, done.finish) == (12, "steps")
    assert done.scores.keys() == {"loss"}
    assert files() == before


def script(monkeypatch: pytest.MonkeyPatch, losses: list[float], bleus: list[float] | None = None) -> None:
    """Validations that come to these numbers, one after another."""
    left, lines = iter(losses), iter(bleus or [])

    def scores() -> Scores:
        bleu = next(lines, None)
        return Scores(next(left), {"chrf": 1.0} if bleu is None else {"bleu": bleu, "chrf": 1.0})

    monkeypatch.setattr(session, "validate", lambda run, weights: scores())


def test_patience_on_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3, 2, 2.5, 1, 1, 1.5: two in a row without a better one are first at the sixth; then it is finished."""
    asked = asking(tmp_path, {"validation.every": 1, "validation.patience": 2})
    script(monkeypatch, [3, 2, 2.5, 1, 1, 1.5, 0, 1, 2, 3])
    done = start(asked)
    assert (done.steps, done.finish, done.scores) == (6, "patience", {"loss": 1.5, "chrf": 1.0})
    kept = saved(asked.out).facts
    assert (kept["step"], kept["best"], kept["best_step"], kept["finished"]) == (6, 1, 4, True)
    assert resume(asked.out) == done
    assert resume(asked.out, changes={"validation.patience": 3}).steps == 10  # 0 is better; 1, 2, 3 are not


def test_patience_on_bleu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss falls all the time, BLEU does not."""
    asked = asking(tmp_path, {"validation.every": 2, "validation.patience": 2, "validation.best": "bleu"})
    script(monkeypatch, [9, 8, 7, 6, 5], [10, 20, 20, 19, 30])
    done = start(asked)
    assert (done.steps, done.finish, done.scores) == (8, "patience", {"loss": 6, "bleu": 19, "chrf": 1.0})
    assert saved(asked.out).facts["best_step"] == 4


def test_patience_counts_over_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(tmp_path, {"validation.every": 2, "validation.patience": 2})
    script(monkeypatch, [3, 4, 5, 0])
    with monkeypatch.context() as patch:
        interrupt(patch, 9)  # after the second validation
        with pytest.raises(Stopped):
            start(asked)
    assert resume(asked.out).steps == 6


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model.width": 32}, "model.width"),
        ({"model.dropout": 0.0, "seed": 2}, "model.dropout, seed"),
        ({"optimizer.rate": 1.0}, "optimizer.rate"),
        ({"batch.tokens": 61}, "batch.tokens"),
        ({"average.kind": "none"}, "average.kind"),
        ({"tokenizer.kind": "char"}, "tokenizer.kind"),
        ({"data.longest": 9}, "data.longest"),
        ({"data.train.0.to": "de"}, "data.train"),
    ],
)
def test_what_would_be_another_run_is_refused_by_name(started: Settings, changes: dict[str, Any], named: str) -> None:
    before = (started.out / RUN).read_bytes()
    with pytest.raises(TrainingError, match=f"^{named} cannot be changed in a run that has begun"):
        resume(started.out, changes=changes)
    assert (started.out / RUN).read_bytes() == before


def test_other_lengths_and_unknown_names_are_refused(started: Settings) -> None:
    with pytest.raises(TrainingError, match=r"length\.epochs: the length .* can be changed by length\.steps only"):
        resume(started.out, changes={"length": {"epochs": 3.0}})
    with pytest.raises(SpecError, match="no field 'widht' here; did you mean 'width'"):
        resume(started.out, changes={"model.widht": 3})


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    asked = asking(tmp_path_factory.mktemp("started"))
    start(asked)
    return asked


def test_changed_data_is_refused_by_its_file(tmp_path: Path) -> None:
    asked = asking(tmp_path)
    start(asked)
    target = asked.data.train[0].target
    assert target is not None
    text = target.read_text(encoding="utf-8")
    target.write_text(text.replace("a", "b", 1), encoding="utf-8")
    with pytest.raises(TrainingError, match=f"the data is not what the run began with: {target};"):
        resume(asked.out)
    target.unlink()
    assert resume(asked.out).steps == 12  # a file that is gone does not matter, its ids are kept


def test_damaged_ids_are_refused_by_their_file(tmp_path: Path) -> None:
    asked = asking(tmp_path)
    start(asked)
    path = asked.out / "data" / "train.tokens"
    ids = path.read_bytes()
    path.write_bytes(bytes([ids[0] ^ 1]) + ids[1:])
    with pytest.raises(TrainingError, match=f"the encoded data is damaged: {path};"):
        resume(asked.out)


def test_a_changed_spec_file_is_refused_and_a_lost_one_is_not_needed(tmp_path: Path) -> None:
    from clearformer import arrangements

    path = tmp_path / "spec.json"
    made = arrangements.encoder_decoder(width=16, layers=(1, 1), heads=2, inner=32, vocabulary=9, dropout=0.0)
    path.write_text(made.to_json(), encoding="utf-8")
    asked = asking(tmp_path, {"model": {"spec": path}, "length.steps": 2})
    start(asked)
    path.write_text(made.replace({"encoder.blocks.*.feedforward.activation": "gelu"}).to_json(), encoding="utf-8")
    with pytest.raises(TrainingError, match=str(path)):
        resume(asked.out)
    path.unlink()
    assert resume(asked.out, changes={"length.steps": 4}).steps == 4


def test_a_run_is_made_longer_and_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun by epochs, made longer by steps, stopped: the next resume need not be told again."""
    asked = asking(tmp_path, {"length": {"epochs": 0.3}})
    assert start(asked).steps < 8
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        with pytest.raises(Stopped):
            resume(asked.out, changes={"length.steps": 10, "validation.every": 5})
    assert resume(asked.out).steps == 10
    kept = read_facts(asked.out)["settings"]
    assert (kept["length"], kept["validation"]["every"]) == ({"steps": 10}, 5)


def test_a_run_cut_short_is_validated_and_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(tmp_path)
    with monkeypatch.context() as patch:
        interrupt(patch, 10)
        with pytest.raises(Stopped):
            start(asked)
    assert not (asked.out / "weights.safetensors").exists()
    done = resume(asked.out, changes={"length.steps": 3})
    assert (done.steps, done.finish) == (5, "steps")
    assert done.scores.keys() == {"loss"}
    assert (asked.out / "weights.safetensors").exists()
    assert saved(asked.out).facts["finished"]


def test_preparing_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    whole, broken = fresh(tmp_path, "whole"), fresh(tmp_path, "broken")
    start(whole)
    start(broken)
    import shutil

    (broken.out / RUN).unlink()  # it is written last
    shutil.rmtree(broken.out / STATES)
    (broken.out / "data" / "train.tokens").write_bytes(b"half")
    resume(broken.out)
    assert_same(saved(whole.out), saved(broken.out))


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=f"there is no folder {tmp_path / 'none'}"):
        resume(tmp_path / "none")
    with pytest.raises(TrainingError, match=r"holds no run to resume: it has no settings\.json"):
        resume(tmp_path)
    (tmp_path / "settings.json").write_text('{"out": "x"}', encoding="utf-8")
    with pytest.raises(TrainingError, match=r"settings\.json cannot be used: data: this field is required"):
        resume(tmp_path)


def test_a_damaged_run_file_is_named(started: Settings) -> None:
    path = started.out / RUN
    content = path.read_bytes()
    for damage in (content[: len(content) // 2], b"{}", b"[]", b'{"settings": 3, "reports": {}}'):
        path.write_bytes(damage)
        with pytest.raises(TrainingError, match=f"{path} cannot be"):
            resume(started.out)
    path.write_bytes(content)


def test_the_second_signal_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        assert (signals.caught, left) == (signal.SIGINT, [])
        signal.raise_signal(signal.SIGTERM)
        assert left == [143]
        signal.raise_signal(signal.SIGINT)
        assert left == [143, 130]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_tells_how_to_go_on(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """The whole command: it saves though no save is due, and the state is where the run was."""
    asked = asking(
        tmp_path, {"length.steps": 100_000, "save.every": 100_000, "validation.every": 100_000, "log_every": 1}
    )
    file = tmp_path / "run.toml"
    file.write_text(to_toml(asked), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "clearformer", "train", str(file)], stderr=subprocess.PIPE, text=True, env=ONE_THREAD
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 3/"):
            process.send_signal(number)
            break
    told = process.communicate(timeout=280)[1]
    assert process.returncode == code
    assert f"clearformer: stopped by {number.name}; go on with: clearformer train --resume {asked.out}" in told
    log = [json.loads(line) for line in (asked.out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = saved(asked.out).facts
    assert kept["step"] >= 3
    assert log[-1]["event"] == "save"
    assert [row["step"] for row in log if row["event"] == "step"] == [*range(1, kept["step"] + 1)]


def test_a_run_killed_at_random_moments_is_never_lost() -> None:
    """Six kills −9 of a whole run, two of them during a save; `stress/kills.py` has the same in large."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "stress" / "kills.py"), "--kills", "6"],
        capture_output=True,
        text=True,
        env=ONE_THREAD,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- longer than was planned -------------------------------------------------------------------------------

FIXED = {"optimizer.warmup": 2, "average.decay": 0.9, "validation.every": 6, "save.every": 4}  # else by the length


def test_wsd_is_lengthened_as_if_it_had_been_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 12 steps the last three fall. Stopped after nine and told to make 20, it is the run of 20, bit for bit."""
    falling = FIXED | {"optimizer.schedule": "wsd", "optimizer.decay": 0.25}
    whole = fresh(tmp_path, "whole", {**falling, "length.steps": 20})
    start(whole)
    broken = fresh(tmp_path, "broken", falling)
    with monkeypatch.context() as patch:
        interrupt(patch, 18)  # two batches a step
        with pytest.raises(Stopped):
            start(broken)
    assert saved(broken.out).facts["step"] == 9
    capsys.readouterr()
    resume(broken.out, changes={"length.steps": 20})
    told = capsys.readouterr().err
    assert "its length changes from 12 to 20 steps: the rates until now are those of a run that was so long" in told
    assert_same(saved(whole.out), saved(broken.out))
    rows = [json.loads(line) for line in (broken.out / "log.jsonl").read_text().splitlines()]
    (row,) = (row for row in rows if row["event"] == "resume")
    assert (row["step"], row["steps_before"], row["steps"]) == (9, 12, 20)


def test_a_finished_wsd_goes_back_to_where_its_rate_fell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 12 steps the last three fall: the state of step 9 was kept, and the run of 20 goes on from it."""
    falling = FIXED | {"optimizer.schedule": "wsd", "optimizer.decay": 0.25}
    whole = fresh(tmp_path, "whole", {**falling, "length.steps": 20})
    start(whole)
    short = fresh(tmp_path, "short", falling)
    start(short)
    assert sorted(path.name for path in (short.out / STATES).iterdir()) == [
        "00000009-0000",
        "00000012-0000",
    ]
    best = saved(short.out).facts["best"]
    capsys.readouterr()
    resume(short.out, changes={"length.steps": 20})
    told = capsys.readouterr().err
    assert "gone back from step 12 to 9, before the rate fell" in told
    assert "those of a run that was so long from the start" in told
    one, other = saved(whole.out), saved(short.out)
    assert other.facts["best"] <= best
    assert all(torch.equal(tensor, flat(other)[name]) for name, tensor in flat(one).items())
    assert min(path.name for path in (short.out / STATES).iterdir()) == "00000015-0000"


def test_a_damaged_state_before_the_fall_is_done_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = fresh(tmp_path, "run", FIXED | {"optimizer.schedule": "wsd", "optimizer.decay": 0.25})
    start(asked)
    (asked.out / STATES / "00000009-0000" / "weights.safetensors").write_bytes(b"")
    capsys.readouterr()
    resume(asked.out, changes={"length.steps": 20})
    told = capsys.readouterr().err
    assert "gone back" not in told
    assert "so it falls twice" in told


@pytest.mark.parametrize(("kind", "after"), [("cosine", 12), ("linear", 24)])
def test_a_rate_that_had_fallen_is_told_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, after: int
) -> None:
    asked = fresh(tmp_path, "run", FIXED | {"optimizer.schedule": kind})
    if after < 24:
        with monkeypatch.context() as patch:
            interrupt(patch, after)
            with pytest.raises(Stopped):
                start(asked)
    else:
        start(asked)
    capsys.readouterr()
    resume(asked.out, changes={"length.steps": 20})
    assert "so it falls twice" in capsys.readouterr().err
    resume(asked.out)
    assert "falls" not in capsys.readouterr().err  # said once
