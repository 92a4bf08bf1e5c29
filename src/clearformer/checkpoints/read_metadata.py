"""The metadata of a public folder: its task, labels, lengths, pooling, image preprocessing and prompts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer import spec
from clearformer.checkpoints import generation_config
from clearformer.checkpoints.metadata import Metadata, numbered
from clearformer.checkpoints.safe import read_json
from clearformer.errors import CheckpointError

Spec = spec.Transformer | spec.EncoderDecoder
IMAGES, MODULES, PROMPTS = "preprocessor_config.json", "modules.json", "config_sentence_transformers.json"
MOST_LABELS, MOST_CHANNELS = 1_000_000, 1_000


def metadata_of(folder: Path, family: str, what: Spec, config: Mapping[str, Any]) -> Metadata:
    """What the small files of a folder say, as `task.json` of a saved model holds it."""
    task = task_of(what)
    said: dict[str, Any] = {"task": task, "family": family, "longest": _longest(what, config)}
    if task == "write":
        said["longest"] = _read_at_most(folder, said["longest"])
    if task in ("classify", "tag", "see"):
        count = what.head.count  # type: ignore[union-attr]
        said["labels"] = labels(config, count)
        if task == "classify":
            said["several"] = config.get("problem_type") == "multi_label_classification" or count == 1
    if task == "embed":
        said |= pooling(folder, what)
    if isinstance(embed := _first(what).embed, spec.Patches):
        said["image"] = image(folder, embed)
    if task in ("write", "complete", "caption"):
        two, last = isinstance(what, spec.EncoderDecoder), _last(what).embed
        assert isinstance(last, spec.Tokens)
        said["generation"] = generation_config.read(folder, config, two_stacks=two, vocabulary=last.vocabulary)
    if task == "write":
        said |= prompts(folder, config)
    return Metadata.of(said)


def task_of(what: Spec) -> str:
    """What the head is for."""
    sees = isinstance(_first(what).embed, spec.Patches)
    if isinstance(what, spec.EncoderDecoder):
        return "caption" if sees else "write"
    match what.head:
        case spec.NextToken():
            return "complete"
        case spec.MaskedToken():
            return "fill"
        case spec.Classes():
            return "see" if sees else "classify"
        case spec.TokenClasses():
            return "tag"
        case spec.Spans():
            return "answer"
    return "embed"


def _first(what: Spec) -> spec.Stack:
    return next(iter(what.stacks.values()))


def _last(what: Spec) -> spec.Stack:
    return [*what.stacks.values()][-1]


def _longest(what: Spec, config: Mapping[str, Any]) -> int | None:
    """The most tokens of an input, special ones included."""
    stack = _last(what) if isinstance(_first(what).embed, spec.Patches) else _first(what)
    if isinstance(stack.embed, spec.Patches):
        return None
    if isinstance(stack.embed.positions, spec.Learned):
        return stack.embed.positions.length
    keys = ("max_position_embeddings", "n_positions", "max_sequence_length")
    said = next((config[key] for key in keys if config.get(key) is not None), None)
    return said if type(said) is int and said > 0 else None


def _read_at_most(folder: Path, longest: int | None) -> int | None:
    """The tokenizer's word on the longest source, where a table of positions leaves room for longer targets."""
    path = folder / "tokenizer_config.json"
    said = read_json(path).get("model_max_length") if path.is_file() else None
    if type(said) is not int or said < 1 or longest is None:
        return longest
    return min(said, longest)


# --- labels -----------------------------------------------------------------------------------------------


def labels(config: Mapping[str, Any], count: int) -> list[str]:
    """The names in the order of the logits; LABEL_0 and so on where there are none."""
    given = config.get("id2label")
    if count > MOST_LABELS:
        raise CheckpointError(f"config.json: {count:,} labels; more than {MOST_LABELS:,} are not read")
    if not given:
        return numbered(count)
    names = {str(key): value for key, value in given.items()} if isinstance(given, dict) else {}
    if names.keys() != {str(number) for number in range(count)} or not all(isinstance(v, str) for v in names.values()):
        raise CheckpointError(f"config.json: id2label must name the labels 0 to {count - 1}, each once and in words")
    return [names[str(number)] for number in range(count)]


# --- sentence encoders ------------------------------------------------------------------------------------

POOLS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "cls": "first",
    "mean": "mean",
    "lasttoken": "last",
}


def pooling(folder: Path, what: Spec) -> dict[str, Any]:
    """How states become one vector: what a sentence-transformers folder says, or the mean (of a decoder the last), as
    it is."""
    if not (folder / MODULES).is_file():
        causal = isinstance(what, spec.Transformer) and what.stack.causal
        first = isinstance(_first(what).embed, spec.Patches)
        return {"pool": "last" if causal else "first" if first else "mean", "normalise": False}
    pool, normalise, skips = "mean", False, False
    for module in read_json(folder / MODULES, kind=list):
        kind = str(module.get("type", "")).rsplit(".", 1)[-1] if isinstance(module, dict) else ""
        if kind == "Pooling":
            pool, skips = _pool(folder, str(module.get("path", "")))
        elif kind == "Normalize":
            normalise = True
        elif kind != "Transformer":
            raise CheckpointError(
                f"{folder / MODULES} names a module {kind or module!r}, which is not read;"
                " known: Transformer, Pooling, Normalize"
            )
    found: dict[str, Any] = {"pool": pool, "normalise": normalise, **_prompt(folder)}
    if skips:
        found["skips_prompt"] = True
    if (folder / "sentence_bert_config.json").is_file():
        said = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        if type(said) is int and said > 0:
            positions = getattr(_first(what).embed, "positions", None)
            most = positions.length if isinstance(positions, spec.Learned) else said
            found["longest"] = min(said, most)
    return found


def _prompt(folder: Path) -> dict[str, Any]:
    """What stands before every text, where the folder has such a prompt."""
    path = folder / PROMPTS
    said = read_json(path) if path.is_file() else {}
    name, known = said.get("default_prompt_name"), said.get("prompts") or {}
    if name is None:
        return {}
    prompt = known.get(name) if isinstance(known, dict) and isinstance(name, str) else None
    if not isinstance(prompt, str):
        raise CheckpointError(
            f"{path}: default_prompt_name {name!r} is none of its prompts, which are {known!r:.200}; name one, or null"
        )
    return {"prompt": prompt} if prompt else {}


def _pool(folder: Path, where: str) -> tuple[str, bool]:
    """Which states count, and whether those of a prompt are left out."""
    if not where or "/" in where or "\\" in where or where.startswith("."):
        raise CheckpointError(f"{folder / MODULES}: the path {where!r} is no plain name of a folder")
    path = folder / where / "config.json"
    said = read_json(path, within=folder)
    if isinstance(said.get("pooling_mode"), str):
        chosen = [said["pooling_mode"]]
    else:
        chosen = [key for key, value in said.items() if key.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or chosen[0] not in POOLS:
        raise CheckpointError(
            f"{path} asks for {' and '.join(chosen) or 'no pooling'}; one of mean, first (cls) and last token is read"
        )
    return POOLS[chosen[0]], said.get("include_prompt") is False


# --- images -----------------------------------------------------------------------------------------------

RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def image(folder: Path, embed: spec.Patches) -> dict[str, Any]:
    """How a picture becomes numbers: `preprocessor_config.json`, or what ViT was published with."""
    path = folder / IMAGES
    said = read_json(path) if path.is_file() else {}
    size, shortest = _size(said.get("size", list(embed.image)), path)
    crop = None
    if said.get("do_center_crop") and said.get("crop_size") is not None:
        crop = _size(said["crop_size"], path)[0]
    if shortest and crop is None:
        crop = list(embed.image)  # only one side is known otherwise
    if (crop or size) != list(embed.image):
        raise CheckpointError(f"{path} makes images of {crop or size}, and the model takes {list(embed.image)}")
    if embed.channels > MOST_CHANNELS:
        raise CheckpointError(
            f"{folder}: images of {embed.channels:,} channels; more than {MOST_CHANNELS:,} are not read"
        )
    resample = said.get("resample", 2)
    if type(resample) is not int or resample not in RESAMPLE:
        known = ", ".join(f"{number} ({name})" for number, name in RESAMPLE.items())
        raise CheckpointError(f"{path}: resample {resample!r} is not read; known: {known}")
    rescaled, normal = said.get("do_rescale", True), said.get("do_normalize", True)
    return {
        "size": size,
        "mean": _colours(said, "image_mean", embed.channels, 0.5, path) if normal else [0.0] * embed.channels,
        "std": _colours(said, "image_std", embed.channels, 0.5, path) if normal else [1.0] * embed.channels,
        "scale": _factor(said.get("rescale_factor", 1 / 255), path) if rescaled else 1.0,
        "resample": RESAMPLE[resample],
        "crop": crop,
        "shortest": shortest,
        "channels": embed.channels,
    }


def _size(given: Any, path: Path) -> tuple[list[int], bool]:
    """Height and width, and whether they are the shortest side instead."""
    sides: Any = given
    shortest = False
    if isinstance(given, dict):
        shortest = "shortest_edge" in given
        sides = [given["shortest_edge"]] * 2 if shortest else [given.get("height"), given.get("width")]
    elif type(given) is int:
        sides = [given, given]
    if not isinstance(sides, list) or len(sides) != 2 or not all(type(s) is int and 0 < s <= 2**14 for s in sides):
        raise CheckpointError(f"{path}: a size must be a number, height and width, or shortest_edge; given {given!r}")
    return sides, shortest


def _colours(said: Mapping[str, Any], key: str, channels: int, usual: float, path: Path) -> list[float]:
    given = said.get(key) or [usual] * channels
    values = given if isinstance(given, list) else [given]
    values = values * channels if len(values) == 1 else values
    if len(values) != channels or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise CheckpointError(f"{path}: {key} must be {channels} numbers, given {given!r}")
    if key == "image_std" and not all(values):
        raise CheckpointError(f"{path}: image_std divides, and holds a 0")
    return [float(value) for value in values]


def _factor(given: Any, path: Path) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise CheckpointError(f"{path}: rescale_factor must be a number, given {given!r}")
    return float(given)


# --- prompts ----------------------------------------------------------------------------------------------


def prompts(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What to put before a text for each task (T5) and how to write then, and the languages that can be written."""
    found: dict[str, Any] = {}
    ways: dict[str, Any] = {}
    params = config.get("task_specific_params")
    for name, said in params.items() if isinstance(params, dict) else ():
        prefix = said.get("prefix") if isinstance(said, dict) else None
        if not isinstance(prefix, str):
            continue
        if name == "summarization":
            found["summarize"] = prefix
            ways["summarize"] = generation_config.ways(folder, said)
        elif name.startswith("translation_") and "_to_" in name:
            found.setdefault("translate", {})[name.rsplit("_to_", 1)[1]] = prefix
            ways.setdefault("translate", generation_config.ways(folder, said))
    to = sorted(found.get("translate", {}))
    if not to and (folder / "tokenizer_config.json").is_file():
        target = read_json(folder / "tokenizer_config.json").get("target_lang")
        to = [target] if isinstance(target, str) and target else []
    ways = {verb: way for verb, way in ways.items() if way}
    return {"prompts": found, "to": to} | ({"ways": ways} if ways else {})
