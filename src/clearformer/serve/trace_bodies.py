"""What is asked and answered about traces and runs."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clearformer.serve.endpoint import Body
from clearformer.serve.tokens import Ids

Values = float | list[Any]  # a number, or lists of numbers


class TraceBody(Body):
    """`text` (with a `pair`), `ids` or an `image` are read. Of a model that writes, the target is what it was to write,
    as text or ids; without one it is what the model writes, as `options` of generation say. With `continue` the target
    is only how that begins. `change` replaces values by their address while the run goes on."""

    model_config = ConfigDict(validate_by_name=False, validate_by_alias=True)

    text: str | None = None
    pair: str | None = None  # the second text of two, or the context of a question
    image: str | None = None  # the file in base64, or a data: URL of it
    ids: Ids | None = None
    target: str | None = None
    target_ids: Ids | None = None
    goes_on: Annotated[bool, Field(alias="continue")] = False
    to: str | None = None  # the language to translate to
    verb: str | None = None  # translate, summarize or write, of a model that can do several
    options: dict[str, Any] | None = None  # num_beams, temperature, seed, max_new_tokens, ...
    top: Annotated[int, Field(ge=1, le=100)] = 5  # so many of the likeliest tokens at each step
    window: Annotated[int, Field(ge=0)] | None = None  # of a long text, with on_long
    on_long: Literal["error", "split", "truncate"] | None = None
    change: dict[str, Values] | None = None
    model: str | None = None


class RunTraceBody(Body):
    part: Annotated[int, Field(ge=0)] = 0  # which text of the run
    change: dict[str, Values] | None = None


class Step(BaseModel):
    address: str
    axes: list[str]
    names: list[str]
    shape: list[int]
    words: dict[str, str]  # whose words are on an axis: source, target, input or outputs
    operands: list[str]
    changed: bool
    later: bool  # computed again when it is asked for


class Input(BaseModel):
    ids: list[int]
    words: list[str]
    shape: list[int] = []


class Listing(BaseModel):
    id: str
    model: str
    answer: str | None  # the id of the answer that it is the trace of
    inputs: dict[str, Input]
    words: dict[str, list[str]]
    written: list[int]
    changed: list[str]
    addresses: list[Step]
    run: dict[str, Any]  # what was done: texts, tokens, steps and beams, or the answer
    facts: dict[str, Any]  # stacks, heads of every attention, the specification
    schema_: Annotated[str, Field(alias="schema")]


class TensorQuery(Body):
    address: str
    format: Literal["json", "float32"] = "json"


class Tensor(BaseModel):
    """As float32 the numbers are the body, little-endian and row by row, and the headers x-shape and x-axes say how
    they lie."""

    address: str
    axes: list[str]
    names: list[str]
    shape: list[int]
    starts: list[int]
    words: dict[str, list[str]]
    operands: list[str]
    dtype: str
    values: Any


class Question(Body):
    address: str | None = None
    top: int | None = None
    other: str | None = None  # of compare: the id of another trace
    by: Literal["branch", "head"] | None = None  # of score


class RunPart(BaseModel):
    source: Input | None  # none: an image
    start: Input
    written: Input


class RunRecord(BaseModel):
    id: str
    model: str
    verb: str
    created: float
    parts: list[RunPart]


class Deleted(BaseModel):
    id: str
    deleted: bool
