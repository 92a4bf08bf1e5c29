"""Texts as a model reads them, and back."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from clearformer.serve.endpoint import Body, Call, Endpoint
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.fields import check
from clearformer.serve.registry import ServedModel

Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=100_000)]


class TokenizeBody(Body):
    text: str
    special: bool = True  # with the tokens that the model's template puts around a text
    target: bool = False  # as the model writes, where it has another vocabulary for that
    model: str | None = None


class Tokens(BaseModel):
    model: str
    ids: list[int]
    pieces: list[str]
    offsets: list[list[int]]  # from and to, in characters of the text; 0 and 0 if special
    special: list[bool]


class DetokenizeBody(Body):
    ids: Ids
    special: bool = False
    target: bool = False
    model: str | None = None


class Detokenized(BaseModel):
    model: str
    text: str


def any_model(call: Call, name: str | None) -> ServedModel:
    """The model of this name, or the first, whatever it can do."""
    models = call.server.registry.models
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise ApiError(404, f"there is no model {name[:100]!r} here; there is: {', '.join(models)}", param="model",
                       code="model_not_found")  # fmt: skip
    return models[name]


def tokenizer_of(model: ServedModel, target: bool) -> Any:
    if model.task.tokenizer is None:
        raise ApiError(400, f"the model {model.name!r} sees images and has no tokens", param="model")
    return model.task.tokenizer.target() if target else model.task.tokenizer


async def tokenize(call: Call, body: TokenizeBody) -> dict[str, Any]:
    model = any_model(call, body.model)
    tokenizer = tokenizer_of(model, body.target)
    if body.text:
        check(call, [body.text], "text")
    found = await call.server.work.aside(lambda: tokenizer.encode(body.text, special=body.special))
    pieces = tokenizer.pieces(found.ids)
    offsets = [list(each) for each in found.offsets]
    return {"model": model.name, "ids": found.ids, "pieces": pieces, "offsets": offsets, "special": found.special}


async def detokenize(call: Call, body: DetokenizeBody) -> dict[str, Any]:
    model = any_model(call, body.model)
    tokenizer = tokenizer_of(model, body.target)
    if odd := [token for token in body.ids if token >= len(tokenizer)]:
        raise ApiError(400, f"this model has ids from 0 to {len(tokenizer) - 1:,}, given {odd[0]}", param="ids")
    text = await call.server.work.aside(lambda: tokenizer.decode(body.ids, special=body.special))
    return {"model": model.name, "text": text}


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("POST", "/tokenize", tokenize, TokenizeBody, plain_shape, answer=Tokens,
                 summary="A text as a model reads it: ids, pieces, and where each piece stands."),
        Endpoint("POST", "/detokenize", detokenize, DetokenizeBody, plain_shape, answer=Detokenized,
                 summary="The text of ids."),
    ]  # fmt: skip
