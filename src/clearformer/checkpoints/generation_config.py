"""How a model writes: `generation_config.json`, or the same keys in an older `config.json`, as facts and back."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from clearformer.checkpoints.config import GENERATION, IGNORED, Remark
from clearformer.checkpoints.safe import read_json
from clearformer.errors import CheckpointError, DataError
from clearformer.generate.options import GenerationOptions, check_token, check_tokens, modern, plan

FILE = "generation_config.json"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
OURS = {"stop": "stop_strings"}  # where a public file has another name
KEYS = tuple(field.name for field in fields(GenerationOptions) if field.name not in ("seed", "logprobs", "stop"))


def read(folder: Path, config: Mapping[str, Any], *, two_stacks: bool, vocabulary: int) -> dict[str, Any]:
    """The options; ids that `generation_config.json` leaves out are the model's own, and one below 0 is none."""
    values, source = dict(config), "config.json"
    inner = config.get("decoder")
    if isinstance(inner, dict):  # ids of the decoder, where the whole says none
        values = {key: inner[key] for key in IDS if inner.get(key) is not None} | _said(config)
    if (folder / FILE).is_file():
        given = read_json(folder / FILE)
        values = {key: values[key] for key in IDS if key in values} | _said(given)
        source = FILE
    values = {key: value for key, value in values.items() if not (key in IDS and type(value) is int and value < 0)}
    said = {key: values[key] for key in KEYS if values.get(key) is not None}
    if two_stacks:
        starts = (values.get(key) for key in ("decoder_start_token_id", "bos_token_id", "pad_token_id"))
        said["decoder_start_token_id"] = next((token for token in starts if token is not None), None)
        said.pop("bos_token_id", None)
    elif values.get("stop_strings"):
        said["stop"] = values["stop_strings"]
    said["do_sample"] = values.get("do_sample") or False
    if said["do_sample"]:
        said.pop("num_beams", None)  # drawn, not searched for
    options = _options(folder / source, {name: value for name, value in said.items() if value is not None})
    try:
        check_tokens(plan(options, 1), vocabulary)
        for name in ("bos_token_id", "decoder_start_token_id", "pad_token_id"):
            check_token(name, getattr(options, name), vocabulary)
    except DataError as error:
        raise CheckpointError(f"{folder / source} cannot be used:\n  {error}") from None
    return options.to_dict()


def ways(folder: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of one task alone."""
    given = {key: said[key] for key in KEYS if said.get(key) is not None}
    return _options(folder / "config.json, task_specific_params", given).to_dict()


def _options(source: Path, said: dict[str, Any]) -> GenerationOptions:
    try:
        return GenerationOptions.of(said)
    except (DataError, TypeError) as error:
        raise CheckpointError(f"{source} cannot be used:\n  {error}") from None


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


def write(options: Mapping[str, Any], *, two_stacks: bool) -> dict[str, Any]:
    """`generation_config.json` of the options of a folder."""
    said = modern(options, two_stacks=two_stacks)
    values = {OURS.get(name, name): value for name, value in said.items()}
    for name in ("eos_token_id", "suppress_tokens", "bad_words_ids", "stop_strings"):
        if name in values:
            values[name] = [list(each) if isinstance(each, tuple | list) else each for each in values[name]]
    if len(values.get("eos_token_id", ())) == 1:
        values["eos_token_id"] = values["eos_token_id"][0]
    if not values.get("do_sample", True):
        del values["do_sample"]  # which is what they do without it
    return values
