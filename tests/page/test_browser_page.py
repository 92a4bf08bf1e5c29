"""The page in a browser: found again by its URL, used by keyboard, read by all, safe from what texts say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.explain.trace import Trace
from clearformer.page.export import to_html
from tests.laws.cases import loud
from tests.page.browser import ORIGIN, Looking, chromium, serious

HOSTILE = ["a" * 5_000, "e" + "\u0301" * 10_000]
HOSTILE += [
    "<script>boom()</script>", "<img src=x onerror=boom()>", "<svg onload=boom()>",
    "</script><script>boom()</script>", "javascript:boom()", "${boom()}", "{{boom()}}", "`${boom()}`",
    "'+boom()+'", '"><script>boom()</script>', "&lt;b&gt;",
    "<iframe srcdoc='<script>parent.boom()</script>'>", "<math><mtext><script>boom()</script>",
    "<a href=javascript:boom()>", "<style>*{background:url(http://evil.test/x)}</style>",
    "<link rel=stylesheet href=http://evil.test/>", "<base href=//evil.test>", "\u202eabc", "\u2066\u2067x",
    "\x00", "\u200b\ufeff", "\U000e0001", "\ud7ff", "[a](javascript:boom())", "%3Cscript%3E",
    "\\u003cscript\\u003e", "</title><script>boom()</script>", "]]>", "<!--", "-->",
    "<object data=http://evil.test>", "<embed src=http://evil.test>", "<form action=http://evil.test>",
    "onfocus=boom()", "<button autofocus onfocus=boom()>", "<details open ontoggle=boom()>",
    "<video src=x onerror=boom()>", "constructor", "__proto__", "[object Object]", "null", "#a=decoder",
    "&a=x", "?", "/", "\\", "'", '"', "\t\n", "नमस्ते दुनिया", "שלום עולם",
]  # fmt: skip


class Tokens:
    """A run, as a task tells it."""

    def __init__(self, words: list[str]):
        self.words = words

    def to_dict(self) -> dict[str, Any]:
        found = {"label": self.words[0], "probabilities": dict.fromkeys(self.words[:5], 0.2)}
        text, ids = " ".join(self.words)[:2_000], list(range(len(self.words)))
        return {"verb": "complete", "text": text, "tokens": self.words, "ids": ids, "answer": found}


def small(words: list[str]) -> Trace:
    model = loud(cf.build(presets.gpt2("tiny", vocabulary=max(100, len(words))), seed=3)).eval()
    found = cf.trace(model, torch.arange(len(words))[None], words=words, outputs=words * 3)
    found.run = Tokens(words)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def translated() -> Trace:
    return cf.load("en-de").trace("How are you?", num_beams=3)


@pytest.fixture(scope="module")
def looking(browser: Any, translated: Trace) -> Iterator[Looking]:
    found = Looking(browser, {"en-de": translated, "hostile": small(HOSTILE)})
    yield found
    found.close()


def test_the_url_brings_back_the_same_view(looking: Looking) -> None:
    place = "model=en-de&ids=1&a=decoder.1.cross.h3.weights[1,2]"
    page = looking.open(place)
    page.wait_for_selector(".cell-number")
    shown = page.locator(".stage").inner_text()
    page.reload()
    looking.settled()
    page.wait_for_selector(".cell-number")
    assert page.locator(".stage").inner_text() == shown
    page = looking.open("model=en-de&ids=1&a=decoder.1.cross.h9.weights[1,2]")
    assert "There is no decoder.1.cross.h9" in page.locator(".problem").inner_text()
    assert page.locator(".level h2").inner_text() == "cross-attention"
    for bad in ("nonsense", "decoder.1.cross.h3.weights[99,99]", "[[[", "%E0%A4%A", "<script>", "a" * 3000):
        page = looking.open(f"model=en-de&ids=1&a={bad}")
        assert page.locator(".problem").count() == 1, bad


def test_from_the_model_to_a_cell_and_back_by_keyboard(looking: Looking) -> None:
    page = looking.open("model=en-de&ids=1")
    page.locator("body").press("m")
    at = "document.activeElement"
    page.reload()
    looking.settled()
    page.keyboard.press("Tab")
    assert page.evaluate(f"{at}.textContent") == "to the stage"
    page.keyboard.press("Enter")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"{at}.classList.contains('block-name')"):
            break
    places = []
    for wanted in (".ribbons", ".head-grid", "[data-step=weights]", ".row-grid", ".equation"):
        page.keyboard.press("Enter")
        page.wait_for_function(f"() => !!{at}.closest('{wanted}')")
        looking.settled()
        places.append(page.evaluate("decodeURIComponent((/[#&]a=([^&]*)/.exec(location.hash) ?? ['', ''])[1])"))
        if wanted == "[data-step=weights]":
            for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowLeft"):
                page.keyboard.press(key)
    head = "encoder.0.self.h0"
    assert places == ["encoder.0", "encoder.0.self", head, f"{head}.weights[2]", f"{head}.weights[2,0]"]
    page.keyboard.press("Enter")  # a number of the equation is followed
    page.wait_for_function("() => location.hash.includes('scores[2,')")
    page.evaluate("() => history.back()")
    page.wait_for_function("() => location.hash.endsWith('weights[2,0]')")
    looking.settled()
    for wanted in (*reversed(places[:-1]), ""):
        page.keyboard.press("Escape")
        page.wait_for_function(f"() => (location.hash.match(/[#&]a=([^&]*)/) ?? ['', ''])[1] === {json.dumps(wanted)}")
        looking.settled()
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.keyboard.press("/")
    assert page.evaluate(f"{at}.id") == "text"


PLACES = (
    *("", "a=decoder.1", "a=decoder.1.cross", "a=decoder.1.cross.h3", "a=decoder.1.cross.h3.weights[1]"),
    *("a=decoder.1.cross.h3.weights[1,2]", "a=encoder.0.feedforward", "v=lens", "v=wrote", "v=heads", "v=carried"),
    *("v=ablations", "v=score", "v=compare"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_read_it(browser: Any, translated: Trace, scheme: str) -> None:
    """axe-core finds nothing serious; on a phone nothing is wider than the screen."""
    looking = Looking(browser, {"en-de": translated}, color_scheme=scheme, reduced_motion="reduce")
    try:
        for place in PLACES:
            page = looking.open(f"model=en-de&ids=1&{place}")
            if scheme == "dark" or place.startswith("a=decoder.1.cross") or not place:
                assert serious(page) == [], place
        page.set_viewport_size({"width": 390, "height": 844})
        for place in PLACES:
            page = looking.open(f"model=en-de&ids=1&{place}")
            wide = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
            assert max(wide) <= 390, place
        assert page.evaluate("getComputedStyle(document.body).transitionDuration") in ("0s", "")
        assert looking.wrong == []
    finally:
        looking.close()


def test_forced_colours_and_a_lecture(browser: Any, translated: Trace) -> None:
    looking = Looking(browser, {"en-de": translated}, forced_colors="active")
    try:
        page = looking.open("model=en-de&ids=1&a=decoder.1.cross.h3")
        assert page.evaluate("matchMedia('(forced-colors: active)').matches")
        seen = page.evaluate("getComputedStyle(document.querySelector('.heat canvas')).forcedColorAdjust")
        assert seen == "none"
        page.get_by_label("size").select_option("lecture")
        page.wait_for_function("() => parseFloat(getComputedStyle(document.documentElement).fontSize) > 18")
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    finally:
        looking.close()


def test_nothing_leaves_the_page_and_nothing_goes_wrong(looking: Looking) -> None:
    for place in PLACES:
        looking.open(f"model=en-de&ids=1&{place}")
    assert looking.asked
    assert all(each.startswith((f"{ORIGIN}/", "data:", "blob:")) for each in looking.asked)
    assert looking.wrong == []


FOREIGN = ", ".join(f"#app {tag}" for tag in ("script", "iframe", "img", "object", "embed", "style", "base", "video"))


def test_hostile_words_are_words(looking: Looking) -> None:
    page = looking.page
    looking.open("model=hostile&ids=1")
    page.evaluate("() => { window.boomed = 0; window.boom = () => { window.boomed++ } }")
    page.evaluate("() => boom()")  # it would be noticed
    assert page.evaluate("() => window.boomed") == 1
    page.on("dialog", lambda told: pytest.fail(f"a dialog: {told.message}"))
    before = len(looking.asked)
    head = "a=stack.0.self.h0"
    for place in ("", head, f"{head}.weights[3]", f"{head}.weights[3,1]", "v=lens", "v=wrote", "a=head.logits"):
        looking.open(f"model=hostile&ids=1&{place}")
        for each in page.locator(".tools button:has-text('table')").all()[:2]:
            each.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert page.locator(FOREIGN).count() == 0, place
    for word in HOSTILE:
        page.evaluate(
            "place => { location.hash = place }", f"model=hostile&ids=1&a={quote(word)[:4000]}&v={quote(word)[:500]}"
        )
    looking.settled()
    assert page.evaluate("() => window.boomed") == 1
    assert page.locator(FOREIGN).count() == 0
    assert looking.wrong == []
    assert all(each.startswith((f"{ORIGIN}/", "data:")) for each in looking.asked[before:])


def test_the_beam_is_python_s(looking: Looking, translated: Trace) -> None:
    page = looking.open("model=en-de&ids=1")
    page.get_by_role("button", name="beam tree").click()
    shown = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.beam-tree .node')].map((each) =>
            [each.dataset.path, [Number(each.dataset.score), ...['chosen', 'ended'].map((name) =>
                each.classList.contains(name))]]))"""
    )
    wanted: dict[str, Any] = {}

    def walk(node: Any, path: tuple[int, ...]) -> None:
        wanted[",".join(map(str, path))] = [node.score, node.chosen, node.ended]
        for token, child in node.children.items():
            walk(child, (*path, token))

    walk(translated.run.tree, ())
    assert len(wanted) > 10
    assert shown == wanted
    page.get_by_role("button", name="timeline").click()
    shares = page.evaluate(
        "[...document.querySelectorAll('.timeline .share')].map((each) => Number(each.dataset.value))"
    )
    assert shares == [share for choice in translated.run.choices for _, share in choice.likeliest[:5]]


def test_questions_are_answered_as_python_answers(looking: Looking, translated: Trace) -> None:
    page = looking.open("model=en-de&ids=1&v=wrote")
    token = translated.run.ids[0]
    parts = translated.attribution(f"head.logits[0,{token}]")
    assert float(page.locator("[data-sum]").get_attribute("data-sum") or 0) == pytest.approx(parts.total)
    assert parts.total == pytest.approx(parts.logit, rel=1e-4)
    page = looking.open("model=en-de&ids=1&v=lens")
    shown = page.evaluate("[...document.querySelectorAll('.lens td')].map((each) => Number(each.dataset.value))")
    assert shown == [best[0].probability for row in translated.lens().guesses for best in row]
    page = looking.open("model=en-de&ids=1&v=heads")
    assert page.locator(".heads-table tbody tr").count() == len(translated.heads())


def test_what_if_is_marked_and_right(looking: Looking, translated: Trace) -> None:
    page = looking.open("model=en-de&ids=1&a=decoder.1.cross.h3")
    page.locator(".what-if summary").click()
    play = page.locator(".play")
    assert "as the model computed it" in play.inner_text()
    play.get_by_label("divide by √d").uncheck()
    assert "not the model's own" in play.inner_text()
    scores = translated["decoder.1.cross.h3.scores"].values.double()
    wanted = (scores * 8).var(unbiased=False)
    said = play.locator(".measures strong").first.inner_text().replace("−", "-")
    assert float(said) == pytest.approx(float(wanted), rel=1e-4)
    play.get_by_role("gridcell").focus()
    found = float(play.get_by_role("gridcell").get_attribute("data-value") or "nan")
    assert found == pytest.approx(float((scores * 8).softmax(-1)[0, 0]), abs=1e-6)


def test_a_server_that_is_gone_is_said_and_what_was_loaded_stays(looking: Looking) -> None:
    page = looking.open("model=en-de&ids=1&a=encoder.4.self.h0")
    looking.gone = True
    page.evaluate("location.hash = 'model=en-de&ids=1&a=encoder.5.self.h1.q'")
    page.wait_for_selector(".banner")
    assert "does not answer" in page.locator(".banner").inner_text()
    looking.gone = False
    page.get_by_role("button", name="try again").click()
    page.wait_for_selector(".banner", state="detached")
    looking.settled()
    assert page.locator(".stage .heat").count() == 1
    looking.wrong.clear()  # the browser tells of connections that were refused


def test_a_file_works_without_a_server(browser: Any, translated: Trace, tmp_path: Path) -> None:
    file = tmp_path / "trace.html"
    file.write_text(to_html(translated, model="en-de", command="clearformer look"), "utf-8")
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    wrong: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda told: wrong.append(told.text) if told.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"file://{file}#a=decoder.1.cross.h3")
    page.wait_for_selector("[data-step=weights] .cell-focus")
    for each in page.locator("[data-step=weights] .tools button:has-text('table')").all():
        each.click()
    shown = [float(each.get_attribute("data-value") or "nan") for each in page.locator("[data-step=weights] td").all()]
    assert shown == translated["decoder.1.cross.h3.weights"].values.flatten().tolist()
    for step in ("weights", "scores", "mixed"):
        page.evaluate(f"location.hash = 'a=decoder.1.cross.h3.{step}[1,2]'")
        page.wait_for_selector(f".cell-number[data-address='decoder.1.cross.h3.{step}[1,2]']")
        said = page.locator(".cell-number").get_attribute("data-value") or "nan"
        assert float(said) == float(translated[f"decoder.1.cross.h3.{step}[1,2]"].values)
    for at in ("cross.before[1,2]", "cross.merged[1,70]", "feedforward.active[1,2]", "feedforward.sum[1,2]"):
        cell = f"decoder.1.{at}"
        page.evaluate(f"location.hash = 'a={cell}'")
        page.wait_for_selector(f".cell-number[data-address='{cell}']")
        shown_there = page.evaluate(
            """() => [...document.querySelectorAll('.level [data-address][data-value]')].map((each) =>
                [each.dataset.address, Number(each.dataset.value)])"""
        )
        assert len(shown_there) >= 2, at
        assert {each: float(translated[each].values) for each, _ in shown_there} == dict(shown_there)
        assert page.locator(".equation math").count() == 1
    page.evaluate("location.hash = 'a=decoder.1.cross.h3.q[1,2]'")
    page.wait_for_selector(".problem")
    assert "clearformer look" in page.locator(".stage .problem").inner_text()
    page.evaluate("location.hash = 'v=lens'")
    page.wait_for_selector(".lens td")
    assert wrong == []
    assert all(each.startswith(("file:", "data:", "blob:")) for each in asked)
    context.close()


def test_views_are_exported_as_pictures(looking: Looking, tmp_path: Path) -> None:
    page = looking.open("model=en-de&ids=1&a=decoder.1.cross.h3")
    for name, start in (("this view as SVG", b"<svg"), ("this view as PNG", b"\x89PNG")):
        page.get_by_role("button", name="export").click()
        with page.expect_download() as made:
            page.get_by_role("button", name=name).click()
        content = Path(made.value.path()).read_bytes()
        assert content.startswith(start)
        assert len(content) > 5_000
        assert b"<script" not in content
