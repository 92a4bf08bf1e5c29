"""Small valid model folders of every layout that is read, for stress/fuzz_checkpoints.py to damage."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import clearformer as cf
from clearformer import presets
from clearformer.assemble import Model
from clearformer.checkpoints.safe import KINDS, finite, open_tensors
from clearformer.kernels.pack import plain

TEXTS = ["the cat sat on the mat", "a dog ran to the cat", "who sat where"] * 3


@dataclass(frozen=True)
class Target:
    """A valid folder, the files of it that are changed, and what reads it; raises AssertionError on a wrong success."""

    name: str
    folder: Path
    files: list[str]
    load: Callable[[Path], None]


def whole(model: Model) -> None:
    with torch.device("meta"):
        wanted = {name: weight.shape for name, weight in cf.build(model.spec).named_parameters()}
    found = dict(plain(model).named_parameters())
    assert {name: weight.shape for name, weight in found.items()} == wanted
    assert not any(weight.is_meta or not finite(weight) for weight in found.values())
    assert not any(buffer.is_meta for buffer in model.buffers())


def tensors(folder: Path) -> None:
    """Whatever we take, the safetensors library takes, and reads the same."""
    from safetensors import safe_open

    found = open_tensors(folder)
    for name in found:
        value = found[name]
        assert tuple(value.shape) == found.shape(name)
        assert value.dtype == KINDS[found.kind(name)]
        with safe_open(found.where(name), framework="pt") as file:
            truth = file.get_tensor(name)
        if value.dtype != torch.bool:
            assert torch.equal(value.flatten().view(torch.uint8), truth.flatten().view(torch.uint8))


def words(folder: Path) -> None:
    from clearformer.text.tokenizer import PublicTokenizer

    found = PublicTokenizer.load(folder)
    ids = found.encode("the cat, \U0001f600 sat", "where?").ids
    assert isinstance(found.decode(ids), str)


def public(folder: Path) -> None:
    from clearformer.checkpoints.huggingface import describe, load_public

    describe(folder)
    whole(load_public(folder)[0])


def translator(folder: Path) -> None:
    whole(cf.load(folder, precision=None).model)


def _ours(folder: Path) -> Target:
    what = presets.gpt2("tiny").replace({"stack.blocks.*.self.positions": cf.spec.ALiBi()})
    cf.save_model(cf.build(what, seed=0), folder)
    return Target("ours", folder, ["spec.json", "weights.safetensors"], lambda at: whole(cf.load_model(at)))


def _tensors(folder: Path) -> Target:
    from safetensors.torch import save_file

    folder.mkdir()
    weights = {kind: torch.arange(6).view(2, 3).to(dtype) for kind, dtype in KINDS.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return Target("tensors", folder, ["model.safetensors"], tensors)


def _shards(folder: Path) -> Target:
    from safetensors.torch import save_file

    folder.mkdir()
    names = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    for n, name in enumerate(names):
        save_file({f"{n}.weight": torch.ones(2, 3), f"{n}.bias": torch.zeros(2).half()}, folder / name)
    listed = {f"{n}.{part}": name for n, name in enumerate(names) for part in ("weight", "bias")}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 84}, "weight_map": listed}))
    return Target("shards", folder, [index.name, index.name, *names], tensors)


def _words(folder: Path) -> Target:
    from clearformer.text.learn import learn
    from clearformer.text.tokenizer import PublicTokenizer

    PublicTokenizer.of(learn(TEXTS, vocabulary=300)).save(folder)
    return Target("words", folder, ["tokenizer.json", "words.json"], words)


def _translator(folder: Path) -> Target:
    from clearformer.text.learn import learn

    tokenizer = learn(TEXTS, vocabulary=300)
    cf.save_model(cf.build(presets.original("tiny", vocabulary=len(tokenizer)), seed=0), folder)
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    (folder / "task.json").write_text(json.dumps({"task": "translate", "longest": 20, "to": ["de"], "growth": 2.0}))
    return Target("translator", folder, ["task.json", "task.json", "spec.json", "tokenizer.json"], translator)


def _written(folder: Path, files: dict[str, Any]) -> list[str]:
    """Files with texts, bytes or JSON in them; their names."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        raw = (
            content
            if isinstance(content, bytes)
            else (content if isinstance(content, str) else json.dumps(content)).encode()
        )
        (folder / name).write_bytes(raw)
    return list(files)


def _wordpiece(folder: Path) -> Target:
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefghijklmnopqrstuvwxyz",
        "##at",
        "the",
        "cat",
        ",",
        "?",
    ]
    named = {"unk_token": "[UNK]", "mask_token": {"content": "[MASK]", "lstrip": True}}
    settings = {"do_lower_case": True, "model_max_length": 10**30, "tokenizer_class": "BertTokenizer", **named}
    files = {"vocab.txt": "\n".join(tokens) + "\n", "tokenizer_config.json": settings, "special_tokens_map.json": named}
    return Target("wordpiece", folder, _written(folder, {**files, "config.json": {"model_type": "bert"}}), words)


def _byte_level(folder: Path) -> Target:
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, "th", "the", "at", "<|endoftext|>"]
    end = len(tokens) - 1
    decoder = {str(end): {"content": "<|endoftext|>", "special": True}}
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    settings = {"eos_token": "<|endoftext|>", "added_tokens_decoder": decoder, "chat_template": template}
    files: dict[str, Any] = {
        "vocab.json": {token: n for n, token in enumerate(tokens)},
        "merges.txt": "t h\nth e\na t\n",
    }
    files |= {"tokenizer_config.json": settings, "config.json": {"model_type": "gpt2", "eos_token_id": end}}
    return Target("byte level", folder, _written(folder, files), words)


def _pieces(folder: Path) -> Target:
    """A sentencepiece model, which is a protocol buffer."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    def piece(text: str, score: float, kind: int) -> bytes:
        return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))

    kinds = [("<pad>", 3), ("</s>", 3), ("<unk>", 2), *((text, 1) for text in ("▁", "▁the", "▁cat", *"abcdefst"))]
    model = b"".join(piece(text, -float(n), kind) for n, (text, kind) in enumerate(kinds))
    model += field(2, bytes([0x18, 1])) + field(3, field(1, b"identity") + bytes([0x18, 1, 0x20, 1, 0x28, 1]))
    settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 2, "additional_special_tokens": ["<extra_id_0>"]}
    files = {"spiece.model": model, "tokenizer_config.json": settings, "config.json": {"model_type": "t5"}}
    return Target("pieces", folder, [*_written(folder, files), "spiece.model"], words)


BERT = presets.bert("tiny")
LABELS = {"labels": ["no", "yes", "maybe"]}
POOLED = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
SENTENCES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ],
    "1_Pooling/config.json": POOLED,
}
IMAGES = {"preprocessor_config.json": {"size": 12, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}}
WRITING = {"generation_config.json": {"max_length": 20, "num_beams": 4, "eos_token_id": [1], "bad_words_ids": [[2]]}}
# the spec, the metadata to save it with, and files besides
PUBLIC: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "bert": (BERT, {}, {}),
    "classify": (BERT.replace(head=cf.spec.Classes(count=3, vector=cf.spec.Vector(dense="tanh"))), LABELS, {}),
    "embed": (BERT.replace(head=cf.spec.States()), {}, SENTENCES),
    "distilbert": (presets.distilbert("tiny"), {}, {}),
    "gpt2": (presets.gpt2("tiny"), {}, {}),
    "llama": (presets.llama("tiny"), {}, WRITING),
    "t5": (presets.t5("tiny"), {}, WRITING),
    "marian": (presets.marian("tiny"), {}, WRITING),
    "vit": (presets.vit("tiny"), {}, IMAGES),
}


def _public(folder: Path, family: str) -> Target:
    from clearformer.checkpoints.huggingface import save_public

    what, metadata, more = PUBLIC[family]
    save_public(cf.build(what, seed=0), folder, metadata=metadata)
    _written(folder, more)
    files = ["config.json", "config.json", "model.safetensors"]
    files += sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json") if path.name != "config.json")
    return Target(family, folder, files + [name for name in more if name.endswith("/config.json")], public)


MAKERS: dict[str, Callable[[Path], Target]] = {
    "ours": _ours,
    "tensors": _tensors,
    "shards": _shards,
    "words": _words,
    "wordpiece": _wordpiece,
    "byte level": _byte_level,
    "pieces": _pieces,
    "translator": _translator,
    **{family: partial(_public, family=family) for family in PUBLIC},
}
