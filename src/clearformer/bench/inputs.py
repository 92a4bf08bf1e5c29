"""The model and the texts of a benchmark: made up, or read; in our layout, and in the public one for the others."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearformer import spec
from clearformer.bench.workloads import (
    ARRIVALS,
    BATCH,
    LONG,
    PROMPT,
    SHAPES,
    SOURCE,
    TARGET,
    TEXTS,
    Job,
    Lengths,
    Spec,
    shape_of,
)
from clearformer.errors import CheckpointError, ClearformerError, DataError


@dataclass
class Given:
    """The model of a run: ours reads `folder`, the others `public`, or none where `why` says so."""

    name: str
    what: Spec
    folder: Path
    public: Path | None
    start: int = 0  # the token that a target begins with
    ends: tuple[int, ...] = ()
    never: tuple[int, ...] = ()  # tokens that are never said
    longest: int | None = None
    why: str = ""
    made_up: bool = False  # random weights, which end no text


def made(work: str, shape: str | None, scratch: Path) -> Given:
    """Random weights in the public layout, which all contenders can read."""
    import torch

    from clearformer.assemble import build
    from clearformer.checkpoints.huggingface import save_public

    what = shape_of(work, shape)
    model: Any = build(what, seed=0)
    start, facts = 0, {}
    ends: tuple[int, ...] = ()
    if isinstance(what, spec.EncoderDecoder):
        start, ends = vocabulary(what) - 1, (0,)
        with torch.no_grad():  # as in public checkpoints: texts begin with nothing, and it is never said
            model.encoder.embed.table[start] = 0.0
            model.head.bias[[0, start]] = -1e4
    if work == "embed":
        facts = {"task": "embed", "pool": "mean", "normalise": True, "longest": 512}
    folder = save_public(model, scratch / "model", metadata=facts)
    if work == "embed":
        _write_word_pieces(folder, vocabulary(what))
    elif work != "train":
        _write_words(folder, vocabulary(what), ends=work == "translate")
    name = f"{shape or next(iter(SHAPES[work]))}, random weights"
    return Given(name, what, folder, folder, start, ends, made_up=True)


def read(work: str, model: str, scratch: Path) -> Given:
    """A folder or bundled model; one of ours is written in the public layout for the others, if that holds it."""
    from clearformer.checkpoints.huggingface import is_public, save_public
    from clearformer.tasks.load import find, open_model

    folder = find(model)
    opened = open_model(folder)
    _fits(work, opened, model)
    given = Given(model, opened.model.spec, folder, folder)
    given.longest = opened.metadata.longest
    given.start, given.ends, given.never = _tokens(opened)
    if not is_public(folder):
        try:
            first = "decoder_start_token_id" if work == "translate" else "bos_token_id"
            own: dict[str, Any] = {first: given.start, "pad_token_id": given.start}
            own |= {"eos_token_id": list(given.ends)} if given.ends else {}
            facts = {"generation": own} if work in ("translate", "complete") else {}
            given.public = save_public(opened.model, scratch / "model", metadata=facts)
        except ClearformerError as error:
            given.public, given.why = None, str(error)
    return given


def _fits(work: str, opened: Any, model: str) -> None:
    tasks = {"translate": ("translate", "write"), "train": ("translate", "write")}.get(work, (work,))
    task = opened.metadata.task
    if task not in tasks:
        raise DataError(f"{model} does not {work}: it is a model to {task}; see clearformer inspect {model}")


def _tokens(opened: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """What a target begins with, what ends it, and what is never said."""
    from clearformer.tasks.base import own_options

    if opened.metadata.task == "translate":
        from clearformer.text.learn import LearnedTokenizer

        tokenizer = LearnedTokenizer.load(opened.folder / "tokenizer.json")
        return tokenizer.start, (tokenizer.end,), (tokenizer.pad, tokenizer.start)
    own = own_options(opened.metadata)
    ends = own.eos_token_id or ()
    if opened.metadata.task == "complete" and not ends and opened.words.end is not None:
        ends = (opened.words.end,)
    return own.start or 0, ends, own.suppress_tokens or ()


def vocabulary(what: Spec) -> int:
    embed = what.encoder.embed if isinstance(what, spec.EncoderDecoder) else what.stack.embed
    if not isinstance(embed, spec.Tokens):
        raise CheckpointError("this model reads no tokens")
    return embed.vocabulary


# --- tokenizers for made-up words -------------------------------------------------------------------------


def _write_word_pieces(folder: Path, count: int) -> None:
    """A BERT tokenizer for made-up words, as a public folder has one."""
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


def _write_words(folder: Path, count: int, *, ends: bool) -> None:
    """One token a word, for made-up words; with `ends`, the first ends a source and the last is padding."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = _words(count)
    special = {"eos_token": "</s>", "pad_token": "<pad>"} if ends else {}
    if ends:
        words[0], words[-1] = special.values()
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token=words[1]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if ends:
        made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
        made.add_special_tokens(list(special.values()))
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def _words(count: int) -> list[str]:
    """So many words of four letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    digits = [(n // 26**3 % 26, n // 26**2 % 26, n // 26 % 26, n % 26) for n in range(count)]
    return ["".join(letters[digit] for digit in word) for word in digits]


# --- texts ------------------------------------------------------------------------------------------------


def sentences() -> tuple[str, ...]:
    """A few hundred sentences that come with the package."""
    text = (files("clearformer") / "bench" / "sentences.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def texts_of(work: str, given: Given, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Those asked for; else made-up words for made-up weights, and sentences for others."""
    if work == "train":
        return ()
    if asked is not None:
        found = tuple(text for text in asked if text.strip())
        if not found:
            raise DataError(f"there are no texts to {work}; give a file with one a line")
        return found
    if not given.made_up:
        return sentences()
    draw = random.Random(0)
    if work == "embed":  # 3 to 60 words, most of them short, as sentences are
        counts = [min(60, max(3, round(draw.lognormvariate(2.4, 0.5)))) for _ in range(TEXTS)]
        words = _words(900)
    else:
        counts = [SOURCE - 1] * BATCH if work == "translate" else [PROMPT] * ARRIVALS  # a source has an end
        words = _words(vocabulary(given.what))[4:-4]
    return tuple(" ".join(draw.choice(words) for _ in range(count)) for count in counts)


def long_text(reader: Any, texts: Sequence[str], longest: int | None) -> str:
    """Texts one after the other, as many words as have no more tokens than a long prompt."""
    words = " ".join(texts).split()
    words *= -(-LONG // len(words))
    most = min(LONG, (longest or LONG + 1) - 1)
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        fits = len(reader.encode([" ".join(words[:middle])])[0]) <= most
        low, high = (middle, high) if fits else (low, middle - 1)
    return " ".join(words[:low])


def inputs_of(job: Job, given: Given, asked: Sequence[str] | None) -> tuple[Job, Lengths]:
    """The job with its texts, and their lengths in tokens; those of answers are known where no token ends them."""
    from clearformer.bench.ours import Reader

    texts = texts_of(job.work, given, asked)
    if job.work == "train":
        return job, Lengths()
    reader = Reader(given.folder, job.work)
    sources = [len(ids) for ids in reader.encode(texts)]
    job = Job(**{**job.to_dict(), "texts": texts, "reader": str(given.folder), "ends": given.ends})
    if job.work == "translate":
        limit = TARGET if given.made_up else None
        job = Job(**{**job.to_dict(), "limit": limit, "most": limit or 2 * max(sources) + 20})
        return job, Lengths(sources, [TARGET] * len(sources) if given.made_up else (), tokens=given.made_up)
    if job.work == "complete":
        long = long_text(reader, texts, given.longest)
        prompts = tuple(texts[n % len(texts)] for n in range(ARRIVALS))
        job = Job(**{**job.to_dict(), "texts": prompts, "long": long})
        return job, Lengths([sources[n % len(texts)] for n in range(ARRIVALS)], long=len(reader.encode([long])[0]))
    return job, Lengths(sources, tokens=False)
