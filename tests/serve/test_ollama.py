"""Ollama's protocol."""

import json
from typing import Any

import numpy as np
import pytest

from tests.serve.models import embedder, usual
from tests.serve.test_grammar import SCHEMA, WEATHER, fits

MESSAGES = [{"role": "user", "content": "one two"}]
OPTIONS = {"num_predict": 12}


def ask(path: str, body: dict[str, Any]) -> Any:
    found = usual().post(path, body)
    assert found.status == 200, found.content
    return found.json()


def lines(path: str, body: dict[str, Any]) -> list[Any]:
    found = usual().post(path, body)
    assert found.status == 200, found.content
    assert found.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in found.content.decode().splitlines()]


def test_a_chat_is_the_models_own_and_streams_unless_told_not_to() -> None:
    task = usual().task("chat")
    expected = task.chat(MESSAGES, max_new_tokens=12)[0]
    body = {"model": "chat:latest", "messages": MESSAGES, "options": OPTIONS}
    whole = ask("/api/chat", {**body, "stream": False})
    assert whole["message"] == {"role": "assistant", "content": expected.text}
    assert (whole["done"], whole["done_reason"], whole["model"]) == (True, "length", "chat:latest")
    ids = task.tokenizer.encode(expected.prompt, special=False).ids
    assert (whole["prompt_eval_count"], whole["eval_count"]) == (len(ids), 12)
    *parts, last = lines("/api/chat", body)
    assert "".join(part["message"]["content"] for part in parts) == expected.text
    assert all(not part["done"] for part in parts)
    assert (last["done"], last["message"]["content"], last["eval_count"]) == (True, "", 12)


def test_a_completion_with_a_template_and_without() -> None:
    chat, plain = usual().task("chat"), usual().task("plain")
    body = {"prompt": "one two", "options": {**OPTIONS, "temperature": 0.9, "seed": 3}, "stream": False}
    how: dict[str, Any] = {"max_new_tokens": 12, "temperature": 0.9, "seed": 3}
    raw = plain.complete("one two", **how)[0].text
    assert ask("/api/generate", {**body, "model": "plain"})["response"] == raw
    assert ask("/api/generate", {**body, "model": "chat", "raw": True})["response"] == raw
    messages = [{"role": "system", "content": "Do"}, *MESSAGES]
    told = ask("/api/generate", {**body, "model": "chat", "system": "Do"})["response"]
    assert told == chat.chat(messages, **how)[0].text
    parts = lines("/api/generate", {**body, "model": "plain", "stream": True})
    assert "".join(part["response"] for part in parts) == raw
    assert ask("/api/generate", {"model": "plain"})["done_reason"] == "load"


def test_formats_and_tools() -> None:
    body = {"model": "chat", "messages": MESSAGES, "options": {"num_predict": 200}, "stream": False}
    assert fits(json.loads(ask("/api/chat", {**body, "format": SCHEMA})["message"]["content"]))
    assert ask("/api/chat", {**body, "format": "json"})["message"]["content"].startswith("{")
    assert ask("/api/chat", {**body, "tools": [WEATHER]})["message"]["content"]
    assert "".join(
        part["message"]["content"] for part in lines("/api/chat", {**body, "tools": [WEATHER], "stream": True})
    )


def test_vectors() -> None:
    texts = ["one two three", "Do you know him?"]
    found = ask("/api/embed", {"model": "vectors", "input": texts})
    assert np.array(found["embeddings"]) == pytest.approx(embedder().embed(texts), abs=1e-5)
    one = ask("/api/embeddings", {"model": "vectors", "prompt": texts[0]})["embedding"]
    assert one == pytest.approx(found["embeddings"][0])
    long = {"model": "vectors", "input": "one two three " * 40}
    assert ask("/api/embed", long)["prompt_eval_count"] == 40
    assert usual().post("/api/embed", {**long, "truncate": False}).status in (400, 413)


def test_models_are_shown() -> None:
    assert [each["name"] for each in usual().get("/api/tags").json()["models"]] == ["chat", "plain", "spelt", "vectors"]
    assert usual().get("/api/version").json()["version"]
    assert ask("/api/show", {"model": "chat"})["capabilities"] == ["completion", "tools"]
    assert ask("/api/show", {"model": "vectors:latest"})["capabilities"] == ["embedding"]
    assert usual().post("/api/show", {"model": "none"}).status == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", {"model": "chat", "messages": []}),
        ("/api/chat", {"model": "chat", "messages": MESSAGES, "options": {"mirostat": 1}}),
        ("/api/chat", {"model": "chat", "messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}),
        ("/api/chat", {"model": "plain", "messages": MESSAGES}),
        ("/api/generate", {"model": "plain", "prompt": "x", "system": "y"}),
        ("/api/generate", {"model": "plain", "prompt": "x", "suffix": "y"}),
        ("/api/generate", {"model": "vectors", "prompt": "x"}),
        ("/api/generate", {"prompt": "x"}),
    ],
)
def test_wrong_requests_are_refused(path: str, body: dict[str, Any]) -> None:
    found = usual().post(path, body)
    assert found.status == 400
    assert isinstance(found.json()["error"], str)
