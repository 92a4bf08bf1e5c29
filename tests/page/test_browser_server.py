"""The page on a real server: a text is typed, traced, forked, changed and exported."""

import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer as cf
from clearformer.serve.app import Server
from clearformer.serve.logs import Log
from clearformer.serve.registry import Registry, ServedModel
from clearformer.serve.run import Process, bound
from clearformer.serve.settings import ServerSettings
from tests.page.browser import PATIENCE, SETTLED, chromium
from tests.serve.models import CREATED, completer
from tests.serve.running import until


@pytest.fixture(scope="module")
def task() -> Any:
    return cf.load("en-de")


@pytest.fixture(scope="module")
def address(task: Any) -> Iterator[str]:
    models = [ServedModel(name, each, Path(), CREATED) for name, each in {"en-de": task, "chat": completer()}.items()]
    listener = bound("127.0.0.1", 0)
    listener.listen(64)
    server = Server(ServerSettings(access_log=False), Registry(models), Log(StringIO()))
    process = Process(server)
    thread = threading.Thread(target=process.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.ready)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    process.should_exit = True
    thread.join(30)
    server.close()


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Any]:
    with chromium() as browser:
        made: Any = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        made.set_default_timeout(PATIENCE)
        made.asked, made.wrong = [], []
        made.on("request", lambda request: made.asked.append(request.url))
        made.on("pageerror", lambda error: made.wrong.append(str(error)))
        made.goto(f"{address}/#model=en-de&text=How+are+you?&beams=2")
        made.wait_for_function(SETTLED)
        yield made


def test_a_text_is_typed_and_traced(page: Any, task: Any, address: str) -> None:
    page.locator("#text").fill("I see him.")
    page.locator("#text").press("Enter")
    wanted = task.trace("I see him.", num_beams=2).run.text
    page.wait_for_function(f"() => document.querySelector('.did .result')?.textContent === {wanted!r}")
    assert "text=I+see+him." in page.url
    assert page.wrong == []
    assert all(each.startswith(address) for each in page.asked)


def test_another_word_is_chosen_and_the_model_writes_on(page: Any, task: Any) -> None:
    page.evaluate("() => { location.hash = 'model=en-de&text=How+are+you?&beams=2' }")
    found = task.trace("How are you?", num_beams=2)
    page.wait_for_function(f"() => document.querySelector('.did .result')?.textContent === {found.run.text!r}")
    other = found.run.choices[3].ids[1]
    page.locator(".timeline > li").nth(3).locator("button:not(.step-head)").first.click()
    page.wait_for_function(f"() => location.hash.includes('t={','.join(map(str, [*found.run.ids[:3], other]))}')")
    page.wait_for_function(f"() => document.querySelector('.did .result')?.textContent !== {found.run.text!r}")
    page.wait_for_function("() => document.querySelectorAll('.timeline .tag').length === 4")  # so many were given
    page.go_back()


def test_a_head_is_dropped_and_the_numbers_move(page: Any, task: Any) -> None:
    page.evaluate("() => { location.hash = 'model=en-de&text=How+are+you?&beams=2&a=decoder.1.cross.h3' }")
    page.get_by_role("button", name="drop head 3").click()
    page.wait_for_selector(".changed-bar")
    page.evaluate("() => { location.hash += '&p=head.logits[0,1383]' }")
    found = task.trace("How are you?", num_beams=2, change={"decoder.1.cross.h3.mixed": 0})
    wanted = float(found["head.logits[0,1383]"].values)
    page.wait_for_function(
        f"() => Math.abs(Number(document.querySelector('.pin-value')?.dataset.value) - {wanted}) < 1e-5"
    )
    page.wait_for_selector(".moved li")
    page.get_by_role("button", name="undo decoder.1.cross.h3.mixed").click()
    page.wait_for_selector(".changed-bar", state="detached")


def test_a_row_is_patched_and_the_numbers_are_those_of_the_changed_run(page: Any, task: Any) -> None:
    own, row = "decoder.1.cross.h3", "decoder.1.cross.h3.weights[1]"
    page.evaluate("row => { location.hash = `model=en-de&text=How+are+you?&beams=2&a=${row}` }", row)
    before = task.trace("How are you?", num_beams=2)
    best = int(before[row].values.argmax())
    count = before[row].values.numel()
    for button, values in (
        (f"patch: all on key {best}", [float(n == best) for n in range(count)]),
        ("patch: evenly", [1 / count] * count),
    ):
        page.get_by_role("button", name=button, exact=True).click()
        found = task.trace("How are you?", num_beams=2, change={row: torch.tensor(values)})
        moved = page.locator(".moved li")
        wanted = [choice.probability for choice in found.run.choices]
        page.wait_for_function(
            "wanted => JSON.stringify([...document.querySelectorAll('.moved strong')].map((each) =>"
            " Number(each.dataset.value))) === JSON.stringify(wanted)", arg=wanted)  # fmt: skip
        assert moved.count() == len(found.run.choices)
        at = f"{own}.mixed[1,5]"
        page.evaluate("at => { location.hash += `&p=${at}` }", at)
        page.wait_for_selector(f".pin-value[data-address='{at}'][data-value='{float(found[at].values)!r}']")
        page.get_by_role("button", name="undo the patch").click()
        page.wait_for_selector(".changed-bar", state="detached")


def test_two_texts_are_compared_as_python_compares_them(page: Any, task: Any) -> None:
    page.evaluate("() => { location.hash = 'model=en-de&text=I+see+him.&beams=2' }")
    one = task.trace("I see him.", num_beams=2)
    page.wait_for_function(f"() => document.querySelector('.did .result')?.textContent === {one.run.text!r}")
    page.evaluate("() => { location.hash += '&v=compare' }")
    page.get_by_label("other text").fill("I see her.")
    page.get_by_role("button", name="compare", exact=True).click()
    other = task.trace("I see her.", target=one.run.ids)
    apart = one.compare(other)
    page.wait_for_selector(".first-difference")
    assert page.locator(".first-difference").inner_text() == apart.first
    summary = page.locator(".level summary", has_text=f"all {len(apart.steps)} steps")
    summary.click()
    rows = page.locator("details[open] tbody tr")
    rows.first.wait_for()
    shown = rows.evaluate_all("all => all.map((row) => row.innerText.split(/\\s+/))")
    assert [each[0] for each in shown] == [step.address for step in apart.steps]
    for line, step in zip(shown, apart.steps, strict=True):
        found = [float(each.replace("−", "-")) for each in line[1:4]]
        assert found == pytest.approx([step.largest, step.mean, step.share], abs=6e-5, rel=6e-3), step.address

    address = next(step.address for step in apart.steps if step.address.endswith(".sum"))
    page.get_by_label("position", exact=True).fill("1")
    page.get_by_role("button", name="patch and run").click()
    page.wait_for_selector(".changed-bar")
    patched = task.trace("I see him.", num_beams=2, change={f"{address}[1]": other[f"{address}[1]"].values})
    at = f"head.logits[0,{one.run.ids[0]}]"
    page.evaluate("at => { location.hash += `&p=${at}` }", at)
    page.wait_for_function(
        "([at, wanted]) => { const pin = document.querySelector(`.pin-value[data-address='${at}']`);"
        " return pin?.dataset.value && Math.abs(Number(pin.dataset.value) - wanted) < 1e-5 }",
        arg=[at, float(patched[at].values)],
    )
    assert float(patched[at].values) != float(one[at].values)
    page.evaluate("() => { location.hash = 'model=en-de&text=How+are+you?&beams=2' }")


def test_what_cannot_be_traced_is_said(page: Any) -> None:
    page.locator("#text").fill("   ")
    page.locator("#text").press("Enter")
    assert page.evaluate("() => !document.getElementById('text').checkValidity()")
    page.locator("#text").fill("many words " * 300)
    page.locator("#text").press("Enter")
    page.wait_for_selector(".banner")
    assert "tokens" in page.locator(".banner").inner_text()
    page.get_by_role("button", name="dismiss").click()


def test_another_model_and_another_tab(page: Any, address: str) -> None:
    page.get_by_label("model").first.select_option("chat")
    page.wait_for_function(
        "() => location.hash.includes('model=chat') && document.querySelector('.level h2')?.textContent === 'chat'"
    )
    tab = page.context.new_page()
    tab.goto(f"{address}/#model=en-de&text=How+are+you?&a=decoder.0.self.h1.weights[2,1]")
    tab.wait_for_selector(".cell-number")
    page.evaluate("() => { location.hash += '&a=stack.0.self.h0.weights[1,0]' }")
    page.wait_for_selector(".cell-number")
    tab.close()
    assert page.wrong == []


def test_everything_as_one_file(page: Any) -> None:
    page.get_by_role("button", name="export").click()
    with page.expect_download() as made:
        page.get_by_role("button", name="everything as one HTML file").click()
    content = Path(made.value.path()).read_text("utf-8")
    assert "clearformer-data" in content
    assert len(content) > 50_000


def test_copied_python_gives_the_number_shown(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    at = "decoder.1.cross.h3.weights[1,2]"
    page.evaluate('at => { location.hash = `model=en-de&text=Do+you+"see"+him?&beams=2&a=${at}` }', at)
    page.wait_for_selector(f".pin-value[data-address='{at}'][data-value^='0.']")
    page.wait_for_function(SETTLED)
    shown = page.locator(".pin-value").get_attribute("data-value")
    code = page.evaluate("async (at) => (await import('page/python.js')).python(at)", at)
    exec(compile(code, "copied", "exec"), {})
    assert float(capsys.readouterr().out.splitlines()[0]) == float(shown)
