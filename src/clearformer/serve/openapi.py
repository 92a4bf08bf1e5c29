"""The OpenAPI document, made from the same models that validate, and a page that lists what there is."""

import re
from collections.abc import Callable
from html import escape
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from clearformer.serve.endpoint import Body, Call, Endpoint, Reply
from clearformer.serve.errors import deepl_shape, openai_shape, plain_shape

REFERENCE = "#/components/schemas/{model}"
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
JSON = "application/json"
TEXT: dict[str, Any] = {"type": "string"}
NULLABLE: dict[str, Any] = {"type": ["string", "null"]}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


ERRORS: dict[Callable[..., Any], tuple[str, dict[str, Any]]] = {  # what each protocol says when something is wrong
    openai_shape: ("OpenAIError", _object(error=_object(message=TEXT, type=TEXT, param=NULLABLE, code=NULLABLE))),
    plain_shape: ("PlainError", _object(error=TEXT, error_type=TEXT)),
    deepl_shape: ("DeepLError", _object(message=TEXT)),
}
STATUSES = {
    "400": "The request is wrong; the message says what is, and what to do.",
    "404": "There is no such model, run or trace.",
    "413": "Too large, or too long.",
    "429": "The queue is full; retry-after says when it will have room.",
    "501": "No model that is served can do this.",
    "503": "The server is stopping.",
}


def document(endpoints: list[Endpoint], keys: bool) -> dict[str, Any]:
    """OpenAPI 3.1 of endpoints; `keys` says whether the server wants one."""
    shown = [each for each in endpoints if each.summary]
    names, schemas = _schemas(shown)
    paths: dict[str, dict[str, Any]] = {}
    for each in shown:
        paths.setdefault(PARAMETER.sub(r"{\1}", each.path), {})[each.method.lower()] = _operation(
            each, names, schemas, keys
        )
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Clearformer",
            "version": "1",
            "description": "Transformers in the protocols of OpenAI, LibreTranslate, DeepL and"
            " text-embeddings-inference; every answer can be looked into.",
        },
        "paths": paths,
        "components": {"schemas": schemas | dict(ERRORS.values())},
    }
    if keys:
        made["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return made


Names = dict[Any, dict[str, Any]]  # a model and what it is for → a reference


def _schemas(endpoints: list[Endpoint]) -> tuple[Names, dict[str, Any]]:
    """A reference for every body, query and answer, and what they refer to."""
    given: dict[tuple[type[BaseModel], Any], None] = {}
    for each in endpoints:
        for model, mode in ((each.body, "validation"), (each.query, "validation"), (each.answer, "serialization")):
            if model is not None:
                given[model, mode] = None
    names, found = models_json_schema(list(given), ref_template=REFERENCE)
    return dict(names), found.get("$defs", {})


def _operation(each: Endpoint, names: Names, schemas: dict[str, Any], keys: bool) -> dict[str, Any]:
    error = {JSON: {"schema": {"$ref": REFERENCE.format(model=ERRORS[each.shape][0])}}}
    good: dict[str, Any] = {"description": "What was asked for."}
    for media in each.media:
        schema = names[each.answer, "serialization"] if each.answer is not None and media == JSON else {}
        good.setdefault("content", {})[media] = {"schema": schema}
    made: dict[str, Any] = {
        "summary": each.summary,
        "operationId": re.sub(r"\W+", "_", f"{each.method.lower()}{each.path}").strip("_"),
        "responses": {
            "200": good,
            **{code: {"description": said, "content": error} for code, said in STATUSES.items()},
        },
    }
    made["responses"][str(each.no_key)] = {"description": "A key is needed.", "content": error}
    made["responses"]["default"] = {"description": "Any other error.", "content": error}
    if parameters := _parameters(each, names, schemas):
        made["parameters"] = parameters
    if each.raw:
        binary = {"schema": {"type": "string", "format": "binary"}}
        form = {"schema": _object(file={"type": "string", "format": "binary"})}
        content = {"image/*": binary, "application/octet-stream": binary, "multipart/form-data": form}
        made["requestBody"] = {"required": True, "content": content}
    elif each.body is not None and each.method != "GET":
        schema = {"schema": names[each.body, "validation"]}
        kinds = [JSON, *(["application/x-www-form-urlencoded"] if each.forms else [])]
        made["requestBody"] = {"required": True, "content": dict.fromkeys(kinds, schema)}
    if keys and not each.open:
        made["security"] = [{"bearer": []}, {"key": []}]
    return made


def _parameters(each: Endpoint, names: Names, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of the path, and those behind the question mark."""
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": TEXT} for name in PARAMETER.findall(each.path)
    ]
    if each.query is None:
        return found
    schema = schemas[names[each.query, "validation"]["$ref"].rpartition("/")[2]]
    for name, kind in schema["properties"].items():
        required = name in schema.get("required", [])
        found.append({"name": name, "in": "query", "required": required, "schema": kind})
    return found


def page(endpoints: list[Endpoint]) -> str:
    """The endpoints as a list, without anything from elsewhere."""
    rows = "\n".join(
        f"<tr><td>{escape(each.method)}</td><td><code>{escape(each.path)}</code></td><td>{escape(each.summary)}</td>"
        f"<td>{_fields(each.body or each.query)}</td></tr>"
        for each in endpoints
        if each.summary
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Clearformer: endpoints</title>
<style>
body {{ font: 16px/1.5 sans-serif; margin: 2rem }}
td {{ padding: .2rem 1rem .2rem 0; vertical-align: top }}
</style>
<h1>Endpoints</h1>
<p>All of it for programs: <a href="/openapi.json">/openapi.json</a></p>
<table>
<tr><th>method</th><th>path</th><th>what it does</th><th>fields</th></tr>
{rows}
</table>
</html>
"""


def _fields(kind: type[Body] | None) -> str:
    if kind is None:
        return ""
    fields = kind.model_fields.items()
    return ", ".join(f"<b>{escape(name)}</b>" if each.is_required() else escape(name) for name, each in fields)


async def openapi(call: Call, body: None) -> dict[str, Any]:
    return await call.server.work.aside(lambda: document(call.server.endpoints, bool(call.server.keys)))


async def docs(call: Call, body: None) -> Reply:
    return Reply(page(call.server.endpoints).encode(), "text/html; charset=utf-8")


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/openapi.json", openapi, shape=plain_shape, summary="This interface, as OpenAPI 3.1."),
        Endpoint("GET", "/docs", docs, shape=plain_shape, media=("text/html",), summary="This interface, as a page."),
    ]
