"""The tokenizer of a model folder, whichever way it is written there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, processors

from clearformer.errors import CheckpointError
from clearformer.text.legacy import byte_level, wordpiece
from clearformer.text.limits import check
from clearformer.text.special_tokens import KEYS, Said, read_said
from clearformer.text.spm import build, spm_files
from clearformer.text.tokenizer import OURS, PublicTokenizer
from clearformer.untrusted_files import read_bytes, read_json

LARGEST = 64 * 2**20  # bytes of a tokenizer's file
MOST = 2_000_000  # tokens
HIGHEST = 2**24  # of ids, of which some may have no token


def has_tokenizer(folder: Path) -> bool:
    """Whether there is anything to read a tokenizer from, whole or not."""
    names = (OURS, "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt")
    return any((folder / name).exists() for name in names) or bool(spm_files(folder))


def load(folder: Path) -> PublicTokenizer:
    """Ours first, then the one file that says all, then what older families ship."""
    if (folder / OURS).exists():
        return _ours(folder)
    said = read_said(folder)
    if (folder / "tokenizer.json").exists():
        path = folder / "tokenizer.json"
        return _public(_lowered(_engine(read_bytes(path, LARGEST), path), said), said, {})
    if (folder / "vocab.txt").exists():
        return _legacy(wordpiece, folder, said)
    if names := spm_files(folder):
        return _pieces(folder, names, said)
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        return _legacy(byte_level, folder, said)
    raise CheckpointError(
        f"{folder} has no tokenizer: expected tokenizer.json, vocab.txt, vocab.json with merges.txt, spiece.model,"
        " tokenizer.model, or source.spm with target.spm and vocab.json"
    )


def _engine(content: bytes, where: Path) -> Engine:
    """A tokenizer from JSON; whatever the library dislikes is a CheckpointError."""

    def made() -> Engine:
        found = Engine.from_buffer(content)
        check(found)
        highest = max(found.get_vocab().values(), default=0)
        if found.get_vocab_size() > MOST or highest >= HIGHEST:
            raise ValueError(f"the vocabulary has {found.get_vocab_size():,} tokens with ids up to {highest:,}")
        found.no_truncation()
        found.no_padding()
        found.encode_batch(["a \U00010ffff", ("", "b")])  # some damage shows only here
        found.decode([0])
        return found

    return _guarded(made, where)


def _guarded(make: Callable[[], Any], where: Path) -> Any:
    try:
        return make()
    except (CheckpointError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises plain Exception, and its panics are not even that
        raise CheckpointError(f"{where} is no tokenizer that can be used: {str(error)[:200]}") from None


def _legacy(read: Callable[[Path, Said], tuple[str, dict[str, str]]], folder: Path, said: Said) -> PublicTokenizer:
    content, names = read(folder, said)
    where = folder / ("vocab.txt" if read is wordpiece else "vocab.json")
    return _public(_engine(content.encode(), where), said, names)


def _pieces(folder: Path, names: list[str], said: Said) -> PublicTokenizer:
    read = {name: read_bytes(folder / name, LARGEST) for name in names}
    return _guarded(lambda: build(read, said), folder)


def _lowered(found: Engine, said: Said) -> Engine:
    """BERT's normaliser as `tokenizer_config.json` wants it: where the two files differ, that one is meant."""
    if isinstance(found.normalizer, normalizers.BertNormalizer):
        for ours, theirs in (
            ("lowercase", "do_lower_case"),
            ("handle_chinese_chars", "tokenize_chinese_chars"),
            ("strip_accents", "strip_accents"),
        ):
            if isinstance(said.settings.get(theirs), bool):
                setattr(found.normalizer, ours, said.settings[theirs])
    return found


def _public(found: Engine, said: Said, names: dict[str, str]) -> PublicTokenizer:
    if isinstance(found.post_processor, processors.RobertaProcessing | processors.BertProcessing):
        state = json.loads(found.post_processor.__getstate__())
        names = {"separator": state["sep"][0], "first": state["cls"][0], **names}
    return PublicTokenizer(
        found,
        said.roles(found.token_to_id, 1 + max(found.get_vocab().values(), default=-1), names),
        longest=said.longest,
        chat_template=said.chat_template,
        clean=said.flag("clean_up_tokenization_spaces", False) and not isinstance(found.model, models.BPE),
        plain=said.flag("split_special_tokens", False),
    )


def _ours(folder: Path) -> PublicTokenizer:
    """What `PublicTokenizer.save` wrote."""
    where, kept = folder / OURS, read_json(folder / OURS)
    roles, longest, template = kept.get("roles"), kept.get("longest"), kept.get("chat_template")
    if not isinstance(roles, dict) or not all(i is None or (type(i) is int and i >= 0) for i in roles.values()):
        raise CheckpointError(f"{where}: roles must name tokens by their ids")
    if longest is not None and (type(longest) is not int or longest < 1):
        raise CheckpointError(f"{where}: longest must be a number of tokens or null")
    if template is not None and not isinstance(template, str):
        raise CheckpointError(f"{where}: chat_template must be a text or null")
    if "sentencepiece" in kept:
        words = _ours_of_pieces(folder, kept["sentencepiece"])
    else:
        path = folder / "tokenizer.json"
        words = PublicTokenizer(_engine(read_bytes(path, LARGEST), path), {}, plain=kept.get("plain") is True)
    for side in (words, words.target()):
        side.longest, side.chat_template, side.clean = longest, template, kept.get("clean") is True
    for role in KEYS:
        setattr(words, role, roles.get(role))
    return words


def _ours_of_pieces(folder: Path, kept: Any) -> PublicTokenizer:
    where = folder / OURS
    shapes = {"family": str, "settings": dict, "tokens": dict, "added": dict, "special": list}
    if not isinstance(kept, dict) or not all(isinstance(kept.get(key), kind) for key, kind in shapes.items()):
        raise CheckpointError(f"{where}: sentencepiece must hold {', '.join(shapes)}")
    if not all(isinstance(token, str) for token in (*kept["tokens"].values(), *kept["special"])) or not all(
        type(number) is int and number >= 0 for number in kept["added"].values()
    ):
        raise CheckpointError(f"{where}: tokens must be texts, and those added must have ids")
    said = Said(
        config={"model_type": kept["family"]},
        settings=kept["settings"],
        tokens=kept["tokens"],
        added=kept["added"],
        special=frozenset(kept["special"]),
    )
    if not (names := spm_files(folder)):
        raise CheckpointError(f"{folder} has words.json for a sentencepiece model, but no such model")
    return _pieces(folder, names, said)
