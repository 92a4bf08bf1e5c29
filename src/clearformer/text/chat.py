"""Conversations as one text, by the chat template that travels with a checkpoint."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jinja2

from clearformer.errors import CheckpointError, DataError
from clearformer.text.sandbox import PURSE, Environment, Priced, Purse, PurseError, RefusalError
from clearformer.text.special_tokens import LARGEST_TEMPLATE

LARGEST_RESULT = 2**20  # characters


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    answer: bool,
    names: Mapping[str, str],
    tools: Sequence[Any] | None = None,
) -> str:
    """The text of a conversation; `names` are the special tokens, as `bos_token` and the like."""
    try:
        environment, compiled = _compiled(template)
        environment.purse.left = PURSE
        known = {"tools": tools and json.loads(json.dumps(tools)), "documents": None, **names}
        parts, size = [], 0
        for part in compiled.generate(messages=_plain(messages), add_generation_prompt=answer, **known):
            parts.append(part)
            size += len(part)
            if size > LARGEST_RESULT:
                raise DataError(f"the conversation is longer than {LARGEST_RESULT:,} characters; give a shorter one")
        return "".join(parts)
    except (DataError, CheckpointError):
        raise
    except RefusalError as said:
        raise DataError(f"the model's chat template does not take these messages: {str(said)[:500]}") from None
    except PurseError:
        raise CheckpointError("the model's chat template does too much work, or the conversation is too long") from None
    except Exception as error:  # a stranger's program may raise anything
        raise CheckpointError(f"the model's chat template cannot be used: {_short(error)}") from None


@lru_cache(maxsize=8)
def _compiled(template: str) -> tuple[Environment, jinja2.Template]:
    if len(template.encode()) > LARGEST_TEMPLATE:
        raise CheckpointError(f"the model's chat template is larger than {LARGEST_TEMPLATE:,} bytes")
    environment = Environment(Purse())
    return environment, environment.from_string(Priced().visit(environment.parse(template)))


def _short(error: Exception) -> str:
    kind = "" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: "
    return (kind + str(error))[:300]


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The messages of plain types only, so that a template sees nothing else."""
    if isinstance(messages, str | Mapping) or not all(isinstance(message, Mapping) for message in messages):
        raise DataError('messages must be a list of {"role": …, "content": …}')
    for number, message in enumerate(messages, 1):
        if not isinstance(message.get("role"), str) or "content" not in message:
            raise DataError(f"message {number} needs a role (system, user or assistant) and a content")
    try:
        return json.loads(json.dumps([dict(message) for message in messages]))
    except (TypeError, ValueError, RecursionError):
        raise DataError("the messages hold something that is neither text, number, list nor object") from None
