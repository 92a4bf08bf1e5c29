"""The same function as another spec: what no public family holds as it stands may be held by an exact relative.

A step changes a spec and its weights together so that every answer stays what it was, but for the order in which
floats are added: coordinates of all states in another order, sinusoids written down as a table, a factor multiplied
into a matrix, a bias or a segment of zeros.

    form = public_form(model.spec, weights)
    form.family, form.config, form.spec, form.weights, form.notes
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearformer import spec
from clearformer.checkpoints.families import Family
from clearformer.checkpoints.match_family import Spec, family_for
from clearformer.core.positions import sinusoid
from clearformer.errors import CheckpointError

LENGTH = 512  # rows of a table of positions, where nobody says how long texts are
Weights = Mapping[str, Tensor]


class Step(NamedTuple):
    """`spec` gives None where there is nothing to change; `weights` takes the spec before the step."""

    spec: Callable[[Any, int], Any]
    weights: Callable[[dict[str, Tensor], Any, int], dict[str, Tensor]]
    note: str


@dataclass(frozen=True)
class Form:
    """A model as a public family holds it; `notes` say what was done for that, nothing if it is one as it stands."""

    family: Family
    config: dict[str, Any]
    spec: Spec
    weights: dict[str, Tensor]
    notes: tuple[str, ...] = ()


def public_form(what: Spec, weights: Weights, prefer: str | None = None, longest: int | None = None) -> Form:
    """The model as a public family has it: as it stands, or else as a relative."""
    family, config, steps = family_of(what, prefer, longest)
    made, notes = dict(weights), []
    for step in steps:
        made = step.weights(made, what, longest or LENGTH)
        what = step.spec(what, longest or LENGTH)
        notes.append(step.note)
    return Form(family, config, what, made, tuple(notes))


def family_of(
    what: Spec, prefer: str | None = None, longest: int | None = None
) -> tuple[Family, dict[str, Any], tuple[Step, ...]]:
    """The family that holds a spec or a relative of it, its config, and the steps to that relative."""
    try:
        return *family_for(what, prefer), ()
    except CheckpointError as error:
        for steps in PLANS:
            made: Any = what
            for step in steps:
                made = made and step.spec(made, longest or LENGTH)
            if made is None:
                continue
            try:
                return *family_for(made, prefer), steps
            except CheckpointError:
                continue
        raise error from None


# --- sinusoids in two halves ----------------------------------------------------------------------------------------
# Nothing tells the coordinates of a state apart but the matrices around it: in another order, everywhere, they are
# the same model. Norms, which are over all of them, do not care.

COLUMNS = ("embed.table", "embed.segments", "head.weight", *(f"{name}.weight" for name in ("query", "key", "value")))
COLUMNS += ("up.weight", "gate.weight")
ROWS = tuple(f"{name}.{kind}" for name in ("output", "down", "before", "between", "after", "final", "embed.norm")
             for kind in ("weight", "bias"))  # fmt: skip
SAME = tuple(f"{name}.bias" for name in ("query", "key", "value", "up", "gate", "head"))
SAME += ("query_norm.weight", "key_norm.weight")


def _halved(what: Any, length: int) -> Any:
    stacks = what.stacks
    if not all(isinstance(s.embed.positions, spec.Sinusoid) for s in stacks.values()):
        return None
    if all(stack.embed.positions.layout == "halves" for stack in stacks.values()):
        return None
    if len({stack.embed.positions.layout for stack in stacks.values()}) > 1:
        return None
    return what.replace({f"{name}.embed.positions.layout": "halves" for name in stacks})


def _reordered(weights: dict[str, Tensor], what: Any, length: int) -> dict[str, Tensor]:
    width = next(iter(what.stacks.values())).width
    order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])  # sines, then cosines

    def moved(name: str, tensor: Tensor) -> Tensor:
        if name.endswith(COLUMNS):
            return tensor[:, order]
        if name.endswith(ROWS):
            return tensor[order]
        if name.endswith(SAME):
            return tensor
        raise CheckpointError(f"no public family holds this model: nobody knows how to reorder {name}")

    return {name: moved(name, tensor) for name, tensor in weights.items()}


HALVES = Step(
    _halved,
    _reordered,
    "sinusoids lie in two halves instead of by turns, and so do the coordinates of all states and matrices",
)


# --- a bias of zeros ------------------------------------------------------------------------------------------------


def _biased(what: Any, length: int) -> Any:
    plain = isinstance(what.head, spec.NextToken) and not what.head.bias
    return what.replace({"head.bias": True}) if plain else None


def _zeros(weights: dict[str, Tensor], what: Any, length: int) -> dict[str, Tensor]:
    last = [*what.stacks.values()][-1].embed.vocabulary
    like = next(iter(weights.values()))
    return {**weights, "head.bias": torch.zeros(last, dtype=like.dtype)}


BIAS = Step(_biased, _zeros, "the logits have a bias, of zeros")


# --- an encoder with a table of positions ---------------------------------------------------------------------------


def _tabled(what: Any, length: int) -> Any:
    if not isinstance(what, spec.Transformer) or not isinstance(what.stack.embed, spec.Tokens):
        return None
    if not isinstance(what.stack.embed.positions, spec.Sinusoid):
        return None
    return what.replace({"stack.embed.positions": spec.Learned(length=length)})


def _table(weights: dict[str, Tensor], what: Any, length: int) -> dict[str, Tensor]:
    waves, like = what.stack.embed.positions, weights["stack.embed.table"]
    table = sinusoid(torch.arange(length), what.stack.width, waves.base, waves.layout, like)
    return {**weights, "stack.embed.positions.table": table}


TABLE = Step(_tabled, _table, "the sinusoids are written down as a table of positions, as long as the longest text")


def _unscaled(what: Any, length: int) -> Any:
    embed = getattr(getattr(what, "stack", None), "embed", None)
    if not isinstance(embed, spec.Tokens) or not embed.scaled:
        return None
    tied = {"head.tied": False} if getattr(what.head, "tied", False) else {}
    return what.replace({"stack.embed.scaled": False, **tied})


def _scale(weights: dict[str, Tensor], what: Any, length: int) -> dict[str, Tensor]:
    table = weights["stack.embed.table"]
    own = {"head.weight": table.clone()} if getattr(what.head, "tied", False) else {}
    return {**weights, "stack.embed.table": table * math.sqrt(what.stack.width), **own}


SCALE = Step(_unscaled, _scale, "embeddings are multiplied by √width in the table itself")


def _sided(what: Any, length: int) -> Any:
    embed = getattr(getattr(what, "stack", None), "embed", None)
    plain = isinstance(embed, spec.Tokens) and not embed.segments
    return what.replace({"stack.embed.segments": 2}) if plain else None


def _segment(weights: dict[str, Tensor], what: Any, length: int) -> dict[str, Tensor]:
    like = weights["stack.embed.table"]
    return {**weights, "stack.embed.segments": torch.zeros(2, what.stack.width, dtype=like.dtype)}


SEGMENT = Step(_sided, _segment, "there are two segments (token types), of zeros")

PLANS: tuple[tuple[Step, ...], ...] = (
    (HALVES,),
    (BIAS,),
    (HALVES, BIAS),
    (TABLE, SCALE, SEGMENT),
    (TABLE, SEGMENT),
    (SCALE, SEGMENT),
    (SEGMENT,),
)
