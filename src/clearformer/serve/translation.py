"""Translation as LibreTranslate speaks it; DeepL's protocol is next door."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, RootModel

from clearformer.serve import deepl
from clearformer.serve.endpoint import Body, Call, Endpoint
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.fields import Texts, check, several
from clearformer.serve.languages import Guess, detect, detected, name_of, pairs, translate
from clearformer.tasks.translate import Translation

LEAST = 0.01  # the probability of a language that is worth naming


class TranslateBody(Body):
    q: Texts
    source: str = "auto"
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0
    api_key: str | None = None


class DetectBody(Body):
    q: str
    api_key: str | None = None


class KeyBody(Body):
    api_key: str | None = None


class Detected(BaseModel):
    confidence: float  # in per cent
    language: str


class Translated(BaseModel):
    translatedText: str | list[str]  # noqa: N815  as LibreTranslate spells it
    detectedLanguage: Detected | list[Detected] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class Language(BaseModel):
    code: str
    name: str
    targets: list[str]


class Languages(RootModel[list[Language]]):
    """All languages that can be read or written."""


class Guesses(RootModel[list[Detected]]):
    """The likeliest first."""


async def translated(call: Call, body: TranslateBody) -> dict[str, Any]:
    texts, one = several(body.q), isinstance(body.q, str) or (_is_form(call) and len(body.q) == 1)
    check(call, texts, "q")
    if body.format == "html":
        raise ApiError(400, "only plain text is translated here: take the tags out and say format text", param="format")
    most = call.server.settings.max_rows - 1
    if body.alternatives > most:
        raise ApiError(400, f"alternatives may be {most} at most, given {body.alternatives}", param="alternatives")
    target = _code(body.target)
    guesses = await detected(call, texts, target) if body.source == "auto" else None
    sources = [guess.language for guess in guesses] if guesses else [_code(body.source)] * len(texts)
    options = {"num_return_sequences": 1 + body.alternatives} if body.alternatives else {}
    made = await translate(call, texts, sources, target, **options)
    answer: dict[str, Any] = {"translatedText": _said([each.text for each in made], one)}
    if guesses is not None:
        answer["detectedLanguage"] = _said([_guess(each) for each in guesses], one)
    if body.alternatives:
        answer["alternatives"] = _said([_others(each) for each in made], one)
    return answer


async def languages(call: Call, body: Any) -> list[dict[str, Any]]:
    found = pairs(call.server.registry)
    return [{"code": code, "name": name_of(code), "targets": speaks} for code, speaks in found.items()]


async def detecting(call: Call, body: DetectBody) -> list[dict[str, Any]]:
    check(call, [body.q], "q")
    (guesses,) = await detect(call, [body.q])
    return [_guess(each) for each in guesses if each.probability >= LEAST]


def _code(language: str) -> str:
    """LibreTranslate's codes are lower case, but for scripts (zh-Hans), which no model here tells apart."""
    return language.strip().lower()


def _is_form(call: Call) -> bool:
    """A form cannot say whether one value is a text or a list of one."""
    return "form-urlencoded" in call.headers.get("content-type", "")


def _said(values: list[Any], one: bool) -> Any:
    return values[0] if one else values


def _guess(guess: Guess) -> dict[str, Any]:
    return {"confidence": round(100 * guess.probability, 2), "language": guess.language}


def _others(made: Translation) -> list[str]:
    """The next best, each once."""
    return list(dict.fromkeys(other.text for other in made.others if other.text != made.text))


def endpoints() -> list[Endpoint]:
    common: dict[str, Any] = {"shape": plain_shape, "no_key": 403, "forms": True, "key_field": "api_key"}
    return [
        Endpoint("POST", "/translate", translated, TranslateBody, answer=Translated, **common,
                 summary="A text or several in another language (LibreTranslate)."),
        Endpoint("GET", "/languages", languages, KeyBody, answer=Languages, **common,
                 summary="The languages that can be read, and what each can be translated to (LibreTranslate)."),
        Endpoint("POST", "/detect", detecting, DetectBody, answer=Guesses, **common,
                 summary="The language that a text is in (LibreTranslate)."),
        *deepl.endpoints(),
    ]  # fmt: skip
