"""Metadata: what is known of a model besides its spec and its weights. A folder of ours keeps it as `task.json`.

metadata = read_metadata(folder)
metadata.task, metadata.labels, metadata.longest
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from clearformer.data.preprocessing import Preprocessing
from clearformer.errors import CheckpointError
from clearformer.generate.options import modern
from clearformer.spec import paths
from clearformer.untrusted_files import read_json

FILE = "task.json"
TaskName = Literal[
    "translate", "write", "complete", "classify", "embed", "fill", "answer", "tag", "see", "caption"
]  # which class of tasks/ serves the model
Pool = Literal["mean", "first", "last"]
Count = Annotated[int, Field(gt=0)]


class _Part(BaseModel):
    """Frozen and strict: what is unknown, or of another type, is an error that names its path."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Prompts(_Part):
    """What is put in front of a text, by task (T5)."""

    summarize: str | None = None
    translate: dict[str, str] = {}  # by target language

    def __bool__(self) -> bool:
        return self.summarize is not None or bool(self.translate)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


class Metadata(_Part):
    """Everything is optional, since models differ; `task.json` has at least a task. Only what was said is written."""

    task: TaskName | None = None
    family: str | None = None  # of a public model: config.json's model_type
    longest: Count | None = None  # tokens of an input at most, special ones included
    # translators
    source: str | None = Field(None, validation_alias=AliasChoices("from", "source"), serialization_alias="from")
    to: tuple[str, ...] | None = None  # the languages that can be written
    usual: Count | None = None  # the length that 99 of 100 sources had in training
    length_penalty: float | None = None  # the one that suits the model best
    growth: float | None = None  # target tokens a source token
    by_sentence: bool = True  # a text is translated sentence by sentence; else as one
    copies: bool = True  # what has no letters (numbers, signs) stays as it is
    placeholders: bool = False  # e-mail and web addresses are read and written as @1, @2, and put back
    # heads over classes
    labels: tuple[str, ...] | None = None  # in the order of the logits
    several: bool = False  # multi-label: a text may have several at once
    trees: bool = False  # the model is given the tree of every sentence
    # sentence encoders
    pool: Pool | None = None
    normalise: bool = False  # vectors have length one
    prompt: str | None = None  # put before every text
    skips_prompt: bool = False  # the states of the prompt are left out of the pool
    # images
    image: Preprocessing | None = None
    # models that write
    generation: dict[str, Any] | None = None  # what was said of `GenerationOptions`
    prompts: Prompts | None = None
    ways: dict[str, dict[str, Any]] | None = None  # generation settings of one task alone

    @classmethod
    def of(cls, given: "Metadata | Mapping[str, Any] | None") -> "Metadata":
        """From an object as `task.json` holds it; one that was made already is itself."""
        if isinstance(given, Metadata):
            return given
        said = dict(given or {})
        two = said.get("task") in ("write", "caption", "translate")
        if isinstance(said.get("generation"), Mapping):
            said["generation"] = modern(said["generation"], two_stacks=two)
        if isinstance(said.get("ways"), Mapping) and all(isinstance(way, Mapping) for way in said["ways"].values()):
            said["ways"] = {verb: modern(way, two_stacks=two) for verb, way in said["ways"].items()}
        try:
            text = json.dumps(said)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"metadata holds what JSON cannot: {error}") from None
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise CheckpointError(f"metadata: {paths.explain(error, cls, text)}") from None

    def __repr_args__(self) -> Any:
        return [(name, value) for name, value in super().__repr_args__() if name in self.model_fields_set]

    def replace(self, **changes: Any) -> "Metadata":
        """The same with some entries changed, by their names in `task.json`, validated anew."""
        return Metadata.of({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """As `task.json` holds it: what was said, and no defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"


def read_metadata(folder: Path) -> Metadata:
    """`task.json` of a folder of ours."""
    path = folder / FILE
    try:
        found = Metadata.of(read_json(path))
        if found.task is None:
            raise CheckpointError("it names no task")
        if found.task == "translate" and (found.longest is None or found.to is None):
            raise CheckpointError("it does not describe a translator: that needs longest and to")
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be used: {error}", path=path) from None
    return found


def numbered(count: int) -> list[str]:
    """Names for labels that have none."""
    return [f"LABEL_{number}" for number in range(count)]
