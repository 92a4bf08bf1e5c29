"""Texts in the order in which they answer a query, in the shapes of text-embeddings-inference and of Cohere."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, RootModel

from clearformer.serve.endpoint import Body, Call, Endpoint, Reply
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.fields import CHARACTERS, check
from clearformer.serve.reading import embedded, numbered, on_long, read, told, windows
from clearformer.serve.registry import ServedModel
from clearformer.tasks.embed import unit


class Document(Body):
    text: str


class RerankBody(Body):
    """`texts` is text-embeddings-inference's word, `documents` that of Cohere and all that follow it."""

    query: str
    texts: list[str] | None = None
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool = False
    truncation_direction: Literal["right", "Right"] = "right"
    documents: list[str | Document] | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool = False
    model: str | None = None


class Ranked(BaseModel):
    index: int
    score: float
    text: str | None = None


class Relevant(BaseModel):
    index: int
    relevance_score: float
    document: Document | None = None


class Results(BaseModel):
    id: str
    model: str
    results: list[Relevant]


class Ranking(RootModel[list[Ranked] | Results]):
    """Best first; the second shape where `documents` were given."""


async def rerank(call: Call, body: RerankBody) -> Reply:
    if (body.texts is None) == (body.documents is None):
        raise ApiError(400, "give texts, or documents, and not both", param="texts")
    given = body.texts if body.texts is not None else body.documents or []
    texts = [each if isinstance(each, str) else each.text for each in given]
    check(call, [body.query], "query")
    check(call, texts, "texts" if body.documents is None else "documents")
    model = _model(call, body.model)
    if model.can("embed"):
        scores, finish = await _by_vectors(call, model, body, texts)
    else:
        scores, finish = await _by_pairs(call, model, body, texts)
    order = sorted(range(len(texts)), key=lambda row: -scores[row])[: body.top_n]
    if body.documents is None:
        ranked = [{"index": n, "score": scores[n]} | ({"text": texts[n]} if body.return_text else {}) for n in order]
        return told(ranked, finish)
    results = [{"index": n, "relevance_score": scores[n]} | ({"document": {"text": texts[n]}} if body.return_documents
                                                             else {}) for n in order]  # fmt: skip
    return told({"id": call.id, "model": model.name, "results": results}, finish)


def _model(call: Call, name: str | None) -> ServedModel:
    """The model asked for; else the first that reads query and text together and gives one score; else one that
    embeds them."""
    registry = call.server.registry
    together = [model for model in registry.models.values() if _scores_pairs(model)]
    if name is None and together:
        return together[0]
    if name is not None and any(model.name == name for model in together):
        return registry.models[name]
    return registry.get(name, "rerank")


def _scores_pairs(model: ServedModel) -> bool:
    return model.can("classify") and model.task.spec.head.count == 1


async def _by_vectors(
    call: Call, model: ServedModel, body: RerankBody, texts: list[str]
) -> tuple[list[float], list[str]]:
    rows, finish = await embedded(call, model, [body.query, *texts], body.truncate)
    return cosines(rows[0], rows[1:]), finish[1:]


async def _by_pairs(
    call: Call, model: ServedModel, body: RerankBody, texts: list[str]
) -> tuple[list[float], list[str]]:
    how = on_long(body.truncate)

    def compute(items: list[Any]) -> Any:
        numbers, both = zip(*items, strict=True)
        return model.task.classify(*map(list, zip(*both, strict=True)), on_long=how, number=numbers)

    pairs = [(body.query, text) for text in texts]
    size = len(texts) * len(body.query) + sum(map(len, texts))
    found = await read(call, model, ("pairs", how), numbered(pairs), size // CHARACTERS + len(texts), compute)
    call.server.record(call, model, "classify", size=size,
                       parts=lambda: windows(model.task, [body.query] * len(texts), texts, how))  # fmt: skip
    chances = [one.probability for one in found]
    return [_logit(chance) for chance in chances] if body.raw_scores else chances, [one.finish for one in found]


def _logit(chance: float) -> float:
    inside = min(max(chance, 1e-15), 1 - 1e-15)
    return math.log(inside / (1 - inside))


def cosines(one: Any, others: Sequence[Any]) -> list[float]:
    """The cosine of a vector with each of several, as `similarity` computes them."""
    return (unit(one[None]) @ unit(np.stack(others)).T)[0].tolist()


def endpoints() -> list[Endpoint]:
    said = "Texts in the order in which they answer a query, with scores."
    return [
        Endpoint("POST", path, rerank, RerankBody, plain_shape, answer=Ranking, summary=said)
        for path in ("/rerank", "/v1/rerank", "/v2/rerank")
    ]
