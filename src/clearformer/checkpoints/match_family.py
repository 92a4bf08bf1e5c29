"""Which public family can hold a spec: each writes a config, and the config is read back and compared."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from clearformer import spec
from clearformer.assemble import assemble
from clearformer.checkpoints.config import Config
from clearformer.checkpoints.families import FAMILIES, Family
from clearformer.checkpoints.metadata import numbered
from clearformer.checkpoints.weights import public_rows
from clearformer.errors import CheckpointError, SpecError

Spec = spec.Transformer | spec.EncoderDecoder
UNLIKE = (SpecError, CheckpointError, AttributeError, KeyError, AssertionError, StopIteration, TypeError, ValueError)


def family_for(what: Spec, prefer: str | None = None) -> tuple[Family, dict[str, Any]]:
    """The first family that holds the spec, the preferred one before others, and its config."""
    order = sorted(FAMILIES.values(), key=lambda family: family.name != prefer)
    nearest: tuple[int, str, str] | None = None
    lacking: list[str] = []
    for family in order:
        try:
            config = {**family.write(what), **label_keys(what)}
            names = _names(family, what)
            again = family.read(Config(config, names=names))
        except UNLIKE as error:  # the spec lacks parts that the family has, or has parts that it lacks
            if isinstance(error, SpecError):
                lacking.append(f"{family.name}, and it lacks {error}")
            continue
        apart = list(differences(normal(what), normal(again)))
        if names is not None and not apart:
            return family, config
        if apart and (nearest is None or len(apart) < nearest[0]):
            nearest = (len(apart), family.name, apart[0])
    if nearest is None:
        near = f"the nearest is {lacking[0]}" if lacking else f"known: {', '.join(FAMILIES)}"
        raise CheckpointError(f"no public family holds this model; {near}")
    raise CheckpointError(
        f"no public family holds this model; the nearest is {nearest[1]}, and differs in {nearest[2]}"
    )


def label_keys(what: Spec, names: Sequence[str] = ()) -> dict[str, Any]:
    """What a public configuration says of classes, where the head has any; numbered where there are no names."""
    count = getattr(what.head, "count", None)
    if count is None:
        return {}
    names = names if len(names) == count else numbered(count)
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


def _names(family: Family, what: Spec) -> list[str] | None:
    """The tensors that the family's file would hold; nothing where one of ours has no name there."""
    with torch.device("meta"):
        model = assemble(what)
    try:
        return [row.public for row in public_rows(model, family.rules(what)).values()]
    except KeyError:
        return None


def normal(what: Spec) -> dict[str, Any]:
    """The spec without what only training reads, and with what `None` stands for said."""
    data = what.model_dump()
    stacks = [data[name] for name in ("stack", "encoder", "decoder") if name in data]
    for stack in stacks:
        stack["initial"] = None
        for block in stack["blocks"]:
            for branch in block["branches"]:
                layer = branch["layer"]
                if "heads" in layer:
                    layer["key_heads"] = layer["key_heads"] or layer["heads"]
                    layer["head_width"] = layer["head_width"] or stack["width"] // layer["heads"]
    return data


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two specs differ, dropout aside."""
    if where.endswith("dropout") or one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict) and one.get("kind") == other.get("kind"):
        for key in one:
            yield from differences(one[key], other.get(key), f"{where}.{key}" if where else key)
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, (each, that) in enumerate(zip(one, other, strict=True)):
            name = each.get("name", number) if isinstance(each, dict) else number
            step = where.removesuffix(".branches") if name != number else where
            yield from differences(each, that, f"{step}.{name}")
    else:
        yield f"{where}: {_said(one)} here, {_said(other)} there"


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("kind", "another part"))
    return f"{len(value)} of them" if isinstance(value, list | tuple) else "nothing" if value is None else str(value)
