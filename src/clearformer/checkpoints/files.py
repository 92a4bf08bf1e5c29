"""A saved model is a folder: `spec.json`, `weights.safetensors`, `README.md`. Never pickle.

The folder is written beside its final name, flushed, and renamed, so that a reader never finds half a model.
"""

import os
import shutil
import tempfile
from pathlib import Path

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
    folder.parent.mkdir(parents=True, exist_ok=True)
    waiting = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        weights = {name: weight.detach().contiguous() for name, weight in model.named_parameters()}
        save_file(weights, waiting / WEIGHTS)
        (waiting / SPEC).write_text(model.spec.to_json() + "\n", encoding="utf-8")
        (waiting / CARD).write_text(_card(model), encoding="utf-8")
        for file in waiting.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        waiting.chmod(0o755)
        waiting.rename(folder)
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
    model = assemble(what, kernel)
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            _fill(model, {name: file.get_tensor(name) for name in file.keys()}, folder / WEIGHTS)  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(
            f"{folder / WEIGHTS} cannot be read: {error}; the file is damaged or no safetensors"
        ) from None
    return model.eval()


def _fill(model: Model, found: dict[str, torch.Tensor], where: Path) -> None:
    """Give every parameter its tensor, or raise with all that does not fit at once."""
    wanted = dict(model.named_parameters())
    faults = [f"  missing     {name} {list(wanted[name].shape)}" for name in wanted.keys() - found.keys()]
    faults += [f"  unexpected  {name} {list(found[name].shape)}" for name in found.keys() - wanted.keys()]
    for name in wanted.keys() & found.keys():
        if wanted[name].shape != found[name].shape:
            faults.append(f"  misshapen   {name} {list(found[name].shape)}, expected {list(wanted[name].shape)}")
        elif not found[name].is_floating_point():
            faults.append(f"  not real    {name} is {found[name].dtype}")
        elif not bool(torch.isfinite(found[name]).all()):
            faults.append(f"  non-finite  {name} holds NaN or infinity")
    if faults:
        raise CheckpointError(f"{where} does not fit its specification:\n" + "\n".join(sorted(faults)))
    for name, parameter in wanted.items():
        parameter.data = found[name]


def _card(model: Model) -> str:
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"# A Clearformer model\n\n{count:,} parameters.\n\n```\n{model.spec}\n```\n"
