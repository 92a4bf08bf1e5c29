"""/v1/embeddings: vectors as lists of numbers, or as base64 of float32 in little-endian order."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clearformer.serve.endpoint import Call
from clearformer.serve.errors import ApiError
from clearformer.serve.fields import check
from clearformer.serve.openai_bodies import EmbeddingBody
from clearformer.serve.reading import embedded
from clearformer.serve.registry import ServedModel
from clearformer.tasks.embed import unit

IDS = (
    "input holds token ids, and of which vocabulary is not known here: another one's would give vectors of other texts;"
    " send texts (LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))"
)


def texts_of(given: Any) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if any(not isinstance(text, str) for text in texts):
        raise ApiError(400, IDS, param="input", code="token_ids")
    return texts


async def vectors(
    call: Call, model: ServedModel, texts: Sequence[str], truncate: bool, said: Callable[[Any], Any]
) -> tuple[list[Any], int]:
    """What `said` makes of the vector of each text, and how many tokens were read. Vectors have length one where the
    model says so."""
    rows, _ = await embedded(call, model, texts, truncate)

    def made() -> tuple[list[Any], int]:
        found = unit(np.stack(rows)) if model.task.metadata.normalise else rows
        return [said(row) for row in found], _tokens(model.task, texts)

    found, tokens = await call.server.work.run(call.scope, made, model.name)
    call.told["prompt_tokens"] = tokens
    return found, tokens


def _tokens(task: Any, texts: Sequence[str]) -> int:
    prompt = task.metadata.prompt or ""
    return sum(min(len(ids), task.longest) for ids in task.tokenizer.ids_of([prompt + text for text in texts]))


def numbers(row: Any) -> list[float]:
    return row.tolist()


def coded(row: Any) -> str:
    return base64.b64encode(np.asarray(row, dtype="<f4").tobytes()).decode()


async def embeddings(call: Call, body: EmbeddingBody) -> dict[str, Any]:
    model = call.server.registry.get(body.model, "embed")
    texts = texts_of(body.input)
    check(call, texts, "input")
    width = model.task.width
    if body.dimensions not in (None, width):
        raise ApiError(400, f"dimensions: the vectors of {model.name!r} have {width} numbers, and no others;"
                       " leave it out", param="dimensions")  # fmt: skip
    rows, tokens = await vectors(call, model, texts, False, coded if body.encoding_format == "base64" else numbers)
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
    used = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model.name, "usage": used}
