"""--precision, and models kept as int8."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import clearformer as cf
from clearformer.cli import app
from clearformer.kernels.pack import dequantise, float_weights
from clearformer.tasks.load import find, open_model

runner = CliRunner()


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator that is kept as floats, with some noise, so that they are not the numbers of int8 already."""
    out = tmp_path_factory.mktemp("floats") / "en-de"
    model = dequantise(open_model("en-de").model)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + 1e-3 * torch.randn(weight.shape, generator=draw))
    cf.save_model(model, out)
    for name in ("tokenizer.json", "task.json"):
        shutil.copy(find("en-de") / name, out / name)
    return out


@pytest.fixture(scope="module")
def int8(floats: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("int8") / "en-de"
    done = runner.invoke(app, ["convert", str(floats), str(out), "--precision", "int8", "--verify"])
    assert done.exit_code == 0, done.output
    assert "the same" in done.output
    return out


def test_a_quarter_of_the_size(int8: Path) -> None:
    whole = 4 * cf.count_parameters(cf.load_model(int8).spec)
    assert (int8 / "weights.safetensors").stat().st_size <= 0.3 * whole


def test_it_translates_as_it_lies_there(floats: Path, int8: Path) -> None:
    texts = ["How are you?", "I have to go home now."]
    kept = [one.text for one in cf.load(int8).translate(texts)]
    made = [one.text for one in cf.load(floats, precision="int8").translate(texts)]
    assert kept == made == [one.text for one in cf.load(floats).translate(texts)]


def test_inspect_tells(floats: Path, int8: Path) -> None:
    found = json.loads(runner.invoke(app, ["inspect", str(int8), "--json"]).output)["precision"]
    assert (found["kept"], found["auto"]) == ("int8", "int8")
    found = json.loads(runner.invoke(app, ["inspect", str(floats), "--json"]).output)["precision"]
    assert found["kept"] == "float32"
    assert found["paths"] == [["encoder", None], ["decoder", None]]
    assert "run as int8 (auto)" in runner.invoke(app, ["inspect", str(floats)]).output


@pytest.mark.parametrize("precision", ["float32", "int8", "auto"])
def test_verbs_take_it(precision: str) -> None:
    done = runner.invoke(app, ["translate", "--precision", precision, "How are you?"])
    assert done.stdout.strip() == "Wie geht es dir?"


def test_auto_is_what_nothing_said_means(floats: Path, int8: Path) -> None:
    """`inspect` says what it comes to, and the loaded object what it is."""
    told = json.loads(runner.invoke(app, ["inspect", str(floats), "--json"]).output)["precision"]["auto"]
    assert cf.load(floats).precision == cf.load(floats, precision="auto").precision == told
    assert cf.load(floats, precision="float32").precision == "float32"
    assert cf.load(floats, precision="int8").precision == "int8"
    assert cf.load(floats, precision=None).precision == "float32"  # as kept
    assert cf.load(int8).precision == cf.load(int8, precision=None).precision == "int8"
    assert cf.load(floats, kernel="reference").precision == "float32"  # module by module int8 is slower


def test_a_score_keeps_to_what_the_weights_are_kept_as(floats: Path, int8: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("How are you?\tWie geht es dir?\n")
    words = ["score", "--pairs", str(tmp_path / "pairs.tsv"), "--model"]
    for more, used in (
        ([str(floats)], "float32"),
        ([str(floats), "--precision", "int8"], "int8"),
        ([str(int8)], "int8"),
        ([str(int8), "--precision", "float32"], "float32"),
    ):
        found = json.loads(runner.invoke(app, [*words, *more, "--json"]).output)
        assert found["precision"] == used
    assert ", float32;" in runner.invoke(app, [*words, str(floats)]).output


def failed(*words: str) -> str:
    done = runner.invoke(app, list(words))
    assert done.exit_code != 0
    return str(done.output) + str(done.exception or "")


def test_wrong_input(int8: Path, tmp_path: Path) -> None:
    assert "int4" in failed("translate", "--precision", "int4", "hello")
    assert "kept as int8" in failed("convert", str(int8), str(tmp_path / "a"), "--to", "clearformer")
    assert "--to clearformer" in failed(
        "convert", "en-de", str(tmp_path / "a"), "--to", "huggingface", "--precision", "int8"
    )


def test_int8_can_be_run_as_floats(int8: Path) -> None:
    """With the rounded numbers: what int8 stands for, and float arithmetic."""
    kept, model = cf.load_model(int8), cf.load(int8, precision="float32", kernel="reference").model
    wanted = float_weights(kept)
    found = dict(model.named_parameters())
    assert found.keys() <= wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in found)
    assert model.head.weight is model.encoder.embed.table  # still one table
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids, ids), kept(ids, ids), atol=0.05, rtol=0.05)


def test_a_training_begins_with_the_dequantised_weights(floats: Path, int8: Path) -> None:
    """Each weight is one of 255 multiples of its row's scale, and no further from the original than half of it."""
    from clearformer.checkpoints.model_folder import load_model
    from clearformer.training.init_from import Start

    start = Start.read(int8)
    model = cf.build(start.spec, seed=0)
    assert start.fill(model) == []
    kept = dict(load_model(floats).float().named_parameters())
    for name, weight in model.named_parameters():
        steps = kept[name].abs().amax(-1, keepdim=True) / 127 if weight.ndim == 2 else 0.0
        assert bool(((weight - kept[name]).abs() <= steps * 0.51).all()), name


def test_damaged_int8_is_named(int8: Path, tmp_path: Path) -> None:
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
