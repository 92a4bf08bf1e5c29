"""Public checkpoints: folders with `config.json` and safetensors, as the Hugging Face hub lays them out.

model, public = load_public("bert-base-uncased")
public.family, public.spec, public.metadata
save_public(model, "mine", metadata=public.metadata)
"""

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from clearformer import spec
from clearformer.assemble import Model
from clearformer.checkpoints import generation_config
from clearformer.checkpoints.atomic import write_folder
from clearformer.checkpoints.card import card
from clearformer.checkpoints.config import Config, Remark
from clearformer.checkpoints.families import FAMILIES, Family
from clearformer.checkpoints.metadata import Metadata
from clearformer.checkpoints.model_folder import empty
from clearformer.checkpoints.name_map import split
from clearformer.checkpoints.read_metadata import MODULES, metadata_of
from clearformer.checkpoints.relatives import Form, public_form
from clearformer.checkpoints.safe import Tensors, finite, open_tensors, read_json
from clearformer.checkpoints.sidecars import sidecars
from clearformer.checkpoints.weights import fill, public_rows
from clearformer.errors import CheckpointError, SpecError, nearest
from clearformer.kernels.int8 import Matrix
from clearformer.kernels.pack import is_int8, plain

__all__ = ["Public", "Remark", "describe", "is_public", "load_public", "save_public"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Public:
    """What a folder says of its model, before any weight is read."""

    family: str  # config.json's model_type
    spec: spec.Transformer | spec.EncoderDecoder
    metadata: Metadata  # as in task.json
    remarks: list[Remark]  # what became of every key of config.json, and of tensors that are no weights
    config: dict[str, Any]


def is_public(folder: str | Path) -> bool:
    """Whether a folder is laid out so; one of ours has a `task.json`."""
    folder = Path(folder)
    return (folder / CONFIG).is_file() and not (folder / "task.json").is_file()


def describe(folder: str | Path, *, ignore: Collection[str] = ()) -> Public:
    """The model of a folder as a spec and metadata; of the weights, names alone are read. `ignore` are unknown keys of
    config.json to go on without."""
    folder = Path(folder)
    there = (folder / WEIGHTS, folder / f"{WEIGHTS}.index.json")
    return _describe(folder, open_tensors(folder) if any(path.exists() for path in there) else None, ignore)


def _describe(folder: Path, tensors: Tensors | None, ignore: Collection[str]) -> Public:
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is a file; a model is a folder" if folder.exists() else f"there is no folder {folder}"
        )
    values = read_json(folder / CONFIG)
    family = _family(values, folder)
    pooled = (folder / MODULES).is_file()
    config = Config(
        values,
        names=tensors,
        writes=family.writes and not pooled,
        pooled=pooled,
        own_generation=(folder / generation_config.FILE).is_file(),
        ignore=[ignore] if isinstance(ignore, str) else ignore,
    )
    config.ignore("which family it is", "model_type")
    try:
        what = family.read(config)
    except SpecError as error:
        raise CheckpointError(f"{folder / CONFIG} describes no model: {error}") from None
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from None
    remarks = [_as_used(remark) for remark in config.remarks]
    metadata = metadata_of(folder, family.name, what, values)
    if metadata.generation is not None:
        remarks += generation_config.remarks(folder, two_stacks=isinstance(what, spec.EncoderDecoder))
    return Public(family.name, what, metadata, remarks, values)


def _family(values: Mapping[str, Any], folder: Path) -> Family:
    name = values.get("model_type")
    if name is None:
        raise CheckpointError(f"{folder / CONFIG} names no model_type; known: {', '.join(FAMILIES)}")
    if not isinstance(name, str) or name not in FAMILIES:
        near = nearest(str(name), FAMILIES)
        near = near if "did you mean" in near else ""
        raise CheckpointError(f"{folder / CONFIG}: model_type {name!r} is not read{near}; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def _as_used(remark: Remark) -> Remark:
    return dataclasses.replace(remark, use="used") if remark.key == "model_type" else remark


@torch.no_grad()
def load_public(folder: str | Path, *, kernel: str = "auto", ignore: Collection[str] = ()) -> tuple[Model, Public]:
    """The model of a folder, ready to run. Weights in single precision stay where they are, mapped into memory."""
    folder = Path(folder)
    tensors = open_tensors(folder) if (folder / CONFIG).is_file() else None
    public = _describe(folder, tensors, ignore)
    assert tensors is not None  # a folder without config.json has been refused
    model = empty(public.spec, kernel, folder / CONFIG, tensors)
    remarks = fill(model, FAMILIES[public.family].rules(public.spec), tensors, folder)
    return model.eval(), dataclasses.replace(public, remarks=[*public.remarks, *remarks])


@torch.no_grad()
def unused(folder: Path, model: Model, names: Collection[str]) -> dict[str, torch.Tensor]:
    """Weights for some parameters of a model, from a folder that has them for another head than it was read with: a
    pooler is often beside BERT's masked-token head."""
    tensors, family = open_tensors(folder), _family(read_json(folder / CONFIG), folder)
    try:
        rules = family.rules(model.spec)
        rows = public_rows(model, rules)
    except KeyError:  # a head that the family does not have
        return {}
    shapes = dict(model.named_parameters())
    found: dict[str, torch.Tensor] = {}
    for name in tensors:
        row = rows.get(rules.bare(name))
        if row is not None and set(row.ours.split()) <= set(names) and finite(tensors[name]):
            made = split(row, tensors[name].float())
            found |= {ours: each for ours, each in made.items() if each.shape == shapes[ours].shape}
    return found


@torch.no_grad()
def save_public(
    model: Model,
    folder: str | Path,
    *,
    metadata: Metadata | Mapping[str, Any] | None = None,
    dtype: str = "float32",
    ids: Mapping[str, int] | None = None,
) -> Path:
    """Write a new folder that Hugging Face's classes read; an existing one is not written over.

    `metadata` adds what a spec does not say: labels, how to write, how images are made. Where a spec fits several
    families, `metadata.family` chooses; where it fits none, an exact relative of it may (`relatives`), and `README.md`
    says what was done. `ids` are those of special tokens, of a model that writes no texts.
    """
    folder, metadata = Path(folder), Metadata.of(metadata)
    if dtype not in DTYPES:
        raise CheckpointError(f"weights cannot be saved as {dtype!r}{nearest(str(dtype), DTYPES)}")
    form = form_of(model, metadata)
    files = sidecars(form.spec, form.config, metadata)
    config = {**form.config, **files.get(CONFIG, {}), "torch_dtype": dtype}
    files[CONFIG] = {**config, **{key: value for key, value in (ids or {}).items() if config.get(key) is None}}
    weights = {}
    public = form.family.rules(form.spec).to_public(form.weights)
    for name, tensor in {**public, **form.family.more(form.spec, config, public)}.items():
        weights[name] = tensor.detach().to(DTYPES[dtype]).contiguous()
        if not finite(weights[name]):
            why = "holds NaN or infinity" if not finite(tensor) else f"is too large for {dtype}"
            raise CheckpointError(f"{name} {why}; nothing was saved")
    rounded = ("matrices were kept as int8; these are the rounded numbers",) if is_int8(model) else ()
    readme = card(files[CONFIG], metadata, (*form.notes, *rounded))

    def write(waiting: Path) -> None:
        for name, value in files.items():
            (waiting / name).parent.mkdir(exist_ok=True)
            text = json.dumps(value, indent=2, ensure_ascii=False)
            (waiting / name).write_text(text + "\n", encoding="utf-8")
        (waiting / "README.md").write_text(readme, encoding="utf-8")
        save_file(weights, waiting / WEIGHTS, metadata={"format": "pt"})

    return write_folder(folder, write)


def form_of(model: Model, metadata: Metadata) -> Form:
    """The model as a public family holds it."""
    return public_form(pooled_apart(model.spec), meant(model), metadata.family, metadata.longest)


def pooled_apart(what: Any) -> Any:
    """A public sentence encoder ends with its states; how they are pooled is told beside it."""
    alone = isinstance(what.head, spec.Vector) and what.head.dense is None
    return what.replace(head=spec.States()) if alone else what


def meant(model: Model) -> dict[str, torch.Tensor]:
    """Every parameter once, however many modules share it; of matrices of int8, the numbers that are meant."""
    model = plain(model)
    found: dict[str, torch.Tensor] = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for path, module in model.named_modules():
        if isinstance(module, Matrix):
            found[f"{path.removesuffix('.matrix')}.weight" if path.endswith(".matrix") else path] = module.meant
    empty = [name for name, parameter in found.items() if parameter.is_meta]
    if empty:
        raise CheckpointError(f"{empty[0]} has no values (it is on the meta device); nothing was saved")
    return found
