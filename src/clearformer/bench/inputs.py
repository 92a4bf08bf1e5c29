"""The model and the texts of a benchmark: made up, or read; in our layout, and in the public one for the others."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearformer import spec
from clearformer.bench.workloads import SHAPES, Spec, made_up_texts, shape_of
from clearformer.errors import CheckpointError, ClearformerError, DataError


@dataclass
class Given:
    """The model of a run: ours reads `folder`, the others `public`, or none where `why` says so."""

    name: str
    what: Spec
    folder: Path
    public: Path | None
    start: int = 0
    why: str = ""


def made(work: str, shape: str | None, scratch: Path) -> Given:
    """Random weights in the public layout, which all contenders can read."""
    import torch

    from clearformer.assemble import build
    from clearformer.checkpoints.huggingface import save_public

    what = shape_of(work, shape)
    model: Any = build(what, seed=0)
    start = 0
    if isinstance(what, spec.EncoderDecoder):
        start = vocabulary(what) - 1
        with torch.no_grad():  # as in public checkpoints: texts begin with nothing, and it is never said
            model.encoder.embed.table[start] = 0.0
            model.head.bias[[0, start]] = -1e4
    metadata = {"task": "embed", "pool": "mean", "normalise": True, "longest": 512} if work == "embed" else {}
    folder = save_public(model, scratch / "model", metadata=metadata)
    if work == "embed":
        _write_words(folder, vocabulary(what))
    return Given(f"{shape or next(iter(SHAPES[work]))}, random weights", what, folder, folder, start)


def read(work: str, model: str, scratch: Path) -> Given:
    """A folder or bundled model; one of ours is written in the public layout for the others, if that holds it."""
    from clearformer.checkpoints.huggingface import is_public, save_public
    from clearformer.tasks.load import find, open_model

    folder = find(model)
    opened = open_model(folder)
    _fits(work, opened, model)
    start, public, why = _start(opened), folder, ""
    if not is_public(folder):
        try:
            own = {"start": start, "pad": start, "ends": []}
            metadata = {"generation": own} if work == "translate" else {}
            public = save_public(opened.model, scratch / "model", metadata=metadata)
        except ClearformerError as error:
            return Given(model, opened.model.spec, folder, None, start, str(error))
    return Given(model, opened.model.spec, folder, public, start, why)


def _fits(work: str, opened: Any, model: str) -> None:
    tasks = {"translate": ("translate", "write"), "train": ("translate", "write")}.get(work, (work,))
    task = opened.metadata.task
    if task not in tasks:
        raise DataError(f"{model} does not {work}: it is a model to {task}; see clearformer inspect {model}")


def _start(opened: Any) -> int:
    """The token that a target begins with."""
    if opened.metadata.task == "translate":
        from clearformer.text.learn import LearnedTokenizer

        return LearnedTokenizer.load(opened.folder / "tokenizer.json").start
    return (opened.metadata.generation or {}).get("start") or 0


def vocabulary(what: Spec) -> int:
    embed = what.encoder.embed if isinstance(what, spec.EncoderDecoder) else what.stack.embed
    if not isinstance(embed, spec.Tokens):
        raise CheckpointError("this model reads no tokens")
    return embed.vocabulary


# --- texts ------------------------------------------------------------------------------------------------


def _write_words(folder: Path, count: int) -> None:
    """A tokenizer for made-up words, as a public folder has one."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    words = [*special.values(), *_words(count - len(special))]
    made = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.add_special_tokens(list(special.values()))
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": 512, "do_lower_case": True, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")


def _words(count: int) -> list[str]:
    """So many words of four letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    digits = [(n // 26**3 % 26, n // 26**2 % 26, n // 26 % 26, n % 26) for n in range(count)]
    return ["".join(letters[digit] for digit in word) for word in digits]


def texts_of(given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return made_up_texts(_words(900))
    found = tuple(text for text in given if text.strip())
    if not found:
        raise DataError("there are no texts to embed; give a file with one a line")
    return found


def lengths(folder: Path, texts: Sequence[str]) -> list[int]:
    from clearformer.text.tokenizer import PublicTokenizer

    return [len(each.ids) for each in PublicTokenizer.load(folder).encode_all(texts)]
