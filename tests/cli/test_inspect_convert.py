"""`inspect` and `convert` on folders of both layouts."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import MarianConfig, MarianMTModel
from typer.testing import CliRunner, Result

from clearformer.checkpoints.huggingface import load_public, save_public
from clearformer.checkpoints.model_folder import load_model
from clearformer.cli import app
from clearformer.errors import CheckpointError, DataError
from clearformer.tasks.load import load
from tests.checkpoints.cases import pair
from tests.text import kinds

SIZES = {"layers": 1, "attention_heads": 2, "ffn_dim": 24}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A public Llama with a tokenizer of its own."""
    folder = tmp_path / "llama"
    shutil.copytree(pair("llama tied")[2], folder)
    words = [*(f"word{n}" for n in range(97)), "<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def marian(folder: Path, separate: bool = False) -> Path:
    """A public Marian with one or two vocabularies, and no token for a language."""
    folder.mkdir()
    kinds.marian(folder, separate_vocabs=separate)
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    ids = {piece.strip("<>") if piece.startswith(">>") else piece: number for piece, number in ids.items()}
    kinds.save_json(folder / "vocab.json", ids)
    fewer = len(ids) - 100 if separate else len(ids)
    if separate:
        pieces = [*list(ids)[: fewer - 1], "<pad>"]
        kinds.save_json(folder / "target_vocab.json", {piece: number for number, piece in enumerate(pieces)})
    layers = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIZES.items()}
    config = MarianConfig(
        vocab_size=len(ids),
        decoder_vocab_size=fewer,
        share_encoder_decoder_embeddings=not separate,
        tie_word_embeddings=not separate,
        d_model=16,
        **layers,
        max_position_embeddings=256,
        pad_token_id=fewer - 1,
        decoder_start_token_id=fewer - 1,
        eos_token_id=0,
        forced_eos_token_id=0,
    )
    torch.manual_seed(1)
    MarianMTModel(config).save_pretrained(folder)
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_inspect_a_public_folder(llama: Path) -> None:
    done = run("inspect", llama)
    assert done.exit_code == 0, done.output
    for line in (
        "llama, 18,720 parameters",
        "of F32",
        "can complete",
        "tokens 100 → 32",
        "2 × block of width 32",
        "4 heads × 8 on 2 of keys, causal, rotary positions, rms norm before",
        "32 → 48 → 32, gated silu",
        "logits of the next token, 100, by the token table",
        "stack.*.self (2): fused",
        "hidden_size",
        "width of the states",
    ):
        assert line in done.output, done.output


def test_inspect_as_json(llama: Path) -> None:
    found = json.loads(run("inspect", llama, "--json").output)
    assert (found["family"], found["task"], found["longest"], found["types"]) == ("llama", "complete", 256, ["F32"])
    uses = {remark["key"]: remark["use"] for remark in found["config"]}
    assert (uses["hidden_size"], uses["use_cache"], uses["pretraining_tp"]) == ("used", "ignored", "must equal")
    assert found["spec"]["stack"]["width"] == 32
    assert found["parameters"] == sum(parameter.numel() for parameter in pair("llama tied")[1].parameters())


def test_inspect_tells_a_default_prompt(tmp_path: Path) -> None:
    model, public = load_public(pair("bert pooler")[2])
    metadata = public.metadata.replace(prompt="query: ", skips_prompt=True)
    done = run("inspect", save_public(model, tmp_path / "encoder", metadata=metadata))
    assert "; 'query: ' is put before each text, and left out of its vector" in done.output


def test_inspect_a_bundled_model() -> None:
    done = run("inspect", "en-de")
    assert done.exit_code == 0
    assert "can translate" in done.output
    assert "its states are the decoder's memory" in done.output


@pytest.mark.parametrize("name", ["bert spans", "t5", "vit", "captions", "mistral"])
def test_inspect_draws_every_shape(name: str) -> None:
    done = run("inspect", pair(name)[2])
    assert done.exit_code == 0, done.output


def test_inspect_says_what_the_model_can_do(tmp_path: Path) -> None:
    folder = marian(tmp_path / "marian")
    assert "can translate; texts" in run("inspect", folder).output
    assert json.loads(run("inspect", folder, "--json").output)["can"] == list(load(folder).can) == ["translate"]


def test_inspect_says_where_tokenizer_and_vocabulary_differ(llama: Path) -> None:
    assert "tokenizer" not in run("inspect", llama).output.split("kernels")[0]
    tokenizer = Tokenizer(models.WordLevel({f"word{n}": n for n in range(60)}, unk_token="word0"))
    tokenizer.save(str(llama / "tokenizer.json"))
    (llama / "tokenizer_config.json").write_text("{}")
    assert "its tokenizer has 60 tokens, and the model rows for 100" in run("inspect", llama).output
    assert json.loads(run("inspect", llama, "--json").output)["tokenizer"] == {"tokens": 60, "vocabulary": 100}
    (llama / "tokenizer.json").write_text("{}")
    done = run("inspect", llama)
    assert done.exit_code == 0
    assert "its tokenizer cannot be used: " in done.output


def test_inspect_tells_tensors_that_do_not_fit(llama: Path) -> None:
    tensors = load_file(llama / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, llama / "model.safetensors")
    done = run("inspect", llama)
    assert isinstance(done.exception, CheckpointError)
    assert "missing     model.norm.weight 32" in str(done.exception)


@torch.no_grad()
def test_there_and_back_is_the_same(llama: Path, tmp_path: Path) -> None:
    there = run("convert", llama, tmp_path / "ours", "--to", "clearformer", "--verify")
    assert there.exit_code == 0, there.output
    assert "at most 0 apart" in there.output
    assert {"spec.json", "weights.safetensors", "task.json", "tokenizer.json", "words.json", "README.md"} == set(
        os.listdir(tmp_path / "ours")
    )
    assert json.loads((tmp_path / "ours" / "task.json").read_text())["task"] == "complete"
    back = run(
        "convert", tmp_path / "ours", tmp_path / "back", "--to", "huggingface", "--verify", "--text", "word1 word2"
    )
    assert back.exit_code == 0, back.output
    first, last = (load_file(folder / "model.safetensors") for folder in (llama, tmp_path / "back"))
    assert first.keys() == last.keys()
    assert all(torch.equal(first[name], last[name]) for name in first)
    assert (tmp_path / "back" / "tokenizer_config.json").is_file()
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(load_model(tmp_path / "ours")(ids), load_public(llama)[0](ids))


def test_half_precision_is_within_what_is_allowed(llama: Path, tmp_path: Path) -> None:
    done = run("convert", llama, tmp_path / "half", "--to", "clearformer", "--dtype", "bfloat16", "--verify", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output.splitlines()[-1])
    assert found["same"]
    assert 0 < found["answers"] < 0.05 * max(found["largest"], 1)
    strict = run("convert", llama, tmp_path / "half", "--verify", "--tolerance", "1e-7")
    assert strict.exit_code == 1
    assert "not the same" in strict.output


@torch.no_grad()
def test_a_change_is_found(llama: Path, tmp_path: Path) -> None:
    shutil.copytree(llama, tmp_path / "other")
    tensors = load_file(tmp_path / "other" / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * 1.01
    save_file(tensors, tmp_path / "other" / "model.safetensors")
    done = run("convert", llama, tmp_path / "other", "--verify", "--text", "word3 word4")
    assert done.exit_code == 1
    assert "not the same" in done.output


@pytest.mark.parametrize("separate", [False, True])
def test_a_translator_there_and_back(separate: bool, tmp_path: Path) -> None:
    folder = marian(tmp_path / "marian", separate)
    for out, source, layout in (
        ("public", "marian", "huggingface"),
        ("ours", "marian", "clearformer"),
        ("back", "ours", "huggingface"),
    ):
        done = run("convert", tmp_path / source, tmp_path / out, "--to", layout, "--verify", "--text", kinds.TEXTS[0])
        assert done.exit_code == 0, done.output
        assert load(tmp_path / out).translate("ka lo", to="de", max_new_tokens=4) == load(folder).translate(
            "ka lo", max_new_tokens=4
        )
        with pytest.raises(DataError, match="does not translate to 'fr'"):
            load(tmp_path / out).translate("ka lo", to="fr")


def test_the_language_exported_is_the_one_in_the_metadata(tmp_path: Path) -> None:
    run("convert", marian(tmp_path / "marian"), tmp_path / "ours", "--to", "clearformer")
    facts = json.loads((tmp_path / "ours" / "task.json").read_text())
    kinds.save_json(tmp_path / "ours" / "task.json", {**facts, "to": ["fr"]})  # as after more training
    done = run("convert", tmp_path / "ours", tmp_path / "public", "--to", "huggingface", "--verify")
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "public").to == ("fr",)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"target_lang": "fr"}, "marian translates to de, and .*other to fr"),
        ({"target_lang": None}, "and .*other to no language that is named"),
        ({"chat_template": "{{ 1 }}"}, "the chat templates of .* differ"),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, "PreTrainedTokenizerFast, which reads tokenizer.json, and"),
        ({"eos_token": "<unk>"}, "read a text differently"),
    ],
)
def test_a_tokenizer_that_did_not_survive_is_found(changed: dict[str, str], told: str, tmp_path: Path) -> None:
    folder = marian(tmp_path / "marian")
    other = shutil.copytree(folder, tmp_path / "other")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    kinds.save_json(other / "tokenizer_config.json", {**settings, **changed})
    done = run("convert", folder, other, "--verify", "--text", "ka lo")
    assert isinstance(done.exception, CheckpointError), done.output
    assert re.search(told, str(done.exception)), done.exception


def test_what_a_decoder_is_given_is_compared(tmp_path: Path) -> None:
    folder = marian(tmp_path / "marian", separate=True)
    other = shutil.copytree(folder, tmp_path / "other")
    ids = json.loads((folder / "target_vocab.json").read_text(encoding="utf-8"))
    *pieces, pad = ids
    kinds.save_json(other / "target_vocab.json", {p: n for n, p in enumerate([*reversed(pieces), pad])})
    done = run("convert", folder, other, "--verify", "--text", "ka lo")
    assert isinstance(done.exception, CheckpointError), done.output
    assert "read a text differently" in str(done.exception)


def test_images_are_compared_without_texts(tmp_path: Path) -> None:
    done = run("convert", pair("vit")[2], tmp_path / "ours", "--to", "clearformer", "--verify")
    assert done.exit_code == 0, done.output


def test_what_cannot_be_done_is_told(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for words, kind, told in (
        ((llama, tmp_path / "there", "--to", "clearformer"), CheckpointError, "exists already"),
        ((llama, tmp_path / "new"), CheckpointError, "say --to huggingface or --to clearformer"),
        ((tmp_path / "none", tmp_path / "new", "--to", "clearformer"), CheckpointError, "there is no folder"),
        ((llama, pair("gpt2")[2], "--verify"), CheckpointError, "hold different models"),
        ((llama, llama, "--verify", "--text", ""), DataError, "a text to try has no tokens"),
    ):
        done = run("convert", *words)
        assert isinstance(done.exception, kind), done.output
        assert told in str(done.exception)
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama", "there"]
