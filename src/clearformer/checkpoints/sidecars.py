"""The small JSON files of a public folder, written from metadata: labels, generation, images, pooling."""

from collections.abc import Mapping
from typing import Any

from clearformer import spec
from clearformer.checkpoints import generation_config
from clearformer.checkpoints.match_family import label_keys
from clearformer.checkpoints.metadata import Metadata, Prompts
from clearformer.checkpoints.read_metadata import IMAGES, MODULES, POOLS, PROMPTS, RESAMPLE
from clearformer.data.preprocessing import Preprocessing

Spec = spec.Transformer | spec.EncoderDecoder


def sidecars(what: Spec, config: Mapping[str, Any], metadata: Metadata) -> dict[str, Any]:
    """By name; `config.json` holds what joins the family's own."""
    files: dict[str, Any] = {"config.json": _config(what, config, metadata)}
    if metadata.generation is not None:
        two = isinstance(what, spec.EncoderDecoder)
        said = generation_config.write(metadata.generation, two_stacks=two)
        files[generation_config.FILE] = said
        files["config.json"] |= {key: said.get(key) for key in generation_config.IDS if said.get(key) is not None}
    if metadata.image is not None:
        files[IMAGES] = _image(metadata.image)
    elif metadata.task == "embed" and metadata.pool is not None:
        files |= _pooling(what, metadata)
    return files


def _config(what: Spec, config: Mapping[str, Any], metadata: Metadata) -> dict[str, Any]:
    more = label_keys(what, metadata.labels or ())
    if metadata.task == "classify" and isinstance(what.head, spec.Classes):
        kind = "multi_label" if metadata.several else "single_label"
        more["problem_type"] = "regression" if what.head.count == 1 else f"{kind}_classification"
    if metadata.longest is not None and not _counts_positions(what):
        key = "n_positions" if config["model_type"] == "t5" else "max_position_embeddings"
        more[key] = max(metadata.longest, _written(what, metadata))
    if prompts := _prompts(metadata):
        more["task_specific_params"] = prompts
    return more


def _written(what: Spec, metadata: Metadata) -> int:
    """How many tokens a translation may have, its start included: a table of sinusoids must be as long in public."""
    most = (metadata.generation or {}).get("max_new_tokens")
    return most + 1 if isinstance(what, spec.EncoderDecoder) and isinstance(most, int) else 0


def _counts_positions(what: Spec) -> bool:
    """Whether the spec itself has a table of positions, whose length is no fact but a size."""
    stack = next(iter(what.stacks.values()))
    return isinstance(stack.embed.positions, spec.Learned)


def _prompts(metadata: Metadata) -> dict[str, Any]:
    prompts = metadata.prompts or Prompts()
    ways = {verb: _ways(way) for verb, way in (metadata.ways or {}).items()}
    translate = ways.get("translate", {})
    found = {f"translation_en_to_{to}": {**translate, "prefix": text} for to, text in prompts.translate.items()}
    if prompts.summarize is not None:
        found["summarization"] = {**ways.get("summarize", {}), "prefix": prompts.summarize}
    return found


def _ways(way: Mapping[str, Any]) -> dict[str, Any]:
    return generation_config.write(way, two_stacks=True)


def _image(image: Preprocessing) -> dict[str, Any]:
    height, width = image.size or image.crop or (0, 0)
    numbers = {name: number for number, name in RESAMPLE.items()}
    made: dict[str, Any] = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": height} if image.shortest else {"height": height, "width": width},
        "resample": numbers[str(image.resample)],
        "do_rescale": True,
        "rescale_factor": image.scale,
        "do_normalize": True,
        "image_mean": image.mean,
        "image_std": image.std,
    }
    if image.crop is not None:
        made |= {"do_center_crop": True, "crop_size": dict(zip(("height", "width"), image.crop, strict=True))}
    return made


def _pooling(what: Spec, metadata: Metadata) -> dict[str, Any]:
    """A sentence-transformers folder: the body, the pooling, and lengths of one where asked."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if metadata.normalise else [])]
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": paths[kind], "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    stack = next(iter(what.stacks.values()))
    modes = {key: pool == metadata.pool for key, pool in POOLS.items() if key.startswith("pooling_mode_")}
    if metadata.skips_prompt:
        modes["include_prompt"] = False
    prompt = metadata.prompt
    prompts = {PROMPTS: {"prompts": {"default": prompt}, "default_prompt_name": "default"}} if prompt else {}
    return {
        MODULES: modules,
        **prompts,
        "1_Pooling/config.json": {"word_embedding_dimension": stack.width, **modes},
        "sentence_bert_config.json": {"max_seq_length": metadata.longest, "do_lower_case": False},
    }
