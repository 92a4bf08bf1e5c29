"""A client without a network: requests go to the application as uvicorn would hand them over."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from clearformer.serve.app import Server
from clearformer.serve.registry import Registry
from clearformer.serve.settings import ServerSettings


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


class Asking:
    """A server with some models, and its client."""

    def __init__(self, *models: str, registry: Registry | None = None, **settings: Any):
        chosen = ServerSettings(model=models, access_log=False, **settings)
        self.server = Server(chosen, registry or Registry.load(chosen))
        self.server.ready = True
        self.application = self.server.application()

    def task(self, name: str) -> Any:
        return self.server.registry.models[name].task

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        return asyncio.run(self.ask("GET", path, query=query, headers=headers))

    def delete(self, path: str) -> Answer:
        return asyncio.run(self.ask("DELETE", path))

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        """A body that is bytes goes as it is, all else as JSON."""
        given = {"content-type": "application/json", **(headers or {})}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return asyncio.run(self.ask("POST", path, content, query, given))

    def form(self, path: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
        given = {"content-type": "application/x-www-form-urlencoded", **(headers or {})}
        return asyncio.run(self.ask("POST", path, urlencode(fields, doseq=True).encode(), {}, given))

    async def ask(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        given = {"host": "127.0.0.1", "content-length": str(len(content)), **(headers or {})}
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "scheme": "http",
            "query_string": urlencode(query or {}).encode(), "root_path": "", "client": ("127.0.0.1", 1),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        waiting = [{"type": "http.request", "body": content, "more_body": False}]
        over, sent = asyncio.Event(), []

        async def receive() -> Any:
            if waiting:
                return waiting.pop(0)
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        over.set()
        start, *parts = sent
        said = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], said, b"".join(part.get("body", b"") for part in parts))
