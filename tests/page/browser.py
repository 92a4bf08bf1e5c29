"""A real browser, and pages whose questions are answered here: no server, no network, any trace."""

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakKeyDictionary

import pytest

from clearformer.errors import TraceError
from clearformer.explain.trace import Trace
from clearformer.page import files
from clearformer.page.answers import answer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

ORIGIN = "http://clearformer.test"
PATIENCE = 60_000  # milliseconds after which something that does not come about fails
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
KEPT: WeakKeyDictionary[Trace, dict[Any, Any]] = WeakKeyDictionary()  # what several pages ask is computed once
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


@contextmanager
def chromium() -> "Iterator[Browser]":
    """The system's browser, or a loud word that there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None  # type: ignore[assignment]
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if sync_playwright is None or path is None:
        said = "THE PAGE IS NOT TESTED: it needs a browser (apt-get install chromium) and pip install playwright"
        warnings.warn(said, stacklevel=2)
        pytest.skip(said)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Looking:
    """A page on traces of this process, by their names, that keeps what it asked for and what went wrong."""

    def __init__(self, browser: "Browser", traces: dict[str, Trace], **context: Any):
        self.traces = traces
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.gone = False
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **context)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.wrong.append(f"{error}"))
        self.page.on("console", lambda told: self.wrong.append(_said(told)) if told.type == "error" else None)
        self.page.route(f"{ORIGIN}/**", self._answer)

    def close(self) -> None:
        self.context.close()

    def open(self, place: str = "") -> "Page":
        """Go to a fragment; the page is loaded once."""
        if self.page.url.startswith(ORIGIN):
            self.page.evaluate(FOLLOWED, place)  # before that it is settled where it was
        else:
            self.page.goto(f"{ORIGIN}/#{place}")
        return self.settled()

    def settled(self) -> "Page":
        """Wait until all that was asked for is shown."""
        self.page.wait_for_function(SETTLED)
        return self.page

    def _answer(self, route: "Route") -> None:
        found = urlsplit(route.request.url)
        if self.gone:
            return route.abort("connectionrefused")
        if found.path in ("/", "/look"):
            file, policy = files.page()
            return route.fulfill(
                body=file.content, content_type=file.media, headers={"content-security-policy": policy}
            )
        if found.path.startswith("/assets/"):
            asset = files.read(found.path.removeprefix("/assets/"))
            if asset is None:
                return route.fulfill(status=404)
            return route.fulfill(body=asset.content, content_type=asset.media)
        try:
            self._told(route, found.path, {name: each[-1] for name, each in parse_qs(found.query).items()})
        except TraceError as error:
            route.fulfill(status=404, json={"error": error.message})

    def _told(self, route: "Route", path: str, asked: dict[str, str]) -> None:
        if path == "/models":
            return route.fulfill(json=[_model(name) for name in self.traces])
        if path == "/trace":
            name = json.loads(route.request.post_data or "{}")["model"]
            told = {"id": name, "model": name, "answer": None, "changed": [], "written": []}
            return route.fulfill(json=answer(self.traces[name], "trace") | told)
        _, *parts = unquote(path).split("/")
        if len(parts) != 3 or parts[0] != "trace" or parts[1] not in self.traces:
            return route.fulfill(status=404, json={"error": f"nothing is at {path}"})
        _, name, question = parts
        if question == "tensor" and asked.get("format") == "float32":
            view = self.traces[name][asked["address"]]
            said = {"x-shape": ",".join(map(str, view.values.shape)), "x-axes": ",".join(view.axes)}
            numbers = view.numpy().astype("<f4").tobytes()
            return route.fulfill(body=numbers, headers=said, content_type="application/octet-stream")
        trace = self.traces[name]
        key = (question, *sorted(asked.items()))
        kept = KEPT.setdefault(trace, {})
        if key not in kept:
            kept[key] = answer(trace, question, asked, lambda other: self.traces[other])
        route.fulfill(json=kept[key])


def _said(told: Any) -> str:
    return f"{told.text} {told.location.get('url', '')}"


FOLLOWED = """place => new Promise((done) => {
    const before = location.href;
    addEventListener('hashchange', () => setTimeout(done), {once: true});
    location.hash = place;
    if (location.href === before) done();
})"""
SETTLED = """() => !document.querySelector('.waiting, .room.busy, .loading')
    && document.querySelector('.level, .banner, .lesson-list, .empty')
    && !(location.hash.includes('model=') && document.querySelector('.empty'))"""


def _model(name: str) -> dict[str, Any]:
    return {"name": name, "verbs": [], "family": "", "kind": "encoder", "parameters": 0, "takes": ["ids"],
            "example": "1 2 3", "example_pair": None, "languages": []}  # fmt: skip


def serious(page: "Page") -> list[str]:
    """What axe-core finds, where it is serious."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['nodes'][0]['target']} {each['nodes'][0]['failureSummary'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
