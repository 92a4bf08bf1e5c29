"""`cf.train`: the same run as from the command line, from Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from clearformer.data.pairs import columns_of
from clearformer.errors import DataError, nearest
from clearformer.tasks.load import find
from clearformer.training.run import resume as go_on
from clearformer.training.run import start as begin
from clearformer.training.session import Trained
from clearformer.training.settings import Settings, Task, read

Name = str | Path


def train(
    run: Name | None = None,
    *,
    train: Name | Sequence[Name] = (),
    valid: Name | Sequence[Name] = (),
    fields: str | None = None,
    start: Name | None = None,
    source: Name | None = None,
    target: Name | None = None,
    pairs: Name | None = None,
    valid_source: Name | None = None,
    valid_target: Name | None = None,
    valid_pairs: Name | None = None,
    out: Name | None = None,
    to: str | None = None,
    minutes: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: Name | None = None,
) -> Trained:
    """Train on pairs of texts, or for another task, and return where the model is and how good it became.

    `run` is a TOML file, or the name of a task, whose data are the files `train` and `valid`: train("classify",
    train="reviews.tsv", out="models/mine"). `start` is a model to begin with; `settings` are changes by dotted path,
    such as {"model.width": 256}. With `resume=folder` the run of that folder goes on exactly where it was. Ctrl-C
    saves and raises `Stopped`.
    """
    files = {"source": source, "target": target, "file": pairs}
    validation = {"source": valid_source, "target": valid_target, "file": valid_pairs}
    task, file = task_or_file(None if run is None else str(run))
    given = asked(
        files,
        validation,
        out=out,
        to=to,
        length={"minutes": minutes, "epochs": epochs, "steps": steps},
        task=task,
        more=(_several(train), _several(valid)),
        fields=fields,
        start=start,
    )
    if resume is not None:
        if "data" in given or "out" in given or run is not None:
            raise DataError("a resumed run goes on with the data it began with; give nothing but resume and settings")
        length = {f"length.{name}": value for name, value in given.get("length", {}).items()}
        return go_on(Path(resume), changes={**length, **(settings or {})})
    return begin(settle(file, given, settings or {}))


def asked(
    files: Mapping[str, Name | None],
    valid: Mapping[str, Name | None],
    *,
    out: Name | None,
    to: str | None,
    length: Mapping[str, float | None],
    task: str | None = None,
    more: tuple[Sequence[Name], Sequence[Name]] = ((), ()),
    fields: str | None = None,
    start: Name | None = None,
) -> dict[str, Any]:
    """What arguments or options say, in the shape of a settings file."""
    given: dict[str, Any] = {}
    columns = columns_of(fields)
    for name, part in (("train", files), ("valid", valid)):
        if said := {key: Path(value) for key, value in part.items() if value is not None}:
            about = (columns if "file" in said else {}) | ({"to": to} if to else {})
            given.setdefault("data", {})[name] = [said | about]
    for name, paths in zip(("train", "valid"), more, strict=True):
        if paths:
            each = columns | ({"to": to} if to else {})
            given.setdefault("data", {}).setdefault(name, []).extend({"file": Path(path), **each} for path in paths)
    if columns and not any("fields" in each for name in given.get("data", {}).values() for each in name):
        raise DataError(
            "fields are columns or keys of one file that holds both sides: give it as pairs or train. Source and target"
            " files have none, and a run file says them with each set of pairs"
        )
    if task is not None:
        given["task"] = task
    if start is not None:
        given["model"] = {"start": find(start)}
    if to is not None and "data" not in given:
        raise DataError("to is the language of the files given beside it; in a run file, say it with each set of pairs")
    if out is not None:
        given["out"] = Path(out)
    if said_length := {key: value for key, value in length.items() if value is not None}:
        given["length"] = said_length
    return given


def task_or_file(run: str | None) -> tuple[str | None, Name | None]:
    """What the first word of a command is: the name of a task, or a file of settings."""
    if run is None:
        return None, None
    tasks = get_args(Task)
    if run == "words":
        raise DataError(
            "word vectors have settings of their own: clearformer train words --train TEXT --out FOLDER, in that order,"
            " or cf.static.Word2Vec.train"
        )
    if run in tasks:
        return run, None
    if not Path(run).exists() and Path(run).suffix != ".toml":
        raise DataError(f"{run} is neither a task nor a file of settings{nearest(run, tasks)}")
    return None, run


def _several(paths: Name | Sequence[Name]) -> Sequence[Name]:
    return [paths] if isinstance(paths, str | Path) else paths


def settle(run: Name | None, given: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """A run file, what was given beside it, and changes, as settings."""
    if run is None and "data" not in given:
        raise DataError("no data: give source and target files, or pairs, or train, or a run file, or a run to resume")
    if run is None and "out" not in given:
        raise DataError("no out: give a new folder for the run and its model")
    return read(None if run is None else Path(run), given, changes)
