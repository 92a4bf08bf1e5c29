"""What is saved is loaded again, the same; and others can read what is written for them."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer, MarianTokenizer, PreTrainedTokenizerFast

from clearformer.text.special_tokens import KEYS
from clearformer.text.tokenizer import PublicTokenizer
from tests.text import kinds
from tests.text.kinds import KINDS, NASTY, SPECIAL, TEXTS


def again(ours: PublicTokenizer, folder: Path) -> PublicTokenizer:
    ours.save(folder)
    return PublicTokenizer.load(folder)


def same(one: PublicTokenizer, other: PublicTokenizer) -> None:
    for side in ("itself", "target"):
        a, b = (one, other) if side == "itself" else (one.target(), other.target())
        assert a.roles == b.roles
        assert (len(a), a.longest, a.chat_template, a.clean, a.plain, a.trim) == (
            len(b),
            b.longest,
            b.chat_template,
            b.clean,
            b.plain,
            b.trim,
        )
        for text in [*TEXTS[:20], *NASTY, *SPECIAL, "a " + " b ".join(SPECIAL)]:
            assert a.encode(text) == b.encode(text)
            assert a.encode(text, TEXTS[0]) == b.encode(text, TEXTS[0])
            assert a.decode(a.encode(text).ids) == b.decode(a.encode(text).ids)


@pytest.mark.parametrize("name", [*KINDS, "bpe", "unigram", "char", "word"])
def test_what_is_saved_is_loaded(words: dict[str, PublicTokenizer], name: str, tmp_path: Path) -> None:
    same(words[name], again(words[name], tmp_path / "a"))
    same(words[name], again(again(words[name], tmp_path / "b"), tmp_path / "c"))


@pytest.mark.parametrize("name", ["t5", "llama", "marian", "gpt2", "llama3"])
def test_everything_set_is_saved(folders: dict[str, Path], name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(folders[name], tmp_path / "from")
    settings = {"chat_template": "{{ 'ä' }}", "model_max_length": 99, "clean_up_tokenization_spaces": True}
    if name != "llama3":
        settings |= {"legacy": True, "add_bos_token": False, "extra_ids": 7, "additional_special_tokens": ["<new>"]}
        kinds.save_json(folder / "added_tokens.json", {"<new>": 900, "<too>": 901})
    kinds.save_json(folder / "tokenizer_config.json", settings)
    ours = PublicTokenizer.load(folder)
    assert (ours.longest, ours.chat_template) == (99, "{{ 'ä' }}")
    assert ours.clean == (name in ("t5", "marian"))
    if name != "llama3":
        assert ours.decode(ours.encode("<new>ka<too>").ids).replace(" ", "") == "ka<too>"
    same(ours, again(ours, tmp_path / "to"))


@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta", "llama3", "bpe", "unigram"])
def test_others_can_read_what_is_written_for_them(words: dict[str, PublicTokenizer], name: str, tmp_path: Path) -> None:
    words[name].save_public(tmp_path)
    public = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for role, key in KEYS.items():
        assert getattr(words[name], role) == getattr(public, f"{key}_id"), role
    for text in [*TEXTS[:30], *NASTY, *SPECIAL]:
        assert public(text)["input_ids"] == words[name].encode(text).ids
    assert ("token_type_ids" in public("a")) == (name == "bert")


@pytest.mark.parametrize("layout", ["as read", "saved before"])
@pytest.mark.parametrize("settings", [{}, {"tokenizer_class": "MarianTokenizer"}])
def test_others_find_the_class_of_sentencepiece_files(settings: dict[str, str], layout: str, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    folder = kinds.marian(tmp_path / "from", **settings)
    ours = (
        PublicTokenizer.load(folder) if layout == "as read" else again(PublicTokenizer.load(folder), tmp_path / "ours")
    )
    ours.save_public(tmp_path / "to")
    shutil.copy(folder / "config.json", tmp_path / "to")
    public = AutoTokenizer.from_pretrained(tmp_path / "to")
    assert isinstance(public, MarianTokenizer)
    assert (public.source_lang, public.target_lang) == ("en", "de")
    for text in TEXTS[:30]:
        assert public(text)["input_ids"] == ours.encode(text).ids
        assert public(text_target=text)["input_ids"] == ours.target().encode(text).ids
    same(ours, PublicTokenizer.load(tmp_path / "to"))


@pytest.mark.parametrize(
    ("name", "named", "written"),
    [
        ("t5", None, "T5Tokenizer"),
        ("t5", "T5TokenizerFast", "T5TokenizerFast"),
        ("llama", None, "LlamaTokenizer"),
        ("llama", "PreTrainedTokenizerFast", "LlamaTokenizer"),  # it reads tokenizer.json, which is not there
    ],
)
def test_the_class_written_is_the_one_of_the_files(
    folders: dict[str, Path], name: str, named: str | None, written: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(folders[name], tmp_path / "from")
    settings = {"legacy": True, "add_bos_token": False, "extra_ids": 7, "additional_special_tokens": ["<new>"]}
    kinds.save_json(folder / "tokenizer_config.json", {**settings, "tokenizer_class": named})
    kinds.save_json(folder / "added_tokens.json", {"<new>": 900, "<too>": 901})
    ours = PublicTokenizer.load(folder)
    ours.save_public(tmp_path / "to")
    shutil.copy(folder / "config.json", tmp_path / "to")
    assert json.loads((tmp_path / "to" / "tokenizer_config.json").read_text())["tokenizer_class"] == written
    assert not (tmp_path / "to" / "tokenizer.json").exists()
    same(ours, PublicTokenizer.load(tmp_path / "to"))


def test_separate_vocabularies(tmp_path: Path) -> None:
    folder = kinds.marian(tmp_path, separate_vocabs=True)
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    kinds.save_json(folder / "target_vocab.json", {piece: len(ids) - 1 - number for piece, number in ids.items()})
    ours, public = PublicTokenizer.load(folder), MarianTokenizer.from_pretrained(folder)
    assert ours.target().end == len(ids) - 1
    for text in TEXTS[:20]:
        assert ours.target().encode(text, special=False).ids == public(text_target=text)["input_ids"][:-1]
    same(ours, again(ours, tmp_path / "new"))
