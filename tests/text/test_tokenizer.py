"""Ids, offsets and texts are those of Hugging Face transformers and of sentencepiece itself, for every kind of file."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    BertTokenizerFast,
)

from clearformer.errors import CheckpointError, DataError
from clearformer.text.special_tokens import KEYS
from clearformer.text.tokenizer import PublicTokenizer
from tests.text import kinds
from tests.text.kinds import KINDS, MIXED, NASTY, SPECIAL, SPOKEN, TEXT, TEXTS, THEIRS


def compared(ours: PublicTokenizer, theirs: Any, text: str, pair: str | None = None) -> None:
    for special in (True, False):
        found = ours.encode(text, pair, special=special)
        how = {"return_offsets_mapping": True, "return_token_type_ids": True, "add_special_tokens": special}
        wanted = theirs([text], None if pair is None else [pair], **how)  # alone, it takes an empty pair for none
        ids = wanted["input_ids"][0]
        assert found.ids == ids, (text, ours.pieces(found.ids), ours.pieces(ids))
        assert found.offsets == [tuple(span) for span in wanted["offset_mapping"][0]]
        assert found.segments == wanted["token_type_ids"][0]
        assert found.sequence == wanted.sequence_ids(0)
        assert found.special == [s is None for s in found.sequence]


# --- the same as transformers ---------------------------------------------------------------------------------


@given(text=SPOKEN, pair=st.none() | MIXED)
@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta", "qwen2", "llama3"])
def test_ids_and_offsets_are_those_of_transformers(
    words: dict[str, PublicTokenizer], theirs: dict[str, Any], name: str, text: str, pair: str | None
) -> None:
    public = theirs[name]
    public.backend_tokenizer.no_truncation()
    public.backend_tokenizer.no_padding()
    if name == "roberta":  # theirs leaves the space before <mask> out only where tokenizer.json says so
        text = text.replace("<mask>", "")
    compared(words[name], public, text, pair)


@pytest.mark.parametrize("name", ["t5", "llama", "marian"])
def test_sentencepiece_ids_are_those_of_transformers(
    words: dict[str, PublicTokenizer], theirs: dict[str, Any], name: str
) -> None:
    for text in [*TEXTS[:200], *(f"{a}{s}{b}" for a, b, s in zip(TEXTS, TEXTS[9:], SPECIAL * 9, strict=False))]:
        found = words[name].encode(text)
        wanted = theirs[name](text)["input_ids"]
        assert found.ids == wanted, (text, words[name].pieces(found.ids), words[name].pieces(wanted))


@given(ids=st.lists(st.integers(0, 190), max_size=12), special=st.booleans())
@pytest.mark.parametrize("name", KINDS)
def test_texts_of_ids_are_those_of_transformers(
    words: dict[str, PublicTokenizer], theirs: dict[str, Any], name: str, ids: list[int], special: bool
) -> None:
    if name == "marian" and special:
        return  # theirs puts spaces around special tokens
    assert words[name].decode(ids, special=special) == theirs[name].decode(ids, skip_special_tokens=not special)


@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_bert_settings_are_kept(tmp_path: Path, settings: dict[str, bool], whole: bool) -> None:
    folder = kinds.bert(tmp_path, **settings)
    public = BertTokenizerFast.from_pretrained(folder)
    if whole:  # tokenizer.json of the default, beside settings that say otherwise
        (folder / "tokenizer_config.json").unlink()
        BertTokenizerFast.from_pretrained(folder).backend_tokenizer.save(str(folder / "tokenizer.json"))
        kinds.save_json(folder / "tokenizer_config.json", settings)
    ours = PublicTokenizer.load(folder)
    for text in [*TEXTS[:50], *NASTY]:
        compared(ours, public, text)


@pytest.mark.parametrize("name", ["gpt2", "roberta", "llama"])
def test_starts_and_prefixes_as_asked(tmp_path: Path, name: str) -> None:
    settings = {"add_bos_token": False, "add_eos_token": True, "add_prefix_space": True, "legacy": True}
    folder = KINDS[name](tmp_path, **settings)
    public = kinds.public_llama(folder, **settings) if name == "llama" else THEIRS[name].from_pretrained(folder)
    ours = PublicTokenizer.load(folder)
    for text in [*TEXTS[:30], "ka</s>lo"]:
        assert ours.encode(text).ids == public(text)["input_ids"]
        wanted = public(text, "lo", return_token_type_ids=True)
        assert ours.encode(text, "lo").ids == wanted["input_ids"]
        assert ours.encode(text, "lo").segments == wanted["token_type_ids"]


def test_the_mask_of_roberta_takes_the_space_before_it(words: dict[str, PublicTokenizer]) -> None:
    one, other = (words["roberta"].encode(text, special=False) for text in ("ka <mask> lo", "ka<mask> lo"))
    assert one.ids == other.ids
    assert words["roberta"].mask in one.ids


# --- the same as sentencepiece --------------------------------------------------------------------------------


@given(text=MIXED)
@pytest.mark.parametrize(
    ("name", "file"), [("t5", "spiece.model"), ("llama", "tokenizer.model"), ("marian", "source.spm")]
)
def test_pieces_are_those_of_sentencepiece(
    folders: dict[str, Path], words: dict[str, PublicTokenizer], name: str, file: str, text: str
) -> None:
    truth = loaded(folders[name] / file)
    for token in [*SPECIAL, "<unk>", ">>"]:  # those of control it takes for plain text
        text = text.replace(token, "")
    found = words[name].encode(text, special=False)
    if name == "marian":
        ids = json.loads((folders[name] / "vocab.json").read_text(encoding="utf-8"))
        assert found.ids == [ids.get(piece, ids["<unk>"]) for piece in truth.encode(text, out_type=str)]
    else:
        assert found.ids == truth.encode(text)
        if truth.unk_id() not in found.ids:
            assert words[name].decode(found.ids) == truth.decode(found.ids)
    for start, end in found.offsets:
        assert 0 <= start <= end <= len(text)


LOADED: dict[Path, sentencepiece.SentencePieceProcessor] = {}


def loaded(path: Path) -> sentencepiece.SentencePieceProcessor:
    return LOADED.setdefault(path, sentencepiece.SentencePieceProcessor(model_file=str(path)))


def test_runs_of_one_letter_are_cut_alike() -> None:
    """Where several pairs make one piece, the leftmost is merged first."""
    from clearformer.text.proto import parse
    from clearformer.text.sentencepiece import Cutter

    texts = ["a" * n + " " + "ab" * (n % 7) + "  " * (n % 5) + "b" * (n % 11) for n in range(1, 90)]
    how = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    raw = kinds.spm(texts, model_type="bpe", vocab_size=30, max_sentencepiece_length=8, **how)
    truth, ours = sentencepiece.SentencePieceProcessor(model_proto=raw), Cutter(parse(raw))
    for text in [*texts, *("a" * n for n in range(64)), *("b" * n + "ab" * (n % 9) for n in range(64))]:
        assert [cut.piece for cut in ours.cut(text)] == truth.encode(text, out_type=str)


@pytest.mark.parametrize("model", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "how",
    [
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"user_defined_symbols": ["<tool>", "lo mi", "ffi"]},
        {"byte_fallback": True, "vocab_size": 480},
        {"normalization_rule_name": "nfkc_cf"},
        {"treat_whitespace_as_suffix": True},
        {"split_by_whitespace": False},
    ],
    ids=lambda how: next(iter(how)),
)
def test_other_ways_to_train_are_followed(model: str, how: dict[str, Any]) -> None:
    from clearformer.text.proto import parse
    from clearformer.text.sentencepiece import Cutter

    raw = kinds.spm(model_type=model, **{"vocab_size": 200, "hard_vocab_limit": model == "bpe", **how})
    truth, ours = sentencepiece.SentencePieceProcessor(model_proto=raw), Cutter(parse(raw))
    texts = [*TEXTS[:60], *NASTY, "a<tool>b <tool> lo mi lo  mi ffi ﬃ", "<tool>", " <tool> "]
    for text, cuts in zip(texts, ours.cut_all([(text, True) for text in texts]), strict=True):
        assert [cut.piece for cut in cuts] == truth.encode(text, out_type=str), text


# --- roles and lengths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_roles_are_those_of_transformers(words: dict[str, PublicTokenizer], theirs: dict[str, Any], name: str) -> None:
    for role, key in KEYS.items():
        wanted = getattr(theirs[name], f"{key}_id")
        if wanted is not None and wanted < len(words[name]):  # it makes room for padding where there is none
            assert getattr(words[name], role) == wanted, role
    assert words[name].longest == (512 if name == "marian" else None)


def test_roles_from_wherever_they_are_named(tmp_path: Path) -> None:
    def loaded(**files: Any) -> PublicTokenizer:
        for old in tmp_path.iterdir():
            old.unlink()
        kinds.llama3(tmp_path)
        (tmp_path / "tokenizer_config.json").unlink()
        for name, content in files.items():
            kinds.save_json(tmp_path / f"{name}.json", content)
        return PublicTokenizer.load(tmp_path)

    begin, end, turn = 400, 401, 402
    assert loaded().roles == {**dict.fromkeys(KEYS), "start": begin, "end": end}  # well-known names
    assert loaded(config={"eos_token_id": [turn, end], "pad_token_id": 10**9}).end == turn
    assert loaded(config={"decoder": {"eos_token_id": turn}}).end == turn
    mapped = {"eos_token": {"content": "<|eot_id|>"}, "pad_token": "<tool>"}
    found = loaded(special_tokens_map=mapped, tokenizer_config={"eos_token": "<|end_of_text|>", "model_max_length": 77})
    assert (found.end, found.pad, found.longest) == (turn, 403, 77)
    newer = {
        "added_tokens_decoder": {"402": {"content": "<|eot_id|>", "special": True}},
        "eos_token": "<|end_of_text|>",
    }
    assert loaded(special_tokens_map=mapped, tokenizer_config=newer).end == end
    assert loaded(tokenizer_config={"eos_token": None, "mask_token": "<not there>"}).mask is None
    with pytest.raises(CheckpointError, match="special token is neither text"):
        loaded(tokenizer_config={"eos_token": 5})


def test_added_tokens_of_older_files(tmp_path: Path) -> None:
    folder = kinds.gpt2(tmp_path)
    kinds.save_json(folder / "added_tokens.json", {"<new>": 700, "<more>": 650})
    kinds.save_json(folder / "special_tokens_map.json", {"additional_special_tokens": ["<new>"]})
    ours = PublicTokenizer.load(folder)
    assert ours.encode("<new>a<more>").ids == [700, ours.engine.token_to_id("a"), 650]
    assert ours.decode([700, 650]) == "<more>"
    assert len(ours) == 701
    assert ours.pieces([600]) == ["<600>"]
    assert ours.decode([600, 2**40, -1]) == ""


# --- nothing is cut, and ids fit ------------------------------------------------------------------------------


def test_nothing_is_cut_or_padded(words: dict[str, PublicTokenizer]) -> None:
    found = words["llama3"].encode("ka lo mi " * 500)
    assert len(found.ids) > 1000
    assert words["llama3"].decode(found.ids) == "ka lo mi " * 500


@pytest.mark.parametrize("name", [*KINDS, "bpe", "word"])
def test_a_tokenizer_must_fit_its_model(words: dict[str, PublicTokenizer], name: str) -> None:
    size = len(words[name])
    words[name].check(size, "x")
    words[name].check(size + 1000, "x")
    with pytest.raises(
        CheckpointError, match=f"x: the tokenizer gives ids up to {size - 1:,}, but .* for {size - 1:,}"
    ):
        words[name].check(size - 1, "x")


@pytest.mark.parametrize("name", [*KINDS, "bpe", "word"])
def test_texts_that_are_none_are_refused(words: dict[str, PublicTokenizer], name: str) -> None:
    for text in ("a\ud800", 5, None):
        with pytest.raises(DataError, match="no string, or holds a lone surrogate"):
            words[name].encode(text)  # type: ignore[arg-type]


# --- Marian's two sides ---------------------------------------------------------------------------------------


def test_the_target_side_of_marian(words: dict[str, PublicTokenizer], theirs: dict[str, Any]) -> None:
    ours, public = words["marian"], theirs["marian"]
    for text in TEXTS[:50]:
        assert ours.target().encode(text).ids == public(text_target=text)["input_ids"]
        assert ours.target().decode(ours.target().encode(text).ids) == public.decode(
            public(text_target=text)["input_ids"], skip_special_tokens=True
        )
    assert ours.target().target() is ours.target()
    assert words["t5"].target() is words["t5"]


def test_the_language_to_translate_to(words: dict[str, PublicTokenizer], theirs: dict[str, Any]) -> None:
    for text in (">>fr<< ka lo", ">>de<<ka", ">>fr<<"):
        assert words["marian"].encode(text).ids == theirs["marian"](text)["input_ids"]
    assert words["marian"].encode(">>fr<< ka").offsets[:2] == [(0, 6), (7, 9)]
    with pytest.raises(DataError, match=r"does not know the language >>es<<; did you mean '>>de<<'"):
        words["marian"].encode(">>es<< ka")


# --- our own ---------------------------------------------------------------------------------------------------


def test_our_template(words: dict[str, PublicTokenizer]) -> None:
    ours = words["bpe"]
    one, two = ours.encode("ka"), ours.encode("ka", "lo")
    assert ours.pieces(one.ids) == ["<s>", "▁ka", "</s>"]
    assert ours.pieces(two.ids) == ["<s>", "▁ka", "</s>", "▁lo", "</s>"]
    assert two.segments == [0, 0, 0, 1, 1]
    assert two.sequence == [None, 0, None, 1, None]
    assert two.special == [True, False, True, False, True]
    assert two.offsets == [(0, 0), (0, 2), (0, 0), (0, 2), (0, 0)]
    assert (ours.pad, ours.start, ours.end, ours.unknown, ours.mask) == (0, 1, 2, 3, 4)
    assert words["word"].pieces(words["word"].encode("x").ids) == ["<unk>", "</s>"]
    assert words["word"].mask is None


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_special_tokens_in_our_texts_are_characters(words: dict[str, PublicTokenizer], kind: str) -> None:
    found = words[kind].encode("</s> <s> <mask> <pad>", special=False)
    assert not set(found.ids) & {0, 1, 2, words[kind].mask}


@given(text=TEXT)
@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_our_texts_come_back(words: dict[str, PublicTokenizer], kind: str, text: str) -> None:
    normal = words[kind].engine.normalizer.normalize_str(text).replace("▁", " ")
    assert words[kind].decode(words[kind].encode(text).ids) == normal.removeprefix(" ")  # a text has one in front
