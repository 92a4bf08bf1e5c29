"""Translation as DeepL speaks it: language codes in upper case, texts as a list, errors as a message."""

from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from pydantic import BaseModel, Field, RootModel

from clearformer.serve.endpoint import Body, Call, Endpoint
from clearformer.serve.errors import ApiError, deepl_shape
from clearformer.serve.fields import Texts, check, several
from clearformer.serve.languages import detected, identifier, name_of, pairs, source_of, translate

LIMIT = 10**12  # characters: what a client is told it may have translated; nothing is counted against anybody


class TranslateBody(Body):
    """What would change a translation here is done or refused; what would not is taken as it is."""

    text: Texts
    target_lang: str
    source_lang: str | None = None
    split_sentences: Literal["0", "1", "nonewlines", 0, 1] | bool | None = None
    preserve_formatting: bool | None = None
    formality: Literal["default", "prefer_more", "prefer_less"] | None = None
    model_type: Literal["latency_optimized", "quality_optimized", "prefer_quality_optimized"] | None = None
    show_billed_characters: bool = False
    enable_beta_languages: bool | None = None
    auth_key: str | None = None


class LanguagesBody(Body):
    type: Literal["source", "target"] = "source"
    auth_key: str | None = None


class KeyBody(Body):
    auth_key: str | None = None


class Translation(BaseModel):
    detected_source_language: str
    text: str
    billed_characters: int | None = None


class Translations(BaseModel):
    translations: list[Translation]


class Language(BaseModel):
    language: str
    name: str
    supports_formality: bool | None = None


class Languages(RootModel[list[Language]]):
    """Those that can be read, or those that can be written."""


class Usage(BaseModel):
    character_count: Annotated[int, Field(ge=0)]
    character_limit: int


async def translated(call: Call, body: TranslateBody) -> dict[str, Any]:
    texts = several(body.text)
    check(call, texts, "text")
    to = _code(call, body.target_lang)
    if body.source_lang:
        sources = [_code(call, body.source_lang)] * len(texts)
    elif identifier(call.server.registry) is not None:
        sources = [guess.language for guess in await detected(call, texts, to)]
    else:  # nobody can tell: what the model was made for
        sources = [source_of(call.server.registry.translating(to)) or ""] * len(texts)
    options = {"by_sentence": False} if _whole(body, texts) else {}
    made = await translate(call, texts, [source or None for source in sources], to, **options)
    found = []
    for text, source, one in zip(texts, sources, made, strict=True):
        said: dict[str, Any] = {"detected_source_language": source.upper(), "text": one.text}
        found.append(said | ({"billed_characters": len(text)} if body.show_billed_characters else {}))
    return {"translations": found}


def _whole(body: TranslateBody, texts: list[str]) -> bool:
    """Whether texts are not to be split into sentences."""
    how = str(int(body.split_sentences) if isinstance(body.split_sentences, bool) else body.split_sentences)
    if how == "nonewlines" and any("\n" in text.strip() for text in texts):
        raise ApiError(400, "split_sentences: lines are always split here; take the newlines out of the text, or say 1",
                       param="split_sentences")  # fmt: skip
    return how == "0"


def _code(call: Call, given: str) -> str:
    """Our code for one of DeepL's: EN-GB is en where no model tells kinds of English apart."""
    code = given.strip().lower()
    known = pairs(call.server.registry)
    return code if code in known else code.partition("-")[0]


async def languages(call: Call, body: LanguagesBody | None) -> list[dict[str, Any]]:
    asked = body.type if body is not None else _asked(call)
    found = pairs(call.server.registry)
    if asked == "source":
        return [{"language": code.upper(), "name": name_of(code)} for code, speaks in found.items() if speaks]
    written = sorted({code for speaks in found.values() for code in speaks})
    return [{"language": code.upper(), "name": name_of(code), "supports_formality": False} for code in written]


def _asked(call: Call) -> str:
    """DeepL's own client sends the type in the body of a GET."""
    if call.query or not call.raw:
        return call.asked(LanguagesBody).type
    try:
        found = parse_qs(call.raw.decode()).get("type", ["source"])[-1]
    except UnicodeDecodeError:
        found = ""
    if found not in ("source", "target"):
        raise ApiError(400, "type must be source or target", param="type")
    return found


async def usage(call: Call, body: Any) -> dict[str, Any]:
    return {"character_count": call.server.characters, "character_limit": LIMIT}


def endpoints() -> list[Endpoint]:
    common: dict[str, Any] = {"shape": deepl_shape, "no_key": 403}
    forms: dict[str, Any] = {"forms": True, "key_field": "auth_key"}
    return [
        Endpoint("POST", "/v2/translate", translated, TranslateBody, answer=Translations, **common, **forms,
                 summary="Texts in another language (DeepL)."),
        Endpoint("GET", "/v2/languages", languages, query=LanguagesBody, answer=Languages, **common,
                 summary="The languages that can be read, or written (DeepL)."),
        Endpoint("POST", "/v2/languages", languages, LanguagesBody, answer=Languages, **common, **forms,
                 summary="As GET, with a body (DeepL)."),
        Endpoint("GET", "/v2/usage", usage, answer=Usage, **common,
                 summary="How many characters were translated since the server started (DeepL)."),
        Endpoint("POST", "/v2/usage", usage, KeyBody, answer=Usage, **common, **forms,
                 summary="As GET, with a body (DeepL)."),
    ]  # fmt: skip
