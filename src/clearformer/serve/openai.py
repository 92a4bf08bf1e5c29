"""OpenAI's protocol: what answers where."""

from typing import Any

from clearformer.serve.chat import chat
from clearformer.serve.completions import completions
from clearformer.serve.embeddings import embeddings
from clearformer.serve.endpoint import Call, Endpoint
from clearformer.serve.errors import ApiError
from clearformer.serve.openai_bodies import ChatBody, CompletionBody, EmbeddingBody
from clearformer.serve.registry import ServedModel
from clearformer.serve.responses import ResponseBody, responses

MEDIA = ("application/json", "text/event-stream")


def described(model: ServedModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "clearformer"}


async def models(call: Call, body: None) -> dict[str, Any]:
    return {"object": "list", "data": [described(model) for model in call.server.registry.models.values()]}


async def model(call: Call, body: None) -> dict[str, Any]:
    name, known = call.path["name"], call.server.registry.models
    if name not in known:
        raise ApiError(404, f"there is no model {name[:100]!r} here; there is: {', '.join(known)}", param="model",
                       code="model_not_found")  # fmt: skip
    return described(known[name])


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/v1/models", models, summary="The models that are served."),
        Endpoint("GET", "/v1/models/{name:path}", model, summary="One of them."),
        Endpoint(
            "POST", "/v1/chat/completions", chat, ChatBody, media=MEDIA, summary="The next turn of a conversation."
        ),
        Endpoint(
            "POST",
            "/v1/completions",
            completions,
            CompletionBody,
            media=MEDIA,
            summary="Texts that go on from prompts.",
        ),
        Endpoint(
            "POST", "/v1/responses", responses, ResponseBody, media=MEDIA, summary="A text or messages in, a text out."
        ),
        Endpoint("POST", "/v1/embeddings", embeddings, EmbeddingBody, summary="A vector for each text."),
    ]
