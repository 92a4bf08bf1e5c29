"""The page on a real server: a text is typed, traced, forked, changed and exported."""

import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

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
    assert page.locator(".timeline .tag").count() == 4  # so many were given
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
