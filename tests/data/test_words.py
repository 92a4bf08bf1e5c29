"""Ids, offsets and texts are those of Hugging Face transformers and of sentencepiece itself, for every kind of file."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models as engine_models
from transformers import (
    BertTokenizerFast,
    GPT2TokenizerFast,
    MarianTokenizer,
    PreTrainedTokenizerFast,
    Qwen2TokenizerFast,
    RobertaTokenizerFast,
)

from clearformer.data.roles import KEYS
from clearformer.data.tokenizer import learn
from clearformer.data.words import Words
from clearformer.errors import CheckpointError, DataError
from tests.data import kinds
from tests.data.kinds import KINDS, NASTY, SPECIAL, TEXTS

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
MIXED = st.lists(st.one_of(st.sampled_from([*NASTY, *TEXTS[:50]]), TEXT), max_size=3).map(" ".join)
SPOKEN = st.lists(st.one_of(st.sampled_from([*SPECIAL, " ", "  "]), MIXED), max_size=4).map("".join)
THEIRS: dict[str, Any] = {
    "bert": BertTokenizerFast,
    "gpt2": GPT2TokenizerFast,
    "roberta": RobertaTokenizerFast,
    "qwen2": Qwen2TokenizerFast,
    "marian": MarianTokenizer,
    "llama3": PreTrainedTokenizerFast,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in KINDS.items()}


@pytest.fixture(scope="module")
def words(folders: dict[str, Path]) -> dict[str, Words]:
    return {name: Words.load(folder) for name, folder in folders.items()} | own()


def own() -> dict[str, Words]:
    made = {kind: Words.of(learn(TEXTS, kind, 600, extra=("<mask>",))) for kind in ("bpe", "unigram", "char")}
    return {**made, "word": Words.of(learn(TEXTS, "word", 300), start=False)}


@pytest.fixture(scope="module")
def theirs(folders: dict[str, Path]) -> dict[str, Any]:
    made = {name: each.from_pretrained(folders[name]) for name, each in THEIRS.items()}
    made |= {"t5": kinds.public_t5(folders["t5"]), "llama": kinds.public_llama(folders["llama"], add_bos_token=True)}
    return made


def compared(ours: Words, theirs: Any, text: str, pair: str | None = None) -> None:
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
    words: dict[str, Words], theirs: dict[str, Any], name: str, text: str, pair: str | None
) -> None:
    public = theirs[name]
    public.backend_tokenizer.no_truncation()
    public.backend_tokenizer.no_padding()
    if name == "roberta":  # theirs leaves the space before <mask> out only where tokenizer.json says so
        text = text.replace("<mask>", "")
    compared(words[name], public, text, pair)


@pytest.mark.parametrize("name", ["t5", "llama", "marian"])
def test_sentencepiece_ids_are_those_of_transformers(
    words: dict[str, Words], theirs: dict[str, Any], name: str
) -> None:
    for text in [*TEXTS[:200], *(f"{a}{s}{b}" for a, b, s in zip(TEXTS, TEXTS[9:], SPECIAL * 9, strict=False))]:
        found = words[name].encode(text)
        wanted = theirs[name](text)["input_ids"]
        assert found.ids == wanted, (text, words[name].pieces(found.ids), words[name].pieces(wanted))


@given(ids=st.lists(st.integers(0, 190), max_size=12), special=st.booleans())
@pytest.mark.parametrize("name", KINDS)
def test_texts_of_ids_are_those_of_transformers(
    words: dict[str, Words], theirs: dict[str, Any], name: str, ids: list[int], special: bool
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
    ours = Words.load(folder)
    for text in [*TEXTS[:50], *NASTY]:
        compared(ours, public, text)


@pytest.mark.parametrize("name", ["gpt2", "roberta", "llama"])
def test_starts_and_prefixes_as_asked(tmp_path: Path, name: str) -> None:
    settings = {"add_bos_token": False, "add_eos_token": True, "add_prefix_space": True, "legacy": True}
    folder = KINDS[name](tmp_path, **settings)
    public = kinds.public_llama(folder, **settings) if name == "llama" else THEIRS[name].from_pretrained(folder)
    ours = Words.load(folder)
    for text in [*TEXTS[:30], "ka</s>lo"]:
        assert ours.encode(text).ids == public(text)["input_ids"]
        wanted = public(text, "lo", return_token_type_ids=True)
        assert ours.encode(text, "lo").ids == wanted["input_ids"]
        assert ours.encode(text, "lo").segments == wanted["token_type_ids"]


def test_the_mask_of_roberta_takes_the_space_before_it(words: dict[str, Words]) -> None:
    one, other = (words["roberta"].encode(text, special=False) for text in ("ka <mask> lo", "ka<mask> lo"))
    assert one.ids == other.ids
    assert words["roberta"].mask in one.ids


# --- the same as sentencepiece --------------------------------------------------------------------------------


@given(text=MIXED)
@pytest.mark.parametrize(
    ("name", "file"), [("t5", "spiece.model"), ("llama", "tokenizer.model"), ("marian", "source.spm")]
)
def test_pieces_are_those_of_sentencepiece(
    folders: dict[str, Path], words: dict[str, Words], name: str, file: str, text: str
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
    from clearformer.data.pieces import Cutter
    from clearformer.data.proto import parse

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
    from clearformer.data.pieces import Cutter
    from clearformer.data.proto import parse

    raw = kinds.spm(model_type=model, **{"vocab_size": 200, "hard_vocab_limit": model == "bpe", **how})
    truth, ours = sentencepiece.SentencePieceProcessor(model_proto=raw), Cutter(parse(raw))
    texts = [*TEXTS[:60], *NASTY, "a<tool>b <tool> lo mi lo  mi ffi ﬃ", "<tool>", " <tool> "]
    for text, cuts in zip(texts, ours.cut_all([(text, True) for text in texts]), strict=True):
        assert [cut.piece for cut in cuts] == truth.encode(text, out_type=str), text


# --- roles and lengths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_roles_are_those_of_transformers(words: dict[str, Words], theirs: dict[str, Any], name: str) -> None:
    for role, key in KEYS.items():
        wanted = getattr(theirs[name], f"{key}_id")
        if wanted is not None and wanted < len(words[name]):  # it makes room for padding where there is none
            assert getattr(words[name], role) == wanted, role
    assert words[name].longest == (512 if name == "marian" else None)


def test_roles_from_wherever_they_are_named(tmp_path: Path) -> None:
    def loaded(**files: Any) -> Words:
        for old in tmp_path.iterdir():
            old.unlink()
        kinds.llama3(tmp_path)
        (tmp_path / "tokenizer_config.json").unlink()
        for name, content in files.items():
            kinds.save_json(tmp_path / f"{name}.json", content)
        return Words.load(tmp_path)

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
    ours = Words.load(folder)
    assert ours.encode("<new>a<more>").ids == [700, ours.engine.token_to_id("a"), 650]
    assert ours.decode([700, 650]) == "<more>"
    assert len(ours) == 701
    assert ours.pieces([600]) == ["<600>"]
    assert ours.decode([600, 2**40, -1]) == ""


# --- nothing is cut, and ids fit ------------------------------------------------------------------------------


def test_nothing_is_cut_or_padded(words: dict[str, Words]) -> None:
    found = words["llama3"].encode("ka lo mi " * 500)
    assert len(found.ids) > 1000
    assert words["llama3"].decode(found.ids) == "ka lo mi " * 500


@pytest.mark.parametrize("name", [*KINDS, "bpe", "word"])
def test_a_tokenizer_must_fit_its_model(words: dict[str, Words], name: str) -> None:
    size = len(words[name])
    words[name].check(size, "x")
    words[name].check(size + 1000, "x")
    with pytest.raises(
        CheckpointError, match=f"x: the tokenizer gives ids up to {size - 1:,}, but .* for {size - 1:,}"
    ):
        words[name].check(size - 1, "x")


@pytest.mark.parametrize("name", [*KINDS, "bpe", "word"])
def test_texts_that_are_none_are_refused(words: dict[str, Words], name: str) -> None:
    for text in ("a\ud800", 5, None):
        with pytest.raises(DataError, match="no string, or holds a lone surrogate"):
            words[name].encode(text)  # type: ignore[arg-type]


# --- Marian's two sides ---------------------------------------------------------------------------------------


def test_the_target_side_of_marian(words: dict[str, Words], theirs: dict[str, Any]) -> None:
    ours, public = words["marian"], theirs["marian"]
    for text in TEXTS[:50]:
        assert ours.target().encode(text).ids == public(text_target=text)["input_ids"]
        assert ours.target().decode(ours.target().encode(text).ids) == public.decode(
            public(text_target=text)["input_ids"], skip_special_tokens=True
        )
    assert ours.target().target() is ours.target()
    assert words["t5"].target() is words["t5"]


def test_the_language_to_translate_to(words: dict[str, Words], theirs: dict[str, Any]) -> None:
    for text in (">>fr<< ka lo", ">>de<<ka", ">>fr<<"):
        assert words["marian"].encode(text).ids == theirs["marian"](text)["input_ids"]
    assert words["marian"].encode(">>fr<< ka").offsets[:2] == [(0, 6), (7, 9)]
    with pytest.raises(DataError, match=r"does not know the language >>es<<; did you mean '>>de<<'"):
        words["marian"].encode(">>es<< ka")


def test_separate_vocabularies(tmp_path: Path) -> None:
    folder = kinds.marian(tmp_path, separate_vocabs=True)
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    kinds.save_json(folder / "target_vocab.json", {piece: len(ids) - 1 - number for piece, number in ids.items()})
    ours, public = Words.load(folder), MarianTokenizer.from_pretrained(folder)
    assert ours.target().end == len(ids) - 1
    for text in TEXTS[:20]:
        assert ours.target().encode(text, special=False).ids == public(text_target=text)["input_ids"][:-1]
    same(ours, again(ours, tmp_path / "new"))


# --- our own ---------------------------------------------------------------------------------------------------


def test_our_template(words: dict[str, Words]) -> None:
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
def test_special_tokens_in_our_texts_are_characters(words: dict[str, Words], kind: str) -> None:
    found = words[kind].encode("</s> <s> <mask> <pad>", special=False)
    assert not set(found.ids) & {0, 1, 2, words[kind].mask}


@given(text=TEXT)
@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_our_texts_come_back(words: dict[str, Words], kind: str, text: str) -> None:
    normal = words[kind].engine.normalizer.normalize_str(text)
    assert words[kind].decode(words[kind].encode(text).ids) == normal.replace("▁", " ")[1:]


# --- saved and loaded ------------------------------------------------------------------------------------------


def again(ours: Words, folder: Path) -> Words:
    ours.save(folder)
    return Words.load(folder)


def same(one: Words, other: Words) -> None:
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
def test_what_is_saved_is_loaded(words: dict[str, Words], name: str, tmp_path: Path) -> None:
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
    ours = Words.load(folder)
    assert (ours.longest, ours.chat_template) == (99, "{{ 'ä' }}")
    assert ours.clean == (name in ("t5", "marian"))
    if name != "llama3":
        assert ours.decode(ours.encode("<new>ka<too>").ids).replace(" ", "") == "ka<too>"
    same(ours, again(ours, tmp_path / "to"))


@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta", "llama3", "bpe", "unigram"])
def test_others_can_read_what_is_written_for_them(words: dict[str, Words], name: str, tmp_path: Path) -> None:
    words[name].save_public(tmp_path)
    public = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for role, key in KEYS.items():
        assert getattr(words[name], role) == getattr(public, f"{key}_id"), role
    for text in [*TEXTS[:30], *NASTY, *SPECIAL]:
        assert public(text)["input_ids"] == words[name].encode(text).ids
    assert ("token_type_ids" in public("a")) == (name == "bert")


# --- while the ids still come -----------------------------------------------------------------------------------


def told(ours: Words, ids: list[int]) -> str:
    stream, whole = ours.stream(), ""
    text = ours.decode(ids)
    for i in ids:
        piece = stream.add(i)
        whole += piece
        assert text.startswith(whole)
    whole += stream.end()
    return whole


@given(data=st.data())
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("name", [*KINDS, "bpe", "unigram", "char", "word"])
def test_streams_tell_the_whole_text(words: dict[str, Words], name: str, clean: bool, data: st.DataObject) -> None:
    ours = words[name].target()
    texts = data.draw(st.lists(st.one_of(SPOKEN, MIXED), max_size=2))
    ids = data.draw(st.lists(st.integers(-1, len(ours) + 2), max_size=10))
    for text in texts:
        ids += ours.encode(text, special=data.draw(st.booleans())).ids
    kept, ours.clean = ours.clean, clean
    try:
        assert told(ours, ids) == ours.decode(ids)
    finally:
        ours.clean = kept


def test_a_stream_by_hand(words: dict[str, Words]) -> None:
    ours = words["gpt2"]
    ids = ours.encode("ka Ω!").ids
    stream = ours.stream()
    parts = [stream.add(i) for i in ids]
    assert "".join(parts) == "ka Ω!"
    assert "\ufffd" not in "".join(parts)
    assert stream.end() == ""
    half = ours.encode("Ω").ids[:1]
    assert (stream.add(half[0]), stream.end()) == ("", "\ufffd")
    assert (stream.add(ids[0]), stream.end()) == (ours.decode(ids[:1]), "")  # and it can be used again


def test_pieces_come_as_they_are_told(words: dict[str, Words]) -> None:
    stream = words["llama"].stream()
    ids = words["llama"].encode("ka lo é").ids
    assert len([piece for piece in map(stream.add, ids) if piece]) >= 3


# --- folders that are damaged or hostile -------------------------------------------------------------------------


def test_a_folder_without_any(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer: expected tokenizer\.json, vocab\.txt"):
        Words.load(tmp_path)


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        Words.load(folder)
    return str(caught.value)


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_named_errors(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    import random

    draw = random.Random(name)
    for file in folders[name].iterdir():
        raw = file.read_bytes()
        for number in range(12):
            folder = shutil.copytree(folders[name], tmp_path / f"{file.name}{number}")
            hurt = bytearray(raw[: draw.randrange(len(raw) + 1)] if number % 3 == 0 else raw)
            for _ in range(draw.randint(1, 20) if number % 3 else 0):
                if hurt:
                    hurt[draw.randrange(len(hurt))] = draw.randrange(256)
            (folder / file.name).write_bytes(hurt)
            try:
                ours = Words.load(folder)
                ours.encode("ka lo <s> é", "x")
                ours.check(2**31, folder)
            except CheckpointError as error:
                assert str(folder) in str(error)  # noqa: PT017


def test_large_files_are_not_read(folders: dict[str, Path], tmp_path: Path) -> None:
    for name, file in [
        ("llama3", "tokenizer.json"),
        ("bert", "vocab.txt"),
        ("t5", "spiece.model"),
        ("gpt2", "vocab.json"),
    ]:
        folder = shutil.copytree(folders[name], tmp_path / name)
        os.truncate(folder / file, 65 * 2**20)
        assert "are not read" in refused(folder)


def test_links_out_of_the_folder_are_not_followed(folders: dict[str, Path], tmp_path: Path) -> None:
    for name, file in [("llama3", "tokenizer.json"), ("t5", "spiece.model"), ("t5", "tokenizer_config.json")]:
        folder = shutil.copytree(folders[name], tmp_path / (name + file))
        (folder / file).unlink()
        (folder / file).symlink_to(folders[name] / file)
        assert "a link out of its folder" in refused(folder)


def test_huge_vocabularies_and_ids(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.data.find.MOST", 300)
    assert "the vocabulary has 404 tokens" in refused(folders["llama3"])
    folder = shutil.copytree(folders["gpt2"], tmp_path / "a")
    kinds.save_json(folder / "vocab.json", {"a": 2**40})
    assert "'a' has no id but 1099511627776" in refused(folder)
    folder = shutil.copytree(folders["t5"], tmp_path / "b")
    kinds.save_json(folder / "added_tokens.json", {"<new>": 5_000_000})
    assert "has the id 5,000,000; 2,000,000 is too high" in refused(folder)
    folder = shutil.copytree(folders["marian"], tmp_path / "c")
    kinds.save_json(folder / "vocab.json", {"</s>": 0, "<unk>": 10**9})
    assert "every piece a number below 2,000,000" in refused(folder)


TWICE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
A = {"Sequence": {"id": "A", "type_id": 0}}
ENORMOUS = {
    "doubling": ({"normalizer": {"type": "Sequence", "normalizers": [TWICE] * 40}}, "1,099,511,627,776 times as long"),
    "doubling back": ({"decoder": {"type": "Sequence", "decoders": [TWICE] * 40}}, "times as long"),
    "one long text": ({"normalizer": {**TWICE, "content": "a" * 9999}}, "9,999 times as long"),
    "in between": ({"normalizer": {**TWICE, "pattern": {"Regex": "x*"}, "content": "a" * 2000}}, "times as long"),
    "many steps": ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 99}}, "99 steps"),
    "a text many times": (
        {"post_processor": {"type": "TemplateProcessing", "single": [A] * 99, "pair": [A], "special_tokens": {}}},
        "more than 64 parts",
    ),
}


@pytest.mark.parametrize("name", ENORMOUS)
def test_what_would_grow_without_measure(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    change, said = ENORMOUS[name]
    content = json.loads((folders["llama3"] / "tokenizer.json").read_text(encoding="utf-8"))
    kinds.save_json(tmp_path / "tokenizer.json", content | change)
    assert said in refused(tmp_path)


def test_a_tokenizer_that_fails_on_a_text(folders: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((folders["llama3"] / "tokenizer.json").read_text(encoding="utf-8"))
    split = {"type": "Split", "pattern": {"Regex": "(b|bb|bbb)+$"}, "behavior": "Isolated", "invert": False}
    kinds.save_json(tmp_path / "tokenizer.json", content | {"pre_tokenizer": split})
    with pytest.raises(CheckpointError, match="the model's tokenizer fails on a text"):
        Words.load(tmp_path).encode("b" * 60 + "c")


def test_ids_are_never_drawn_by_lot(folders: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((folders["llama3"] / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["dropout"] = 0.5
    kinds.save_json(tmp_path / "tokenizer.json", content)
    ours = Words.load(tmp_path)
    assert len({tuple(ours.encode(TEXTS[0]).ids) for _ in range(20)}) == 1


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("merges.txt", "a b\nc\n", "line 2: expected two tokens that are merged, found 'c'"),
        ("merges.txt", "nöt thére\n", "no tokenizer that can be used"),
        ("vocab.json", "[1]", "an object"),
        ("vocab.json", '{"a": "b"}', "'a' has no id but b"),
        ("tokenizer_config.json", "{", "no JSON that can be read"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": 1}}', "no token with its id|neither text"),
        ("added_tokens.json", '{"x": -1}', "the id of 'x' is no number"),
        ("words.json", "{}", "roles must name tokens by their ids"),
        ("words.json", '{"roles": {}, "longest": 0}', "longest must be a number"),
        ("words.json", '{"roles": {}, "chat_template": 1}', "chat_template must be"),
        ("words.json", '{"roles": {}, "sentencepiece": 1}', "sentencepiece must hold family"),
        ("words.json", '{"roles": {}}', "has no tokenizer.json"),
    ],
)
def test_what_is_wrong_is_told(folders: dict[str, Path], tmp_path: Path, file: str, content: str, said: str) -> None:
    folder = shutil.copytree(folders["gpt2"], tmp_path / "x")
    (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=said):
        Words.load(folder)


def test_a_vocabulary_without_the_tokens_of_its_family(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    assert "has no [UNK] token; it is no vocabulary of BERT" in refused(tmp_path)
    folder = shutil.copytree(folders["gpt2"], tmp_path / "x")
    kinds.save_json(folder / "config.json", {"model_type": "roberta"})
    assert "has no <s>; it is no vocabulary of RoBERTa" in refused(folder)


def test_hostile_sentencepiece_models(folders: dict[str, Path], tmp_path: Path) -> None:
    from clearformer.data.pieces import Cutter
    from clearformer.data.proto import BPE, Sentencepiece, parse

    def cutter(**changes: Any) -> Cutter:
        given: dict[str, Any] = {"pieces": ["<unk>", "a"], "scores": [0.0, -1.0], "kinds": [2, 1], **changes}
        return Cutter(Sentencepiece(**given))

    assert [cut.piece for cut in cutter().cut("aab")] == ["▁", "a", "a", "b"]
    for changes, said in [
        ({"model": 3}, "neither a unigram model nor BPE"),
        ({"kinds": [1, 1]}, "no piece, or more than one"),
        ({"pieces": ["<unk>", "<unk>"]}, "a piece twice"),
        ({"scores": [0.0, float("nan")]}, "not finite"),
        ({"byte_fallback": True}, "not all 256"),
        ({"charsmap": b"abc"}, "normaliser is damaged"),
        ({"charsmap": bytes(9 * 2**20)}, "normaliser is larger"),
        ({"pieces": ["<unk>", "a" * 20_000], "model": BPE}, "too long"),
    ]:
        with pytest.raises(ValueError, match=said):
            cutter(**changes)
    for raw in (b"", b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x7f", b"\x0b"):
        with pytest.raises(ValueError, match="it "):
            parse(raw)
    assert isinstance(Words.load(folders["gpt2"]).engine.model, engine_models.BPE)
