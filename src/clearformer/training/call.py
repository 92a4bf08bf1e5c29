"""`cf.train`: the same run as from the command line, from Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.errors import DataError
from clearformer.training.run import resume as go_on
from clearformer.training.run import start
from clearformer.training.session import Trained
from clearformer.training.settings import Settings, read

Name = str | Path


def train(
    run: Name | None = None,
    *,
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
    """Train on pairs of texts and return where the model is and how good it became.

    `run` is a TOML file; `settings` are changes by dotted path, such as {"model.width": 256}. With `resume=folder`
    the run of that folder goes on exactly where it was. Ctrl-C saves and raises `Stopped`.
    """
    files = {"source": source, "target": target, "file": pairs}
    valid = {"source": valid_source, "target": valid_target, "file": valid_pairs}
    given = asked(files, valid, out=out, to=to, length={"minutes": minutes, "epochs": epochs, "steps": steps})
    if resume is not None:
        if "data" in given or "out" in given or run is not None:
            raise DataError("a resumed run goes on with the data it began with; give nothing but resume and settings")
        length = {f"length.{name}": value for name, value in given.get("length", {}).items()}
        return go_on(Path(resume), changes={**length, **(settings or {})})
    return start(settle(run, given, settings or {}))


def asked(
    files: Mapping[str, Name | None],
    valid: Mapping[str, Name | None],
    *,
    out: Name | None,
    to: str | None,
    length: Mapping[str, float | None],
) -> dict[str, Any]:
    """What arguments or options say, in the shape of a settings file."""
    given: dict[str, Any] = {}
    for name, part in (("train", files), ("valid", valid)):
        if said := {key: Path(value) for key, value in part.items() if value is not None}:
            given.setdefault("data", {})[name] = [said | ({"to": to} if to else {})]
    if to is not None and "data" not in given:
        raise DataError("to is the language of the files given beside it; in a run file, say it with each set of pairs")
    if out is not None:
        given["out"] = Path(out)
    if said_length := {key: value for key, value in length.items() if value is not None}:
        given["length"] = said_length
    return given


def settle(run: Name | None, given: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """A run file, what was given beside it, and changes, as settings."""
    if run is None and "data" not in given:
        raise DataError("no data: give source and target files, or pairs, or a run file, or a run to resume")
    if run is None and "out" not in given:
        raise DataError("no out: give a new folder for the run and its model")
    return read(None if run is None else Path(run), given, changes)
