"""What OpenAI's clients send. Every field is named here: those that mean nothing to a model are taken, and it is said
that they do; those that would mean something and are not done are refused by name."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from clearformer.generate.options import GenerationOptions
from clearformer.serve.endpoint import Body

Finite = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=2**31)]
SEEDS = 2**63
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


class Strict(Body):
    """No number is taken for a text, nor a text for a number."""

    model_config = ConfigDict(strict=True)


class StreamOptions(Strict):
    """`include_obfuscation` means nothing here: no padding is sent."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Sampling(Strict):
    """How tokens are chosen. Without a temperature, as the model's folder says, else the likeliest; without a seed,
    with seed 0: the same request gives the same text. `top_k`, `min_p`, `repetition_penalty` are other servers' words.

    Taken, and without meaning here: `user`, `metadata`, `store` unless it is true, `service_tier`, `safety_identifier`,
    `prompt_cache_key` (prefixes are always cached).
    """

    model: str | None = None
    temperature: Annotated[Finite, Field(ge=0, le=10)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31)] | None = None
    min_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[Finite, Field(gt=0, le=100)] | None = None
    frequency_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    logit_bias: (
        dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Annotated[Finite, Field(ge=-100, le=100)]] | None
    ) = None
    seed: Annotated[int, Field(ge=-SEEDS, lt=SEEDS)] | None = None
    n: Whole | None = None
    stop: str | list[str] | None = None
    max_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def options(self, logprobs: int | None = None, limit: int | None = None) -> GenerationOptions:
        """In our words."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        # all of the likeliest is what everyone has who says nothing; it is no wish for chance
        top_p = None if self.top_p == 1 and self.temperature is None else self.top_p
        said: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": top_p,
            "top_k": None if self.top_k is None else max(0, self.top_k),
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "frequency_penalty": self.frequency_penalty or None,
            "presence_penalty": self.presence_penalty or None,
            "logit_bias": {int(token): bias for token, bias in self.logit_bias.items()} if self.logit_bias else None,
            "seed": None if self.seed is None else self.seed % SEEDS,
            "stop": tuple(stop) if stop else None,
            "max_new_tokens": limit,
            "logprobs": logprobs,
        }
        return GenerationOptions(**{name: value for name, value in said.items() if value is not None})


# --- chat ---------------------------------------------------------------------------------------------------------


class Part(Strict):
    """A part of a content: text alone is read."""

    type: Literal["text", "input_text", "output_text", "refusal"] = "text"
    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None

    @property
    def said(self) -> str:
        return self.text or self.refusal or ""


def _only_text(given: Any) -> Any:
    for part in given if isinstance(given, list) else ():
        if isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind not in TEXT_PARTS:
            raise ValueError(f"a content of type {kind[:40]!r} cannot be read: the models here read text alone")
    return given


Content = Annotated[str | list[Part] | None, BeforeValidator(_only_text)]


class Function(Strict):
    name: str
    arguments: str


class ToolCall(Strict):
    id: str
    type: Literal["function"] = "function"
    function: Function
    index: int | None = None


class Message(Strict):
    """A turn. What an answer of ours holds can be sent back as it is: fields that are null in it are taken as null."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

    @property
    def said(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.said for part in self.content)
        return self.content or self.refusal or ""


class JsonSchema(Strict):
    """`strict` means nothing here: every schema is kept to."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class ToolFunction(Strict):
    """`strict` means nothing here: arguments always fit."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def plain(self) -> dict[str, Any]:
        """What was said, for templates and grammars."""
        said = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {name: value for name, value in said.items() if value is not None}


class Tool(Strict):
    type: Literal["function"]
    function: ToolFunction


class ToolName(Strict):
    name: str


class NamedTool(Strict):
    type: Literal["function"]
    function: ToolName


class ChatBody(Sampling):
    """`parallel_tool_calls` is taken: an answer has one call, which is allowed either way."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[Literal["text"]] | None = None


# --- others -------------------------------------------------------------------------------------------------------


class CompletionBody(Sampling):
    """`best_of` may be `n`; `suffix` is refused, for the models here go on and do not fill in."""

    prompt: str | list[str] | list[int] | list[list[int]]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: Whole | None = None
    suffix: str | None = None


class EmbeddingBody(Strict):
    """`user` means nothing here. Vectors have the model's width; `dimensions` may say so."""

    model: str | None = None
    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Whole | None = None
    user: str | None = None
