"""The models that are served, by name, and which of them does what."""

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from clearformer.errors import DataError
from clearformer.serve.errors import ApiError
from clearformer.serve.settings import ServerSettings
from clearformer.tasks.base import Task
from clearformer.tasks.bundled import BUNDLED, bundled, bundled_model
from clearformer.tasks.load import find, load


@dataclass(frozen=True, eq=False)
class ServedModel:
    name: str
    task: Any  # a Task, with the verbs that its head allows
    folder: Path
    created: int  # seconds since 1970, of its weights

    def can(self, verb: str) -> bool:
        """Whether it does this; `chat` and `search` go with `complete` and `embed`."""
        return {"chat": "complete", "search": "embed", "rerank": "embed"}.get(verb, verb) in self.verbs

    @cached_property
    def verbs(self) -> tuple[str, ...]:
        """All that its head allows; of a bundled model what it is good for, as its card says."""
        able = tuple(self.task.can)
        if self.folder.parent != BUNDLED:
            return able
        meant = bundled_model(self.folder.name).verbs
        return tuple(verb for verb in able if verb in meant)

    @property
    def sees(self) -> bool:
        """Whether it is given images."""
        return "see" in self.task.can


class Registry:
    """Models in the order in which they were named: the first that can do a thing does it where none is asked for."""

    def __init__(self, models: list[ServedModel]):
        self.models = {model.name: model for model in models}

    @classmethod
    def load(cls, settings: ServerSettings) -> "Registry":
        made: dict[str, ServedModel] = {}
        for given in settings.model or tuple(_usual()):
            name, folder = _named(given)
            name = name or folder.name
            if name in made:
                raise DataError(f"two models are called {name}; name one of them, as NAME=FOLDER", param="model")
            task: Task = load(folder, precision=settings.precision)
            weights = max((int(file.stat().st_mtime) for file in folder.glob("*.safetensors")), default=0)
            made[name] = ServedModel(name, task, folder, weights or int(time.time()))
        return cls(list(made.values()))

    def get(self, name: str | None, verb: str) -> ServedModel:
        """The model of this name, or the first that can do it; an error names those that there are."""
        able = [model.name for model in self.models.values() if model.can(verb)]
        if name:
            found = self.models.get(name)
            if found is None:
                known = ", ".join(able) or "none that can do this"
                raise ApiError(404, f"there is no model {name!r} here; for this there is: {known}",
                               param="model", code="model_not_found")  # fmt: skip
            if not found.can(verb):
                can = " and ".join(found.verbs)
                hint = f"; {', '.join(able)} can" if able else ""
                raise ApiError(400, f"the model {name!r} cannot {verb}: it can {can}{hint}", param="model")
            return found
        if not able:
            raise ApiError(501, f"no model that is served here can {verb}; start the server with one that can",
                           kind="not_implemented_error", code="no_model")  # fmt: skip
        return self.models[able[0]]

    def translating(self, to: str | None, source: str | None = None) -> ServedModel:
        """The first model that translates to a language, from another where that is said."""
        able = [model for model in self.models.values() if model.can("translate")]
        for model in able:
            says, speaks = model.task.metadata.source, targets(model)
            if (to is None or not speaks or to in speaks) and (not source or not says or says == source):
                return model
        known = ", ".join(
            sorted({f"{model.task.metadata.source or '?'}→{to}" for model in able for to in targets(model)})
        )
        way = f"from {source} to {to}" if source else f"to {to}"
        raise ApiError(400, f"no model here translates {way}; there is: {known}", param="target")


def _named(given: str) -> tuple[str, Path]:
    """NAME=FOLDER, or a folder alone, whose path may have a = too."""
    name, found, path = given.partition("=")
    if not found or "/" in name or Path(given).exists():
        return "", find(given)
    return name, find(path)


def targets(model: ServedModel) -> tuple[str, ...]:
    """The languages that a model translates to, as far as it says."""
    task = model.task
    return tuple(getattr(task.sides, "languages", None) or task.metadata.to or ())


def _usual() -> list[str]:
    """All bundled models, the one that translates everyday English first."""
    names = bundled()
    return sorted(names, key=lambda name: (name != "en-de", name)) if names else [str(BUNDLED)]
