"""Two processes train what one does: with DDP, with FSDP2, over states of either, and over the death of one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearformer.data.batches import Batch
from clearformer.training.distributed import Group
from clearformer.training.prepare import STATES
from clearformer.training.run import resume, start
from clearformer.training.session import Stopped
from clearformer.training.settings import Settings, to_toml
from clearformer.training.state import Saved, States
from tests.training.runs import ONE_THREAD, asking, flat, saved
from tests.training.test_resume import interrupt

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TOLERANCE = 2e-6  # of weights, moments and averages after 8 steps; 2e-7 was found
STILL = {"model.dropout": 0.0, "length.steps": 8, "batch.tokens": 24, "average.decay": 0.5}
# Adam divides a gradient by its size plus eps: where it is zero but for rounding, as that of a key's bias, only eps
# keeps the order of sums out of the weights
STILL |= {"optimizer.eps": 1e-3}


def assert_close(a: Saved, b: Saved) -> None:
    """Two states of the same run: sums in another order, in float32."""
    for key in ("step", "part", "epoch", "batch", "tokens", "best_step", "skipped", "finished"):
        assert a.facts[key] == b.facts[key], key
    assert a.facts["best"] == pytest.approx(b.facts["best"], abs=TOLERANCE)
    one, other = flat(a), flat(b)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(
            tensor, other[name], rtol=0, atol=TOLERANCE, msg=lambda text, name=name: f"{name}: {text}"
        )


def new(folder: Path, name: str, **changes: object) -> Settings:
    (folder / name).mkdir()
    return asking(folder / name, {**STILL, **changes})


def test_two_processes_are_as_good_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of one row are among them, two batches a step, and a state of one process in the middle of a step."""
    alone = new(tmp_path, "alone")
    start(alone)
    wanted = saved(alone.out)

    broken = {name: new(tmp_path, name) for name in ("one-ddp", "one-fsdp")}
    for asked in broken.values():
        with monkeypatch.context() as patch:
            interrupt(patch, 7)
            with pytest.raises(Stopped):
                start(asked)
        assert saved(asked.out).facts["part"] == 1

    sharded = {"machine.shard": True}
    begun = {name: new(tmp_path, name, **change) for name, change in (("ddp", {}), ("fsdp", sharded))}
    jobs = [{"start": json.loads(asked.to_json())} for asked in begun.values()]
    jobs += [{"resume": str(broken["one-ddp"].out), "changes": {}}]
    jobs += [{"resume": str(broken["one-fsdp"].out), "changes": sharded}]
    kept = {"average.kind": "last", "average.last": 3, "validation.every": 2, "optimizer.schedule": "constant"}
    last = new(tmp_path, "fsdp-last", **sharded, **{**kept, "length.steps": 6})
    jobs += [{"start": json.loads(last.to_json())}, {"resume": str(last.out), "changes": {"length.steps": 8}}]
    file = tmp_path / "jobs"
    file.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
    words = [*TORCHRUN, "-m", "tests.training.two", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, env=ONE_THREAD, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr

    for asked in (*begun.values(), *broken.values()):
        assert_close(saved(asked.out), wanted)

    # and one process goes on with what two have left: here, from step 4
    for asked in begun.values():
        states = States(asked.out / STATES)
        (asked.out / STATES / states.names()[-1] / "manifest.json").unlink()
        resume(asked.out, changes={"machine.shard": False})
        assert_close(saved(asked.out), wanted)

    same = new(tmp_path, "last", **kept)
    start(same)
    assert_close(saved(last.out), saved(same.out))


# The real command, which halts at its eighth step until it may go on: it does not end before one of it is killed.
HALTING = """
import sys, time
from pathlib import Path
from clearformer.cli import main
from clearformer.training import loop

on, true = Path(sys.argv.pop(1)), loop.rate_at

def halt(step, **named):
    while step > 7 and not on.exists():
        time.sleep(0.01)
    return true(step, **named)

loop.rate_at = halt
main()
"""


def test_a_dead_process_is_noticed_and_the_run_goes_on(tmp_path: Path) -> None:
    """Rank 1 is killed after the first save; torchrun starts both again, and they go on."""
    asked = asking(tmp_path, {"model.dropout": 0.0, "length.steps": 60, "save.every": 5, "log_every": 1})
    file = tmp_path / "run.toml"
    file.write_text(to_toml(asked), encoding="utf-8")
    (tmp_path / "halting.py").write_text(HALTING, encoding="utf-8")
    on = tmp_path / "on"
    words = [*TORCHRUN, "--max-restarts", "1", "--monitor-interval", "0.1", str(tmp_path / "halting.py"), str(on)]
    words += ["train", str(file)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=ONE_THREAD)
    try:
        assert process.stderr is not None
        told = []
        for line in process.stderr:
            told.append(line)
            if line.startswith("step 7/"):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
        (second,) = [child for child in children if b"\0RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes()]
        os.kill(int(second), signal.SIGKILL)
        on.touch()
        told.append(process.communicate(timeout=240)[1])
    finally:
        process.kill()
    assert process.returncode == 0, "".join(told)
    assert "resumed at step" in "".join(told)
    assert saved(asked.out).facts["step"] == 60

    (tmp_path / "alone").mkdir()
    alone = asking(tmp_path / "alone", {"model.dropout": 0.0, "length.steps": 60, "save.every": 5})
    start(alone)
    assert saved(asked.out).facts["scores"]["loss"] == pytest.approx(saved(alone.out).facts["scores"]["loss"], abs=0.02)


def test_every_row_goes_to_one_process() -> None:
    for rows in (1, 2, 3, 7):
        ids = torch.arange(rows)[:, None].repeat(1, 2)
        batch = Batch(ids, ids >= 0, ids, ids, ids >= 0, ids[:, 0])
        shares = [Group(rank, 3, torch.device("cpu"), False).share(batch) for rank in range(3)]
        counted = torch.cat([share.source[share.target_mask.any(1)] for share in shares])
        assert sorted(counted[:, 0].tolist()) == list(range(rows))
        assert all(len(share.source) for share in shares)  # one that has none computes a row that does not count
        assert sum(share.tokens for share in shares) == batch.tokens
