"""The lessons as JSON hold the notes' own numbers; pictures and pages of them can be written."""

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import typer
from typer.testing import CliRunner

from clearformer.cli.notes import register
from clearformer.errors import DataError
from clearformer.notes import EXAMPLES, data, get, parts, picture
from clearformer.page.files import ASSETS
from clearformer.serve.endpoint import as_json
from clearformer.serve.registry import Registry
from tests.serve.asking import Asking

QUICK = ("softmax", "numerical", "mask", "hash-table", "positions", "relative", "columns", "quiz")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def asking(**settings: Any) -> Asking:
    return Asking(registry=Registry([]), **settings)


def sections(name: str, kind: str) -> list[dict[str, Any]]:
    every = data.lesson(name)["sections"]
    flat = [inner for each in every for inner in (each["parts"] if each["kind"] == "beside" else [each])]
    return [each for each in flat if each["kind"] == kind]


def matrix(name: str, title: str) -> list[list[float | None]]:
    (found,) = [each for each in sections(name, "matrix") if each["title"] == title]
    return found["values"]


def test_every_example_is_listed_and_has_a_view_on_the_page() -> None:
    assert [each["name"] for each in data.lessons()] == [example.name for example in EXAMPLES]
    source = (ASSETS / "lessons" / "index.js").read_text(encoding="utf-8")
    shown = re.findall(r'^  \["([a-z-]+)",', source, re.MULTILINE)
    assert sorted(shown) == sorted(data.LESSONS)


def test_known_numbers() -> None:
    assert matrix("numerical", "Q Kᵀ") == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    e = [math.exp(x / math.sqrt(3)) for x in (2, 4, 4)]
    assert matrix("numerical", "weights, scaled")[0] == pytest.approx([x / sum(e) for x in e], abs=1e-15)
    assert matrix("mask", "look-ahead mask")[1] == [0, 0, None, None]  # −∞ is null
    (drawn,) = sections("positions", "picture")
    assert [len(drawn["values"]), len(drawn["values"][0])] == [50, 128]
    assert drawn["values"][7][4] == pytest.approx(math.sin(7 / 10000 ** (4 / 128)), abs=1e-12)


@pytest.mark.parametrize("name", QUICK)
def test_json_is_exactly_what_python_computes(name: str) -> None:
    told = json.loads(as_json(data.lesson(name)))  # refuses NaN and infinities
    example = get(name)
    assert (told["schema"], told["name"], told["title"]) == ("clearformer.lesson/1", name, example.title)
    computed = example.run()
    assert [each["kind"] for each in told["sections"]] == [type(each).__name__.lower() for each in computed]
    for each, section in zip(told["sections"], computed, strict=True):
        if isinstance(section, parts.Matrix):
            assert [[-math.inf if x is None else x for x in row] for row in each["values"]] == [
                *map(list, section.values)
            ]
            assert {tuple(cell) for cell in each["highlight"]} == section.highlight
        if isinstance(section, parts.Slip):
            assert each["notes_say"] == section.notes_say


def test_questions_have_options_answers_and_a_place_that_exists() -> None:
    questions = sections("quiz", "question")
    assert [each["answers"] for each in questions] == ["ABC", "C", "A", "D", "A", "B", "B"]
    assert all(len(each["options"]) >= 3 for each in questions)
    import clearformer as cf

    trace = cf.load("en-de").trace("I am fine.")
    for each in questions:
        if each["address"]:
            assert trace[each["address"]].values.numel() > 1


def test_endpoints() -> None:
    client = asking()
    assert client.get("/lessons").json() == data.lessons()
    assert client.get("/lessons/mask").json() == data.lesson("mask")
    assert client.get("/lessons/12").json()["name"] == "mask"
    wrong = client.get("/lessons/maks")
    assert wrong.status == 404
    assert "did you mean 'mask'" in wrong.json()["error"]
    assert client.get("/lessons/tokenizer").status == 404
    assert asking(page=False).get("/lessons").status == 404


def test_a_lesson_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = data.lesson("softmax")
    monkeypatch.setattr(parts.Example, "run", lambda self: pytest.fail("computed again"))
    assert data.lesson("softmax") is data.lesson("3") is first


# --- pictures and pages -----------------------------------------------------------------------------------


def write(*words: str) -> Any:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, list(words))


def test_svg_of_positions_and_mask(tmp_path: Path) -> None:
    out = tmp_path / "positions.svg"
    assert write("positions", "--out", str(out)).exit_code == 0
    titles = [each.text for each in ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}title")]
    assert "PE, dark −1 to bright 1" in titles
    lines = list(ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 6  # five dimensions, and the dot product
    masks = picture.svg(picture.pictures(get("mask").run()))
    assert "I · am: 0.0000" in masks
    assert "am · am: 0.4260" in masks


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "mask.png"
    assert write("mask", "--out", str(out)).exit_code == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_html_has_everything_and_no_script(tmp_path: Path) -> None:
    out = tmp_path / "mask.html"
    assert write("mask", "--out", str(out)).exit_code == 0
    page = out.read_text(encoding="utf-8")
    assert "<script" not in page
    for expected in ("0.4260", "−∞", "slip · N2, look-ahead mask", "&lt;start&gt;", "आप कैसे हैं"):
        assert expected in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hash-table", "--out", "x.txt"], "ends in none of"),
        (["--all", "--out", "x.svg"], "say which example"),
        (["--out", "x.html"], "say which example"),
        (["recurrence", "--out", "x.svg"], "has no picture"),
    ],
)
def test_what_cannot_be_written_is_said(words: list[str], said: str, tmp_path: Path) -> None:
    words[-1] = str(tmp_path / words[-1])
    done = write(*words)
    assert isinstance(done.exception, DataError)
    assert said in str(done.exception)
    assert not Path(words[-1]).exists()
