"""What Ollama's clients send."""

from typing import Annotated, Any, Literal

from pydantic import Field

from clearformer.generate.options import GenerationOptions
from clearformer.serve.openai_bodies import Finite, Strict, Tool


class Options(Strict):
    """Without meaning here, and taken: how much is read at once and by how many (`num_batch`, `num_thread`, `num_gpu`,
    `main_gpu`, `use_mmap`, `low_vram`, `numa`), and `num_ctx` and `num_keep`, for nothing is ever cut."""

    num_predict: Annotated[int, Field(ge=-2, le=2**31)] | None = None
    temperature: Annotated[Finite, Field(ge=0, le=10)] | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    min_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    repeat_penalty: Annotated[Finite, Field(gt=0, le=100)] | None = None
    presence_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    num_ctx: int | None = None
    num_keep: int | None = None
    num_batch: int | None = None
    num_thread: int | None = None
    num_gpu: int | None = None
    main_gpu: int | None = None
    use_mmap: bool | None = None
    low_vram: bool | None = None
    numa: bool | None = None

    def generation(self) -> GenerationOptions:
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        said: dict[str, Any] = {
            "max_new_tokens": self.num_predict if self.num_predict and self.num_predict > 0 else None,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "seed": None if self.seed is None else self.seed % 2**63,
            "stop": tuple(stop) if stop else None,
            "repetition_penalty": self.repeat_penalty,
            "presence_penalty": self.presence_penalty or None,
            "frequency_penalty": self.frequency_penalty or None,
        }
        return GenerationOptions(**{name: value for name, value in said.items() if value is not None})


class Called(Strict):
    name: str
    arguments: dict[str, Any]


class Calling(Strict):
    function: Called


class Turn(Strict):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    images: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_calls: list[Calling] | None = None
    tool_name: str | None = None
    thinking: None = None


class Asked(Strict):
    """`keep_alive` means nothing here: models stay. `think` may be false: no thinking is told apart."""

    model: str
    stream: bool | None = None
    options: Options | None = None
    keep_alive: float | str | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    think: Literal[False] | None = None


class ChatBody(Asked):
    messages: list[Turn]
    tools: list[Tool] | None = None


class GenerateBody(Asked):
    """`raw` goes on from the prompt as it is; otherwise the model's template is used, where it has one."""

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: Annotated[list[Any], Field(max_length=0)] | None = None
    suffix: Literal[""] | None = None
    template: Literal[""] | None = None
    context: Annotated[list[int], Field(max_length=0)] | None = None


class EmbedBody(Strict):
    model: str
    input: str | list[str]
    truncate: bool | None = None
    options: Options | None = None
    keep_alive: float | str | None = None
    dimensions: int | None = None


class EmbeddingsBody(Strict):
    model: str
    prompt: str
    options: Options | None = None
    keep_alive: float | str | None = None


class ShowBody(Strict):
    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
