"""How a model writes: `generation_config.json`, or the same keys in an older `config.json`, as facts and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    "sample": False,
    "temperature": 1.0,
    "top_k": None,
    "top_p": None,
    "repetition": 1.0,
    "forbidden": [],
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
    "sample": "do_sample",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "repetition": "repetition_penalty",
    "forced_first": "forced_bos_token_id",
    "forced_last": "forced_eos_token_id",
}


def read(folder: Path, config: Mapping[str, Any], *, two_stacks: bool, vocabulary: int) -> dict[str, Any]:
    """The facts; ids that `generation_config.json` leaves out are the model's own."""
    values, source = dict(config), "config.json"
    inner = config.get("decoder")
    if isinstance(inner, dict):  # ids of the decoder, where the whole says none
        values = {key: inner[key] for key in IDS if inner.get(key) is not None} | _said(config)
    if (folder / FILE).is_file():
        given = read_json(folder / FILE)
        values = {key: values[key] for key in IDS if key in values} | _said(given)
        source = FILE
    facts: dict[str, Any] = dict(NOTHING)
    for ours, theirs in WORDS.items():
        if values.get(theirs) is not None:
            facts[ours] = values[theirs]
    starts = ("decoder_start_token_id", "bos_token_id", "pad_token_id") if two_stacks else ("bos_token_id",)
    facts["start"] = next((values[key] for key in starts if values.get(key) is not None), None)
    ends = values.get("eos_token_id")
    facts["ends"] = ends if isinstance(ends, list) else [] if ends is None else [ends]
    facts["forbidden"] = _forbidden(values)
    if faults := _faults(facts, vocabulary):
        raise CheckpointError(f"{folder / source} cannot be used:\n" + "\n".join(f"  {fault}" for fault in faults))
    return facts


def ways(folder: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of one task alone, in our words."""
    found = {ours: said[theirs] for ours, theirs in WORDS.items() if said.get(theirs) is not None}
    if faults := _faults({**NOTHING, **found}, 2**31):
        raise CheckpointError(f"{folder / 'config.json'}, task_specific_params: {faults[0]}")
    return found


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _forbidden(values: Mapping[str, Any]) -> list[Any]:
    """Tokens that never come: words of one token, and suppressed tokens."""
    words = values.get("bad_words_ids") or []
    alone = [word[0] for word in words if isinstance(word, list) and len(word) == 1] if isinstance(words, list) else []
    suppressed = values.get("suppress_tokens") or []
    found = [*alone, *(suppressed if isinstance(suppressed, list) else [])]
    return [*dict.fromkeys(found)] if all(type(each) is int for each in found) else found


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
    for name, least in (("beams", 1), ("no_repeat", 0), ("shortest", 0)):
        if not whole(facts[name], least):
            faults.append(f"{WORDS[name]}: a whole number from {least} is needed, given {facts[name]!r}")
    for name in ("longest", "new", "top_k"):
        if facts[name] is not None and not whole(facts[name]):
            faults.append(f"{WORDS[name]}: a whole number is needed, given {facts[name]!r}")
    for name in ("length_penalty", "temperature", "repetition"):
        if not number(facts[name]):
            faults.append(f"{WORDS[name]}: a number is needed, given {facts[name]!r}")
    if facts["top_p"] is not None and not number(facts["top_p"]):
        faults.append(f"top_p: a number is needed, given {facts['top_p']!r}")
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
    if known["forbidden"]:
        values["bad_words_ids"] = [[each] for each in known["forbidden"]]
    return values
