"""Tokenizers of folders without tokenizer.json: `vocab.txt` (BERT), or `vocab.json` with `merges.txt` (GPT-2, RoBERTa).

Each is written as the JSON that the tokenizers library reads, in the way its family means these files.
"""

import json
from pathlib import Path
from typing import Any

from clearformer.errors import CheckpointError
from clearformer.text.special_tokens import Said
from clearformer.untrusted_files import read_bytes, read_json

LARGEST = 64 * 2**20
BERT = {"pad": "[PAD]", "unknown": "[UNK]", "mask": "[MASK]", "separator": "[SEP]", "first": "[CLS]"}
GPT2 = dict.fromkeys(("start", "end", "unknown"), "<|endoftext|>")
QWEN2 = dict.fromkeys(("pad", "end", "unknown"), "<|endoftext|>")
ROBERTA = {"pad": "<pad>", "start": "<s>", "end": "</s>", "unknown": "<unk>", "mask": "<mask>"}
ROBERTA |= {"separator": "</s>", "first": "<s>"}
TEXTS = ("A", "B")
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def wordpiece(folder: Path, said: Said) -> tuple[str, dict[str, str]]:
    """BERT's: the JSON, and the names of its roles."""
    lines = _text(folder / "vocab.txt").replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary = {token: number for number, token in enumerate(lines)} | said.added
    names = {**BERT, **said.tokens}
    for role in ("unknown", "separator", "first"):
        if names[role] not in vocabulary:
            raise CheckpointError(f"{folder / 'vocab.txt'} has no {names[role]} token; it is no vocabulary of BERT")
    accents = said.settings.get("strip_accents")
    first, last = names["first"], names["separator"]
    content = {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": said.flag("tokenize_chinese_chars", True),
            "strip_accents": accents if isinstance(accents, bool) else None,
            "lowercase": said.flag("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template([first, "A", last], [first, "A", last, "B", last], vocabulary),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": names["unknown"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }
    return _whole(content, said, names), names


def byte_level(folder: Path, said: Said) -> tuple[str, dict[str, str]]:
    """Byte-level BPE: GPT-2's, RoBERTa's or Qwen's, as the folder says or its vocabulary shows."""
    vocabulary = _numbered(read_json(folder / "vocab.json", LARGEST), folder / "vocab.json") | said.added
    roberta = "roberta" in said.family or (not said.family and {"<s>", "</s>", "<mask>"} <= vocabulary.keys())
    qwen = said.family.startswith("qwen")
    names = {**(ROBERTA if roberta else QWEN2 if qwen else GPT2), **said.tokens}
    spaced = said.flag("add_prefix_space", False)
    level = {"type": "ByteLevel", "add_prefix_space": spaced, "trim_offsets": True, "use_regex": True}
    content: dict[str, Any] = {
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": _ends(said, names, vocabulary),
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": _merges(folder / "merges.txt"),
        },
    }
    if roberta:
        for role in ("first", "separator"):
            if names[role] not in vocabulary:
                raise CheckpointError(f"{folder / 'vocab.json'} has no {names[role]}; it is no vocabulary of RoBERTa")
        content["post_processor"] = {
            "type": "RobertaProcessing",
            "sep": [names["separator"], vocabulary[names["separator"]]],
            "cls": [names["first"], vocabulary[names["first"]]],
            "trim_offsets": True,
            "add_prefix_space": spaced,
        }
        said.flags.setdefault(names["mask"], {"lstrip": True})  # it stands for a word and the space before
    elif qwen:
        split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
        content["normalizer"] = {"type": "NFC"}
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, {**level, "use_regex": False}]}
    return _whole(content, said, names), names


def _ends(said: Said, names: dict[str, str], vocabulary: dict[str, int]) -> dict[str, Any]:
    """Nothing around the text, unless the folder asks for a start or an end."""
    first = [names["start"]] if said.flag("add_bos_token", False) and names.get("start") in vocabulary else []
    last = [names["end"]] if said.flag("add_eos_token", False) and names["end"] in vocabulary else []
    return template([*first, "A", *last], [*first, "A", *last, *first, "B", *last], vocabulary)


def template(single: list[str], pair: list[str], vocabulary: dict[str, int]) -> dict[str, Any]:
    """A post-processor: `A` and `B` are the texts, the rest are tokens. The second segment is all after the last A."""

    def items(names: list[str]) -> list[dict[str, Any]]:
        second = names.index("B") if "B" in names else len(names)
        if names[0] == names[second - 1] != "A":  # the token that begins the first text begins the second as well
            second -= 1
        return [
            {"Sequence" if name in TEXTS else "SpecialToken": {"id": name, "type_id": int(number >= second)}}
            for number, name in enumerate(names)
        ]

    tokens = {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in pair if name not in TEXTS}
    return {"type": "TemplateProcessing", "single": items(single), "pair": items(pair), "special_tokens": tokens}


def _whole(content: dict[str, Any], said: Said, names: dict[str, str]) -> str:
    vocabulary = content["model"]["vocab"]
    special = {*said.special, *names.values()}
    added = sorted((token for token in {*special, *said.added} if token in vocabulary), key=vocabulary.__getitem__)
    content["added_tokens"] = [
        {"id": vocabulary[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": token not in special}
        | said.flags.get(token, {})
        | {"special": token in special}
        for token in added
    ]
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, **content})


def _numbered(found: dict[str, Any], where: Path) -> dict[str, int]:
    for token, number in found.items():
        if type(number) is not int or not 0 <= number < 2**31:
            raise CheckpointError(f"{where}: {token[:40]!r} has no id but {str(number)[:40]}")
    return found


def _merges(path: Path) -> list[list[str]]:
    made = []
    for number, line in enumerate(_text(path).replace("\r\n", "\n").split("\n"), 1):
        if not line or line.startswith("#version"):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise CheckpointError(f"{path}, line {number}: expected two tokens that are merged, found {line[:40]!r}")
        made.append(parts)
    return made


def _text(path: Path) -> str:
    try:
        return read_bytes(path, LARGEST).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text: see byte {error.start + 1:,}") from None
