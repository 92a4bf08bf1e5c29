"""Answers that must fit: JSON, schemas and tools, whatever a model with random weights would rather say."""

import json
import sys
from typing import Any

import pytest

from clearformer.errors import DataError
from clearformer.serve.grammar import Follower, Grammar, closed, of_schema, text_or
from tests.serve.asking import Asking
from tests.serve.models import completer, served, usual
from tests.serve.test_openai import CHAT, MESSAGES, events, refused

SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green", "blue"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "sure": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1, "maxItems": 2},
    },
    "required": ["colour", "count", "sure", "names"],
    "additionalProperties": False,
}


def fits(found: Any) -> bool:
    """The schema, by hand."""
    return (
        list(found) == ["colour", "count", "sure", "names"]
        and found["colour"] in ("red", "green", "blue")
        and type(found["count"]) is int
        and 0 <= found["count"] <= 99
        and type(found["sure"]) is bool
        and 1 <= len(found["names"]) <= 2
        and all(isinstance(name, str) and len(name) <= 3 for name in found["names"])
    )


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": "it does", "parameters": parameters}}


WEATHER = tool("weather", city={"enum": ["Bern", "Rome"]}, days={"type": "integer", "minimum": 1, "maximum": 7})
CLOCK = tool("clock", zone={"enum": ["UTC", "CET"]})


def ask(**more: Any) -> Any:
    found = usual().post("/v1/chat/completions", {**CHAT, "max_tokens": 200, **more})
    assert found.status == 200, found.content
    return found.json()["choices"]


def schema(content: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": content, "strict": True}}


@pytest.mark.parametrize("ways", [{}, *({"temperature": 2.0, "seed": seed} for seed in range(6))])
def test_an_answer_fits_its_schema(ways: dict[str, Any]) -> None:
    choice = ask(response_format=schema(SCHEMA), **ways)[0]
    assert choice["finish_reason"] == "stop"
    assert fits(json.loads(choice["message"]["content"])), choice


def test_the_same_streamed_and_among_several() -> None:
    body = {**CHAT, "max_tokens": 200, "response_format": schema(SCHEMA), "temperature": 1.5, "n": 3}
    texts = [choice["message"]["content"] for choice in ask(**{**body, "seed": 4})]
    assert all(fits(json.loads(text)) for text in texts)
    assert len(set(texts)) > 1
    told = ["", "", ""]
    for part in events(usual().post("/v1/chat/completions", {**body, "seed": 4, "stream": True})):
        for choice in part["choices"]:
            told[choice["index"]] += choice["delta"].get("content", "")
    assert told == texts


def test_objects_have_the_properties_that_are_named() -> None:
    inner = {"type": "object", "properties": {"x": {"enum": [1]}}, "required": ["x"]}
    outer = {"type": "object", "properties": {"a": inner, "b": {"$ref": "#/$defs/it"}}, "required": ["a", "b"],
             "$defs": {"it": inner}}  # fmt: skip
    assert json.loads(ask(response_format=schema(outer), temperature=2.0)[0]["message"]["content"]) == {
        "a": {"x": 1},
        "b": {"x": 1},
    }
    assert closed({**inner, "additionalProperties": True}) == {**inner, "additionalProperties": True}
    both = {"allOf": [inner, {"type": "object", "properties": {"y": {"enum": [2]}}}]}
    assert closed(both) == both


def test_any_object() -> None:
    choice = ask(response_format={"type": "json_object"}, max_tokens=60, temperature=1.0)[0]
    text = choice["message"]["content"]
    assert text.startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(text), dict)
    assert ask(response_format={"type": "text"}, max_tokens=9) == ask(max_tokens=9)


@pytest.mark.parametrize(
    "content",
    [
        {"type": "nonsense"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "string", "pattern": "(unclosed"},
        {"type": "integer", "minimum": 5, "maximum": 1},
        {"not": {"type": "string"}},
        {"$ref": "http://127.0.0.1:1/elsewhere.json"},
        {"type": "array", "uniqueItems": True, "contains": {"const": 3}},
    ],
)
def test_schemas_that_cannot_be_kept_to_are_refused(content: Any) -> None:
    error = refused("/v1/chat/completions", {**CHAT, "response_format": schema(content)})
    assert error["param"] == "response_format"


def test_a_schema_cannot_loosen_itself() -> None:
    loose = {**SCHEMA, "x-guidance": {"lenient": True, "whitespace_flexible": True}, "contains": {"const": 1}}
    refused(
        "/v1/chat/completions", {**CHAT, "response_format": schema({**loose, "type": "array", "uniqueItems": True})}
    )
    refused("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_schema"}})


def test_a_text_beside_the_grammar_is_an_error_not_a_way_out() -> None:
    task = usual().task("chat")
    follower = Follower(Grammar(task, of_schema(SCHEMA), "x"))
    first = follower.allowed([])
    wrong = next(token for token in range(task.engine.vocabulary) if token not in first)
    with pytest.raises(DataError, match="could not be kept to its schema"):
        follower.allowed([wrong])


def test_texts_of_one_request_are_followed_apart() -> None:
    task = usual().task("chat")
    made = Grammar(task, text_or({"const": {"a": 1}}), "x")
    both, alone = Follower(made), Follower(made)
    written = task.tokenizer.encode("one two", special=False).ids
    for n in range(len(written) + 1):
        for row in (written, [written[0], *written[1:][::-1]]):
            both.allowed(row[:n])
        assert both.allowed(written[:n]).tolist() == alone.allowed(written[:n]).tolist()


# --- tools --------------------------------------------------------------------------------------------------------


def call_of(choice: Any) -> tuple[str, Any]:
    assert choice["finish_reason"] == "tool_calls", choice
    message = choice["message"]
    assert message["content"] is None
    (call,) = message["tool_calls"]
    assert call["type"] == "function"
    return call["function"]["name"], json.loads(call["function"]["arguments"])


@pytest.mark.parametrize("seed", range(4))
def test_a_call_that_must_be_made_is_made(seed: int) -> None:
    ways: dict[str, Any] = {"tools": [WEATHER, CLOCK], "temperature": 1.5, "seed": seed}
    name, arguments = call_of(ask(**ways, tool_choice="required")[0])
    if name == "clock":
        assert arguments in ({"zone": "UTC"}, {"zone": "CET"})
    else:
        assert name == "weather"
        assert (arguments["city"] in ("Bern", "Rome"), 1 <= arguments["days"] <= 7, len(arguments)) == (True, True, 2)
    named = {"type": "function", "function": {"name": "clock"}}
    assert call_of(ask(**ways, tool_choice=named, parallel_tool_calls=False)[0])[0] == "clock"


def test_a_call_is_streamed_whole() -> None:
    ways = {"tools": [WEATHER, CLOCK], "tool_choice": "required", "max_tokens": 200}
    expected = ask(**ways)[0]
    parts = events(usual().post("/v1/chat/completions", {**CHAT, **ways, "stream": True}))
    deltas = [part["choices"][0]["delta"] for part in parts]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert not any(delta.get("content") for delta in deltas)
    assert [call["function"] for call in calls] == [expected["message"]["tool_calls"][0]["function"]]
    assert calls[0]["index"] == 0
    assert parts[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_model_may_answer_where_it_need_not_call() -> None:
    for tools in ({"tool_choice": "auto"}, {"tool_choice": "none"}, {}):
        choice = ask(tools=[WEATHER], max_tokens=9, **tools)[0]
        assert choice["message"]["content"]
        assert "tool_calls" not in choice["message"]
    token = usual().task("chat").tokenizer.engine.token_to_id("<0x7B>")  # {
    eager = ask(tools=[CLOCK], logit_bias={str(token): 8})[0]
    assert call_of(eager)[0] == "clock"


def test_definitions_inside_parameters() -> None:
    nested = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Place"}},
        "required": ["at"],
        "$defs": {"Place": {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"],
                            "additionalProperties": False}},
        "additionalProperties": False,
    }  # fmt: skip
    one = {"type": "function", "function": {"name": "go", "parameters": nested}}
    name, arguments = call_of(ask(tools=[one], tool_choice="required")[0])
    assert (name, arguments["at"]["x"] in (1, 2)) == ("go", True)


def test_results_of_tools_go_back_into_the_conversation() -> None:
    choice = ask(tools=[CLOCK], tool_choice="required")[0]
    calls = choice["message"]["tool_calls"]
    messages = [*MESSAGES, choice["message"], {"role": "tool", "tool_call_id": calls[0]["id"], "content": "noon"}]
    assert ask(messages=messages, tools=[CLOCK], tool_choice="none", max_tokens=5)[0]["message"]["content"]
    strict = "{% for m in messages %}{% if m.role not in ('user', 'assistant', 'system') %}"
    strict += "{{ raise_exception('no such role') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    asking = Asking(registry=served(strict=completer(strict)))
    found = asking.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2})
    assert found.status == 200, found.content
    call = json.dumps({"name": "clock", "arguments": json.loads(calls[0]["function"]["arguments"])})
    text = f"user: one two\nassistant: {call}\nuser: noon\n"
    assert found.json()["usage"]["prompt_tokens"] == len(asking.task("strict").chat_ids(text, 1))
    asking.server.close()


def test_a_template_that_tells_of_tools_is_given_them() -> None:
    told = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    template = told + "{% for m in messages %}{{ m.content }}{% endfor %}"
    task = completer(template)
    assert task.tokenizer.chat(MESSAGES, tools=[WEATHER]).startswith("[weather]")
    asking = Asking(registry=served(told=task))
    body = {"messages": MESSAGES, "tools": [WEATHER, CLOCK], "max_tokens": 2}
    found = asking.post("/v1/chat/completions", body).json()
    text = task.tokenizer.chat(MESSAGES, tools=[WEATHER, CLOCK])
    assert found["usage"]["prompt_tokens"] == len(task.tokenizer.encode(text, special=False).ids)
    asking.server.close()


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
        ({"tools": [tool("a b")]}, "tools"),
        ({"tools": [tool("a", x={"type": "nonsense"})], "tool_choice": "required"}, "tools"),
        ({"tools": [WEATHER], "response_format": schema(SCHEMA)}, "response_format"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
    ],
)
def test_tools_that_are_wrong_are_refused(changed: dict[str, Any], param: str) -> None:
    assert refused("/v1/chat/completions", {**CHAT, **changed})["param"] == param


@pytest.mark.parametrize("depth", [100, 300, 450])
def test_deep_schemas_are_answered(depth: int) -> None:
    deep: Any = {"type": "integer", "minimum": 1, "maximum": 1}
    for _ in range(depth):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"], "$defs": {}}
    body = {**CHAT, "max_tokens": 5}
    one = {"type": "function", "function": {"name": "go", "parameters": {**deep, "$defs": {"x": {"type": "null"}}}}}
    for more in (
        {"response_format": schema(deep)},
        {"tools": [one]},
        {"tools": [one], "tool_choice": "required"},
    ):
        assert usual().post("/v1/chat/completions", {**body, **more}).status in (200, 400)


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    error = refused("/v1/chat/completions", {**CHAT, "response_format": schema(SCHEMA)}, 501)
    assert "clearformer[grammar]" in error["message"]
