"""Whatever a body holds, the answer is one that the protocol knows: never an error of the server."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.serve.ollama_bodies import ChatBody as OllamaChat
from clearformer.serve.ollama_bodies import GenerateBody
from clearformer.serve.openai_bodies import ChatBody, CompletionBody, EmbeddingBody
from clearformer.serve.responses import ResponseBody
from tests.serve.models import usual

MESSAGES = [{"role": "user", "content": "one two"}]
TARGETS: list[tuple[str, Any, dict[str, Any]]] = [
    ("/v1/chat/completions", ChatBody, {"model": "chat", "messages": MESSAGES, "max_tokens": 3}),
    ("/v1/completions", CompletionBody, {"model": "plain", "prompt": "one", "max_tokens": 3}),
    ("/v1/embeddings", EmbeddingBody, {"model": "vectors", "input": "one"}),
    ("/v1/responses", ResponseBody, {"model": "chat", "input": "one", "max_output_tokens": 3}),
    ("/api/chat", OllamaChat, {"model": "chat", "messages": MESSAGES, "options": {"num_predict": 3}}),
    ("/api/generate", GenerateBody, {"model": "plain", "prompt": "one", "options": {"num_predict": 3}}),
]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 40), st.floats(), st.text(max_size=6), st.sampled_from([2**40, -(2**70)])
)
WORDS = ["type", "role", "content", "text", "name", "function", "json_schema", "schema", "properties", "anyOf", "$ref"]
KINDS = ["user", "tool", "function", "object", "json_schema", "text", "#", "string", "array"]
VALUES = st.recursive(
    LEAVES | st.sampled_from(KINDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.data(), st.sampled_from(TARGETS))
def test_no_body_is_too_odd(data: Any, target: tuple[str, Any, dict[str, Any]]) -> None:
    path, kind, body = target
    names = st.sampled_from([*(field.alias or name for name, field in kind.model_fields.items())])
    changed = data.draw(st.dictionaries(names, VALUES, min_size=1, max_size=2))
    found = usual().post(path, {**body, **changed})
    assert found.status < 500, (changed, found.content)
    if found.status != 200:
        assert found.json()["error"]


SCHEMAS = st.recursive(
    st.sampled_from([{"type": kind} for kind in ("string", "integer", "boolean", "null", "number", "nonsense")])
    | st.builds(lambda values: {"enum": values}, st.lists(LEAVES.filter(lambda each: each == each), max_size=3)),
    lambda inner: (
        st.builds(
            lambda some: {"type": "object", "properties": some}, st.dictionaries(st.text(max_size=3), inner, max_size=3)
        )
        | st.builds(lambda one, least: {"type": "array", "items": one, "minItems": least}, inner, st.integers(-1, 3))
        | st.builds(lambda some: {"anyOf": some}, st.lists(inner, max_size=3))
    ),
    max_leaves=6,
)


@settings(max_examples=100)
@given(SCHEMAS)
def test_no_schema_is_too_odd(schema: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    body = {"model": "chat", "messages": MESSAGES, "max_tokens": 20, "response_format": form}
    found = usual().post("/v1/chat/completions", body)
    assert found.status in (200, 400), found.content
    tool = {"type": "function", "function": {"name": "it", "parameters": schema}}
    called = {**body, "response_format": None, "tools": [tool], "tool_choice": "required"}
    assert usual().post("/v1/chat/completions", called).status in (200, 400)
