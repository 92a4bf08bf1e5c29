"""Small tokenizers of every public kind, in the files each family ships, made from synthetic sentences."""

import io
import json
import random
from pathlib import Path
from typing import Any

import sentencepiece
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertTokenizerFast,
    GPT2TokenizerFast,
    LlamaTokenizerFast,
    MarianTokenizer,
    PreTrainedTokenizerFast,
    Qwen2TokenizerFast,
    RobertaTokenizerFast,
    T5TokenizerFast,
)
from transformers.tokenization_utils_base import generate_merges

from clearformer.text.proto import parse

SYLLABLES = ["ka", "lo", "mi", "re", "tun", "sa", "ber", "ging", "pha", "thé", "ström", "naï", "aa", "bbb"]
SYLLABLES += ["кот", "дом", "नम", "ते", "你", "好", "東", "京"]
ENDS = ["", "", "", ",", ".", "!", "'s", " 12", "3.14", " — ", "  "]


def sentences(count: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(800)]
    words += [word.capitalize() for word in words[:100]]
    return [
        " ".join(draw.choice(words) + draw.choice(ENDS) for _ in range(draw.randint(3, 12))).strip()
        for _ in range(count)
    ]


TEXTS = sentences(500)
NASTY = [
    "",
    " ",
    "   ",
    "\n",
    "\t a\u00a0b\u3000c\u200bd ",
    "▁",
    "▁a ▁ b",
    "e\u0301 é \u0308 ﬁ Ⅳ\u0308 ① ½ ㌔ ﷺ",
    "각 각 \u1100\u1161 ガ ガ",
    "👨\u200d👩\u200d👧 🏳\ufe0f\u200d🌈",
    "\x00\x01\x7f\x85\u2028\ufeff\u00ad",
    "नमस्ते क्षि 你好東京 \U00010ffff",
    "don't do n't ' a ' b , c . d !",
    "a" * 300,
    "ka" * 100 + " " * 50 + "lo",
    "<0x41> <unk> UNK [UNKK]",
]
SPECIAL = ["[MASK]", "[CLS]", "</s>", "<s>", "<pad>", "<mask>", "<|endoftext|>", "<extra_id_3>"]


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
MIXED = st.lists(st.one_of(st.sampled_from([*NASTY, *TEXTS[:50]]), TEXT), max_size=3).map(" ".join)
SPOKEN = st.lists(st.one_of(st.sampled_from([*SPECIAL, " ", "  "]), MIXED), max_size=4).map("".join)


def save_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def bert(folder: Path, **settings: Any) -> Path:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special))
    ids = engine.get_vocab()
    (folder / "vocab.txt").write_text("".join(f"{t}\n" for t in sorted(ids, key=ids.__getitem__)), encoding="utf-8")
    save_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **settings})
    return folder


def byte_level(folder: Path, special: list[str], family: str, **settings: Any) -> Path:
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
    )
    engine.model.save(str(folder))
    save_json(folder / "config.json", {"model_type": family})
    save_json(folder / "tokenizer_config.json", settings)
    return folder


def gpt2(folder: Path, **settings: Any) -> Path:
    return byte_level(folder, ["<|endoftext|>"], "gpt2", **settings)


def roberta(folder: Path, **settings: Any) -> Path:
    return byte_level(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "roberta", **settings)


def qwen2(folder: Path, **settings: Any) -> Path:
    return byte_level(folder, ["<|endoftext|>"], "qwen2", **settings)


def spm(texts: list[str] = TEXTS, **how: Any) -> bytes:
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=made, minloglevel=2, num_threads=1, **how
    )
    return made.getvalue()


def t5(folder: Path, **settings: Any) -> Path:
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    (folder / "spiece.model").write_bytes(spm(model_type="unigram", vocab_size=200, hard_vocab_limit=False, **ids))
    save_json(folder / "config.json", {"model_type": "t5"})
    save_json(folder / "tokenizer_config.json", settings)
    return folder


def llama_model() -> bytes:
    how = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    return spm(model_type="bpe", vocab_size=480, **how)


def llama(folder: Path, **settings: Any) -> Path:
    (folder / "tokenizer.model").write_bytes(llama_model())
    save_json(folder / "config.json", {"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2})
    save_json(folder / "tokenizer_config.json", settings)
    return folder


def marian(folder: Path, **settings: Any) -> Path:
    """Pieces of both sides in one list, in an order of its own, and a few of them missing."""
    pieces: list[str] = []
    for name, seed in (("source.spm", 1), ("target.spm", 2)):
        raw = spm(sentences(300, seed), model_type="unigram", vocab_size=180, hard_vocab_limit=False)
        (folder / name).write_bytes(raw)
        found = sentencepiece.SentencePieceProcessor(model_proto=raw)
        pieces += [found.id_to_piece(i) for i in range(3, len(found)) if i % 17]
    order = [
        "</s>",
        "<unk>",
        *random.Random(3).sample(sorted(set(pieces)), len(set(pieces))),
        ">>fr<<",
        ">>de<<",
        "<pad>",
    ]
    save_json(folder / "vocab.json", {piece: number for number, piece in enumerate(order)})
    save_json(folder / "config.json", {"model_type": "marian", "pad_token_id": len(order) - 1, "eos_token_id": 0})
    save_json(folder / "tokenizer_config.json", {"source_lang": "en", "target_lang": "de", **settings})
    return folder


def llama3(folder: Path) -> Path:
    """A tokenizer.json with byte-level BPE, a template and added tokens, one of them not special."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    engine.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    engine.add_tokens(["<tool>"])
    start = engine.token_to_id("<|begin_of_text|>")
    engine.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B:1", special_tokens=[("<|begin_of_text|>", start)]
    )
    engine.enable_truncation(4)
    engine.enable_padding(length=9)
    engine.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<|begin_of_text|>", "eos_token": {"__type": "AddedToken", "content": "<|eot_id|>"}}
    save_json(folder / "tokenizer_config.json", {**names, "model_max_length": 1e30})
    return folder


def pieces(path: Path) -> list[tuple[str, float]]:
    found = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [(found.id_to_piece(i), found.get_score(i)) for i in range(len(found))]


def public_t5(folder: Path) -> T5TokenizerFast:
    """As transformers makes it of the file, without the protobuf library that it would read that with."""
    charsmap = parse((folder / "spiece.model").read_bytes()).charsmap
    vocabulary = pieces(folder / "spiece.model") + [(f"<extra_id_{n}>", 0.0) for n in range(99, -1, -1)]
    return T5TokenizerFast(vocab=vocabulary, _spm_precompiled_charsmap=charsmap)


def public_llama(folder: Path, **settings: Any) -> LlamaTokenizerFast:
    vocabulary = {piece: number for number, (piece, _) in enumerate(pieces(folder / "tokenizer.model"))}
    return LlamaTokenizerFast(vocab=vocabulary, merges=generate_merges(vocabulary), **settings)


KINDS = {
    "bert": bert,
    "gpt2": gpt2,
    "roberta": roberta,
    "qwen2": qwen2,
    "t5": t5,
    "llama": llama,
    "marian": marian,
    "llama3": llama3,
}
THEIRS: dict[str, Any] = {
    "bert": BertTokenizerFast,
    "gpt2": GPT2TokenizerFast,
    "roberta": RobertaTokenizerFast,
    "qwen2": Qwen2TokenizerFast,
    "marian": MarianTokenizer,
    "llama3": PreTrainedTokenizerFast,
}
