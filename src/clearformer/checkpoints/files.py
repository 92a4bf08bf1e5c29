"""A saved model is a folder: `spec.json`, `weights.safetensors`, `README.md`. Never pickle.

The folder is written beside its final name, flushed, and renamed, so that a reader never finds half a model.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from clearformer.assemble import Model, assemble
from clearformer.errors import CheckpointError, SpecError
from clearformer.spec import Spec

SPEC, WEIGHTS, CARD = "spec.json", "weights.safetensors", "README.md"
LARGEST_SPEC = 16 * 2**20


def save_model(model: Model, folder: str | Path) -> Path:
    """Write the model to a new folder; an existing one is not written over."""
    folder = Path(folder)
    if folder.exists():
        raise CheckpointError(f"{folder} exists already; give a new folder, or move that one away")
    weights = {name: weight.detach().contiguous() for name, weight in model.named_parameters()}
    for name, weight in weights.items():
        if weight.is_meta or not bool(torch.isfinite(weight).all()):
            state = "has no values (it is on the meta device)" if weight.is_meta else "holds NaN or infinity"
            raise CheckpointError(f"{name} {state}; nothing was saved")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise CheckpointError(f"cannot write to {folder.parent}: {error.strerror}") from None
    try:
        save_file(weights, waiting / WEIGHTS)
        (waiting / SPEC).write_text(model.spec.to_json() + "\n", encoding="utf-8")
        (waiting / CARD).write_text(_card(model), encoding="utf-8")
        for file in waiting.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        waiting.chmod(0o755)
        waiting.rename(folder)
    except OSError as error:
        shutil.rmtree(waiting, ignore_errors=True)
        raise CheckpointError(f"cannot write {folder}: {error.strerror}; nothing was saved") from None
    except BaseException:
        shutil.rmtree(waiting, ignore_errors=True)
        raise
    return folder


def load_model(folder: str | Path, *, kernel: str = "auto") -> Model:
    """The model of a folder, ready to run."""
    folder = Path(folder)
    for name in (SPEC, WEIGHTS):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} is not a model folder: it has no {name}")
    if (folder / SPEC).stat().st_size > LARGEST_SPEC:
        raise CheckpointError(f"{folder / SPEC} is larger than {LARGEST_SPEC:,} bytes: it is no specification")
    try:
        what = Spec.from_json((folder / SPEC).read_bytes())
    except SpecError as error:
        raise CheckpointError(f"{folder / SPEC}: {error}") from None
    with torch.device("meta"):
        wanted = {name: list(parameter.shape) for name, parameter in assemble(what, kernel).named_parameters()}
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            _compare(wanted, {name: file.get_slice(name) for name in file.keys()}, folder / WEIGHTS)  # noqa: SIM118
            model = assemble(what, kernel)  # only now, when the sizes are known to be real
            _fill(model, {name: file.get_tensor(name) for name in wanted}, folder / WEIGHTS)
    except SafetensorError as error:
        raise CheckpointError(
            f"{folder / WEIGHTS} cannot be read: {error}; the file is damaged or no safetensors"
        ) from None
    return model.eval()


REAL = {"F64", "F32", "F16", "BF16"}


def _compare(wanted: dict[str, list[int]], found: dict[str, Any], where: Path) -> None:
    """Raise with all that is missing, unexpected, misshapen or of the wrong type, before anything is read."""
    faults = [f"  missing     {name} {wanted[name]}" for name in wanted.keys() - found.keys()]
    faults += [f"  unexpected  {name} {found[name].get_shape()}" for name in found.keys() - wanted.keys()]
    kinds = {found[name].get_dtype() for name in wanted.keys() & found.keys()}
    for name in wanted.keys() & found.keys():
        if found[name].get_shape() != wanted[name]:
            faults.append(f"  misshapen   {name} {found[name].get_shape()}, expected {wanted[name]}")
        if found[name].get_dtype() not in REAL:
            faults.append(
                f"  wrong type  {name} is {found[name].get_dtype()}, expected one of {', '.join(sorted(REAL))}"
            )
    if len(kinds) > 1 and kinds <= REAL:
        faults.append(f"  mixed types {', '.join(sorted(kinds))}; all weights must be of one")
    if faults:
        raise CheckpointError(f"{where} does not fit its specification:\n" + "\n".join(sorted(faults)))


def _fill(model: Model, found: dict[str, torch.Tensor], where: Path) -> None:
    bad = [
        f"  non-finite  {name} holds NaN or infinity" for name, t in found.items() if not bool(torch.isfinite(t).all())
    ]
    if bad:
        raise CheckpointError(f"{where} does not fit its specification:\n" + "\n".join(sorted(bad)))
    for name, parameter in model.named_parameters():
        parameter.data = found[name]


def _card(model: Model) -> str:
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"# A Clearformer model\n\n{count:,} parameters.\n\n```\n{model.spec}\n```\n"
