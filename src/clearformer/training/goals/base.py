"""What a run trains for. A goal says how its data becomes ids on disk, what a model of it looks like, what the loss
of a batch is, how good a model is, and what its users must be told. The run itself (steps, states, processes,
averages, resuming) is the same for all.
"""

import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from clearformer.assemble import Model, build
from clearformer.checkpoints.metadata import Metadata
from clearformer.data.corpus import Report
from clearformer.errors import DataError, SpecError, TrainingError
from clearformer.spec import EncoderDecoder, Spec, Transformer
from clearformer.text.learn import learn
from clearformer.text.tokenizer import PublicTokenizer
from clearformer.training.init_from import Start
from clearformer.training.settings import Settings
from clearformer.training.state import replace_file

DATA, FOUND = "data", "found.json"
Say = Callable[[str], None]
AnySpec = Transformer | EncoderDecoder


class Batch(Protocol):
    """A tuple of tensors with a row for each example; `tokens` of it count in the loss."""

    @property
    def tokens(self) -> int: ...

    def nothing(self) -> Self:
        """One row that does not count: the share of a process that has none."""
        ...

    def __iter__(self) -> Iterator[Tensor]: ...


class Batches(Protocol):
    """All batches of any epoch, as functions of its number."""

    def plan(self, epoch: int) -> Sequence[Any]: ...

    def make(self, rows: Any) -> Any: ...

    def padding(self, epoch: int = 0) -> float: ...


@dataclass(frozen=True)
class Scores:
    """How good a model is on what it does not learn from."""

    loss: float  # a token, text or image, without smoothing
    measures: dict[str, float] = field(default_factory=dict)  # by name, each better when higher
    seconds: float = 0.0
    samples: list[tuple[str, str, str]] = field(default_factory=list)  # given, right, made
    precision: str = "float32"  # what the model computed with
    sets: dict[str, float] = field(default_factory=dict)  # the loss on each set, where there are several


class Goal(ABC):
    """One object a run; everything is a function of its settings and of its folder."""

    name: ClassVar[str]
    unit: ClassVar[str] = "tokens"  # what the loss is a mean of
    measure: ClassVar[str | None] = None  # the name of the score that `validation.best = "score"` looks at

    may: ClassVar[frozenset[str]] = frozenset()  # what a set of its training data may be told, and how it is cleaned

    def __init__(self, settings: Settings):
        self.settings, self.out = settings, settings.out

    def check_sets(self) -> None:
        """Refuse what makes no sense for this goal, before anything is read."""
        data = self.settings.data
        said = [(name, f"data.train.{n}.{name}") for n, part in enumerate(data.train) for name in part.told]
        said += [("subwords", f"data.train.{n}.noise.subwords") for n, part in enumerate(data.train) if part.sampled]
        said += [("ratio", "data.ratio")] * (data.ratio is not None) + [("copies", "data.copies")] * (not data.copies)
        if wrong := [path for name, path in said if name not in self.may]:
            raise DataError(
                f"{wrong[0]} is not for this data and task ({self.settings.task}); what can be said here:"
                f" {', '.join(sorted(self.may)) or 'nothing of the kind'}"
            )

    # --- before the first step ------------------------------------------------------------------------------

    def inputs(self) -> list[Path]:
        """The files that the run is made of."""
        data, model = self.settings.data, self.settings.model
        found = [path for part in (*data.train, *data.valid) for path in part.files()]
        found += [] if model.spec is None else [model.spec]
        return found + ([] if self.start is None else self.start.files())

    def check_pins(self) -> None:
        """Files with a checksum must be the very ones, unless any will do."""
        data = self.settings.data
        for part in () if data.any_data else (*data.train, *data.valid):
            part.check()

    @abstractmethod
    def count(self) -> int:
        """Read everything once: what is wrong with the files is found before anything is written."""

    @abstractmethod
    def fill(self, total: int, say: Say) -> tuple[dict[str, Report], dict[str, Any]]:
        """Write the encoded data of `total` examples and the tokenizer; the reports, and settings that were decided."""

    @abstractmethod
    def advise(self, asked: Settings, report: Report) -> Settings:
        """The same settings with everything that depends on the amount of data filled in."""

    def choices(self, asked: Settings, report: Report) -> list[Settings]:
        """What a run of so many minutes may be, from the largest model to the smallest."""
        return [self.advise(asked, report)]

    def paced(self, settings: Settings, asked: Settings, tokens: float, epochs: float) -> Settings:
        """The same settings for a run that sees so many tokens in so many epochs."""
        return settings

    def most_epochs(self, settings: Settings) -> float:
        """After so many, more would not help."""
        return math.inf

    @abstractmethod
    def spec(self, settings: Settings, vocabulary: int) -> AnySpec:
        """The model of decided settings."""

    @property
    @abstractmethod
    def vocabulary(self) -> int: ...

    def keep(self, found: dict[str, Any]) -> None:
        """Write down what was found in the data: labels, the range of scores."""
        replace_file(self.out / DATA / FOUND, json.dumps(found, ensure_ascii=False, indent=1).encode())

    @cached_property
    def found(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.out / DATA / FOUND).read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise TrainingError(f"{self.out / DATA / FOUND} cannot be read: {error}; start a new run") from None

    @abstractmethod
    def take(self, metadata: Metadata) -> None:
        """Get ready to judge a model on `data.valid`, without a run; its tokenizer is there already."""

    @property
    def train_sets(self) -> list[str]:
        """The names of the sets whose training losses are told apart."""
        return []

    # --- from another model ----------------------------------------------------------------------------------

    @cached_property
    def start(self) -> Start | None:
        """The model that the run begins with, if it does not begin with nothing."""
        folder = self.settings.model.start
        return None if folder is None else Start.read(folder, self.settings.model.ignore)

    def model(self, what: AnySpec) -> Model:
        """The model before the first step: fresh, or with all the weights that the start has for it."""
        model = build(what, seed=self.settings.seed)
        if self.start is not None:
            self.start.fill(model)
        return model

    def given(self, settings: Settings, vocabulary: int, fits: Callable[[Any], bool], wanted: str) -> Any:
        """The specification begun with, or that of the user's file with this vocabulary; None where the size is to be
        chosen. One that does not fit is an error that says what is wanted."""
        model = settings.model
        found = self.start.spec if self.start is not None else given_spec(settings)
        if found is None:
            return None
        if not fits(found):
            raise SpecError(f"model: {model.start or model.spec} {wanted}")
        if self.start is not None or not vocabulary:
            return found
        return found.replace({f"{stack}.embed.vocabulary": vocabulary for stack in found.stacks})

    # --- steps -----------------------------------------------------------------------------------------------

    @abstractmethod
    def batches(self, settings: Settings) -> Batches: ...

    @abstractmethod
    def valid_batches(self) -> Batches: ...

    @abstractmethod
    def objective(self, model: Any, smoothing: float) -> nn.Module:
        """A batch in, the sum of its losses out."""

    # --- judging and keeping ---------------------------------------------------------------------------------

    def validate(self, model: Any) -> Scores:
        began = time.perf_counter()
        loss, sets = self.losses(model)
        measures, samples = self.measures(model)
        return Scores(loss, measures, time.perf_counter() - began, samples, sets=sets)

    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        """Scores beside the loss, and a few examples to look at."""
        return {}, []

    def loss(self, model: Any) -> float:
        return self.losses(model)[0]

    @torch.inference_mode()
    def losses(self, model: Any) -> tuple[float, dict[str, float]]:
        """The loss on the validation data, and that of each of its sets, where there are several."""
        batches, objective = self.valid_batches(), self.objective(model, 0.0)
        objective.eval()
        loss, tokens, told = 0.0, 0, list[Tensor]()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # what is masked is the same at every validation
            for rows in batches.plan(0):
                batch = batches.make(rows)
                loss, tokens = loss + float(objective(batch)), tokens + batch.tokens
                if (by_set := getattr(objective, "by_set", None)) is not None:
                    told.append(by_set)
        sums = sum(told[1:], told[0]).tolist() if told and len(self.valid_sets) > 1 else ()
        sets = {name: lost / many for name, (lost, many) in zip(self.valid_sets, sums, strict=False) if many}
        return loss / max(tokens, 1), sets

    @property
    def valid_sets(self) -> list[str]:
        """The names of what is validated on."""
        return []

    @abstractmethod
    def metadata(self, model: AnySpec) -> Metadata:
        """`task.json`: what whoever uses the model must know beside the weights."""


class Worded(Goal):
    """A goal whose texts are read with `PublicTokenizer`: the start's, or one learned from the data in the template
    `<s> text </s>`, or `text </s>`."""

    @cached_property
    def words(self) -> PublicTokenizer:
        return PublicTokenizer.load(self.out)

    @property
    def vocabulary(self) -> int:
        return len(self.words)

    def learn_words(
        self, texts: Iterable[str], usual: int, say: Say, extra: Sequence[str] = (), first: bool = True
    ) -> dict[str, Any]:
        """Put the tokenizer into the run's folder; the settings that were decided."""
        wanted = self.settings.tokenizer
        if self.start is not None:
            self.start.words.save(self.out)
            say(f"tokenizer: of {self.settings.model.start}, {self.vocabulary:,} tokens")
            return {"tokenizer.vocabulary": self.vocabulary}
        vocabulary = wanted.vocabulary or usual
        PublicTokenizer.of(learn(texts, wanted.kind, vocabulary, wanted.form, extra=extra), start=first).save(self.out)
        say(f"tokenizer: {wanted.kind}, {self.vocabulary:,} tokens")
        return {"tokenizer.vocabulary": vocabulary}


@torch.inference_mode()
def accuracy(batches: Batches, judge: Callable[[Any], Tensor]) -> dict[str, float]:
    """The share of what is right, by a function that says it of everything in a batch."""
    right = [judge(batches.make(rows)).flatten() for rows in batches.plan(0)]
    return {"accuracy": float(torch.cat(right).double().mean())}


def check_memory(parameters: int, settings: Settings) -> None:
    """Weights, gradients and two moments must fit, whatever the rest takes."""
    needed, there = 16 * parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there and settings.machine.device in ("auto", "cpu"):
        raise TrainingError(
            f"a model of {parameters:,} parameters needs {needed / 2**30:,.0f} GiB to train, and this machine has"
            f" {there / 2**30:,.0f}; give smaller model.width, layers, inner or tokenizer.vocabulary"
        )


def given_spec(settings: Settings) -> AnySpec | None:
    """The specification in a file of the user's, if there is one."""
    path = settings.model.spec
    if path is None:
        return None
    try:
        return Spec.from_json(path.read_bytes())
    except OSError as error:
        raise SpecError(f"model.spec: cannot read {path}: {error.strerror}") from None


def heads_of(width: int, heads: int | None) -> int:
    """Heads 64 wide where that divides, else as many as do; a wrong number is an error."""
    if heads is None:
        return width // 64 if width % 64 == 0 else next(n for n in (8, 4, 2, 1) if width % n == 0)
    if width % heads:
        raise SpecError(f"model.heads ({heads}) must divide model.width ({width})")
    return heads
