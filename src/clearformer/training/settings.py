"""Everything a run is told: one TOML file, one command line, one Python call, all the same names.

What is left out is chosen from the data (`defaults.py`) and written to the run's folder, so that a run can be read,
repeated and resumed.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from clearformer.data.pairs import Pairs
from clearformer.data.training_pairs import TrainingPairs
from clearformer.errors import DataError, SpecError, nearest
from clearformer.spec.base import Activation, Fraction, Part, Positive, Size

Count = Annotated[int, Field(ge=0, le=2**31)]
Many = Annotated[int, Field(gt=0, le=2**31)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Data(Part):
    """`train` is one or more sets of pairs; without `valid`, some of the training pairs are held out for it.

    Each set may say which language it translates `to`; where there are several, a source begins with a tag for it.
    """

    train: tuple[TrainingPairs, ...] = Field(min_length=1)
    valid: tuple[Pairs, ...] = ()
    source_language: str | None = None  # told to whoever uses the model
    held_out: Count = 1000  # pairs, but never more than one in twenty
    longest: Size = 256  # tokens of a side; longer pairs are left out
    any_data: bool = False  # go on where a file is not the one that its sha256 pins; the model's card says so
    duplicates: bool = False  # keep repeated pairs
    copies: bool = True  # keep pairs whose sides are equal
    ratio: Annotated[float, Field(ge=1.0)] | None = None  # the longer side has at most so many times the characters
    lines: bool = False  # running text: every line is a text of its own, with its special tokens
    size: Annotated[int, Field(gt=0, le=4096)] | None = None  # images in folders: height and width they are brought to
    shift: Annotated[int, Field(ge=0, le=64)] = 0  # images: moved by up to so many pixels, at random
    mirror: bool = False  # images: half of them turned left to right, at random
    squares: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # images: the share of their squares looked at, at random


class TokenizerSettings(Part):
    kind: Literal["bpe", "unigram", "word", "char"] = "bpe"
    vocabulary: Size | None = None
    form: Literal["NFC", "NFKC", "none"] = "NFC"
    sentences: Many = 4_000_000  # to learn from; more are not looked at


class Lora(Part):
    """Hu et al. 2021: the model stays as it is, and beside the named projections of every attention, or of every
    feed-forward layer, W x + (alpha / rank) · B A x with A and B learned."""

    rank: Annotated[int, Field(gt=0, le=4096)] = 8
    alpha: Positive = 16.0
    on: tuple[Literal["query", "key", "value", "output", "up", "gate", "down"], ...] = ("query", "value")


class ModelSettings(Part):
    """The task's own arrangement, sized by the data where nothing is said; `spec` is a file with any other one.

    `start` is the folder of a model to begin with, ours or a public one: its specification, weights and tokenizer.
    """

    width: Size | None = None
    layers: Annotated[int, Field(gt=0, le=1000)] | None = None
    decoder_layers: Annotated[int, Field(gt=0, le=1000)] | None = None
    heads: Size | None = None
    inner: Size | None = None
    dropout: Fraction | None = None
    word_dropout: Fraction = 0.0  # classify, tag: this share of the words is hidden at random while training
    norm: Literal["before", "after"] = "before"
    activation: Activation = "relu"
    positions: Literal["rotary", "sinusoid", "tree"] | None = None  # of an encoder; tree: with the tree of the sentence
    context: Size | None = None  # tokens that a model of running text sees at once
    patch: Size | None = None  # side of the squares an image is cut into
    spec: Path | None = None
    start: Path | None = None
    ignore: tuple[str, ...] = ()  # unknown keys of its config.json to go on without
    lora: Lora | None = None


class Optimizer(Part):
    """`kind` is AdamW, or Muon for the matrices of the blocks and AdamW for the rest. `rate` is the highest learning
    rate; `paper` falls with 1/√step, `cosine` and `linear` to zero. `wsd` (warm-up, stable, decay) stays at the top and
    falls to zero over the last `decay` of the steps: until then such a run can be lengthened as if it had been that
    long from the start."""

    kind: Literal["adamw", "muon"] = "adamw"
    rate: Positive | None = None
    schedule: Literal["cosine", "linear", "paper", "constant", "wsd"] = "cosine"
    warmup: Count | None = None  # steps
    decay: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2  # wsd: this share of the steps
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    eps: Positive = 1e-9
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    clip: Annotated[float, Field(ge=0.0)] = 1.0  # of the gradient's norm; 0 clips nothing
    smoothing: Fraction | None = None  # of labels; 0.1, but for models of text, whose losses people compare


class Length(Part):
    """How long to train: the first of these that is given; nothing given means as many epochs as the data asks."""

    steps: Many | None = None
    epochs: Positive | None = None
    minutes: Positive | None = None

    def otherwise(self, epochs: float) -> Self:
        """The same, or so many epochs where nothing is said."""
        return self if any(value is not None for _, value in self) else self.replace(epochs=epochs)


class BatchSettings(Part):
    """`tokens` a batch (rows × the longest side), and how many batches make one step."""

    tokens: Many | None = None
    accumulate: Many = 1


class Averaging(Part):
    """The weights that are validated and kept: `ema` of all steps, the mean of the `last` n validations', or `none`."""

    kind: Literal["ema", "last", "none"] = "ema"
    decay: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None  # of ema, a step
    last: Many = 5


class Validation(Part):
    """Every `every` steps: the loss, and the task's scores: BLEU and chrF of `sentences` greedy translations, accuracy.
    `best` is what the kept weights are the best by: the loss, or the task's first score."""

    every: Many | None = None
    sentences: Count = 500
    best: Literal["loss", "bleu", "score"] = "loss"
    patience: Count = 0  # stop after this many without a better one; 0 never stops
    samples: Count = 3


class Saving(Part):
    every: Many | None = None  # steps
    minutes: Positive = 10.0  # or this much time, whichever is first
    keep: Annotated[int, Field(ge=2, le=1000)] = 2  # states; the older ones are there if the newest is damaged


class Machine(Part):
    """`auto` is bfloat16 where the hardware has it and float32 elsewhere, and the faster library for float32
    products; what they come to is measured once and kept with the run."""

    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    gemm: Literal["auto", "mkl", "onednn"] = "auto"  # the library for products of float32 on a CPU
    threads: Annotated[int, Field(ge=0, le=4096)] = 0  # 0: PyTorch's choice
    compile: bool = False
    shard: bool = False  # many processes: FSDP2 instead of DDP


Task = Literal["translate", "classify", "tag", "embed", "answer", "complete", "fill", "see"]


class Settings(Part):
    task: Task = "translate"
    out: Path
    data: Data
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    batch: BatchSettings = BatchSettings()
    optimizer: Optimizer = Optimizer()
    length: Length = Length()
    average: Averaging = Averaging()
    validation: Validation = Validation()
    save: Saving = Saving()
    machine: Machine = Machine()
    log_every: Many = 50
    tensorboard: bool = False
    seed: Count = 1

    @property
    def languages(self) -> list[str]:
        return sorted({part.to for part in self.data.train if part.to})

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        given = [name for name, value in self.length if value is not None]
        if len(given) > 1:
            raise ValueError(f"length: give one of steps, epochs and minutes, not {' and '.join(given)}")
        if len(self.languages) > 1 and any(part.to is None for part in (*self.data.train, *self.data.valid)):
            raise ValueError("data: with several target languages, every set of pairs must say which it translates to")
        if odd := [part.to for part in self.data.valid if part.to and part.to not in self.languages]:
            raise ValueError(
                f"data.valid: nothing in data.train is translated to {odd[0]!r}{nearest(odd[0], self.languages)}"
            )
        if self.model.lora is not None and self.model.start is None:
            raise ValueError("model.lora changes a model that is there: give its folder as model.start")
        if self.model.start is not None and self.model.spec is not None:
            raise ValueError("model: give start, a model to begin with, or spec, a specification of a fresh one")
        return self


Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """A setting that the advice has filled in."""
    if value is None:
        raise TypeError("a setting was used before it was decided")
    return value


def read(file: Path | None, given: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Settings from a TOML file, what the command line gives beside it, and changes by dotted path."""
    content: dict[str, Any] = {}
    if file is not None:
        try:
            content = tomllib.loads(file.read_bytes().decode())
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{file} is not TOML: {error}") from None
    try:
        return Settings._from(_merged(content, given)).replace(changes)
    except SpecError as error:
        raise DataError(f"{file or 'settings'}: {error}") from None


def _merged(content: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(content)
    for key, value in given.items():
        inner = found.get(key)
        found[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return found


def to_toml(settings: Settings) -> str:
    """The settings as a file that `read` takes, with every value that is set."""
    lines: list[str] = []
    _tables(settings.model_dump(mode="json", exclude_none=True), "", lines)
    return "\n".join(lines).strip() + "\n"


def _tables(part: Mapping[str, Any], path: str, lines: list[str]) -> None:
    def holds_tables(value: Any) -> bool:
        return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))

    def written(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False).replace(
            "\x7f", "\\u007f"
        )  # all that TOML escapes and JSON does not

    lines += [f"{key} = {written(value)}" for key, value in part.items() if not holds_tables(value)]
    for key, value in part.items():
        name = f"{path}.{key}" if path else key
        for each in (
            value if isinstance(value, list) and holds_tables(value) else [value] if holds_tables(value) else []
        ):
            if each:
                lines.append(f"\n[[{name}]]" if isinstance(value, list) else f"\n[{name}]")
                _tables(each, name, lines)


def differences(before: Settings, after: Settings) -> list[str]:
    """The dotted names of all that is not the same."""
    return sorted(_unequal(json.loads(before.model_dump_json()), json.loads(after.model_dump_json()), ""))


def _unequal(before: Any, after: Any, path: str) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = before.keys() | after.keys()
        inner = (_unequal(before.get(key), after.get(key), f"{path}.{key}".lstrip(".")) for key in keys)
        return [name for names in inner for name in names]
    return [] if before == after else [path]
