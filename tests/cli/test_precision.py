"""--precision, and models kept as int8."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import clearformer as cf
from clearformer.cli import app

runner = CliRunner()


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("int8") / "en-de"
    done = runner.invoke(app, ["convert", "en-de", str(out), "--precision", "int8", "--verify"])
    assert done.exit_code == 0, done.output
    assert "the same" in done.output
    return out


def test_a_quarter_of_the_size(int8: Path) -> None:
    whole = 4 * cf.count_parameters(cf.load_model(int8).spec)
    assert (int8 / "weights.safetensors").stat().st_size <= 0.3 * whole


def test_it_translates_as_it_lies_there(int8: Path) -> None:
    texts = ["How are you?", "I have to go home now."]
    kept = [one.text for one in cf.load(int8).translate(texts)]
    made = [one.text for one in cf.load("en-de", precision="int8").translate(texts)]
    assert kept == made == [one.text for one in cf.load("en-de").translate(texts)]


def test_inspect_tells(int8: Path) -> None:
    found = json.loads(runner.invoke(app, ["inspect", str(int8), "--json"]).output)["precision"]
    assert (found["kept"], found["auto"]) == ("int8", "int8")
    found = json.loads(runner.invoke(app, ["inspect", "en-de", "--json"]).output)["precision"]
    assert found["kept"] == "float32"
    assert found["paths"] == [["encoder", None], ["decoder", None]]
    assert "run as int8 (auto)" in runner.invoke(app, ["inspect", "en-de"]).output


@pytest.mark.parametrize("precision", ["float32", "int8", "auto"])
def test_verbs_take_it(precision: str) -> None:
    done = runner.invoke(app, ["translate", "--precision", precision, "How are you?"])
    assert done.stdout.strip() == "Wie geht es dir?"


def test_auto_is_what_nothing_said_means(int8: Path) -> None:
    """`inspect` says what it comes to, and the loaded object what it is."""
    told = json.loads(runner.invoke(app, ["inspect", "en-de", "--json"]).output)["precision"]["auto"]
    assert cf.load("en-de").precision == cf.load("en-de", precision="auto").precision == told
    assert cf.load("en-de", precision="float32").precision == "float32"
    assert cf.load("en-de", precision="int8").precision == "int8"
    assert cf.load("en-de", precision=None).precision == "float32"  # as kept
    assert cf.load(int8).precision == cf.load(int8, precision=None).precision == "int8"
    assert cf.load("en-de", kernel="reference").precision == "float32"  # module by module int8 is slower


def test_a_score_keeps_to_what_the_weights_are_kept_as(int8: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("How are you?\tWie geht es dir?\n")
    words = ["score", "--pairs", str(tmp_path / "pairs.tsv"), "--json"]
    for more, used in (
        ([], "float32"),
        (["--precision", "int8"], "int8"),
        (["--model", str(int8)], "int8"),
    ):
        found = json.loads(runner.invoke(app, [*words, *more]).output)
        assert found["precision"] == used
    assert ", float32;" in runner.invoke(app, words[:-1]).output


def failed(*words: str) -> str:
    done = runner.invoke(app, list(words))
    assert done.exit_code != 0
    return str(done.output) + str(done.exception or "")


def test_wrong_input(int8: Path, tmp_path: Path) -> None:
    assert "int4" in failed("translate", "--precision", "int4", "hello")
    assert "kept as int8" in failed("translate", "--model", str(int8), "--precision", "float32", "hello")
    assert "--to clearformer" in failed(
        "convert", "en-de", str(tmp_path / "a"), "--to", "huggingface", "--precision", "int8"
    )
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\n" * 20)
    assert "kept as int8" in failed(
        "finetune", "translate", "--model", str(int8), "--train", str(pairs), "--out", str(tmp_path / "c")
    )


def test_damaged_int8_is_named(int8: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    folder = tmp_path / "damaged"
    shutil.copytree(int8, folder)
    tensors = load_file(folder / "weights.safetensors")
    name = next(each for each in tensors if each.endswith(".panels"))
    save_file({**tensors, name: tensors[name].float()}, folder / "weights.safetensors")
    with pytest.raises(cf.CheckpointError, match=r"wrong type .* expected one of I8"):
        cf.load(folder)
    save_file({each: value for each, value in tensors.items() if each != name}, folder / "weights.safetensors")
    with pytest.raises(cf.CheckpointError, match="missing"):
        cf.load(folder)
