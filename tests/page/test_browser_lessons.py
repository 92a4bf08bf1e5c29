"""The lessons in a real browser: what they compute equals NumPy in double precision, by mouse or by keyboard."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from clearformer.notes.cost import BIGBIRD, WINDOW, visible
from clearformer.notes.positions import encoding
from clearformer.serve import inspection, lessons, look, tokens
from clearformer.serve.registry import Registry
from clearformer.serve.settings import ServerSettings
from tests.page.browser import PATIENCE, chromium, serious
from tests.serve.running import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = Registry.load(ServerSettings(model=("en-de",))).models.values()
    own = [each for part in (look, lessons, tokens, inspection) for each in part.endpoints()]
    with running({(each.method, each.path): each for each in own}.values(), models) as found:
        yield found


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.wrong = []
        page.on("console", lambda said: page.wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        yield page


@pytest.fixture
def page(tab: Any) -> Iterator[Any]:
    tab.wrong.clear()
    yield tab
    assert tab.wrong == []


def expect(found: Any) -> Any:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    return expect(found)


def opened(page: Any, server: Running, name: str) -> Any:
    """A lesson, anew, and the panel of it."""
    page.goto("about:blank")
    page.goto(f"http://127.0.0.1:{server.port}/#lesson={name}")
    return page.locator(".ls-lesson")


def numbers(panel: Any, title: str) -> np.ndarray:
    """The cells of a matrix as they were computed, −∞ included."""
    rows = panel.locator(".ls-panel").get_by_role("group", name=title, exact=True).locator("tbody tr")
    rows.first.wait_for()
    said = rows.evaluate_all("rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.dataset.value))")
    return np.array([[float(x.replace("Infinity", "inf")) for x in row] for row in said])


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


WIDE = """() => [...document.querySelectorAll('.ls-lesson *')]
    .filter(each => !each.closest('.ls-wide, .ls-equation, svg')
        && each.getBoundingClientRect().right > innerWidth + 1)
    .map(each => each.className)"""
AUDITED = ("numerical", "mask", "quiz", "positions", "cost")
X = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], float)
WQ = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], float)
WK = np.array([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]], float)
WV = np.array([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]], float)


def test_matrix_lab(page: Any, server: Running) -> None:
    panel = opened(page, server, "numerical")
    x, wq = X.copy(), WQ.copy()
    assert numbers(panel, "weights") == pytest.approx(softmax((x @ wq) @ (x @ WK).T / np.sqrt(3)), abs=1e-14)
    panel.get_by_label("X, input 1, column 3", exact=True).fill("-0.37")
    panel.get_by_label("W_Q, row 4, column 2", exact=True).fill("2.5")
    causal = panel.get_by_label("causal mask")
    causal.focus()
    page.keyboard.press("Space")
    x[0, 2], wq[3, 1] = -0.37, 2.5
    q, k, v = x @ wq, x @ WK, x @ WV
    scores = q @ k.T
    masked = np.where(np.triu(np.ones((3, 3)), 1) == 1, -np.inf, scores / np.sqrt(3))
    for title, expected in {
        "Q": q,
        "K": k,
        "V": v,
        "Q Kᵀ": scores,
        "Q Kᵀ / √3": scores / np.sqrt(3),
        "masked": masked,
        "weights": softmax(masked),
        "output": softmax(masked) @ v,
    }.items():
        assert numbers(panel, title) == pytest.approx(expected, abs=1e-13), title
    panel.get_by_label("divide by √3").uncheck()
    assert numbers(panel, "Q Kᵀ / 1") == pytest.approx(scores, abs=1e-13)
    panel.get_by_role("button", name="Reset").click()
    assert numbers(panel, "output")[0] == pytest.approx([1.8639, 6.3194, 1.7042], abs=5e-5)


def test_masks(page: Any, server: Running) -> None:
    panel = opened(page, server, "mask")
    panel.get_by_label("scaled scores, am, I", exact=True).fill("1.5")
    scores = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 1.5, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]])
    hidden = np.triu(np.ones((4, 4)), 1) == 1
    found = numbers(panel, "softmax of the masked scores")
    assert found == pytest.approx(softmax(np.where(hidden, -np.inf, scores)), abs=1e-14)
    panel.get_by_label("padding mask").check()
    hidden[:, 3] = True
    found = numbers(panel, "softmax of the masked scores")
    assert found == pytest.approx(softmax(np.where(hidden, -np.inf, scores)), abs=1e-14)
    assert (
        panel.get_by_role("group", name="mask", exact=True).locator(".ls-future, .ls-padding").count() == hidden.sum()
    )
    panel.get_by_label("visible where").select_option("strict")
    assert np.isnan(numbers(panel, "softmax of the masked scores")[0]).all()
    expect(panel.get_by_text("A row that sees nothing")).to_be_visible()
    expect(panel.get_by_text("0.3775, 0.6225 and 0.3156")).to_be_visible()  # a slip of the notes


def test_norms(page: Any, server: Running) -> None:
    panel = opened(page, server, "norms")
    panel.get_by_label("the batch, B, word 2, f1", exact=True).fill("9")
    panel.get_by_label("rows of padding").fill("3")
    x = np.zeros((11, 3))
    x[:8] = [[2, 5, 3], [4, 1, 6], [3, 3, 3], [5, 2, 8], [1, 4, 2], [6, 3, 4], [9, 7, 1], [4, 5, 7]]
    for title, axis in (("batch norm", 0), ("layer norm", 1)):
        expected = (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)
        assert numbers(panel, title) == pytest.approx(expected, abs=1e-12), title


def test_cost_counts_what_the_model_sees(page: Any, server: Running) -> None:
    panel = opened(page, server, "cost")
    for power in (22, 15):  # 2,048 words, and 181, which no block divides
        panel.get_by_label("words n").fill(str(power))
        n = round(2 ** (power / 2))
        shown = panel.get_by_role("group", name="pairs", exact=True).locator("span[data-value]")
        expect(shown.first).to_have_attribute("data-value", str(n * n))
        found = shown.evaluate_all("all => all.map(each => Number(each.dataset.value))")
        assert found == [n * n, int(visible(WINDOW, n).sum()), int(visible(BIGBIRD, n).sum()), 64 * n]


def test_positions_by_keyboard(page: Any, server: Running) -> None:
    panel = opened(page, server, "positions")
    word = panel.get_by_label("word", exact=True)
    word.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    panel.get_by_label("dimension", exact=True).fill("11")
    found = panel.locator(".ls-read").get_attribute("data-value")
    assert float(found) == pytest.approx(float(encoding(50, 128)[7, 11]), abs=1e-12)


def question(panel: Any, number: int) -> Any:
    """The form of a question that waits for its answer: each has a form of its own, so no other is meant."""
    asked = panel.locator("form", has=panel.page.locator("legend", has_text=f"Question {number} of 7:"))
    expect(asked.get_by_role("button", name="Answer")).to_be_visible()
    return asked


def option(asked: Any, letter: str) -> Any:
    return asked.locator(f"input[value={letter}]")


def test_quiz_asks_waits_scores_and_links(page: Any, server: Running) -> None:
    panel = opened(page, server, "quiz")
    score = panel.locator(".ls-score")
    asked = question(panel, 1)
    asked.get_by_role("button", name="Answer").click()  # with nothing chosen it waits
    expect(asked.locator(".ls-problem")).to_have_text("Choose an answer first.")
    expect(score).to_have_text("Score: 0 of 0 answered, 7 questions.")
    for letter in "ABC":
        option(asked, letter).focus()
        page.keyboard.press("Space")
    page.keyboard.press("Enter")
    told = asked.locator(".ls-told")
    expect(told).to_contain_text("Right.")
    expect(told).to_contain_text("the paper stacks six")
    expect(score).to_have_text("Score: 1 of 1 answered, 7 questions.")
    expect(told.get_by_role("button", name="Next question")).to_be_focused()
    page.keyboard.press("Enter")
    for number, letter in enumerate("AADABA", 2):  # the first and the last are wrong
        asked = question(panel, number)
        option(asked, letter).check()
        asked.get_by_role("button", name="Answer").click()
        wrong = number in (2, 7)
        expect(asked.locator(".ls-told b")).to_have_text(re.compile("Not quite: it is" if wrong else "Right"))
        for each in asked.locator("input").all():
            expect(each).to_be_disabled()
        expect(score).to_contain_text(f" of {number} answered")
        asked.locator(".ls-told button").click()
    expect(panel.locator(".ls-end h3")).to_have_text("5 of 7 right")
    expect(panel.locator(".ls-end li")).to_have_count(7)
    panel.get_by_role("button", name="Start again").click()
    question(panel, 1)
    expect(score).to_have_text("Score: 0 of 0 answered, 7 questions.")


def test_quiz_leads_to_the_running_model(page: Any, server: Running) -> None:
    panel = opened(page, server, "quiz")
    asked = question(panel, 1)
    option(asked, "D").check()
    asked.get_by_role("button", name="Answer").click()
    link = asked.locator(".ls-told").get_by_role("link")
    expect(link).to_have_attribute("href", re.compile("a=encoder.0.feedforward.sum"))
    link.click()
    expect(page.locator(".stage .heat canvas")).to_be_visible()
    expect(page.locator(".trail [aria-current]")).to_have_text("sum")
    expect(page.locator(".stage h2 + p code")).to_have_text("encoder.0.feedforward.sum")


def test_tokenizer(page: Any, server: Running) -> None:
    panel = opened(page, server, "tokenizer")
    text = "unbelievable <script>alert(1)</script> हैं"
    panel.get_by_label("Text", exact=True).fill(text)
    ids = server.server.registry.models["en-de"].task.tokenizer.encode(text).ids
    expect(panel.locator(".ls-chips small")).to_have_text([str(each) for each in ids])


def test_a_server_that_has_gone_is_said_and_what_needs_none_goes_on(page: Any, server: Running) -> None:
    panel = opened(page, server, "tokenizer")
    expect(panel.locator(".ls-chips").first).to_be_visible()
    page.route("**/*", lambda route: route.abort())
    try:
        panel.get_by_label("Text", exact=True).fill("more")
        expect(panel.locator(".ls-problem")).to_contain_text("The server does not answer")
        page.evaluate("() => { location.hash = 'lesson=mask' }")
        assert numbers(panel, "softmax of the masked scores")[0, 0] == 1
        expect(panel.locator(".ls-problem")).to_contain_text("The server does not answer")
    finally:
        page.unroute("**/*")
    page.wrong[:] = [each for each in page.wrong if "net::ERR_FAILED" not in each]


def test_heads_and_words_of_the_running_model(page: Any, server: Running) -> None:
    task = server.server.registry.models["en-de"].task
    panel = opened(page, server, "heads")
    cells = panel.locator(".ls-heads [role=gridcell]")
    expect(cells).to_have_count(4)
    shown = [float(each) for each in cells.evaluate_all("all => all.map(each => each.dataset.value)")]
    trace = task.trace("I saw the man with the telescope.")
    expected = trace["encoder.0.self.weights"].values.reshape(4, 13, 13)[:, 0, 0]
    assert shown == pytest.approx(expected.tolist(), abs=1e-5)

    panel = opened(page, server, "words")
    found = numbers(panel, "Cosines, layer 6")
    states = []
    for text in ("The money in the bank grows.", "I put my money into the bank.", "The river bank is green."):
        place = task.tokenizer.pieces(task.tokenizer.encode(text).ids).index("▁bank")
        states.append(task.trace(text)["encoder.5.feedforward.sum"].values.reshape(-1, 256)[place].double())
    expected = torch.nn.functional.cosine_similarity(states[0], torch.stack(states[1:]), dim=1)
    assert found[0, 1:3] == pytest.approx(expected.numpy(), abs=1e-4)
    panel.get_by_role("slider", name="layer").fill("0")
    assert numbers(panel, "Cosines, static") == pytest.approx(np.ones((4, 4)), abs=1e-6)


def test_every_lesson_opens_and_none_is_wider_than_a_phone(page: Any, server: Running) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, server, "softmax").wait_for()
    names = page.locator(".tabs a[href*=lesson]").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert len(names) == 23
    for name in names:
        if name.endswith(("=words", "=cross", "=families", "=heads")):  # slow: their examples load or build models
            continue
        page.goto(f"http://127.0.0.1:{server.port}/{name}")
        page.locator(".ls-lesson h2").wait_for()
        expect(page.locator(".ls-waiting")).to_have_count(0, timeout=PATIENCE)
        wide = page.evaluate(WIDE)
        assert wide == [], name
        if name.endswith(AUDITED):
            assert serious(page) == [], name
    page.set_viewport_size({"width": 1280, "height": 900})
