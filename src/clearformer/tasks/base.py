"""What can be asked of a model: one object a model, with the verbs its head allows.

Every verb can be named on every object; one that the model has no head for is an error that says what it can do.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from clearformer.checkpoints.metadata import Metadata
from clearformer.errors import CheckpointError, DataError, VerbError
from clearformer.generate.options import GenerationOptions
from clearformer.kernels.pack import is_int8

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace
    from clearformer.generate.engine import Engine
    from clearformer.tasks.answer import Answer
    from clearformer.tasks.classify import Classification
    from clearformer.tasks.complete import Completion, Scored
    from clearformer.tasks.embed import Embedded, Vectors
    from clearformer.tasks.fill import Filled
    from clearformer.tasks.see import Caption, Seen
    from clearformer.tasks.tag import Tagged
    from clearformer.tasks.translate import Translation

_MAKING = Lock()
Given = Metadata | Mapping[str, Any] | None  # an object as `task.json` holds it will do
VERBS = ("translate", "summarize", "answer", "complete", "classify", "embed", "fill", "tag", "see")
LIKE = {  # what a model must be to do it
    "translate": "an encoder–decoder, such as T5, Marian or one trained with clearformer train",
    "summarize": "an encoder–decoder, such as T5 or FLAN-T5",
    "answer": "a model with a span head, an encoder–decoder such as FLAN-T5, or one that completes texts",
    "complete": "a decoder-only model, such as GPT-2 or Llama",
    "classify": "a model with a head over classes, such as DistilBERT fine-tuned on SST-2",
    "embed": "an encoder, such as BERT",
    "fill": "an encoder with a masked-token head, such as BERT",
    "tag": "an encoder with a head over the classes of every token",
    "see": "a ViT, or a ViT with a decoder that writes captions",
}


KIN = {  # verbs that go with another
    "write": "summarize",
    "chat": "complete",
    "stream": "complete",
    "score": "complete",
    "embedded": "embed",
    "similarity": "embed",
}


class Task:
    """A model with its tokenizer and its metadata (`task.json`). What `load` returns is one.

    The verbs are declared for type checkers and editors alone; an object has those that its model has a head for, and
    `hasattr(model, "complete")` asks for one. Its own class (`Translator`, `Completer`, ...) knows their options.
    """

    can: tuple[str, ...] = ()

    def __init__(self, model: Any, tokenizer: Any, metadata: Given = None):
        self.model, self.tokenizer, self.metadata = model, tokenizer, Metadata.of(metadata)
        self._engine: list[Engine] = []

    @classmethod
    def verbs(cls, metadata: Metadata) -> tuple[str, ...]:
        """What a model with this metadata can do; known before any weight is read."""
        return cls.can

    @property
    def spec(self) -> Any:
        return self.model.spec

    @property
    def precision(self) -> str:
        """What it computes with, float32 or int8: what was asked for, or what `auto` came to."""
        return "int8" if is_int8(self.model) else "float32"

    @property
    def engine(self) -> "Engine":
        """What writes for this model; made when it is first needed, and shared by copies of this object."""
        shared = self.__dict__.setdefault("_engine", [])
        if not shared or shared[0].process != os.getpid():  # after a fork its threads are not there
            from clearformer.generate.engine import Engine

            with _MAKING:
                if not shared or shared[0].process != os.getpid():
                    shared[:] = [Engine(self.model)]
        return shared[0]

    def trace(self, *inputs: Any, **options: Any) -> "Trace":
        """Do what this model does with one text, or image, and keep every number on the way: each has an address, and
        `run` of the result tells what was written or found. `tasks/tracing.py` says what it can be told."""
        from clearformer.tasks.tracing import trace

        return trace(self, *inputs, **options)

    def __getstate__(self) -> dict[str, Any]:
        """An engine has threads and stays in its process."""
        return {name: value for name, value in self.__dict__.items() if name != "_engine"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    if TYPE_CHECKING:
        longest: Any  # tokens of an input at most; None: no limit

        def translate(self, *args: Any, **options: Any) -> list[Translation]: ...
        def summarize(self, *args: Any, **options: Any) -> list[Translation]: ...
        def write(self, *args: Any, **options: Any) -> list[Translation]: ...
        def answer(self, *args: Any, **options: Any) -> list[Answer] | list[Translation] | list[Completion]: ...
        def complete(self, *args: Any, **options: Any) -> list[Completion]: ...
        def chat(self, *args: Any, **options: Any) -> list[Completion]: ...
        def stream(self, *args: Any, **options: Any) -> Iterator[str]: ...
        def score(self, *args: Any, **options: Any) -> list[Scored]: ...
        def classify(self, *args: Any, **options: Any) -> list[Classification]: ...
        def embed(self, *args: Any, **options: Any) -> Vectors: ...
        def embedded(self, *args: Any, **options: Any) -> Embedded: ...
        def similarity(self, *args: Any, **options: Any) -> Vectors: ...
        def fill(self, *args: Any, **options: Any) -> list[Filled]: ...
        def tag(self, *args: Any, **options: Any) -> list[Tagged]: ...
        def see(self, *args: Any, **options: Any) -> list[Seen] | list[Caption]: ...

    else:

        def __getattr__(self, name: str) -> Any:
            verb = KIN.get(name, name)
            if verb in VERBS:
                can = " and ".join(self.can)
                raise VerbError(f"this model cannot {name}: that needs {LIKE[verb]}; it can {can}", param=name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """The numbers of texts, a batch at a time, so that rows × the longest stay within a budget.

    Longest first: what needs the most memory comes at once, and lengths in a batch are alike.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    at = 0
    while at < len(order):
        rows = max(1, budget // max(1, lengths[order[at]]))
        yield order[at : at + rows]
        at += rows


def own_options(metadata: Metadata, **more: Any) -> GenerationOptions:
    """How a model writes if nobody says otherwise: what its folder says, and `more` of one task alone."""
    said = {"do_sample": False, **(metadata.generation or {}), **more}
    if said["do_sample"]:
        said.pop("num_beams", None)  # drawn, not searched for
    try:
        return GenerationOptions.of(said)
    except (DataError, TypeError) as error:
        raise CheckpointError(f"what the model says about generation cannot be used: {error}") from None
