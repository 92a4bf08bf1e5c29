"""The lecture notes' examples, as the page shows them. Each is computed once, when it is first asked for."""

from typing import Any

from clearformer.errors import DataError
from clearformer.notes import data
from clearformer.serve.endpoint import Call, Endpoint
from clearformer.serve.errors import ApiError, plain_shape

POOL = "lessons"  # threads of their own: an example may load a model


async def lessons(call: Call, body: None) -> list[Any]:
    _on(call)
    return data.lessons()


async def lesson(call: Call, body: None) -> dict[str, Any]:
    _on(call)
    try:
        name = data.known(call.path["name"])
        if name in data.PLAYED:
            raise DataError(f"the lesson {name!r} has no text: it is played on the page")
    except DataError as error:
        raise ApiError(404, str(error), code="not_found") from None
    return await call.server.work.run(call.scope, lambda: data.lesson(name), POOL)


def _on(call: Call) -> None:
    if not call.server.settings.page:
        raise ApiError(404, "this server was started without the page; --page turns it on", code="page_is_off")


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/lessons", lessons, shape=plain_shape, summary="The examples of the lecture notes."),
        Endpoint("GET", "/lessons/{name}", lesson, shape=plain_shape, summary="One of them, with all its numbers."),
    ]
