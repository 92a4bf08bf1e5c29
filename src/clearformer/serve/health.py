"""Whether the server lives, and whether it serves."""

from typing import Any

from clearformer.serve.endpoint import Call, Endpoint, Reply, as_json
from clearformer.serve.errors import plain_shape


async def live(call: Call, body: None) -> dict[str, Any]:
    return {"status": "ok"}


async def ready(call: Call, body: None) -> Reply:
    return _state(call, {})


async def health(call: Call, body: None) -> Reply:
    """As `ready`, with what is served and how much there is to do."""
    server, queue = call.server, call.server.admission
    models = {
        name: {"precision": model.task.precision, "verbs": list(model.verbs)}
        for name, model in server.registry.models.items()
    }
    said = {"requests": queue.requests, "tokens": queue.tokens, "limit": queue.most}
    return _state(call, {"models": models, "queue": said})


def _state(call: Call, more: dict[str, Any]) -> Reply:
    """503 while it stops, so that a balancer sends requests elsewhere."""
    server = call.server
    state = "stopping" if server.stopping else "ok" if server.ready else "loading"
    up = state == "ok"
    content = as_json({"status": state, **more})
    return Reply(content, status=200 if up else 503, headers={} if up else {"retry-after": "5"})


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/live", live, shape=plain_shape, open=True, summary="Whether the process answers."),
        Endpoint("GET", "/ready", ready, shape=plain_shape, summary="Whether it takes requests."),
        Endpoint("GET", "/health", health, shape=plain_shape, summary="As /ready, with models and queue."),
    ]
