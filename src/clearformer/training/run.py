"""A run from the first step to the last, over every interruption: what `clearformer train` and `cf.train` do."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from clearformer.assemble import count_parameters
from clearformer.errors import SpecError, TrainingError
from clearformer.kernels.malloc import keep_freed_memory
from clearformer.training.defaults import lay_out
from clearformer.training.distributed import Group
from clearformer.training.goals import goal_of
from clearformer.training.logging import Watch
from clearformer.training.loop import Trainer, stable
from clearformer.training.machine import choose, choose_precision
from clearformer.training.prepare import (
    ASKED,
    RUN,
    STATES,
    Prepared,
    amend,
    changed_files,
    damaged_files,
    prepare,
    reopen,
)
from clearformer.training.session import Session, Signals, Trained
from clearformer.training.settings import Settings, differences
from clearformer.training.state import Saved, States

LOCK = ".lock"
FEW = 8  # sentences of a validation that is only tried, and sixteen times as many
WRITTEN = 0.4  # by a model that has learned something, of what one writes that never ends
MOMENT = 0.7  # seconds in which steps are tried
MAY_CHANGE = ("length", "log_every", "machine", "save", "tensorboard", "validation")


def start(asked: Settings) -> Trained:
    """Train what the settings ask for, in a new folder. A process that torchrun has restarted goes on instead."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) and (asked.out / ASKED).is_file():
        return resume(asked.out, asked)
    group = _begin(asked)
    if not group.first:
        group.wait()
        return _train(asked.out, group)
    check_free(asked.out)
    with _alone(asked.out):
        check_free(asked.out)  # once more: another run may have begun, and even ended, before the lock was ours
        try:
            run = _prepare(asked, group)
        except BaseException:  # of a run that could not begin nothing is left, so that it can be tried again
            shutil.rmtree(asked.out, ignore_errors=True)
            raise
        group.wait()
        return _train(asked.out, group, run)


def resume(out: Path, asked: Settings | None = None, changes: Mapping[str, Any] | None = None) -> Trained:
    """Go on with the run of a folder, exactly where it was.

    `asked`, or `changes` by dotted path, may differ from what it began with in the sections of `MAY_CHANGE` only.
    """
    group = _begin(_wanted(out, asked, changes)[0])
    with _alone(out) if group.first else nullcontext():  # before anything is looked at twice, or written
        run = _ready(out, asked, changes, group) if group.first else None
        group.wait()
        return _train(out, group, run)


def _wanted(out: Path, asked: Settings | None, changes: Mapping[str, Any] | None) -> tuple[Settings, dict[str, Any]]:
    """What a resumed run is to be, and which of its settings are not those that it began with."""
    began, changes = _asked(out), dict(changes or {})
    if "length.steps" in changes:  # in place of the epochs or minutes that it began with
        changes["length"] = {"steps": changes.pop("length.steps")}
    wanted = (asked or began).replace(changes).replace(out=out)
    changed = {path: wanted.at(path) for path in differences(began, wanted)}
    _refuse(changed)
    return wanted, changed


def _ready(out: Path, asked: Settings | None, changes: Mapping[str, Any] | None, group: Group) -> Prepared | None:
    """Make the folder ready to go on in; only who holds its lock may. The run, where it had to be prepared anew."""
    wanted, changed = _wanted(out, asked, changes)  # as the folder is now that no one else writes there
    if not (out / RUN).is_file():
        return _prepare(wanted, group)
    _check_files(out)
    if changed:
        amend(out, wanted, {path: value for path, value in changed.items() if value is not None})
    return None


def _check_files(out: Path) -> None:
    if changed := changed_files(out):
        raise TrainingError(
            "the data is not what the run began with: " + ", ".join(changed) + "; restore it, or start a new run"
        )
    if damaged := damaged_files(out):
        raise TrainingError(
            "the encoded data is damaged: " + ", ".join(damaged) + "; restore it from a copy, or start a new run"
        )


def _asked(out: Path) -> Settings:
    if not out.is_dir():
        raise TrainingError(f"there is no folder {out}")
    if not (out / ASKED).is_file():
        raise TrainingError(f"{out} holds no run to resume: it has no {ASKED}")
    try:
        return Settings.from_json((out / ASKED).read_bytes()).replace(out=out)
    except SpecError as error:
        raise TrainingError(f"{out / ASKED} cannot be used: {error}") from None


def _refuse(changed: Mapping[str, Any]) -> None:
    fixed = [path for path in changed if path.split(".")[0] not in MAY_CHANGE or path == "validation.best"]
    if fixed:
        raise TrainingError(
            f"{', '.join(fixed)} cannot be changed in a run that has begun, it would be another run;"
            f" start one with --out, or change only {', '.join(MAY_CHANGE)}"
        )
    if odd := [path for path in ("length.epochs", "length.minutes") if changed.get(path) is not None]:
        raise TrainingError(f"{odd[0]}: the length of a run that has begun can be changed by length.steps only")


def _begin(asked: Settings) -> Group:
    keep_freed_memory()
    if asked.machine.threads:
        torch.set_num_threads(asked.machine.threads)
    return Group.join(asked.machine.device, asked.machine.shard)


def _prepare(asked: Settings, group: Group) -> Prepared:
    with Watch(asked.out, 1) as watch:
        chosen, remarks = choose(asked.machine, group.device)
        for each in remarks:
            watch.say(each)
        return prepare(asked, watch.say, Tried(group), chosen)


def check_free(out: Path) -> None:
    """A new run needs a folder of its own."""
    if (out / ASKED).is_file():
        raise TrainingError(
            f"{out} holds another run; go on with it by --resume {out}, or give another folder as --out"
        )
    if out.exists() and (not out.is_dir() or any(path.name != LOCK for path in out.iterdir())):
        raise TrainingError(f"{out} exists and is not an empty folder; give another one as --out")


def _check_disk(run: Prepared) -> None:
    """There must be room for two states, the old and the new, and the model; and for the one that `wsd` spares."""
    copies = {"ema": 1, "none": 0, "last": run.settings.average.last}[run.settings.average.kind]
    kept = 2 + (run.settings.optimizer.schedule == "wsd")
    needed = count_parameters(run.spec) * 4 * (kept * (3 + copies) + 1)
    free = shutil.disk_usage(run.folder).free
    if free < needed:
        raise TrainingError(
            f"{run.folder}: {kept} states of this run and its model need {needed / 2**20:,.1f} MiB of disk, and"
            f" {free / 2**20:,.1f} MiB are free; make room and go on with --resume {run.folder}"
        )


def _precision(asked: str, group: Group) -> str:
    """What a run that was told `auto` anew computes in: all processes in what the first one measures."""
    formats = ("float32", "bfloat16", "float16")
    chosen = formats.index(choose_precision(asked, group.device)[0]) if group.first else 0
    return formats[int(group.tell(chosen))]


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two runs in one folder would write over each other: the second is refused."""
    handle = _lock_file(out)
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(f"{out} is in use: another process is training there") from None
        except OSError:
            pass  # a file system without locks
        if not _is_still(handle, out / LOCK):  # who held it could not begin, and took its folder away
            raise TrainingError(f"{out} was removed by another process; try again")
        yield


def _lock_file(out: Path) -> IO[str]:
    try:
        out.mkdir(parents=True, exist_ok=True)
        return (out / LOCK).open("a")
    except OSError as error:
        raise TrainingError(f"cannot write to {out}: {error.strerror}") from None


def _is_still(handle: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except OSError:
        return False


def _train(out: Path, group: Group, run: Prepared | None = None) -> Trained:
    """`run` where this process has just prepared it; others, and later ones, read it from the folder."""
    run = run or reopen(out)
    if run is None:
        raise TrainingError(f"{out / RUN} is missing; the run was never prepared")
    if run.settings.machine.precision == "auto":
        run.settings = run.settings.replace({"machine.precision": _precision("auto", group)})
    trainer = Trainer(run, group)
    states = States(out / STATES, run.settings.save.keep, trainer.stable_until)
    if group.first and not states.names():
        _check_disk(run)
    saved = states.load()
    total, board = trainer.total_steps, run.settings.tensorboard
    with Watch(out, total, board, quiet=not group.first) as watch, Signals() as signals:
        if saved is not None:
            for fault in saved.damaged:
                watch.say(f"passed over a damaged state: {fault}")
            trainer.restore(_before_the_fall(saved, states, trainer, watch))
            watch.note("resume", trainer.progress.step, *trainer.resumed())
        done = Session(run, group, trainer, states, watch, signals).go()
    group.leave()
    return done


def _before_the_fall(saved: Saved, states: States, trainer: Trainer, watch: Watch) -> Saved:
    """The state to go on from. A `wsd` run that is lengthened after its rate began to fall goes back to where it had
    not: else it would fall twice. Its best model so far stays where it is until there is a better one."""
    planned, step = saved.facts.get("planned", 0), saved.facts["step"]
    last = stable(trainer.settings, planned) if 0 < planned < trainer.total_steps else None
    if last is None or step <= last or (earlier := states.at(last)) is None:
        return saved
    watch.say(f"gone back from step {step:,} to {last:,}, before the rate fell")
    best = {name: saved.facts[name] for name in ("best", "best_step")}
    return earlier._replace(facts={**earlier.facts, **best}, damaged=saved.damaged)


@dataclass(frozen=True)
class Tried:
    """What parts of a run take, tried on copies of it that are thrown away."""

    group: Group

    def step(self, run: Prepared) -> float:
        return seconds_of_a_step(run, self.group)

    def validation(self, run: Prepared) -> float:
        """Of a model that has learned nothing and writes on and on, and of a part of the sentences."""
        all_of_them, few, fewer = (min(run.settings.validation.sentences, n) for n in (2**31, 16 * FEW, FEW))
        model = run.goal.model(run.spec).eval()

        def judged(sentences: int) -> float:
            goal = goal_of(run.settings.replace({"validation.sentences": sentences}))
            began = time.perf_counter()
            goal.measures(model)
            return time.perf_counter() - began

        began = time.perf_counter()
        run.goal.loss(model)
        loss = time.perf_counter() - began
        judged(fewer)  # what is compiled and loaded the first time is not of every validation
        once = judged(fewer)
        if few == fewer:
            return loss + once
        each = max(0.0, judged(few) - once) / (few - fewer)
        return loss + once + WRITTEN * each * (all_of_them - fewer)


def seconds_of_a_step(run: Prepared, group: Group) -> float:
    """The mean time of a step, tried on a copy of the run that is thrown away: of a dozen steps, or of as many as a
    moment has."""
    trial = Prepared(**{**run.__dict__, "settings": lay_out(run.settings, 1000, 1000)})
    trainer = Trainer(trial, Group(0, 1, group.device, False))
    steps, began = -2, time.perf_counter()  # the first are slower
    for step in trainer.parts():
        if step is None:
            continue
        steps += 1
        if steps <= 0:
            began = time.perf_counter()
        passed = time.perf_counter() - began
        if steps >= 1 and passed > MOMENT * (1 if steps >= 12 else 2 if steps >= 3 else 4):
            break
    return passed / steps / group.size
