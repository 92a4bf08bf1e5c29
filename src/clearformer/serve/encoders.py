"""Encoders, in the words of text-embeddings-inference where it has them, and in its answers' shapes."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, RootModel

from clearformer.serve import labels, rerank, see
from clearformer.serve.endpoint import Body, Call, Endpoint, Reply
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.fields import Texts, check, several
from clearformer.serve.reading import embedded, vectors

Direction = Literal["right", "Right"]  # only the end of a text is ever cut


class EmbedBody(Body):
    inputs: Texts
    normalize: bool = True
    truncate: bool = False
    truncation_direction: Direction = "right"
    prompt_name: str | None = None
    model: str | None = None


class Vectors(RootModel[list[list[float]]]):
    """One for each text, in order."""


class Sentences(Body):
    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Body):
    truncate: bool = False
    truncation_direction: Direction = "right"
    prompt_name: str | None = None


class SimilarityBody(Body):
    inputs: Sentences
    parameters: SimilarityParameters | None = None
    model: str | None = None


class Similarities(RootModel[list[float]]):
    """Cosines, in the order of the sentences."""


class InfoQuery(Body):
    model: str | None = None


class Info(BaseModel):
    model_id: str
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_batch_tokens: Annotated[int, Field(gt=0)]
    max_client_batch_size: int
    max_concurrent_requests: int
    tokenization_workers: int
    version: str


def no_prompt(name: str | None) -> None:
    if name is not None:
        raise ApiError(400, "prompt_name: models here have no prompts with names, and the one of their own is always"
                       " used; put other words in front of the text", param="prompt_name")  # fmt: skip


async def embed(call: Call, body: EmbedBody) -> Reply:
    texts, model = several(body.inputs), call.server.registry.get(body.model, "embed")
    check(call, texts, "inputs")
    no_prompt(body.prompt_name)
    rows, finish = await embedded(call, model, texts, body.truncate, body.normalize)
    return await vectors(call, rows, finish)


async def similarity(call: Call, body: SimilarityBody) -> list[float]:
    texts, model = body.inputs.sentences, call.server.registry.get(body.model, "embed")
    asked = body.parameters or SimilarityParameters()
    check(call, texts, "sentences")
    no_prompt(asked.prompt_name)
    rows, _ = await embedded(call, model, [body.inputs.source_sentence, *texts], asked.truncate)
    return rerank.cosines(rows[0], rows[1:])


async def info(call: Call, body: None) -> dict[str, Any]:
    registry, settings = call.server.registry, call.server.settings
    asked = call.asked(InfoQuery).model
    wanted = [registry.models[asked]] if asked in registry.models else list(registry.models.values())
    embeds = any(model.can("embed") for model in wanted) or not any(model.can("classify") for model in wanted)
    model = registry.get(asked, "embed" if embeds else "classify")
    task = model.task
    if embeds:
        kind: dict[str, Any] = {"embedding": {"pooling": task.pool()}}
    else:
        names = dict(enumerate(task.labels(task.spec.head.count)))
        both = {"id2label": {str(n): name for n, name in names.items()}, "label2id": {v: k for k, v in names.items()}}
        kind = {"reranker" if len(names) == 1 else "classifier": both}
    return {
        "model_id": model.name,
        "model_dtype": task.precision,
        "model_type": kind,
        "max_input_length": task.longest,
        "max_batch_tokens": settings.queue_tokens,
        "max_client_batch_size": settings.max_texts,
        "max_concurrent_requests": settings.max_connections,
        "tokenization_workers": 1,
        "version": "clearformer",
    }


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("POST", "/embed", embed, EmbedBody, plain_shape, answer=Vectors, summary="A vector for each text."),
        Endpoint("POST", "/similarity", similarity, SimilarityBody, plain_shape, answer=Similarities,
                 summary="How near sentences are to one in meaning."),
        *rerank.endpoints(),
        *labels.endpoints(),
        *see.endpoints(),
        Endpoint("GET", "/info", info, shape=plain_shape, query=InfoQuery, answer=Info,
                 summary="The model that embeds or classifies, and its limits."),
    ]  # fmt: skip
