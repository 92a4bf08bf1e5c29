"""A model to work with, by the name of a bundled one or the path of a folder, ours or a public one."""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearformer.assemble import Model
from clearformer.checkpoints.model_folder import load_model
from clearformer.checkpoints.safe import release
from clearformer.core.model import EncoderDecoder
from clearformer.errors import CheckpointError, DataError, nearest
from clearformer.kernels.pack import is_int8, pack
from clearformer.tasks.base import Task
from clearformer.tasks.translate import Translator
from clearformer.text.learn import Tokenizer

TASK, CONFIG = "task.json", "config.json"
BUNDLED = Path(str(files("clearformer") / "models"))
HOMES = {  # task → where its class is
    "write": "text_to_text.Writer",
    "complete": "complete.Completer",
    "classify": "classify.Classifier",
    "embed": "embed.Embedder",
    "fill": "fill.Filler",
    "answer": "answer.Answerer",
    "tag": "tag.Tagger",
    "see": "see.Seer",
    "caption": "see.Captioner",
}
WITHOUT_TEXT = ("see",)


@dataclass(frozen=True)
class Opened:
    """A model folder that was read: the model, and the facts about it that are no weights."""

    folder: Path
    model: Model
    facts: dict[str, Any]

    @cached_property
    def words(self) -> Any:
        """What the model reads text with, checked against its vocabulary."""
        from clearformer.text.ids import Ids
        from clearformer.text.load import has_tokenizer
        from clearformer.text.tokenizer import Words

        if not has_tokenizer(self.folder):  # a model runs on ids without one
            return Ids(self.folder)
        words = Words.load(self.folder)
        table = getattr(self.model, "encoder", getattr(self.model, "stack", None)).embed  # type: ignore[union-attr]
        if not hasattr(table, "table"):  # an encoder of images: the text is the decoder's
            table = self.model.decoder.embed  # type: ignore[union-attr]
        words.check(len(table.table), self.folder)
        return words


def open_model(model: str | Path, *, kernel: str = "auto", ignore: Collection[str] = ()) -> Opened:
    """Read a model's folder. Weights kept in half precision are used in single. `ignore` are unknown keys of a public
    config.json to go on without."""
    folder = find(model)
    if not (folder / TASK).is_file():
        from clearformer.checkpoints.huggingface import load_public

        loaded, public = load_public(folder, kernel=kernel, ignore=ignore)
        return Opened(folder, loaded, public.facts)
    facts = read_task(folder)
    return Opened(folder, load_model(folder, kernel=kernel).float(), facts)


def open_packed(
    model: str | Path, *, kernel: str = "auto", precision: str | None = None, ignore: Collection[str] = ()
) -> Opened:
    """The same with the model packed; what was read of weights that became others does not stay in memory."""
    opened = open_model(model, kernel=kernel, ignore=ignore)
    kept = "int8" if is_int8(opened.model) else "float32"
    native = None if kernel == "auto" else False
    packed = pack(opened.model, precision or kept, native=native, done=release, spent=True)
    return replace(opened, model=packed)


def load(
    model: str | Path = "en-de",
    *,
    kernel: str = "auto",
    precision: str | None = None,
    ignore: Collection[str] | None = (),
) -> Any:
    """The task object of a model: `load("en-de").translate(["How are you?"])`.

    A path that exists comes before a bundled name. What the object can do depends on the model's head. `precision` is
    float32, int8 or auto, the faster that this machine has; without one, what the weights are kept as. With a `kernel`
    other than auto, the model runs module by module. `ignore` are unknown keys of a public config.json to go on
    without. A folder without a tokenizer opens too: `.model` runs on ids, and `complete` takes them.
    """
    opened = open_packed(model, kernel=kernel, precision=precision, ignore=ignore or ())
    if opened.facts["task"] == "translate":
        return _translator(opened)
    if opened.facts["task"] == "embed" and "image" in opened.facts:
        raise CheckpointError(
            f"{opened.folder} sees images and has no head to tell of them; clearformer finetune see gives it one"
        )
    module, name = HOMES[opened.facts["task"]].split(".")
    kind: type[Task] = getattr(import_module(f"clearformer.tasks.{module}"), name)
    return kind(opened.model, None if opened.facts["task"] in WITHOUT_TEXT else opened.words, opened.facts)


def _translator(opened: Opened) -> Translator:
    folder, task, loaded = opened.folder, opened.facts, opened.model
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
        if not (folder / TASK).is_file() and not (folder / CONFIG).is_file():
            later = "; its run has not been validated yet" if (folder / "run.json").is_file() else ""
            raise CheckpointError(
                f"{folder} is not a model folder: it has no {TASK}, and no {CONFIG} of a public model{later}"
            )
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
        if found["task"] not in ("translate", *HOMES):
            raise ValueError(f"it describes no task that is known: {found['task']!r}")
        if found["task"] == "translate":
            _check_translator(found)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from None
    return found


def _check_translator(found: dict[str, Any]) -> None:
    if not isinstance(found["longest"], int) or not isinstance(found["to"], list):
        raise ValueError("it does not describe a translator")
    for name in ("length_penalty", "growth"):
        if not isinstance(found.get(name, 1.0), int | float):
            raise ValueError(f"{name} must be a number")
