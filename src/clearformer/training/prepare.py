"""From settings to a run's folder: data read and checked, tokenizer learned, corpus encoded, everything decided.

OUT/settings.json    what was asked
OUT/run.json         what that came to: every setting, the data's report and fingerprints; written last
OUT/data/            the encoded corpora, and the validation texts
OUT/states/          the run's states                 OUT/log.jsonl   what happened
OUT/spec.json, weights.safetensors, tokenizer.json, task.json, README.md      the model, as soon as there is one
"""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from clearformer.assemble import count_parameters
from clearformer.data.corpus import Report
from clearformer.data.lines import fingerprint
from clearformer.errors import DataError, SpecError, TrainingError
from clearformer.spec.models import AnySpec
from clearformer.training.budget import SURE, Stopwatch, fit
from clearformer.training.defaults import lay_out
from clearformer.training.goals import goal_of
from clearformer.training.goals.base import DATA, Batches, Goal, Say
from clearformer.training.settings import Settings
from clearformer.training.state import replace_file

ASKED, RUN, STATES = "settings.json", "run.json", "states"
WORDS = ("tokenizer.json", "words.json")


@dataclass
class Prepared:
    """A run that can begin: every setting decided, every file in place."""

    settings: Settings
    spec: Any
    goal: Goal
    train: Batches
    reports: dict[str, Report]
    steps_an_epoch: int

    @property
    def folder(self) -> Path:
        return self.settings.out


def prepare(
    asked: Settings, say: Say, stopwatch: Stopwatch | None = None, machine: Mapping[str, str] | None = None
) -> Prepared:
    """Fill an empty folder. `stopwatch` tells the seconds of a step, for a run whose length is given in minutes;
    `machine` is what `auto` came to: measured once, so that a resumed run computes in the same way."""
    began = time.perf_counter()
    asked = without_absent(asked, say)
    out, goal = asked.out, goal_of(asked)
    goal.check_sets()
    total = goal.count()
    out.mkdir(parents=True, exist_ok=True)
    replace_file(out / ASKED, (asked.to_json() + "\n").encode())
    shutil.rmtree(out / DATA, ignore_errors=True)
    (out / DATA).mkdir()
    prints = {str(path): fingerprint(path)._asdict() for path in goal.inputs()}
    for line in not_pinned(asked, prints):
        say(f"warning: {line}; the run goes on with it, and the model's card says so (--any-data)")
    reports, decided = goal.fill(total, say)
    decided |= machine or {}

    def assembled(settings: Settings) -> Prepared:
        settings = settings.replace(decided)
        return _assembled(settings, goal.spec(settings, goal.vocabulary), reports, 0)

    fitted = None
    if asked.length.minutes is None:
        made = assembled(goal.advise(asked, reports["train"]))
    else:
        assert stopwatch is not None
        left = 60 * asked.length.minutes * SURE - (time.perf_counter() - began)
        fitted = fit(goal.choices(asked, reports["train"]), asked, left, stopwatch, assembled, time.perf_counter)
        made = fitted.run
    settings = made.settings
    batches = len(made.train.plan(0))
    per_epoch = max(1, batches // settings.batch.accumulate)
    say(
        f"model: {count_parameters(made.spec):,} parameters; batches of {settings.batch.tokens:,} tokens,"
        f" {batches:,} an epoch, {made.train.padding():.1%} padding"
    )
    steps = settings.length.steps or max(1, round((settings.length.epochs or 0) * per_epoch))
    if fitted is not None:
        steps = fitted.steps
        over = time.perf_counter() - began
        say(f"{fitted}, for {settings.length.minutes:g} minutes, of which {over:.0f} s are over")
    settings = lay_out(settings, steps, per_epoch, None if fitted is None else fitted.validations)
    there = [*(out / name for name in WORDS), *sorted((out / DATA).iterdir())]
    facts = {
        "settings": json.loads(settings.to_json()),
        "spec": json.loads(made.spec.to_json()),
        "files": prints,
        "made": {str(path.relative_to(out)): fingerprint(path)._asdict() for path in there if path.is_file()},
        "reports": {name: asdict(report) for name, report in reports.items()},
        "steps_an_epoch": per_epoch,
    }
    replace_file(out / RUN, _json(facts))
    return _assembled(settings, made.spec, reports, per_epoch)


def without_absent(asked: Settings, say: Say) -> Settings:
    """The same settings without the optional sets whose files are not there."""
    data = asked.data
    train = [part for part in data.train if not part.absent]
    valid = [part for part in data.valid if not part.absent]
    gone = [part for part in (*data.train, *data.valid) if part.absent]
    if not train:
        raise DataError(f"none of the sets of training data is there: {', '.join(str(part) for part in gone)}")
    for part in gone:
        say(f"warning: {part} is not there and optional; the run goes on without it")
    return asked.replace({"data.train": train, "data.valid": valid}) if gone else asked


def not_pinned(settings: Settings, prints: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What there is to say of a run's files, by what they were when it began, that are not the pinned ones."""
    return [
        f"{path} is not the file that the recipe names: its SHA-256 is {prints[str(path)]['sha256']}, not {wanted}"
        for part in (*settings.data.train, *settings.data.valid)
        for path, wanted in zip(part.files(), part.sha256 or (), strict=False)
        if str(path) in prints and prints[str(path)]["sha256"] != wanted
    ]


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, indent=1, ensure_ascii=False).encode()


def reopen(out: Path) -> Prepared | None:
    """The run of a folder as it was prepared; None if that was never finished."""
    if not (out / RUN).is_file():
        return None
    facts = read_facts(out)
    try:
        reports = {name: Report.read_from(report) for name, report in facts["reports"].items()}
        settings = Settings._from({**facts["settings"], "out": out})
        what = TypeAdapter(AnySpec).validate_python(facts["spec"])
        return _assembled(settings, what, reports, facts["steps_an_epoch"])
    except (KeyError, TypeError, AttributeError, ValueError, SpecError) as error:
        raise TrainingError(f"{out / RUN} cannot be used: {error}; restore it, or start a new run") from None


def amend(out: Path, asked: Settings, changes: Mapping[str, Any]) -> None:
    """Write down what a resumed run is told anew, so that the next one need not be told again."""
    facts = read_facts(out)
    settings = Settings._from({**facts["settings"], "out": out}).replace(changes)
    replace_file(out / RUN, _json({**facts, "settings": json.loads(settings.to_json())}))
    replace_file(out / ASKED, (asked.to_json() + "\n").encode())


def read_facts(out: Path) -> dict:
    try:
        return dict(json.loads((out / RUN).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise TrainingError(f"{out / RUN} cannot be read: {error}; restore it, or start a new run") from None


def changed_files(out: Path) -> list[str]:
    """The run's input files that are not what they were; ones that are gone do not matter, their ids are kept."""
    files = {Path(name): before for name, before in read_facts(out).get("files", {}).items()}
    return [str(path) for path, before in files.items() if path.is_file() and fingerprint(path)._asdict() != before]


def damaged_files(out: Path) -> list[str]:
    """The files that were made of them and are not what they were."""
    files = {out / name: before for name, before in read_facts(out).get("made", {}).items()}
    return [str(path) for path, before in files.items() if not path.is_file() or fingerprint(path)._asdict() != before]


def _assembled(settings: Settings, what: Any, reports: dict[str, Report], per_epoch: int) -> Prepared:
    goal = goal_of(settings)
    return Prepared(settings, what, goal, goal.batches(settings), reports, per_epoch)
