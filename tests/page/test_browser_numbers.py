"""Every number that the page shows is Python's, in every family, to the last bit."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.explain.trace import Trace
from tests.explain.test_trace import traced
from tests.laws.cases import ALL, loud
from tests.page.browser import Looking, chromium

FAMILIES = (
    *("original", "t5", "marian", "bert", "distilbert", "roberta", "gpt2", "llama", "vit", "bigbird", "linformer"),
    *("flan_t5", "decoder alibi", "decoder shaw"),
)
CASES = {str(case): case for case in ALL}
CROSS = "decoder.0.cross"
ROW = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def looking() -> Iterator[Looking]:
    model = loud(cf.build(presets.original("tiny"), seed=3)).eval()
    words = {"source": ["how", "are", "you", "now", "?", "</s>"], "target": ["<s>", "wie", "geht"]}
    given = torch.tensor([[5, 6, 7, 8, 9, 2]]), torch.tensor([[1, 11, 12]])
    lopsided = cf.trace(model, *given, words=words, change={f"{CROSS}.weights[:,1]": torch.tensor([ROW] * 4)})
    with chromium() as browser:
        found = Looking(browser, {name: traced(CASES[name]) for name in FAMILIES} | {"lopsided": lopsided})
        yield found
        found.close()


def same(trace: Trace, shown: list[list[str]]) -> None:
    """Addresses and numbers as the page has them."""
    assert shown
    for address, number in shown:
        assert float(number) == float(trace[address].values), address


@pytest.mark.parametrize("name", FAMILIES)
def test_numbers_are_those_of_python(looking: Looking, name: str) -> None:
    trace = looking.traces[name]
    own = trace.addresses(".weights")[-1].removesuffix(".weights")
    last = trace[f"{own}.weights"].values.size(0) - 1
    head = f"{own}.h{last}"

    page = looking.open(f"model={name}&ids=1&a={head}")
    for each in page.locator(".pipeline .tools button:has-text('table')").all():
        each.click()
    shown: list[Any] = page.evaluate(
        """() => [...document.querySelectorAll('.pipeline td[data-value]')].map((cell) =>
            [decodeURIComponent(/[&#]a=([^&]*)/.exec(cell.querySelector('a').href)[1]), cell.dataset.value])"""
    )
    steps = page.evaluate("[...document.querySelectorAll('.pipeline [data-step]')].map((each) => each.dataset.step)")
    with_heads = [each for each in trace.to_dict()["addresses"] if {"h", "g"} & set(each["axes"])]
    assert steps == [each["address"].removeprefix(f"{own}.") for each in with_heads if each["address"].startswith(own)]
    hidden = [address for address, number in shown if number == "hidden"]
    assert all(float(trace[address].values) == 0.0 for address in hidden)
    same(trace, [each for each in shown if each[1] != "hidden"])

    query, key = divmod(int(trace[f"{head}.weights"].values.argmax()), trace[f"{head}.weights"].values.size(1))
    page = looking.open(f"model={name}&ids=1&a={head}.weights[{query}]&k={key}")
    sums = page.evaluate("Number(document.querySelector('[data-sum]').dataset.sum)")
    assert sums == pytest.approx(1.0, abs=1e-5)
    for step in ("weights", "scores", "q", "mixed"):
        at = f"{head}.{step}[{query},{key if step in ('weights', 'scores') else 1}]"
        page = looking.open(f"model={name}&ids=1&a={at}")
        page.wait_for_selector(f".cell-number[data-address='{at}']")
        same(trace, page.evaluate(
            """() => [...document.querySelectorAll('.level [data-address][data-value]')].map((each) =>
                [each.dataset.address, each.dataset.value])"""
        ))  # fmt: skip
        assert page.locator(".equation math").count() >= 1
    assert looking.wrong == []


def test_rows_are_queries_and_columns_are_keys(looking: Looking) -> None:
    """Query 1 looks at key 3 alone: the picture, the labels and the table say so, and not the other way round."""
    page = looking.open(f"model=lopsided&ids=1&a={CROSS}.h0")
    panel = page.locator("[data-step=weights]")
    cell = panel.get_by_role("gridcell")
    assert panel.locator(".axes").inner_text() == "query ↓ key →"
    cell.focus()
    brightness = {}
    for row in range(3):
        for column in range(6):
            said = cell.get_attribute("aria-label") or ""
            assert f"query {row} " in said
            assert f"key {column} " in said
            brightness[row, column] = page.evaluate(PIXEL)
            cell.press("ArrowRight")
        cell.press("Home")
        cell.press("ArrowDown")
    assert [at for at, bright in brightness.items() if at[0] == 1 and bright > 200] == [(1, 3)]
    assert all(bright < 90 for at, bright in brightness.items() if at[0] == 1 and at[1] != 3)
    panel.get_by_role("button", name="table").click()
    second = panel.locator("tbody tr").nth(1)
    assert second.locator("th").inner_text() == "1 wie"
    assert [float(each.get_attribute("data-value") or "nan") for each in second.locator("td").all()] == ROW
    assert panel.locator("thead th").nth(4).inner_text() == "3 now"


PIXEL = """() => {
    const cell = document.querySelector('[data-step=weights] .cell-focus');
    const canvas = cell.closest('.heat-space').querySelector('canvas');
    const scale = canvas.width / parseFloat(canvas.style.width);
    const middle = (from, size) => Math.round((parseFloat(from) + parseFloat(size) * 0.12) * scale);
    const {left, top, width, height} = cell.style;
    const [r, g, b] = canvas.getContext('2d').getImageData(middle(left, width), middle(top, height), 1, 1).data;
    return 0.3 * r + 0.6 * g + 0.1 * b;
}"""


def test_grouped_heads_and_patterns_are_shown(looking: Looking) -> None:
    llama = looking.traces["llama"]
    groups = llama["stack.0.self.k"].values.size(0)
    page = looking.open("model=llama&ids=1&a=stack.0.self")
    assert page.locator(".head-groups fieldset").count() == groups < llama["stack.0.self.q"].values.size(0)
    page = looking.open("model=llama&ids=1&a=stack.0.self.h3")
    assert f"key head {3 * groups // 4}" in page.locator(".level-head").inner_text()
    assert "later (causal)" in page.locator("[data-step=weights] .legend").inner_text()
    page = looking.open("model=bigbird&ids=1&a=stack.0.self.h0")
    hidden = any("0" in row for row in _visible(looking.traces["bigbird"]))
    assert ("not computed" in page.locator("[data-step=weights] .legend").inner_text()) == hidden
    page = looking.open("model=linformer&ids=1&a=stack.0.self.h0")
    assert page.locator("[data-step=short_k]").count() == 1
    assert "compressed" in page.locator(".level-head").inner_text()


def _visible(trace: Trace) -> list[str]:
    from clearformer.page.answers import answer

    found: list[str] = answer(trace, "visible", {"address": "stack.0.self"})["rows"]
    return found


def test_any_tensor_and_parameter_can_be_opened(looking: Looking) -> None:
    trace = looking.traces["gpt2"]
    for address in ("stack.0.feedforward.active", "stack.0.self.query.weight", "head.logits", "stack.embed.tokens[2]"):
        page = looking.open(f"model=gpt2&ids=1&a={address}")
        cell = page.locator(".stage").get_by_role("gridcell")
        cell.wait_for()
        assert float(cell.get_attribute("data-value") or "nan") == float(trace[address].values.flatten()[0])
    page = looking.open("model=gpt2&ids=1&a=stack.0.self.query.weight[3,1]")
    page.wait_for_selector(".cell-number")
    assert looking.wrong == []
