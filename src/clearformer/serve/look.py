"""The see-through page: its files, and the models one can choose there."""

from typing import Any

from pydantic import BaseModel

from clearformer.assemble import count_parameters
from clearformer.page import files
from clearformer.page.facts import kind, stacks
from clearformer.serve.endpoint import Call, Endpoint, Reply
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.registry import ServedModel, targets
from clearformer.text.ids import Ids

TRANSLATED = "The animal didn't cross the street because it was tired."
EXAMPLES = {  # texts to begin with, by what a model does
    "translate": TRANSLATED,
    "summarize": TRANSLATED,
    "complete": "Once upon a time there was",
    "classify": "What a wonderful day!",
    "embed": "A man is playing a guitar.",
    "tag": "Angela lives in Berlin.",
    "answer": "Where does Angela live?",
}
CONTEXT = "Angela lives in Berlin. She works in Paris."


class Listed(BaseModel):
    name: str
    verbs: list[str]
    family: str
    kind: str  # encoder-decoder, encoder, decoder, vision or captioner
    parameters: int
    precision: str
    takes: list[str]  # text, pair, image, ids
    example: str
    example_pair: str | None
    languages: list[str]
    source: str | None
    longest: int | None
    vocabulary: int | None


async def page(call: Call, body: None) -> Reply:
    _on(call)
    found, policy = await call.server.work.aside(files.page)
    return _sent(call, found, {"content-security-policy": policy, "referrer-policy": "no-referrer"})


async def asset(call: Call, body: None) -> Reply:
    _on(call)
    found = await call.server.work.aside(lambda: files.read(call.path["path"]))
    if found is None:
        raise ApiError(404, f"the page has no file {call.path['path'][:100]!r}", code="not_found")
    return _sent(call, found, {})


def _on(call: Call) -> None:
    if not call.server.settings.page:
        raise ApiError(404, "this server was started without the page; --page turns it on", code="page_is_off")


def _sent(call: Call, found: files.File, more: dict[str, str]) -> Reply:
    headers = {"etag": found.tag, "cache-control": "no-cache", **more}
    if found.tag in call.headers.get("if-none-match", ""):
        return Reply(b"", found.media, 304, headers)
    return Reply(found.content, found.media, headers=headers)


async def models(call: Call, body: None) -> list[Any]:
    every = call.server.registry.models.values()
    return await call.server.work.aside(lambda: [listed(each) for each in every])


def listed(model: ServedModel) -> dict[str, Any]:
    """What the page wants to know of a model before it runs it."""
    task, what = model.task, model.task.spec
    words = not isinstance(task.tokenizer, Ids) and task.tokenizer is not None
    embed, sees = stacks(what)[0][1].embed, model.sees
    verb = model.verbs[0]
    pairs = verb in ("classify", "answer", "tag", "embed") and not hasattr(what, "encoder") and kind(what) == "encoder"
    takes = ["image"] if sees else [*(["text"] if words else []), *(["pair"] if pairs and words else []), "ids"]
    example = EXAMPLES.get(verb, "") if words and not sees else "" if sees else "1 2 3"
    if verb == "fill" and words:
        example = f"The capital of France is {task.mask}."
    return {
        "name": model.name,
        "verbs": list(model.verbs),
        "family": task.metadata.family or kind(what),
        "kind": kind(what),
        "parameters": count_parameters(what),
        "precision": task.precision,
        "takes": takes,
        "example": example,
        "example_pair": CONTEXT if verb == "answer" and pairs else None,
        "languages": list(targets(model)) if "translate" in model.verbs else [],
        "source": getattr(task.metadata, "source", None),
        "longest": getattr(task, "longest", None),
        "vocabulary": getattr(embed, "vocabulary", None),
    }


def endpoints() -> list[Endpoint]:
    common: dict[str, Any] = {"shape": plain_shape, "open": True}
    html = ("text/html",)
    return [
        Endpoint("GET", "/", page, **common, media=html, summary="The see-through page."),
        Endpoint("GET", "/look", page, **common, media=html, summary="The same."),
        Endpoint("GET", "/assets/{path:path}", asset, **common, media=("*/*",), summary="Its files."),
        Endpoint("GET", "/models", models, shape=plain_shape, summary="What is served, as the page lists it."),
    ]
