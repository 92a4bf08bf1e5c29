"""What bodies of several protocols have in common: texts, and how many of them there may be."""

from collections.abc import Sequence

from clearformer.serve.endpoint import Call
from clearformer.serve.errors import ApiError

CHARACTERS = 3  # a token, about; what a text will cost is guessed before it is read


Texts = str | list[str]


def several(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def tokens_of(texts: Sequence[str]) -> int:
    return sum(len(text) // CHARACTERS + 1 for text in texts)


def check(call: Call, texts: Sequence[str], param: str) -> None:
    """That there are some, and not too many or too much."""
    settings = call.server.settings
    if not texts:
        raise ApiError(400, f"{param} has no text; give at least one", param=param)
    if len(texts) > settings.max_texts:
        raise ApiError(413, f"{param} has {len(texts):,} texts, and a request may have {settings.max_texts:,}; send"
                       " several requests", param=param, code="too_many")  # fmt: skip
    for number, text in enumerate(texts, 1):
        if len(text) // CHARACTERS > settings.max_prompt_tokens:
            most = settings.max_prompt_tokens * CHARACTERS
            raise ApiError(413, f"{param}: text {number} has {len(text):,} characters, and one may have {most:,}; split"
                           " it", param=param, code="too_large")  # fmt: skip
