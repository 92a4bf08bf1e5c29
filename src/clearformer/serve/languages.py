"""Which languages the served models translate between, which language a text is in, and the translations themselves:
what the protocols of LibreTranslate and DeepL share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearformer.serve.endpoint import Call
from clearformer.serve.errors import ApiError
from clearformer.serve.fields import tokens_of
from clearformer.serve.registry import Registry, ServedModel, targets
from clearformer.serve.runs import size_of, written
from clearformer.serve.work import Job
from clearformer.tasks.language import WORDS
from clearformer.tasks.text_to_text import NAMES
from clearformer.tasks.translate import Translation

RATHER_SURE = 0.8  # of the language of a few words
KNOWN = 2  # labels that are languages, and a classifier is taken for one of languages


@dataclass(frozen=True)
class Guess:
    language: str
    probability: float


def source_of(model: ServedModel) -> str | None:
    """The language that a model reads; those that follow instructions are told in English."""
    return model.task.metadata.source or ("en" if getattr(model.task, "instructed", False) else None)


def spoken(model: ServedModel) -> tuple[str, ...]:
    """The languages that it writes."""
    if found := targets(model):
        return found
    if not getattr(model.task, "instructed", False):
        return ()
    return tuple(model.task.prompts.get("translate") or NAMES)


def pairs(registry: Registry) -> dict[str, list[str]]:
    """Every language, and what it can be translated to."""
    found: dict[str, set[str]] = {}
    for model in registry.models.values():
        if model.can("translate"):
            source, speaks = source_of(model), spoken(model)
            for language in (*speaks, *([source] if source else [])):
                found.setdefault(language, set())
            if source:
                found[source] |= set(speaks)
    return {language: sorted(found[language]) for language in sorted(found)}


def name_of(language: str) -> str:
    return NAMES.get(language, language)


# --- which language a text is in --------------------------------------------------------------------------


def identifier(registry: Registry) -> ServedModel | None:
    """The first classifier whose labels are languages."""
    for model in registry.models.values():
        labels = model.task.metadata.labels or () if model.can("classify") else ()
        if labels and all(len(label) == 2 for label in labels) and len({*labels} & {*NAMES}) >= KNOWN:
            return model
    return None


async def detect(call: Call, texts: Sequence[str]) -> list[list[Guess]]:
    """The likeliest languages of each text, best first; of a blank one none."""
    model = identifier(call.server.registry)
    if model is None:
        raise ApiError(501, "no model that is served here knows languages; start the server with one that does, such as"
                       " language-id, or say which language a text is in", kind="not_implemented_error",
                       code="no_model")  # fmt: skip
    said = [text for text in texts if text.strip()]
    job = Job(("classify", "truncate"), said, lambda some: model.task.classify(some, on_long="truncate"), call.scope)
    with call.server.admission.enter(tokens_of(said), model.name):
        found = iter(await call.server.work.read(model.name, job))
    best = [next(found).best(len(NAMES)) if text.strip() else [] for text in texts]
    return [[Guess(language, chance) for language, chance in each] for each in best]


def choose(text: str, guesses: Sequence[Guess], possible: Sequence[str], to: str) -> Guess:
    """The language that a text is taken to be in: the likeliest; of a few words, which tell little, the likeliest of
    those that can be translated, unless it is rather sure that they are in the language asked for."""
    few = len(text.split()) < WORDS
    able = [
        guess
        for guess in guesses
        if guess.language in possible or (guess.language == to and guess.probability >= RATHER_SURE)
    ]
    if guesses and not (few and able):
        return guesses[0]
    return able[0] if able else Guess(possible[0], 0.0)


async def detected(call: Call, texts: Sequence[str], to: str) -> list[Guess]:
    """The language of each text that is to be translated."""
    found = await detect(call, texts)
    possible = [language for language, speaks in pairs(call.server.registry).items() if to in speaks]
    return [choose(text, guesses, possible or [to], to) for text, guesses in zip(texts, found, strict=True)]


# --- translating ------------------------------------------------------------------------------------------


async def translate(
    call: Call, texts: Sequence[str], sources: Sequence[str | None], to: str, **options: Any
) -> list[Translation]:
    """A translation of each text from its language, by the first model that translates from there. A text that is in
    the language already stays as it is."""
    rows: dict[ServedModel, list[int]] = {}
    for row, source in enumerate(sources):
        if source != to:
            rows.setdefault(call.server.registry.translating(to, source), []).append(row)
    found: dict[int, Translation] = {}
    for model, own in rows.items():
        before = len(call.scope.begun)
        some = [texts[row] for row in own]
        made = await _translated(call, model, some, to, options)
        found |= dict(zip(own, made, strict=True))
        parts = written(call.scope.begun[before:])
        name = f"{call.id}-{model.name}" if before else None  # texts of several languages are runs of several models
        call.server.record(call, model, "translate", parts=parts.copy, size=size_of(parts), name=name)
    call.server.characters += sum(map(len, texts))
    return [found.get(row) or Translation(text, 0.0, (), "end") for row, text in enumerate(texts)]


async def _translated(
    call: Call, model: ServedModel, texts: list[str], to: str, options: dict[str, Any]
) -> list[Translation]:
    call.told["model"] = model.name
    known = to if spoken(model) else None
    made = await call.run(
        2 * tokens_of(texts), lambda: model.task.translate(texts, to=known, on_long="split", **options)
    )
    call.told["prompt_tokens"] = call.told.get("prompt_tokens", 0) + sum(len(one.source_tokens) for one in made)
    call.told["completion_tokens"] = call.told.get("completion_tokens", 0) + sum(len(one.tokens) for one in made)
    return made
