"""How a model writes: `generation_config.json`, or the same keys in an older `config.json`, as facts and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.checkpoints.config import GENERATION, IGNORED, Remark
from clearformer.checkpoints.safe import read_json
from clearformer.errors import CheckpointError

FILE = "generation_config.json"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
NOTHING: dict[str, Any] = {
    "start": None,
    "ends": [],
    "pad": None,
    "beams": 1,
    "length_penalty": 1.0,
    "early": False,
    "no_repeat": 0,
    "longest": None,
    "new": None,
    "shortest": 0,
    "least": None,
    "sample": False,
    "temperature": 1.0,
    "top_k": None,
    "top_p": None,
    "min_p": None,
    "repetition": 1.0,
    "forbidden": [],
    "forbidden_words": [],
    "stop": [],
    "forced_first": None,
    "forced_last": None,
}
WORDS = {  # ours → theirs, where the two mean the same
    "pad": "pad_token_id",
    "beams": "num_beams",
    "length_penalty": "length_penalty",
    "early": "early_stopping",
    "no_repeat": "no_repeat_ngram_size",
    "longest": "max_length",
    "new": "max_new_tokens",
    "shortest": "min_length",
    "least": "min_new_tokens",
    "sample": "do_sample",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition": "repetition_penalty",
    "forced_first": "forced_bos_token_id",
    "forced_last": "forced_eos_token_id",
}


def read(folder: Path, config: Mapping[str, Any], *, two_stacks: bool, vocabulary: int) -> dict[str, Any]:
    """The facts; ids that `generation_config.json` leaves out are the model's own, and one below 0 is none."""
    values, source = dict(config), "config.json"
    inner = config.get("decoder")
    if isinstance(inner, dict):  # ids of the decoder, where the whole says none
        values = {key: inner[key] for key in IDS if inner.get(key) is not None} | _said(config)
    if (folder / FILE).is_file():
        given = read_json(folder / FILE)
        values = {key: values[key] for key in IDS if key in values} | _said(given)
        source = FILE
    values = {key: value for key, value in values.items() if not (key in IDS and type(value) is int and value < 0)}
    facts: dict[str, Any] = dict(NOTHING)
    for ours, theirs in WORDS.items():
        if values.get(theirs) is not None:
            facts[ours] = values[theirs]
    starts = ("decoder_start_token_id", "bos_token_id", "pad_token_id") if two_stacks else ("bos_token_id",)
    facts["start"] = next((values[key] for key in starts if values.get(key) is not None), None)
    ends = values.get("eos_token_id")
    facts["ends"] = ends if isinstance(ends, list) else [] if ends is None else [ends]
    facts["forbidden"], facts["forbidden_words"] = _forbidden(values, facts["ends"])
    if not two_stacks:
        stop = values.get("stop_strings") or []
        facts["stop"] = [stop] if isinstance(stop, str) else stop
    if faults := _faults(facts, vocabulary):
        raise CheckpointError(f"{folder / source} cannot be used:\n" + "\n".join(f"  {fault}" for fault in faults))
    return facts


def ways(folder: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of one task alone, in our words."""
    found = {ours: said[theirs] for ours, theirs in WORDS.items() if said.get(theirs) is not None}
    if faults := _faults({**NOTHING, **found}, 2**31):
        raise CheckpointError(f"{folder / 'config.json'}, task_specific_params: {faults[0]}")
    return found


def remarks(folder: Path, *, two_stacks: bool) -> list[Remark]:
    """What becomes of every key of `generation_config.json`."""
    if not (folder / FILE).is_file():
        return []
    found = []
    for key, value in read_json(folder / FILE).items():
        used = key in GENERATION or (key == "stop_strings" and not two_stacks)
        why = "how texts are written" if used else IGNORED.get(key, "another way of writing texts, without effect")
        if key == "stop_strings" and two_stacks:
            why = "only completions stop at a text"
        found.append(Remark(f"{FILE}: {key}", value, "used" if used else "ignored", why))
    return found


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _forbidden(values: Mapping[str, Any], ends: list[Any]) -> tuple[list[Any], list[Any]]:
    """Tokens that never come: words of one token, unless it is an end, and suppressed tokens; and longer words."""
    words = values.get("bad_words_ids") or []
    words = words if isinstance(words, list) else [words]
    alone = [word[0] for word in words if isinstance(word, list) and len(word) == 1 and word[0] not in ends]
    longer = [word for word in words if not isinstance(word, list) or len(word) != 1]
    suppressed = values.get("suppress_tokens") or []
    found = [*alone, *(suppressed if isinstance(suppressed, list) else [])]
    return [*dict.fromkeys(found)] if all(type(each) is int for each in found) else found, longer


def _faults(facts: Mapping[str, Any], vocabulary: int) -> list[str]:
    def whole(value: Any, least: int = 0) -> bool:
        return type(value) is int and least <= value < 2**31

    def number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    faults = []
    for name in ("start", "pad", "forced_first", "forced_last"):
        if facts[name] is not None and not (whole(facts[name]) and facts[name] < vocabulary):
            faults.append(f"{name}: {facts[name]!r} is no token of the vocabulary of {vocabulary}")
    for name in ("ends", "forbidden"):
        for each in facts[name]:
            if not (whole(each) and each < vocabulary):
                faults.append(f"{name}: {each!r} is no token of the vocabulary of {vocabulary}")
    for word in facts["forbidden_words"]:
        if not isinstance(word, list) or not word or not all(whole(each) and each < vocabulary for each in word):
            faults.append(
                f"bad_words_ids: lists of tokens of the vocabulary of {vocabulary} are needed, given {word!r}"
            )
    if not isinstance(facts["stop"], list) or not all(isinstance(text, str) and text for text in facts["stop"]):
        faults.append(f"stop_strings: texts with characters are needed, given {facts['stop']!r}")
    for name, least in (("beams", 1), ("no_repeat", 0), ("shortest", 0)):
        if not whole(facts[name], least):
            faults.append(f"{WORDS[name]}: a whole number from {least} is needed, given {facts[name]!r}")
    for name in ("longest", "new", "least", "top_k"):
        if facts[name] is not None and not whole(facts[name]):
            faults.append(f"{WORDS[name]}: a whole number is needed, given {facts[name]!r}")
    for name in ("length_penalty", "temperature", "repetition"):
        if not number(facts[name]):
            faults.append(f"{WORDS[name]}: a number is needed, given {facts[name]!r}")
    for name in ("top_p", "min_p"):
        if facts[name] is not None and not number(facts[name]):
            faults.append(f"{name}: a number is needed, given {facts[name]!r}")
    if not isinstance(facts["early"], bool) and facts["early"] != "never":
        faults.append(f'early_stopping: true, false or "never" is needed, given {facts["early"]!r}')
    return faults


def write(facts: Mapping[str, Any], *, two_stacks: bool) -> dict[str, Any]:
    """`generation_config.json` of the facts."""
    known = {**NOTHING, **facts}
    values: dict[str, Any] = {theirs: known[ours] for ours, theirs in WORDS.items() if known[ours] != NOTHING[ours]}
    if known["start"] is not None:
        values["decoder_start_token_id" if two_stacks else "bos_token_id"] = known["start"]
    if known["ends"]:
        values["eos_token_id"] = known["ends"][0] if len(known["ends"]) == 1 else list(known["ends"])
    words = [*([each] for each in known["forbidden"] if each not in known["ends"]), *known["forbidden_words"]]
    if words:
        values["bad_words_ids"] = words
    if ends := [each for each in known["forbidden"] if each in known["ends"]]:  # which no bad word can be
        values["suppress_tokens"] = ends
    if known["stop"]:
        values["stop_strings"] = list(known["stop"])
    return values
