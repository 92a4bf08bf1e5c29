"""Conversations and tools, as the template of a model takes them, and calls of tools, as they are found in a text.

A call is one JSON object, `{"name": …, "arguments": {…}}`. A template that tells of tools is given them; for others a
system message does.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from clearformer.errors import DataError
from clearformer.serve.errors import ApiError
from clearformer.serve.grammar import Grammar, of_schema, text_or

MARK = "clearformer-looks-for-this"
EVERY = ("user", "assistant")  # what every template knows
TELLS = (
    "You can call functions. To call one, answer with nothing but a JSON object "
    '{"name": NAME, "arguments": ARGUMENTS}. The functions are:\n'
)


@dataclass(frozen=True)
class Tools:
    """Functions that a model may call, and whether it must."""

    functions: Sequence[dict[str, Any]] = ()  # as OpenAI has them: name, description, parameters
    choice: Literal["none", "auto", "required"] = "auto"
    only: str | None = None  # the one that must be called

    @property
    def names(self) -> list[str]:
        return [each["name"] for each in self.functions]

    @property
    def possible(self) -> bool:
        return bool(self.functions) and self.choice != "none"

    @property
    def must(self) -> bool:
        return self.choice == "required" or self.only is not None

    def check(self) -> None:
        if self.must and not self.functions:
            raise ApiError(400, "tool_choice asks for a call, and there are no tools", param="tool_choice")
        if self.only is not None and self.only not in self.names:
            raise ApiError(400, f"tool_choice names {self.only[:64]!r}, and the tools are {', '.join(self.names)}",
                           param="tool_choice")  # fmt: skip
        if len(set(self.names)) < len(self.names):
            raise ApiError(400, "two tools have the same name", param="tools")

    def schema(self) -> dict[str, Any]:
        """What a call must look like. Definitions that parameters refer to are found from the top, so they go there."""
        some = [each for each in self.functions if self.only in (None, each["name"])]
        calls: list[Any] = []
        shared: dict[str, Any] = {}
        for n, each in enumerate(some):
            parameters, definitions = _own(each.get("parameters") or {"type": "object", "properties": {}}, n)
            shared |= definitions
            calls.append(
                {
                    "type": "object",
                    "properties": {"name": {"const": each["name"]}, "arguments": parameters},
                    "required": ["name", "arguments"],
                    "additionalProperties": False,
                }
            )
        return {"anyOf": calls, "$defs": shared} if len(calls) > 1 or shared else calls[0]

    def grammar(self, task: Any) -> Grammar:
        schema = self.schema()
        return Grammar(task, of_schema(schema, "tools") if self.must else text_or(schema), "tools")

    def call_in(self, text: str) -> tuple[str, str] | None:
        """The name and the arguments of the call that a text is, if it is one."""
        if not self.possible or not text.startswith("{"):
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.get("name") not in self.names:
            return None
        return found["name"], json.dumps(found.get("arguments", {}))


def _own(parameters: dict[str, Any], number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema whose references go to definitions of this number, and those definitions."""
    kept = {key: value for key, value in parameters.items() if key not in ("$defs", "definitions", "$schema")}
    found: dict[str, Any] = {}
    for key in ("$defs", "definitions"):
        for name, value in (parameters.get(key) or {}).items():
            found[f"{number}-{name}"] = value
    if not found:
        return kept, {}

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(each) for each in value]
        if not isinstance(value, dict):
            return value
        made = {key: moved(each) for key, each in value.items()}
        if isinstance(at := made.get("$ref"), str):
            for start in ("#/$defs/", "#/definitions/"):
                if at.startswith(start):
                    made["$ref"] = f"#/$defs/{number}-{at[len(start) :]}"
        return made

    return moved(kept), {name: moved(value) for name, value in found.items()}


def prompt(task: Any, messages: list[dict[str, Any]], tools: Tools) -> list[int]:
    """The ids of a conversation with the model's turn open. Nothing that was said is left out: a role that the template
    passes over is an error."""
    words = task.tokenizer
    if words.chat_template is None:
        raise ApiError(400, "this model has no chat template, so it cannot chat; ask /v1/completions with a prompt",
                       param="messages", code="no_chat_template")  # fmt: skip
    template = words.chat_template
    messages = [_for(template, message) for message in messages]
    functions = [{"type": "function", "function": each} for each in tools.functions] if tools.possible else None
    if functions and "tools" not in template:
        messages, functions = _told(messages, tools), None
    try:
        text = words.chat(messages, tools=functions)
        _check_roles(words, messages, functions)
    except DataError as error:
        raise ApiError(400, error.message, param="messages") from None
    return task.chat_ids(text, 1)


def _for(template: str, message: dict[str, Any]) -> dict[str, Any]:
    """A message in words that a template knows."""
    made = dict(message)
    if made["role"] == "developer" and "developer" not in template:
        made["role"] = "system"
    if made["role"] == "tool" and "tool" not in template:
        made["role"] = "user"  # who told of the tools
    calls = made.get("tool_calls")
    if calls and "tool_calls" not in template:
        del made["tool_calls"]
        said = [json.dumps({"name": each["function"]["name"], "arguments": _parsed(each)}) for each in calls]
        made["content"] = "\n".join(part for part in (made["content"], *said) if part)
    elif calls:
        made["tool_calls"] = [{**each, "function": {**each["function"], "arguments": _parsed(each)}} for each in calls]
    return made


def _parsed(call: dict[str, Any]) -> Any:
    """Arguments as templates want them: an object, not its text."""
    try:
        return json.loads(call["function"]["arguments"])
    except (ValueError, RecursionError):
        raise ApiError(400, "the arguments of a tool call must be JSON", param="messages") from None


def _told(messages: list[dict[str, Any]], tools: Tools) -> list[dict[str, Any]]:
    said = TELLS + "\n".join(json.dumps(each) for each in tools.functions)
    if messages[0]["role"] == "system":
        return [{**messages[0], "content": f"{messages[0]['content']}\n\n{said}"}, *messages[1:]]
    return [{"role": "system", "content": said}, *messages]


def _check_roles(words: Any, messages: list[dict[str, Any]], functions: Any) -> None:
    """Whether the template says something of roles that not every template knows."""
    odd = {message["role"] for message in messages} - set(EVERY)
    for role in sorted(odd):
        marked = [{**message, "content": MARK} if message["role"] == role else message for message in messages]
        if MARK not in words.chat(marked, tools=functions):
            raise DataError(f"the model's chat template passes over messages of the role {role!r}; say it as 'user'")
