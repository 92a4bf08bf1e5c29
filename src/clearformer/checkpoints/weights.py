"""Tensors of a public folder into a model and out again: fitted by the family's rules, never copied without need."""

from difflib import get_close_matches
from pathlib import Path

import torch
from torch import Tensor

from clearformer.assemble import Model
from clearformer.checkpoints.config import Remark
from clearformer.checkpoints.model_folder import fill as assign
from clearformer.checkpoints.name_map import Row, Rules, public_shape, spelled, split
from clearformer.checkpoints.safe import Tensors, finite
from clearformer.core.positions import sinusoid
from clearformer.errors import CheckpointError

REAL = {"F64", "F32", "F16", "BF16"}
FEW, MOST = 20, 200  # unexpected names that near ones are looked for; lines of a message
NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def public_rows(model: Model, rules: Rules) -> dict[str, Row]:
    """The tensors that the model asks for, by their public names without the body's prefix."""
    names = [name for name, _ in model.named_parameters()]
    return {rules.bare(row.public): row for row in spelled(rules.rows, names, "ours")}


def fill(model: Model, rules: Rules, tensors: Tensors, folder: Path) -> list[Remark]:
    """Give a model that is on the meta device its weights; what was left in the files, and what was converted."""
    found, remarks = match(model, rules, tensors, folder)
    ours: dict[str, Tensor] = {}
    bad = []
    for name, row in found.items():
        tensor = tensors[name]
        if not finite(tensor):
            bad.append(f"  non-finite  {name} holds NaN or infinity")
        if tensor.dtype != torch.float32:
            tensor = tensor.float()
        tensors.release(name)  # what was looked at may never be used as it is
        ours |= split(row, tensor)
    if bad:
        raise CheckpointError(f"{folder}: these weights are damaged:\n" + "\n".join(bad))
    assign(model, ours)
    return [*remarks, *_converted(tensors, found)]


def match(model: Model, rules: Rules, tensors: Tensors, folder: Path) -> tuple[dict[str, Row], list[Remark]]:
    """The tensors of the files, each with its row, and those that are left; all that does not fit is told together."""
    wanted, shapes = public_rows(model, rules), dict(model.named_parameters())
    found: dict[str, str] = {}
    faults: list[str] = []
    unexpected: list[str] = []
    copies: list[str] = []
    remarks: list[Remark] = []
    for name in tensors:
        bare, shape = rules.bare(name), _size(tensors.shape(name))
        if bare in wanted and bare not in found:
            found[bare] = name
            expected = _size(public_shape(wanted[bare], shapes))
            if shape != expected:
                faults.append(f"  misshapen   {name} {shape}, expected {expected}")
            elif tensors.kind(name) not in REAL:
                faults.append(
                    f"  wrong type  {name} is {tensors.kind(name)}, expected one of {', '.join(sorted(REAL))}"
                )
        elif (why := rules.why_left(bare)) is not None:
            remarks.append(Remark(name, shape, "ignored", why))
        elif bare not in wanted and rules.copies.get(bare) in wanted:
            remarks.append(Remark(name, shape, "ignored", f"a copy of {rules.copies[bare]}"))
            copies.append(name)
        else:
            unexpected.append(name)
    missing = {name for name in wanted if name not in found}
    near = _near if len(unexpected) <= FEW else lambda name, missing: ""
    faults += [
        f"  unexpected  {name} {_size(tensors.shape(name))}{near(rules.bare(name), missing)}" for name in unexpected
    ]
    faults += [f"  missing     {wanted[name].public} {_size(public_shape(wanted[name], shapes))}" for name in missing]
    if not faults:
        faults = _unlike_copies(rules, found, copies, tensors) + _odd_sinusoids(rules, tensors)
    if faults:
        more = [f"  … and {len(faults) - MOST:,} more"] if len(faults) > MOST else []
        table = "\n".join(sorted(faults)[:MOST] + more)
        raise CheckpointError(f"{folder}: the tensors do not fit config.json:\n{table}")
    return {name: wanted[bare] for bare, name in found.items()}, remarks


def _near(name: str, missing: set[str]) -> str:
    close = get_close_matches(name, missing, n=1, cutoff=0.8)  # names of one family are all somewhat alike
    return f"; did you mean {close[0]!r}?" if close else ""


def _unlike_copies(rules: Rules, found: dict[str, str], copies: list[str], tensors: Tensors) -> list[str]:
    """A tensor that is passed over as a copy must be one."""
    faults = []
    for name in copies:
        of = found[rules.copies[rules.bare(name)]]
        if tensors.shape(name) == tensors.shape(of):
            one, other = tensors[name], tensors[of]
            if not finite(other) or torch.equal(one.float(), other.float()):
                continue  # what is no number is told later
        hint = "; if the two are meant to differ, set tie_word_embeddings to false in config.json"
        faults.append(f"  differs     {name} should repeat {of} and does not{'' if 'embed_tokens' in name else hint}")
    return faults


def _odd_sinusoids(rules: Rules, tensors: Tensors) -> list[str]:
    """Marian's files may hold their sinusoids, which are computed here: they must be the same."""
    faults = []
    for name in tensors:
        if rules.bare(name).endswith("embed_positions.weight") and len(tensors.shape(name)) == 2:
            table = tensors[name].float()
            if table.size(1) % 2 == 0 and len(table):
                ours = sinusoid(torch.arange(len(table)), table.size(1), 10_000.0, "halves", table)
                if (table - ours).abs().max() < 1e-2:  # half precision leaves 1e-3
                    continue
            faults.append(f"  differs     {name} should hold sinusoids, and does not")
    return faults


def _converted(tensors: Tensors, found: dict[str, Row]) -> list[Remark]:
    kinds = sorted({tensors.kind(name) for name in found})
    if kinds == ["F32"]:
        return []
    words = ", ".join(NAMES[kind] for kind in kinds)
    return [Remark("weights", words, "used", "converted to float32, in which a CPU computes")]


def _size(shape: tuple[int, ...] | torch.Size) -> str:
    return " × ".join(map(str, shape)) or "one number"
