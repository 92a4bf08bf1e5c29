"""The OpenAPI document says what there is, with the schemas that validate; answers are what it says they are."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from clearformer.serve.endpoint import Endpoint
from tests.serve.asking import Asking
from tests.serve.bundled import bundled

EXAMPLES: dict[str, Any] = {
    "/translate": {"q": "Hi", "source": "auto", "target": "de", "alternatives": 1},
    "/detect": {"q": "Wo ist der Bahnhof?"},
    "/v2/translate": {"text": ["Hi"], "target_lang": "DE"},
    "/v2/languages": {"type": "target"},
    "/v2/usage": {},
    "/embed": {"inputs": ["a", "b"]},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    "/rerank": {"query": "a", "texts": ["b", "c"]},
    "/v1/rerank": {"query": "a", "documents": ["b", "c"], "return_documents": True},
    "/v2/rerank": {"query": "a", "documents": ["b", "c"]},
    "/predict": {"inputs": ["a"]},
    "/tokenize": {"text": "a"},
    "/detokenize": {"ids": [300]},
    "/trace": {"text": "a"},
    "/runs/{id}/trace": {},
}


@pytest.fixture(scope="module")
def asking() -> Asking:
    return bundled()


@pytest.fixture(scope="module")
def document(asking: Asking) -> Any:
    return asking.get("/openapi.json").json()


def test_every_endpoint_is_in_it(asking: Asking, document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    for each in asking.server.endpoints:
        assert each.summary, f"{each.method} {each.path} says nothing of itself"
        path = re.sub(r":\w+}", "}", each.path)
        said = document["paths"][path][each.method.lower()]
        inside = {one["name"] for one in said.get("parameters", []) if one["in"] == "path"}
        assert inside == {*re.findall(r"{(\w+)}", path)}
        assert {"200", "400", "429"} <= {*said["responses"]}
        if each.body is not None and each.method != "GET":
            assert "application/json" in said["requestBody"]["content"]
            assert ("application/x-www-form-urlencoded" in said["requestBody"]["content"]) == each.forms
    names = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(names) == len({*names})


def test_all_references_lead_somewhere(document: Any) -> None:
    found = [*_references(document)]
    assert found
    for reference in found:
        at = document
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]


def _references(thing: Any) -> Any:
    if isinstance(thing, dict):
        if isinstance(thing.get("$ref"), str):
            yield thing["$ref"]
        for each in thing.values():
            yield from _references(each)
    elif isinstance(thing, list):
        for each in thing:
            yield from _references(each)


def test_bodies_have_the_schema_that_validates(asking: Asking, document: Any) -> None:
    for each in asking.server.endpoints:
        if each.body is None or each.method == "GET":
            continue
        said = document["paths"][each.path][each.method.lower()]["requestBody"]["content"]["application/json"]["schema"]
        shown = document["components"]["schemas"][said["$ref"].rpartition("/")[2]]
        own = TypeAdapter(each.body).json_schema()
        assert {*shown.get("properties", {})} == {*own.get("properties", {})}
        assert shown.get("required") == own.get("required")
        assert shown["additionalProperties"] is False


def _ours(asking: Asking) -> list[Endpoint]:
    return [each for each in asking.server.endpoints if each.method == "POST" and each.path in EXAMPLES]


def test_answers_are_what_the_document_says(asking: Asking) -> None:
    asked = {each.path for each in _ours(asking)}
    assert asked == {*EXAMPLES}
    for each in _ours(asking):
        path = each.path
        if "{id}" in path:
            path = path.replace("{id}", asking.post("/embed", {"inputs": "a"}).headers["x-request-id"])
        answer = asking.post(path, EXAMPLES[each.path])
        assert answer.status == 200, (path, answer.content)
        assert each.answer is not None
        TypeAdapter(each.answer).validate_json(answer.content, strict=True)


def test_errors_are_what_the_document_says(asking: Asking, document: Any) -> None:
    for each in _ours(asking):
        answer = asking.post(each.path.replace("{id}", "none"), {"nonsense": 1})
        assert answer.status in (400, 404)
        responses = document["paths"][each.path]["post"]["responses"]
        schema = responses[str(answer.status)]["content"]["application/json"]["schema"]
        shape = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        assert {*shape["required"]} == {*answer.json()}


def test_the_page_lists_all_and_fetches_nothing(asking: Asking) -> None:
    answer = asking.get("/docs")
    page = answer.content.decode()
    assert answer.headers["content-type"].startswith("text/html")
    assert all(each.path in page for each in asking.server.endpoints)
    assert "http" not in page.replace("<!doctype html>", "").replace("<html", "").replace("</html", "")
    assert "<script" not in page


def test_keys_are_told_of_where_they_are_wanted(tmp_path: Path, document: Any) -> None:
    assert "securitySchemes" not in document["components"]
    (tmp_path / "keys").write_text("secret\n")
    asking = Asking(registry=bundled().server.registry, key_file=tmp_path / "keys")
    found = asking.get("/openapi.json", {"authorization": "Bearer secret"}).json()
    assert found["paths"]["/embed"]["post"]["security"]
    assert "security" not in found["paths"]["/live"]["get"]
