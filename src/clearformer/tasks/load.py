"""A model to work with, by the path of a folder, ours or a public one, the name of a bundled one, or what it does."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, overload

from clearformer.assemble import Model
from clearformer.checkpoints.metadata import FILE as TASK
from clearformer.checkpoints.metadata import Metadata, read_metadata
from clearformer.checkpoints.model_folder import load_model
from clearformer.checkpoints.safe import release
from clearformer.core.model import EncoderDecoder
from clearformer.errors import CheckpointError, DataError, nearest
from clearformer.kernels.pack import is_int8, pack
from clearformer.static.folder import is_static
from clearformer.tasks.base import Task
from clearformer.tasks.bundled import BUNDLED, VERBS, bundled, bundled_for, model_for
from clearformer.tasks.translate import Translator
from clearformer.tasks.word_vectors import WordVectors
from clearformer.text.learn import LearnedTokenizer

__all__ = ["BUNDLED", "Opened", "bundled", "bundled_for", "find", "load", "open_model", "open_packed"]

CONFIG = "config.json"
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
Kind = TypeVar("Kind", bound=Task)


@dataclass(frozen=True)
class Opened:
    """A model folder that was read: the model and its metadata."""

    folder: Path
    model: Model
    metadata: Metadata

    @cached_property
    def words(self) -> Any:
        """What the model reads text with, checked against its vocabulary."""
        from clearformer.text.ids import Ids
        from clearformer.text.load import has_tokenizer
        from clearformer.text.tokenizer import PublicTokenizer

        if not has_tokenizer(self.folder):  # a model runs on ids without one
            return Ids(self.folder)
        words = PublicTokenizer.load(self.folder)
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
        return Opened(folder, loaded, public.metadata)
    metadata = read_metadata(folder)
    return Opened(folder, load_model(folder, kernel=kernel).float(), metadata)


def open_packed(
    model: str | Path, *, kernel: str = "auto", precision: str | None = None, ignore: Collection[str] = ()
) -> Opened:
    """The same with the model packed, without a precision in that of its weights; what was read of weights that became
    others does not stay in memory."""
    opened = open_model(model, kernel=kernel, ignore=ignore)
    kept = "int8" if is_int8(opened.model) else "float32"
    native = None if kernel == "auto" else False
    packed = pack(opened.model, precision or kept, native=native, done=release, spent=True)
    return replace(opened, model=packed)


@overload
def load(
    model: str | Path = ...,
    *,
    kernel: str = ...,
    precision: str | None = ...,
    ignore: Collection[str] | None = ...,
) -> Task: ...
@overload
def load(
    model: str | Path = ...,
    *,
    kernel: str = ...,
    precision: str | None = ...,
    ignore: Collection[str] | None = ...,
    kind: type[Kind],
) -> Kind: ...
def load(
    model: str | Path = "en-de",
    *,
    kernel: str = "auto",
    precision: str | None = "auto",
    ignore: Collection[str] | None = (),
    kind: type[Task] = Task,
) -> Task:
    """The task object of a model: `load("en-de").translate(["How are you?"])`.

    `model` is a folder, the name of a bundled model, or a verb, for the bundled model that serves it: `load("see")`. A
    path that exists comes before a name. What the object can do depends on the model's head. `precision` is
    float32, int8, auto, or None for what the weights are kept as. auto is int8 where this machine has the fast path for
    all of the model, and what they are kept as elsewhere; the object's `precision` says which. With a `kernel` other
    than auto, the model runs module by module. `kind` is the class that is expected, such as `Translator`: another is
    an error, and type checkers know the options of its verbs. `ignore` are unknown keys of a public config.json to go
    on without. A folder without a tokenizer opens too: `.model` runs on ids, and `complete` takes them. So does one of
    word vectors: it embeds.
    """
    if is_static(Path(model)):
        made: Task = WordVectors.open(model, precision)
    else:
        made = _task(open_packed(model, kernel=kernel, precision=precision, ignore=ignore or ()))
    if not isinstance(made, kind):
        can = " and ".join(made.can)
        raise DataError(f"{model} is a {type(made).__name__} and not a {kind.__name__}; it can {can}", param="kind")
    return made


def _task(opened: Opened) -> Task:
    task = opened.metadata.task
    assert task is not None  # a folder without one has been refused
    if task == "translate":
        return _translator(opened)
    if task == "embed" and opened.metadata.image is not None:
        raise CheckpointError(
            f"{opened.folder} sees images and has no head to tell of them; clearformer finetune see gives it one"
        )
    module, name = HOMES[task].split(".")
    served: type[Task] = getattr(import_module(f"clearformer.tasks.{module}"), name)
    return served(opened.model, None if task in WITHOUT_TEXT else opened.words, opened.metadata)


def _translator(opened: Opened) -> Translator:
    folder, metadata, loaded = opened.folder, opened.metadata, opened.model
    if not isinstance(loaded, EncoderDecoder):
        raise CheckpointError(f"{folder} holds no encoder–decoder; only these translate")
    tokenizer = LearnedTokenizer.load(folder / "tokenizer.json")
    rows = len(loaded.head.weight)  # type: ignore[arg-type]
    if len(tokenizer) != rows:
        raise CheckpointError(f"{folder}: the tokenizer has {len(tokenizer)} tokens and the model {rows}")
    made = Translator(
        loaded,
        tokenizer,
        metadata.longest or 256,
        metadata.to or (),
        metadata.usual,
        1.0 if metadata.length_penalty is None else metadata.length_penalty,
        2.0 if metadata.growth is None else metadata.growth,
        metadata.by_sentence,
        metadata.copies,
        metadata.placeholders,
    )
    made.metadata = metadata
    return made


def find(model: str | Path) -> Path:
    """The folder of a model: a path that exists, else the name of a bundled model, else a verb that one serves."""
    folder = Path(model)
    if folder.is_dir():
        if is_static(folder):
            raise CheckpointError(
                f"{folder} holds word vectors, and this takes models; neighbours, analogy, embed and search take it"
            )
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
    if str(model) in VERBS:
        return BUNDLED / model_for(str(model))
    raise CheckpointError(
        f"there is no folder {folder}, and no bundled model of that name{nearest(str(model), bundled())}"
    )
