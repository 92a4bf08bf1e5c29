"""The small JSON files of a public folder, written from facts: labels, generation, images, pooling."""

from collections.abc import Mapping
from typing import Any

from clearformer import spec
from clearformer.checkpoints import generation_config
from clearformer.checkpoints.match_family import label_keys
from clearformer.checkpoints.metadata import IMAGES, MODULES, POOLS, PROMPTS, RESAMPLE

Spec = spec.Transformer | spec.EncoderDecoder


def sidecars(what: Spec, config: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """By name; `config.json` holds what joins the family's own."""
    files: dict[str, Any] = {"config.json": _config(what, config, facts)}
    if isinstance(facts.get("generation"), Mapping):
        two = isinstance(what, spec.EncoderDecoder)
        said = generation_config.write(facts["generation"], two_stacks=two)
        files[generation_config.FILE] = said
        files["config.json"] |= {key: said.get(key) for key in generation_config.IDS if said.get(key) is not None}
    if isinstance(facts.get("image"), Mapping):
        files[IMAGES] = _image(facts["image"])
    if (
        facts.get("task") == "embed"
        and not isinstance(facts.get("image"), Mapping)
        and facts.get("pool") in POOLS.values()
    ):
        files |= _pooling(what, facts)
    return files


def _config(what: Spec, config: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    more = label_keys(what, facts.get("labels") or ())
    if facts.get("task") == "classify" and isinstance(what.head, spec.Classes):
        kind = "multi_label" if facts.get("several") else "single_label"
        more["problem_type"] = "regression" if what.head.count == 1 else f"{kind}_classification"
    longest = facts.get("longest")
    if type(longest) is int and not _counts_positions(what):
        key = "n_positions" if config["model_type"] == "t5" else "max_position_embeddings"
        more[key] = longest
    if prompts := _prompts(facts):
        more["task_specific_params"] = prompts
    return more


def _counts_positions(what: Spec) -> bool:
    """Whether the spec itself has a table of positions, whose length is no fact but a size."""
    stack = what.encoder if isinstance(what, spec.EncoderDecoder) else what.stack
    return isinstance(stack.embed.positions, spec.Learned)


def _prompts(facts: Mapping[str, Any]) -> dict[str, Any]:
    prompts = facts.get("prompts") or {}
    ways = {verb: _ways(way) for verb, way in (facts.get("ways") or {}).items()}
    translate = ways.get("translate", {})
    languages = (prompts.get("translate") or {}).items()
    found = {f"translation_en_to_{to}": {**translate, "prefix": text} for to, text in languages}
    if "summarize" in prompts:
        found["summarization"] = {**ways.get("summarize", {}), "prefix": prompts["summarize"]}
    return found


def _ways(way: Mapping[str, Any]) -> dict[str, Any]:
    return {generation_config.WORDS[name]: value for name, value in way.items() if name in generation_config.WORDS}


def _image(image: Mapping[str, Any]) -> dict[str, Any]:
    height, width = image["size"]
    numbers = {name: number for number, name in RESAMPLE.items()}
    made: dict[str, Any] = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": height} if image["shortest"] else {"height": height, "width": width},
        "resample": numbers[image["resample"]],
        "do_rescale": True,
        "rescale_factor": image["scale"],
        "do_normalize": True,
        "image_mean": image["mean"],
        "image_std": image["std"],
    }
    if image["crop"] is not None:
        made |= {"do_center_crop": True, "crop_size": dict(zip(("height", "width"), image["crop"], strict=True))}
    return made


def _pooling(what: Spec, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A sentence-transformers folder: the body, the pooling, and lengths of one where asked."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if facts.get("normalise") else [])]
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": paths[kind], "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    stack = what.encoder if isinstance(what, spec.EncoderDecoder) else what.stack
    modes = {key: pool == facts["pool"] for key, pool in POOLS.items() if key.startswith("pooling_mode_")}
    if facts.get("skips_prompt"):
        modes["include_prompt"] = False
    prompt = facts.get("prompt")
    prompts = {PROMPTS: {"prompts": {"default": prompt}, "default_prompt_name": "default"}} if prompt else {}
    return {
        MODULES: modules,
        **prompts,
        "1_Pooling/config.json": {"word_embedding_dimension": stack.width, **modes},
        "sentence_bert_config.json": {"max_seq_length": facts.get("longest"), "do_lower_case": False},
    }
