"""`clearformer explain` for every family, as text, JSON and pictures, in terminals of any width."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from clearformer.cli import app
from clearformer.explain.show import number
from clearformer.tasks.load import load
from tests.data.test_images import noise
from tests.tasks import encoders, writers
from tests.tasks.conftest import save
from tests.tasks.test_see import save_captioner, save_seer

TEXT = "Paris is the capital of France."


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("explained")
    made = {
        "translate": save(home / "translate"),
        "complete": writers.save(writers.completer(), home / "complete"),
        "write": writers.save(writers.writer(), home / "write"),
        "classify": encoders.save(home / "classify", "BertForSequenceClassification", num_labels=3)[0],
        "tag": encoders.save(home / "tag", "BertForTokenClassification", num_labels=4)[0],
        "fill": encoders.save(home / "fill", "BertForMaskedLM")[0],
        "answer": encoders.save(home / "answer", "DistilBertForQuestionAnswering")[0],
        "embed": encoders.save(home / "embed", "DistilBertModel")[0],
    }
    for name, maker in (("see", save_seer), ("caption", save_captioner)):
        maker(home / name)
        made[name] = home / name
    Image.fromarray(noise(30, 40, seed=1)).save(home / "image.png")
    return {**{name: str(path) for name, path in made.items()}, "image": str(home / "image.png")}


def run(*words: str, width: int = 100, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["explain", *words, "--precision", "float32"], env={"COLUMNS": str(width)})
    assert done.exit_code == code or (code and done.exception), (done.output, done.exception)
    return str(done.exception) if code else done.stdout


def words_of(models: dict[str, str], name: str) -> list[str]:
    more = {
        "translate": ["Do you know him?"],
        "complete": ["one two", "--max-new-tokens", "4"],
        "write": ["one two three", "--to", "de", "--max-new-tokens", "4"],
        "classify": [TEXT, "--pair", "It rains."],
        "tag": [TEXT],
        "fill": ["Paris is the [MASK] of France."],
        "answer": ["What is it?", "--pair", TEXT],
        "embed": [TEXT],
        "see": [models["image"]],
        "caption": [models["image"], "--max-new-tokens", "4"],
    }
    return [*more[name], "--model", models[name]]


FAMILIES = ("translate", "complete", "write", "classify", "tag", "fill", "answer", "embed", "see", "caption")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_explained(models: dict[str, str], name: str) -> None:
    out = run(*words_of(models, name))
    stack = "decoder.1.cross" if name in ("translate", "write", "caption") else "stack.1.self"
    assert f"{stack}.weights" in out
    assert "query ↓ key →" in out
    assert ("the likeliest tokens" in out) == (name in ("translate", "complete", "write", "caption"))
    if name in ("classify", "tag", "see"):
        assert " %  " in out
    if name in ("see", "caption"):
        assert "0 [summary]" in out
    if name == "embed":
        assert "32 numbers, pooled by mean" in out


@pytest.mark.parametrize("name", FAMILIES)
def test_json_has_what_the_task_found_and_every_address(models: dict[str, str], name: str) -> None:
    found = json.loads(run(*words_of(models, name), "--json"))
    assert found["schema"] == "clearformer.trace/1"
    assert found["run"]["verb"] == ("see" if name == "caption" else "translate" if name == "write" else name)
    steps = {each["address"]: each for each in found["addresses"]}
    stack = "decoder.1.cross" if name in ("translate", "write", "caption") else "stack.1.self"
    tensor = json.loads(run(*words_of(models, name), "--json", "--address", f"{stack}.h1.weights"))
    shape = steps[f"{stack}.weights"]["shape"]
    assert tensor["shape"] == shape[1:]
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in tensor["values"])
    cell = json.loads(run(*words_of(models, name), "--json", "--address", f"{stack}.h1.weights[0,0]"))
    assert cell["value"] == pytest.approx(tensor["values"][0][0], abs=1e-12)
    assert cell["expression"]["kind"] == "softmax" or shape[3] == 1


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("name", ["translate", "complete", "tag", "see"])
def test_tables_fit_the_terminal(models: dict[str, str], name: str, width: int) -> None:
    lines = run(*words_of(models, name), width=width).splitlines()
    start = lines.index("query ↓ key →")
    table = []
    for line in lines[start + 1 :]:
        if not line:
            break
        table.append(line)
    assert len(table) >= 2
    assert all(len(line) <= width for line in table)
    rows = [line for line in table if line[:1].isdigit()]
    assert rows
    for row in rows:
        numbers = [cell for cell in row.split() if cell[:2] in ("0.", "1.")]
        assert numbers
        assert all(len(cell) == 4 for cell in numbers)


def test_eleven_tokens_keep_their_digits_in_eighty_columns(models: dict[str, str]) -> None:
    words = ["one two three four five six.", "--model", models["translate"]]
    out = run(*words, width=80)
    tensor = json.loads(run(*words, "--json", "--address", "decoder.1.cross.weights"))
    heads, _, columns = tensor["shape"]
    assert columns >= 8
    first = next(line for line in out.splitlines() if line.startswith("0 "))
    mean = [sum(tensor["values"][h][0][n] for h in range(heads)) / heads for n in range(columns)]
    shown = [cell for cell in first.split()[1:] if "." in cell]
    assert shown[: len(mean)] == [f"{x:.2f}" for x in mean[: len(shown)]]


def test_rows_are_called_the_same_everywhere(models: dict[str, str]) -> None:
    words = words_of(models, "translate")
    report = run(*words, width=200)
    table = run(*words, "--address", "decoder.1.cross.h0.weights", width=200)
    found = json.loads(run(*words, "--json"))
    for n, token in enumerate(found["words"]["target"][:5]):
        assert sum(line.startswith(f"{n} {token} ") for line in report.splitlines()) == 2  # attention and choices
        assert any(line.startswith(f"{n} {token} ") for line in table.splitlines())
    assert f"query 1 “{found['words']['target'][1]}”" in run(*words, "--address", "decoder.1.cross.h0.weights[1,0]")


def test_n_best_lists_show_both_numbers_in_the_order_of_the_second(models: dict[str, str]) -> None:
    task: Any = load(models["translate"], precision="float32")
    words = [*words_of(models, "translate"), "--num-return-sequences", "3", "--length-penalty", "2"]
    out = run(*words).splitlines()
    start = next(n for n, line in enumerate(out) if "texts found" in line)
    rows = [line.split(None, 2) for line in out[start + 2 : start + 5]]
    plain = task.translate("Do you know him?", num_return_sequences=3, length_penalty=2.0)[0]
    assert [row[0] for row in rows] == [number(each.score) for each in (plain, *plain.others)]
    ranks = [float(row[1].replace("−", "-")) for row in rows]
    assert ranks == sorted(ranks, reverse=True)


def test_questions_and_pictures(models: dict[str, str], tmp_path: Path) -> None:
    words = words_of(models, "complete")
    assert "layer ↓ position →" in run(*words, "--lens")
    assert "the sum of" in run(*words, "--attribution", "head.logits[1,7]")
    assert json.loads(run(*words, "--json", "--ablations", "head.logits[1,7]"))["heads"]
    assert "two questions" in run(*words, "--lens", "--address", "head.logits", code=2)
    for name in ("a.svg", "b.png"):
        run(*words, "--out", str(tmp_path / name))
        run(*words, "--address", "stack.0.self.h0.scores", "--out", str(tmp_path / f"of {name}"))
        assert (tmp_path / f"of {name}").stat().st_size > 1000
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    assert "exists already" in run(*words, "--out", str(tmp_path / "a.svg"), code=2)
    assert "no ending of a picture" in run(*words, "--out", str(tmp_path / "a.txt"), code=2)
    assert "3 axes" in run(*words, "--address", "stack.0.self.scores", "--out", str(tmp_path / "c.svg"), code=2)
    assert not (tmp_path / "c.svg").exists()


def test_what_does_not_fit_is_said(models: dict[str, str]) -> None:
    assert "for models that write" in run(*words_of(models, "classify"), "--num-beams", "3", code=2)
    assert "for models that write" in run(*words_of(models, "classify"), "--to", "de", code=2)
    assert "needs a context" in run(TEXT, "--model", models["answer"], code=2)
    assert "layers are 0 to 1" in run(*words_of(models, "tag"), "--layer", "9", code=2)
    assert "there are 4 heads" in run(*words_of(models, "tag"), "--head", "9", code=2)
    assert run(*words_of(models, "translate"), "--addresses").count("decoder.1.cross.weights:") == 1
    forced = json.loads(run(*words_of(models, "translate"), "--target", "four five", "--json"))
    assert forced["run"]["text"] == "four five"
