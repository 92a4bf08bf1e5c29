"""The code that the documents show runs, in order, page by page; the examples run too."""

import re
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_code_on_pages(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)  # our own pages


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 5


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_the_readme_shows_is_there() -> None:
    import typer

    from clearformer.cli import app

    verbs = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    shown = set(
        re.findall(
            r"\bclearformer ([a-z]+)",
            "\n".join(re.findall(r"^```(?:sh)?\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)),
        )
    )
    assert shown <= verbs, shown - verbs


WORDS = ["KV cache", "paged KV cache", "GEMM", "GQA", "quantise", "dequantise", "logits", "top-k", "barrier"]
WORDS += ["prefetch", "gradient accumulation", "continuous batching", "prefix cache", "detokenise", "thread-safe"]
WORDS += ["metadata"]


def test_the_glossary_has_both_directions_and_the_words_are_where_it_says() -> None:
    first, second = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("## From our words")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| \[(.+?)\]", first, re.MULTILINE)
    back = re.findall(r"^\| (.+?) \| (.+?) \|$", second, re.MULTILINE)[2:]
    assert {(field, ours) for field, ours, _ in rows} == {(field, ours) for ours, field in back}
    places = {field.split(",")[0]: ROOT / "src" / "clearformer" / where for field, _, where in rows}
    assert set(WORDS) <= set(places)
    for word in WORDS:
        if places[word].is_file() and places[word].parent.name != "native":
            assert word.lower() in places[word].read_text(encoding="utf-8").lower(), (
                f"{places[word]} does not say {word}"
            )
