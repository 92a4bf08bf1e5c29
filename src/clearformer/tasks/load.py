"""A model to work with, by the name of a bundled one or the path of a folder."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearformer.checkpoints.files import load_model
from clearformer.core.model import EncoderDecoder
from clearformer.data.tokenizer import Tokenizer
from clearformer.errors import CheckpointError, DataError, nearest
from clearformer.tasks.translate import Translator

TASK = "task.json"
BUNDLED = Path(str(files("clearformer") / "models"))


def load(model: str | Path = "en-de", *, kernel: str = "auto") -> Translator:
    """The task object of a model: `load("en-de").translate(["How are you?"])`.

    A path that exists comes before a bundled name. Weights kept in half precision are used in single.
    """
    folder = find(model)
    task = read_task(folder)
    loaded = load_model(folder, kernel=kernel).float()
    if not isinstance(loaded, EncoderDecoder):
        raise CheckpointError(f"{folder} holds no encoder–decoder; only these translate")
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    rows = len(loaded.head.weight)  # type: ignore[arg-type]
    if len(tokenizer) != rows:
        raise CheckpointError(f"{folder}: the tokenizer has {len(tokenizer)} tokens and the model {rows}")
    return Translator(
        loaded,
        tokenizer,
        task["longest"],
        task["to"],
        task.get("usual"),
        task.get("length_penalty", 1.0),
        task.get("growth", 2.0),
    )


def bundled() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{TASK}"))


def bundled_for(to: str) -> str:
    """The bundled model that translates to a language."""
    languages = {language: name for name in bundled() for language in read_task(BUNDLED / name)["to"]}
    if to not in languages:
        raise DataError(
            f"no bundled model translates to {to!r}; there is {', '.join(sorted(languages))}."
            " Train one of your own with: clearformer train"
        )
    return languages[to]


def find(model: str | Path) -> Path:
    folder = Path(model)
    if folder.is_dir():
        if not (folder / TASK).is_file():
            later = "; its run has not been validated yet" if (folder / "run.json").is_file() else ""
            raise CheckpointError(f"{folder} is not a model folder: it has no {TASK}{later}")
        return folder
    if str(model) in bundled():
        return BUNDLED / str(model)
    if folder.exists():
        raise CheckpointError(f"{folder} is a file; a model is a folder")
    raise CheckpointError(
        f"there is no folder {folder}, and no bundled model of that name{nearest(str(model), bundled())}"
    )


def read_task(folder: Path) -> dict[str, Any]:
    path = folder / TASK
    try:
        found = json.loads(path.read_bytes())
        if found["task"] != "translate" or not isinstance(found["longest"], int) or not isinstance(found["to"], list):
            raise ValueError("it does not describe a translator")
        for name in ("length_penalty", "growth"):
            if not isinstance(found.get(name, 1.0), int | float):
                raise ValueError(f"{name} must be a number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from None
    return found
