"""What `clearformer train TASK` makes by itself is read by transformers and says the same there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from typer.testing import CliRunner

from clearformer import arrangements, build, presets, spec
from clearformer.checkpoints.convert import convert
from clearformer.checkpoints.huggingface import describe
from clearformer.checkpoints.relatives import HALVES, public_form
from clearformer.cli import app
from clearformer.errors import CheckpointError
from clearformer.tasks.load import BUNDLED, load
from clearformer.tasks.verify import verify
from clearformer.training.run import start
from tests.training import goals, runs

FAMILIES = {
    "classify": "eurobert",
    "tag": "eurobert",
    "embed by score": "eurobert",
    "embed by contrast": "eurobert",
    "answer": "megatron-bert",
    "complete": "mistral",
    "complete prompts": "mistral",
    "fill": "megatron-bert",
    "see": "siglip",
}
TEXTS = ("red cat runs big dog", "one two three small cat eats", "blue")
LETTERS = ("a b c d", "l k j i h", "c", "a a b f g e")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("defaults")
    goals.write(folder)
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_every_default_says_the_same_in_transformers(data: Path, name: str, tmp_path: Path) -> None:
    asked = goals.asking(data, name, out=f"{name} exported")
    start(asked)
    public = convert(asked.out, tmp_path / "public", "huggingface")
    assert describe(public).family == FAMILIES[name]
    found = verify(asked.out, public, TEXTS)
    assert found.by == "transformers"
    assert found.said >= 1
    assert found.same, found
    assert found.answers <= 1e-5 * max(found.largest, 1.0)
    back = convert(public, tmp_path / "back", "clearformer")
    assert verify(asked.out, back, TEXTS).same
    assert verify(public, back, TEXTS).weights == 0


def test_images_that_are_not_square_are_a_vit(data: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (40, 8, 12, 3)).astype(np.uint8)
    np.savez(data / "oblong.npz", x=images, y=np.arange(40) % 3)
    asked = goals.asking(data, "see", {"data.train": [{"file": data / "oblong.npz"}]}, out="oblong exported")
    start(asked)
    public = convert(asked.out, tmp_path / "public", "huggingface")
    assert describe(public).family == "vit"
    assert verify(asked.out, public, TEXTS).same


def test_a_filler_that_became_a_classifier(data: Path, tmp_path: Path) -> None:
    """Its body is a relative of megatron-bert, and so its classes are told as that family does."""
    first = goals.asking(data, "fill", out="fill first")
    start(first)
    changes = {"model.start": first.out, "model.dropout": None, "data.longest": 24}
    asked = goals.asking(data, "classify", changes, out="then classify")
    start(asked)
    public = convert(asked.out, tmp_path / "public", "huggingface")
    assert describe(public).family == "megatron-bert"
    assert verify(asked.out, public, TEXTS).same


TRANSLATORS: dict[str, tuple[dict[str, Any], str]] = {
    "as it is": ({}, "pegasus"),
    "by subwords": ({"tokenizer.kind": "bpe", "tokenizer.vocabulary": 300}, "pegasus"),
    "by unigrams": ({"tokenizer.kind": "unigram", "tokenizer.vocabulary": 300}, "pegasus"),
    "norms after": ({"model.norm": "after"}, "marian"),
}


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("translators")


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_writes_the_same_tokens_in_transformers(translators: Path, name: str, tmp_path: Path) -> None:
    changes, family = TRANSLATORS[name]
    folder = translators / name
    folder.mkdir()
    asked = runs.asking(folder, {"length.steps": 60, "validation.every": 60, **changes})
    start(asked)
    public = convert(asked.out, tmp_path / "public", "huggingface")
    assert describe(public).family == family
    found = verify(asked.out, public, LETTERS)
    assert (found.by, found.same, found.said) == ("transformers", True, 1 + 3 * len(LETTERS)), found
    # the settings in the folder are enough: nothing is said here but the text
    tokenizer, model = hf.AutoTokenizer.from_pretrained(public), hf.AutoModelForSeq2SeqLM.from_pretrained(public)
    for text in LETTERS:
        ids = model.generate(**tokenizer(text, return_tensors="pt"))[0]
        (one,) = load(asked.out, precision="float32").translate(text)
        if one.finish == "end":
            assert tokenizer.decode(ids, skip_special_tokens=True) == one.text
    padded = tokenizer(list(LETTERS), padding=True, return_tensors="pt")
    for ids, text in zip(model.generate(**padded), LETTERS, strict=True):
        alone = model.generate(**tokenizer(text, return_tensors="pt"))[0]
        assert tokenizer.decode(ids, skip_special_tokens=True) == tokenizer.decode(alone, skip_special_tokens=True)
    mine, again = (load(folder, precision="float32").translate(list(LETTERS)) for folder in (asked.out, public))
    assert [(one.tokens, one.source_tokens) for one in mine] == [(one.tokens, one.source_tokens) for one in again]
    assert [one.score for one in mine] == pytest.approx([one.score for one in again], abs=1e-4)


def test_a_tag_says_which_language_to_write(translators: Path, tmp_path: Path) -> None:
    folder = translators / "languages"
    folder.mkdir()
    source, target = runs.write_pairs(folder)
    parts = [{"source": source, "target": target, "to": "xx"}, {"source": source, "target": source, "to": "yy"}]
    asked = runs.asking(folder, {"data.train": parts, "length.steps": 60, "validation.every": 60})
    start(asked)
    public = convert(asked.out, tmp_path / "public", "huggingface")
    found = verify(asked.out, public, LETTERS)
    assert found.same, found
    assert ">>yy<< How are you?" not in (public / "README.md").read_text()
    assert ">>xx<< How are you?" in (public / "README.md").read_text()
    tokenizer, mine = hf.AutoTokenizer.from_pretrained(public), load(asked.out, precision="float32")
    for to in ("xx", "yy"):
        assert tokenizer(f">>{to}<< a b c")["input_ids"] == mine.sides.encode("a b c", to)  # type: ignore[attr-defined]
    small = convert(asked.out, tmp_path / "small", "clearformer", precision="int8")  # another folder of ours
    assert (small / "tokenizer.json").read_bytes() == (asked.out / "tokenizer.json").read_bytes()
    again = convert(small, tmp_path / "again", "huggingface")
    assert (again / "tokenizer.json").read_bytes() == (public / "tokenizer.json").read_bytes()
    theirs = load(public, precision="float32")
    for to in ("xx", "yy"):
        one, other = (model.translate("a b c", to=to)[0] for model in (mine, theirs))
        assert one.tokens == other.tokens


SPECS = {"marian": presets.marian("tiny"), "t5": presets.t5("tiny"), "original": presets.original("tiny")}


@pytest.fixture(scope="module")
def written(translators: Path) -> dict[str, tuple[Path, Path]]:
    """Other families, trained from nothing: the run and its export."""
    made = {}
    for name, what in SPECS.items():
        folder = translators / f"spec {name}"
        folder.mkdir()
        (folder / "spec.json").write_text(what.to_json())
        changes = {"model.spec": folder / "spec.json", "length.steps": 20, "validation.every": 20}
        asked = runs.asking(folder, {**changes, "data.train.0.to": "xx"})
        start(asked)
        made[name] = (asked.out, convert(asked.out, folder / "public", "huggingface"))
    return made


@pytest.mark.parametrize("name", SPECS)
def test_other_families_trained_from_nothing_have_our_special_tokens(
    written: dict[str, tuple[Path, Path]], name: str
) -> None:
    mine, public = written[name]
    assert describe(public).family == {"original": "marian"}.get(name, name)
    config = json.loads((public / "config.json").read_text())
    tokenizer = hf.AutoTokenizer.from_pretrained(public)
    ids = (config["decoder_start_token_id"], config["eos_token_id"], config["pad_token_id"])
    assert ids == (1, 2, 0) == (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert tokenizer("a b")["input_ids"][-1] == 2
    found = verify(mine, public, LETTERS)
    assert found.same, found
    assert load(public, precision="float32").can == ("translate",)


def broken(public: Path, to: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    folder = shutil.copytree(public, to)
    said = json.loads((folder / name).read_text())
    change(said)
    (folder / name).write_text(json.dumps(said))
    return folder


def test_a_wrong_end_is_found(written: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    mine, public = written["marian"]

    def wrong(said: dict[str, Any]) -> None:
        said["eos_token_id"] = said["pad_token_id"]

    other = broken(public, tmp_path / "other", "generation_config.json", wrong)
    found = verify(mine, other, LETTERS)
    assert not found.same
    assert found.odd == "special tokens (start, end, padding): 1 2 0 here, 1 0 0 there"
    done = CliRunner().invoke(app, ["convert", str(mine), str(other), "--verify", "--text", "a b"])
    assert done.exit_code == 1
    assert "not the same" in done.output
    assert "special tokens (start, end, padding): 1 2 0 here, 1 0 0 there" in done.output


def test_a_source_that_lost_its_end_is_found(written: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    mine, public = written["marian"]

    def without(said: dict[str, Any]) -> None:
        said["post_processor"] = None

    other = broken(public, tmp_path / "other", "tokenizer.json", without)
    with pytest.raises(CheckpointError, match="read a text differently"):
        verify(mine, other, LETTERS)


def test_what_transformers_alone_reads_otherwise_is_found(
    written: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """Our own reading stops at `max_new_tokens` of the caller; a token that is always forced shows in theirs."""
    mine, public = written["marian"]

    def forced(said: dict[str, Any]) -> None:
        said["begin_suppress_tokens"] = list(range(4, 16))

    found = verify(mine, broken(public, tmp_path / "other", "generation_config.json", forced), LETTERS)
    assert found.answers <= found.tolerance * found.largest
    assert not found.same
    assert found.odd is not None


def test_without_transformers_our_own_reading_is_compared(
    written: dict[str, tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearformer.tasks.verify.find_spec", lambda name: None)
    for mine, public in written.values():
        found = verify(mine, public, LETTERS)
        assert (found.by, found.same, found.said) == ("clearformer", True, 1 + 3 * len(LETTERS)), found

    def wrong(said: dict[str, Any]) -> None:
        said["eos_token_id"] = said["pad_token_id"]

    mine, public = written["marian"]
    assert not verify(mine, broken(public, tmp_path / "other", "generation_config.json", wrong), LETTERS).same


def test_what_transformers_cannot_load_is_told(written: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    mine, public = written["original"]

    def odd(said: dict[str, Any]) -> None:
        said["encoder_layerdrop"] = "a word"  # which matters in training only

    other = broken(public, tmp_path / "other", "config.json", odd)
    with pytest.raises(CheckpointError, match="transformers cannot read"):
        verify(mine, other, LETTERS)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in BUNDLED.glob("*/task.json")))
def test_bundled_models_go_out_too(name: str, tmp_path: Path) -> None:
    public = convert(BUNDLED / name, tmp_path / "public", "huggingface")
    texts = ("How are you?", "We meet at the station at eight o'clock.")
    found = verify(BUNDLED / name, public, texts)
    assert found.same, found
    assert found.by == "transformers"
    if name == "en-de":
        assert found.weights == 0
        assert not found.strict  # the numbers are the same, and what is computed with them is rounded here
        assert "rounded" in (public / "README.md").read_text()


# --- relatives ------------------------------------------------------------------------------------------------------


def test_coordinates_in_another_order_by_hand() -> None:
    """Width 4: sines and cosines in turn become the two sines, then the two cosines."""
    what = presets.original("tiny").replace({"head.bias": True})
    table = torch.arange(8.0).reshape(2, 4)
    given = {"encoder.embed.table": table, "encoder.blocks.0.branches.self.layer.output.bias": torch.arange(4.0)}
    small = arrangements.encoder_decoder(width=4, layers=(1, 1), heads=1, inner=4, vocabulary=2)
    made = HALVES.weights(given, small, 0)
    assert made["encoder.embed.table"].tolist() == [[0, 2, 1, 3], [4, 6, 5, 7]]
    assert made["encoder.blocks.0.branches.self.layer.output.bias"].tolist() == [0, 2, 1, 3]
    assert HALVES.spec(what.replace({f"{s}.embed.positions.layout": "halves" for s in what.stacks}), 0) is None


@pytest.mark.parametrize("norm", ["before", "after"])
@torch.no_grad()
def test_a_relative_is_the_same_function(norm: Any) -> None:
    sizes: dict[str, Any] = {"width": 16, "heads": 2, "inner": 24, "vocabulary": 30, "dropout": 0.0}
    two = build(arrangements.encoder_decoder(layers=(2, 1), norm=norm, **sizes), seed=0).eval()
    one = build(arrangements.encoder(layers=2, norm="before", head=spec.MaskedToken(norm=spec.LayerNorm()), **sizes))
    ids = torch.randint(0, 30, (3, 7), generator=torch.Generator().manual_seed(1))
    for model, given, steps in ((two, (ids, ids[:, :5]), 2 if norm == "after" else 1), (one.eval(), (ids,), 3)):
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
        form = public_form(model.spec, dict(model.named_parameters()), longest=9)
        assert len(form.notes) == steps
        relative = build(form.spec).eval()
        relative.load_state_dict(form.weights, strict=False)
        assert {name for name, _ in relative.named_parameters()} == form.weights.keys()
        assert (relative(*given) - model(*given)).abs().max() < 1e-5
