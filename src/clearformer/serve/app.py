"""The application: models, work, admission, and the endpoints of all protocols."""

import hmac
import ipaddress
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

from starlette.datastructures import Headers
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from clearformer.serve.admission import Admission
from clearformer.serve.endpoint import UNTRACED, Call, Endpoint, Reply
from clearformer.serve.errors import ApiError, stopped
from clearformer.serve.logs import Log, place
from clearformer.serve.metrics import Metrics
from clearformer.serve.refusals import Refusals
from clearformer.serve.registry import Registry, ServedModel
from clearformer.serve.runs import OWNER, TRACE_BYTES, Ids, Part, Run, Runs, Store, paired, size_of, written
from clearformer.serve.settings import LOOPBACK, ServerSettings
from clearformer.serve.work import Work

PREFLIGHT = 600  # seconds for which a browser need not ask again whether a page may ask
ALLOWED_HEADERS = "authorization, content-type, x-api-key, x-request-id, x-trace"


class Server:
    """One process that serves: everything that requests share."""

    def __init__(
        self,
        settings: ServerSettings,
        registry: Registry,
        log: Log | None = None,
        endpoints: Sequence[Endpoint] | None = None,  # None: those of all protocols
    ):
        self.settings, self.registry = settings, registry
        self.admission, self.work = Admission(settings.queue_tokens, len(registry.models)), Work()
        self.keys = [sha256(key).digest() for key in settings.read_keys()]
        self.hosts = {_bare(each) for each in (*LOOPBACK, settings.host, *settings.allow_host)}
        self.ready = self.stopping = False
        self.calls: set[Call] = set()  # that have come and are not answered
        self.connections: Callable[[], int] = lambda: 0  # how many are open, where somebody counts them
        self.log, self.metrics = log or Log(), Metrics(self)
        self.refusals = Refusals(self)
        self.runs = Runs(settings.kept_runs)
        self.traces: Store[Any] = Store(settings.kept_runs, TRACE_BYTES)
        self.characters = 0  # that were translated, for /v2/usage
        self.endpoints = [replace(each, server=self) for each in endpoints or all_endpoints()]

    def application(self) -> ASGIApp:
        paths: dict[str, list[Endpoint]] = {}
        for each in self.endpoints:
            paths.setdefault(each.path, []).append(each)
        routes = [Route(path, endpoint=_Methods(several)) for path, several in paths.items()]
        return Router(routes, redirect_slashes=False, default=_nothing(self))

    def close(self) -> None:
        for call in list(self.calls):
            call.scope.cancel()
        self.work.close()
        for model in self.registry.models.values():
            for engine in model.task.__dict__.get("_engine", []):
                engine.close()
        self.log.close()

    # --- what every request meets -----------------------------------------------------------------------------

    def gate(self, scope: Scope, headers: Headers, endpoint: Endpoint) -> None:
        """Refuse requests for another host's name, of other sites' pages, without a key, and when it is too late."""
        if sum(len(name) + len(value) for name, value in headers.raw) > self.settings.max_header:
            raise ApiError(431, f"the headers may have {self.settings.max_header:,} bytes", code="too_large")
        if endpoint.open:
            return
        host = headers.get("host", "")
        if not self._knows(_bare(host)):
            raise ApiError(421, f"this server is not {host[:100]!r}; allow it with --allow-host", code="wrong_host")
        origin = headers.get("origin")
        if origin is not None and scope["method"] not in ("GET", "HEAD") and not self._same(origin, headers):
            raise ApiError(403, "pages of other origins may not ask this server; allow one with --allow-origin",
                           kind="permission_error", code="origin")  # fmt: skip
        preflight = scope["method"] == "OPTIONS" and self.cors(headers)  # a browser sends no key before it may
        if endpoint.key_field is None and not preflight:
            self.check_key(headers)
        if self.stopping and endpoint.method != "GET":
            raise stopped()
        if headers.get("x-trace", "0") not in UNTRACED:
            self.runs.check()

    def _knows(self, host: str) -> bool:
        """Whether this is a name of this server. Beyond this machine its addresses are too: a page that was led here
        by a name of its own (DNS rebinding) asks for that name."""
        if host in self.hosts or "*" in self.hosts:
            return True
        return not self.settings.on_loopback and _is_address(host)

    def _same(self, origin: str, headers: Headers) -> bool:
        own = {f"http://{headers.get('host', '')}", f"https://{headers.get('host', '')}"}
        return origin in own or origin in self.settings.allow_origin or "*" in self.settings.allow_origin

    def check_key(self, headers: Headers, in_body: Any = None) -> None:
        """Compared in constant time, with every key, whichever fits; as hashes, so that lengths tell nothing either."""
        if not self.keys:
            return
        kind, _, key = headers.get("authorization", "").partition(" ")
        if kind.lower() not in ("bearer", "deepl-auth-key"):
            key = headers.get("x-api-key") or (in_body if isinstance(in_body, str) else "")
        told = sha256(key.strip().encode("utf-8", "replace")).digest()
        found = [hmac.compare_digest(told, each) for each in self.keys]
        if sum(found) == 0:
            raise ApiError(401, "this server wants a key: Authorization: Bearer KEY", kind="authentication_error",
                           code="invalid_api_key", headers={"www-authenticate": "Bearer"})  # fmt: skip
        OWNER.set(str(found.index(True)))

    def record(
        self,
        call: Call,
        model: ServedModel,
        verb: str,
        *,
        source: Sequence[Ids] | None = None,
        target: Sequence[Ids] = (),
        parts: Callable[[], list[Part]] | None = None,
        size: int = 0,
        also: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        """Keep what a request made a model do, under the request's id, or a `name` instead, and `also` other ids.

        Without more, that is all that engines wrote in the call's scope. `source` and `target` are ids that were read
        and written, a list for each text. `parts` makes them later, for what reads; then `size` is what it keeps."""
        if not self.settings.kept_runs:
            return
        call.recorded = True
        if parts is None:
            found = written(call.scope.begun) if source is None else paired(source, target)
            parts, size = found.copy, size_of(found)
        self.runs.keep(Run(name or call.id, model, verb, parts, tuple(also)), size, call.traced)

    def cors(self, headers: Headers) -> dict[str, str]:
        origin = headers.get("origin", "")
        allowed = self.settings.allow_origin
        if not origin or (origin not in allowed and "*" not in allowed):
            return {}
        return {"access-control-allow-origin": origin, "vary": "Origin"}

    @contextmanager
    def watching(self, endpoint: Endpoint, call: Call, sender: Any) -> Iterator[None]:
        """Logged and counted, whatever becomes of it."""
        self.calls.add(call)
        try:
            yield
        finally:
            self.calls.discard(call)
            seconds = time.perf_counter() - call.started
            self.metrics.ended(endpoint, call, sender.status, seconds)
            if self.settings.access_log or sender.status >= 500:
                self._log(endpoint, call, sender, seconds)
            sender.failed = None  # it knows the frames that know this; without it nothing is left to collect

    def _log(self, endpoint: Endpoint, call: Call, sender: Any, seconds: float) -> None:
        fields = {"event": "request", "id": call.id, "method": endpoint.method, "path": endpoint.path,
                  "status": sender.status, "seconds": round(seconds, 4), **call.told}  # fmt: skip
        if sender.failed is not None:
            expected = isinstance(sender.failed, ApiError)
            fields["error"] = sender.failed.code or sender.failed.kind if expected else place(sender.failed)
        self.log.write(**fields)


class _Methods:
    """All endpoints of a path, by their methods."""

    def __init__(self, endpoints: list[Endpoint]):
        self.of = {each.method: each for each in endpoints}
        if "GET" in self.of:
            self.of.setdefault("HEAD", self.of["GET"])
        first, allowed = endpoints[0], ", ".join(sorted({*self.of, "OPTIONS"}))

        async def wrong(call: Call, body: Any) -> Reply:
            raise ApiError(405, f"{first.path} takes {allowed}", code="method_not_allowed", headers={"allow": allowed})

        async def options(call: Call, body: Any) -> Reply:
            """What may be asked; a browser asks this before a page of another origin may."""
            said = {"allow": allowed}
            if call.server.cors(call.headers):
                said |= {"access-control-allow-methods": allowed, "access-control-allow-headers": ALLOWED_HEADERS,
                         "access-control-max-age": str(PREFLIGHT)}  # fmt: skip
            return Reply(b"", headers=said)

        self.wrong = Endpoint("*", first.path, wrong, shape=first.shape, server=first.server)
        self.options = Endpoint("OPTIONS", first.path, options, shape=first.shape, server=first.server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        endpoint = self.options if method == "OPTIONS" else self.of.get(method, self.wrong)
        await endpoint(scope, receive, send)


def _nothing(server: Server) -> Endpoint:
    """Where no route is."""
    paths = ", ".join(sorted({each.path for each in server.endpoints}))

    async def handler(call: Call, body: Any) -> Reply:
        raise ApiError(404, f"there is nothing here; there is {paths}", code="not_found")

    return Endpoint("*", "other", handler, server=server)


def _bare(host: str) -> str:
    """A host's name without port and brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def all_endpoints() -> list[Endpoint]:
    """Of every protocol."""
    from clearformer.serve import encoders, health, inspection, lessons, look, metrics, ollama, openai, translation

    return [
        each
        for protocol in (health, metrics, openai, translation, encoders, inspection, look, lessons, ollama)
        for each in protocol.endpoints()
    ]
