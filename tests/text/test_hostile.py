"""Tokenizer folders that are damaged or hostile: one named error, never a crash, a hang or a huge text."""

import base64
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import models as engine_models

from clearformer.errors import CheckpointError
from clearformer.text.learn import LearnedTokenizer, learn
from clearformer.text.tokenizer import PublicTokenizer
from tests.text import kinds
from tests.text.kinds import KINDS, TEXTS


def test_a_folder_without_any(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer: expected tokenizer\.json, vocab\.txt"):
        PublicTokenizer.load(tmp_path)


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        PublicTokenizer.load(folder)
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
                ours = PublicTokenizer.load(folder)
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
    monkeypatch.setattr("clearformer.text.load.MOST", 300)
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
FRAME = {"type": "TemplateProcessing", "single": [A], "pair": [A], "special_tokens": {}}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
LIGATURE = {"type": "Replace", "pattern": {"String": "\u0644"}, "content": "\ufdfa"}  # NFKC has 18 letters for it
SPACES = {"type": "Metaspace", "prepend_scheme": "always", "split": True}
CTC = {"type": "CTC", "pad_token": "x", "word_delimiter_token": "", "cleanup": True}
WORDPIECE = {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}
BPE = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
LONG = "a" * 10_001
ALONE = {"normalizer": None, "pre_tokenizer": None}


def rewriting(text: str) -> dict[str, Any]:
    """A precompiled map whose longest text is this one."""
    raw = (4096).to_bytes(4, "little") + bytes(4096) + text.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}


def normal(*steps: Any) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def cut(*steps: Any) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def spelt(*steps: Any) -> dict[str, Any]:
    return {"decoder": {"type": "Sequence", "decoders": list(steps)}}


ENORMOUS: dict[str, tuple[dict[str, Any], str]] = {
    "doubling": (normal(*[TWICE] * 40), "1,099,511,627,776 times as long"),
    "doubling back": (spelt(*[TWICE] * 40), "times as long"),
    "one long text": ({"normalizer": {**TWICE, "content": "a" * 9999}}, "9,999 times as long"),
    "in between": ({"normalizer": {**TWICE, "pattern": {"Regex": "x*"}, "content": "a" * 2000}}, "times as long"),
    "between all": (spelt(*[{**TWICE, "pattern": {"String": ""}, "content": "a"}] * 9), "times as long"),
    "at no character": (normal(*[{**TWICE, "pattern": {"Regex": "(?=a)"}, "content": "a"}] * 9), "times as long"),
    "in front": ({"normalizer": {"type": "Prepend", "prepend": "a" * 10**7}}, "10,000,001 times as long"),
    "in front, often": (normal(*[{"type": "Prepend", "prepend": "ab"}] * 9), "times as long"),
    "bytes of bytes": (normal(*[{"type": "ByteLevel"}] * 12), "16,777,216 times as long"),
    "bytes of bytes, later": (cut(*[BYTES] * 12), "16,777,216 times as long"),
    "bytes in both": (normal(*[{"type": "ByteLevel"}] * 3) | cut(*[BYTES] * 3), "4,096 times as long"),
    "spaces in front": (cut(*({**SPACES, "replacement": c} for c in "▁░▒▓█▄▌▐▀ab")), "2,048 times as long"),
    "letters of ligatures": (normal(*[{"type": "NFKC"}, LIGATURE] * 5), "1,889,568 times as long"),
    "spaces around": (normal(*[{**BERT, "lowercase": True}, {**TWICE, "content": "中"}] * 8), "times as long"),
    "rewritten": ({"normalizer": rewriting("a" * 2000)}, "2,000 times as long"),
    "rewritten, often": (normal(*[rewriting("aa")] * 3), "5,832 times as long"),
    "an empty suffix": (spelt(*[{"type": "BPEDecoder", "suffix": ""}] * 9), "times as long"),
    "an empty delimiter": (spelt(*[CTC] * 9), "times as long"),
    "spaces between": (spelt(*[{"type": "WordPiece", "prefix": "", "cleanup": False}] * 11), "2,048 times as long"),
    "many steps": (normal(*[{"type": "NFC"}] * 99), "99 steps"),
    "many steps, deep": (
        {"normalizer": normal(*[normal(*[{"type": "NFC"}] * 33)["normalizer"]] * 3)["normalizer"]},
        "99",
    ),
    "many steps in two parts": (normal(*[{"type": "NFC"}] * 40) | cut(*[{"type": "Whitespace"}] * 40), "80 steps"),
    "a text many times": ({"post_processor": {**FRAME, "single": [A] * 99}}, "more than 64 parts"),
    "a long token around": (
        {"post_processor": {**FRAME, "special_tokens": {"x": {"id": "x", "ids": [1], "tokens": [LONG]}}}},
        "its template has a token of more than 10,000 characters",
    ),
    "a long separator": (
        {"post_processor": {"type": "BertProcessing", "sep": [LONG, 1], "cls": ["c", 2]}},
        "its template has a token of more than 10,000 characters",
    ),
    "a long token": ({"model": {**BPE, "vocab": {LONG: 0}}}, "a token of more than 10,000 characters"),
    "a long token added": (
        {
            "added_tokens": [
                {"id": 9, "content": LONG, "special": True}
                | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            ]
        },
        "a token of more than 10,000 characters",
    ),
    "a long prefix": ({"model": {**BPE, "continuing_subword_prefix": LONG}}, "continuing_subword_prefix has more"),
    "a long suffix": ({"model": {**BPE, "end_of_word_suffix": LONG}}, "end_of_word_suffix has more than 64"),
    "a long prefix of pieces": (
        {"model": {**WORDPIECE, "continuing_subword_prefix": LONG, "max_input_chars_per_word": 100}},
        "continuing_subword_prefix has more than 64",
    ),
    "long words": (
        {"model": {**WORDPIECE, "continuing_subword_prefix": "##", "max_input_chars_per_word": 9999}},
        "words of more than 1,000 characters",
    ),
}


@pytest.mark.parametrize("name", ENORMOUS)
def test_what_would_grow_without_measure(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    change, said = ENORMOUS[name]
    content = json.loads((folders["llama3"] / "tokenizer.json").read_text(encoding="utf-8"))
    kinds.save_json(tmp_path / "tokenizer.json", content | ALONE | change)
    assert said in refused(tmp_path)


@pytest.mark.parametrize("name", ["in front", "bytes of bytes", "a long token", "between all"])
def test_what_would_grow_in_a_tokenizer_of_ours(tmp_path: Path, name: str) -> None:
    change, said = ENORMOUS[name]
    content = json.loads(learn(TEXTS[:50], vocabulary=400).to_json())
    kinds.save_json(tmp_path / "tokenizer.json", content)
    assert LearnedTokenizer.load(tmp_path / "tokenizer.json").encode("ka lo")
    kinds.save_json(tmp_path / "tokenizer.json", content | ALONE | change)
    with pytest.raises(CheckpointError, match=said):
        LearnedTokenizer.load(tmp_path / "tokenizer.json")


ALBERT = [
    *({"type": "Replace", "pattern": {"String": quote}, "content": '"'} for quote in ("``", "''")),
    {"type": "NFKD"},
    {"type": "StripAccents"},
    {"type": "Lowercase"},
    rewriting("\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 \u0639\u0644\u064a\u0647 \u0648\u0633\u0644\u0645"),
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
]
CLIP = [
    {"type": "NFC"},
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    {"type": "Lowercase"},
]
LLAMA = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
USUAL = {
    "albert": normal(*ALBERT) | cut({**SPACES, "replacement": "▁"}),
    "clip": normal(*CLIP) | cut(BYTES),
    "llama": normal(*LLAMA) | cut({**SPACES, "replacement": "▁"}),
    "bert": {"normalizer": {**BERT, "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"}},
    "qwen": normal({"type": "NFC"}) | cut(BYTES),
    "wordpiece": spelt({"type": "WordPiece", "prefix": "##", "cleanup": True}),
    "ctc": spelt({**CTC, "word_delimiter_token": "|"}),
    "clip, back": spelt({"type": "BPEDecoder", "suffix": "</w>"}),
}


@pytest.mark.parametrize("name", USUAL)
def test_what_public_tokenizers_do_is_allowed(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    content = json.loads((folders["llama3"] / "tokenizer.json").read_text(encoding="utf-8"))
    kinds.save_json(tmp_path / "tokenizer.json", content | USUAL[name])
    PublicTokenizer.load(tmp_path).encode("ka lo")


def test_a_tokenizer_that_fails_on_a_text(folders: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((folders["llama3"] / "tokenizer.json").read_text(encoding="utf-8"))
    split = {"type": "Split", "pattern": {"Regex": "(b|bb|bbb)+$"}, "behavior": "Isolated", "invert": False}
    kinds.save_json(tmp_path / "tokenizer.json", content | {"pre_tokenizer": split})
    with pytest.raises(CheckpointError, match="the model's tokenizer fails on a text"):
        PublicTokenizer.load(tmp_path).encode("b" * 60 + "c")


def test_ids_are_never_drawn_by_lot(folders: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((folders["llama3"] / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["dropout"] = 0.5
    kinds.save_json(tmp_path / "tokenizer.json", content)
    ours = PublicTokenizer.load(tmp_path)
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
        PublicTokenizer.load(folder)


def test_a_vocabulary_without_the_tokens_of_its_family(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    assert "has no [UNK] token; it is no vocabulary of BERT" in refused(tmp_path)
    folder = shutil.copytree(folders["gpt2"], tmp_path / "x")
    kinds.save_json(folder / "config.json", {"model_type": "roberta"})
    assert "has no <s>; it is no vocabulary of RoBERTa" in refused(folder)


def test_hostile_sentencepiece_models(folders: dict[str, Path], tmp_path: Path) -> None:
    from clearformer.text.proto import BPE, Sentencepiece, parse
    from clearformer.text.sentencepiece import Cutter

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
    assert isinstance(PublicTokenizer.load(folders["gpt2"]).engine.model, engine_models.BPE)
