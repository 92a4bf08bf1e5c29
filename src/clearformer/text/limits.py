"""What a stranger's tokenizer.json may ask for: nothing whose cost grows out of proportion to the text.

The parts of a tokenizer are asked what they are before any text goes through them. A ValueError says what is wrong.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import models

MOST_GROWTH = 1_024  # how many characters one may become
MOST_STEPS = 64
MOST_FRAME = 64  # tokens and texts in a template
LONGEST_PIECE = 4_096  # characters of a unigram's token: a search tries them all
LONGEST_WORD = 1_000  # characters of a word that WordPiece cuts, at a cost that grows with their third power
LONGEST_TOKEN = 10_000  # characters of any token, or a few ids become gigabytes of text
LONGEST_AFFIX = 64  # what BPE and WordPiece put before or behind every piece they try


def check(engine: Engine) -> None:
    for parts in ((engine.normalizer, engine.pre_tokenizer), (engine.decoder,)):
        steps = [step for part in parts for step in _steps(_state(part))]
        if len(steps) > MOST_STEPS:
            raise ValueError(f"it has {len(steps)} steps where {MOST_STEPS} are too many")
        growth = _growth(steps, decodes=len(parts) == 1)
        if growth > MOST_GROWTH:
            raise ValueError(f"its replacements may make a text {growth:,.0f} times as long")
    for step in _steps(_state(engine.post_processor)):
        _check_template(step)
    _check_model(engine)


def _state(part: Any) -> dict[str, Any]:
    return {} if part is None else json.loads(part.__getstate__())


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a part, in all depths."""
    inner = [
        value for key in ("normalizers", "decoders", "pretokenizers", "processors") for value in state.get(key, ())
    ]
    for each in inner:
        yield from _steps(each)
    if state and not inner:
        yield state


FORMS = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3}  # how many characters Unicode makes of one at most
KEEP = {"Strip", "StripAccents", "Nmt"}  # only take away


def _growth(steps: list[dict[str, Any]], decodes: bool) -> float:
    """How many times as long some steps may make a text, one after the other."""
    growth, form = 1.0, 1
    for step in steps:
        kind = step.get("type")
        if kind in FORMS:  # of several in a row the largest counts: there is nothing left for the others
            growth, form = growth * max(1.0, FORMS[kind] / form), max(form, FORMS[kind])
        elif kind not in KEEP:
            growth, form = growth * _step_growth(step, decodes), 1
    return growth


def _step_growth(step: dict[str, Any], decodes: bool) -> float:
    match step.get("type"):
        case "Precompiled":
            charsmap = base64.b64decode(step["precompiled_charsmap"])
            return longest_text(charsmap[4 + int.from_bytes(charsmap[:4], "little") :])
        case "Prepend":
            return 1 + len(step["prepend"])
        case "Replace":
            return _replaced(len(step["content"]), **step["pattern"])
        case "BertNormalizer":
            return 12  # spaces around, and accents apart
        case "ByteLevel":
            return 1 if decodes else 4  # bytes become characters, each of two bytes
        case "Metaspace":
            return 1 if decodes else 2  # a space in front
        case "BPEDecoder":
            return 1 if step["suffix"] else 3  # a space before and behind every character
        case "CTC":
            return 1 if step["word_delimiter_token"] and step["pad_token"] else 3
        case "WordPiece":
            return 2  # a space in front
    return 1


_ONE = re.compile(r"\\[sSdDwW]")


def _replaced(size: int, String: str = "", Regex: str = "") -> float:  # noqa: N803 the file's names
    if String:
        return max(1.0, size / len(String))
    simple = _ONE.sub("x", Regex)
    try:  # without assertions, what does not fit an empty text takes a character at least
        takes = not set("\\^$") & set(simple) and "(?" not in simple and not re.fullmatch(simple, "")
    except (re.error, RecursionError, OverflowError):
        takes = False
    return max(1, size) if takes else 1 + 2 * size  # else it may stand before and behind every character


def longest_text(texts: bytes) -> int:
    """Characters of the longest of some texts, each ended by a zero; never less than in Unicode's own rules."""
    return max(18, *(len(text.decode("utf-8", "replace")) for text in texts.split(b"\0")))


def _check_template(step: dict[str, Any]) -> None:
    tokens = step.get("special_tokens", {})
    for frame in (step.get("single", ()), step.get("pair", ())):
        ids = (len(tokens[item["SpecialToken"]["id"]]["ids"]) for item in frame if "SpecialToken" in item)
        if isinstance(frame, list) and len(frame) + sum(ids) > MOST_FRAME:
            raise ValueError(f"its template has more than {MOST_FRAME} parts")
    said = [text for token in tokens.values() for text in token["tokens"]]
    said += [step[side][0] for side in ("sep", "cls") if side in step]  # of BERT's and RoBERTa's own kinds
    if max(map(len, said), default=0) > LONGEST_TOKEN:
        raise ValueError(f"its template has a token of more than {LONGEST_TOKEN:,} characters")


def _check_model(engine: Engine) -> None:
    model = engine.model
    if isinstance(model, models.WordPiece) and model.max_input_chars_per_word > LONGEST_WORD:
        raise ValueError(f"it takes words of more than {LONGEST_WORD:,} characters")
    longest = LONGEST_PIECE if isinstance(model, models.Unigram) else LONGEST_TOKEN
    if max(map(len, engine.get_vocab()), default=0) > longest:
        raise ValueError(f"it has a token of more than {longest:,} characters")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(getattr(model, name, None) or "") > LONGEST_AFFIX:
            raise ValueError(f"its {name} has more than {LONGEST_AFFIX} characters")
    if isinstance(model, models.BPE) and model.dropout:
        model.dropout = None  # the same text is always the same ids
