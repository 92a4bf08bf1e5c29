"""What a stranger's tokenizer.json may ask for: nothing whose cost grows out of proportion to the text.

The parts of a tokenizer are asked what they are before any text goes through them. A ValueError says what is wrong.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import models

MOST_GROWTH = 1_024  # how many characters one may become
MOST_STEPS = 64
MOST_FRAME = 64  # tokens and texts in a template
LONGEST_PIECE = 4_096
LONGEST_WORD = 10_000


def check(engine: Engine) -> None:
    for part in (engine.normalizer, engine.decoder, engine.pre_tokenizer):
        steps = list(_steps(_state(part)))
        if len(steps) > MOST_STEPS:
            raise ValueError(f"it has {len(steps)} steps where {MOST_STEPS} are too many")
        growth = 1.0
        for step in steps:
            growth *= _growth(step)
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


def _growth(step: dict[str, Any]) -> float:
    """How many times as long a step may make a text."""
    if step.get("type") == "Precompiled":
        charsmap = base64.b64decode(step["precompiled_charsmap"])
        return longest_text(charsmap[4 + int.from_bytes(charsmap[:4], "little") :]) / 18  # as NFKC, which is fair
    if step.get("type") != "Replace":
        return 1
    size, pattern = len(step["content"]), step["pattern"]
    return max(1.0, size / max(1, len(pattern["String"]))) if "String" in pattern else 1 + size


def longest_text(texts: bytes) -> float:
    """Characters of the longest of some texts, each ended by a zero; never less than in Unicode's own rules."""
    return max(18, *map(len, texts.split(b"\0")))


def _check_template(step: dict[str, Any]) -> None:
    tokens = step.get("special_tokens", {})
    for frame in (step.get("single", ()), step.get("pair", ())):
        ids = (len(tokens[item["SpecialToken"]["id"]]["ids"]) for item in frame if "SpecialToken" in item)
        if isinstance(frame, list) and len(frame) + sum(ids) > MOST_FRAME:
            raise ValueError(f"its template has more than {MOST_FRAME} parts")


def _check_model(engine: Engine) -> None:
    model = engine.model
    if isinstance(model, models.WordPiece) and model.max_input_chars_per_word > LONGEST_WORD:
        raise ValueError(f"it takes words of more than {LONGEST_WORD:,} characters")
    if isinstance(model, models.Unigram) and max(map(len, engine.get_vocab()), default=0) > LONGEST_PIECE:
        raise ValueError(f"it has a token of more than {LONGEST_PIECE:,} characters")
    if isinstance(model, models.BPE) and model.dropout:
        model.dropout = None  # the same text is always the same ids
