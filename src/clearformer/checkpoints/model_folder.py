"""A saved model is a folder: `spec.json`, `weights.safetensors`, `README.md`. Never pickle.

The folder is written beside its final name, flushed, and renamed, so that a reader never finds half a model.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from clearformer.assemble import Model, assemble, count_parameters
from clearformer.checkpoints.atomic import write_folder
from clearformer.checkpoints.safe import Tensors, finite, open_tensors, read_bytes, shown
from clearformer.errors import CheckpointError, SpecError
from clearformer.kernels.int8 import Matrix
from clearformer.kernels.pack import plain, quantise
from clearformer.spec import EncoderDecoder, Spec, Transformer

SPEC, WEIGHTS, CARD = "spec.json", "weights.safetensors", "README.md"
LARGEST_SPEC = 4 * 2**20


def save_model(model: Model, folder: str | Path) -> Path:
    """Write the model to a new folder; an existing one is not written over."""
    weights = {name: weight.detach().contiguous() for name, weight in weights_of(model).items()}
    for name, weight in weights.items():
        if weight.is_meta or not finite(weight):
            state = "has no values (it is on the meta device)" if weight.is_meta else "holds NaN or infinity"
            raise CheckpointError(f"{name} {state}; nothing was saved")

    def write(waiting: Path) -> None:
        save_file(weights, waiting / WEIGHTS)
        (waiting / SPEC).write_text(model.spec.to_json() + "\n", encoding="utf-8")
        (waiting / CARD).write_text(_card(model), encoding="utf-8")

    return write_folder(Path(folder), write)


def load_model(folder: str | Path, *, kernel: str = "auto") -> Model:
    """The model of a folder, ready to run. Its weights are views of the mapped file, read when they are used."""
    folder = Path(folder)
    for name in (SPEC, WEIGHTS):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} is not a model folder: it has no {name}")
    try:
        what = Spec.from_json(read_bytes(folder / SPEC, LARGEST_SPEC))
    except SpecError as error:
        raise CheckpointError(f"{folder / SPEC}: {error}") from None
    found = open_tensors(folder, "weights")
    model = empty(what, kernel, folder / SPEC, found)
    if any(found.kind(name) == "I8" for name in found):
        model = quantise(model)
    _compare(weights_of(model), found, folder / WEIGHTS)
    check_finite(found, folder / WEIGHTS)
    return fill(model, found, kernel).eval()


def weights_of(model: Model) -> dict[str, torch.Tensor]:
    """All that a folder keeps of a model: its parameters and, of matrices of int8, the whole numbers and scales."""
    model = plain(model)
    found: dict[str, torch.Tensor] = dict(model.named_parameters())
    for path, module in model.named_modules():
        if isinstance(module, Matrix):
            found |= {f"{path}.panels": module.pairs, f"{path}.scale": module.scale}
    return found


def empty(what: Transformer | EncoderDecoder, kernel: str, where: Path, found: Tensors) -> Model:
    """The model on the meta device, where it takes no memory, whatever sizes an untrusted file asks for."""
    blocks = sum(len(stack.blocks) for stack in what.stacks.values())
    if blocks > len(found):  # each has at least one, and making them takes time
        raise CheckpointError(f"{where} asks for {blocks:,} blocks, and the weights are {len(found):,} tensors")
    try:
        with torch.device("meta"):
            return assemble(what, kernel)
    except (RuntimeError, TypeError, OverflowError):  # a product of sizes beyond 64 bits
        raise CheckpointError(f"{where} describes a model that is too large for any machine") from None


def fill(model: Model, weights: Mapping[str, torch.Tensor], kernel: str = "auto") -> Model:
    """Give a model that was assembled on the meta device its weights, without copying them; tied ones stay tied."""
    made: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        made[id(parameter)] = nn.Parameter(weights[name], requires_grad=parameter.requires_grad)
    for module in model.modules():
        for name, empty in module._parameters.items():
            if empty is not None:
                module._parameters[name] = made[id(empty)]
    for path, module in model.named_modules():
        if isinstance(module, Matrix):
            module.panels, module.scale = weights[f"{path}.panels"], weights[f"{path}.scale"]
    if any(buffer.is_meta for buffer in model.buffers()):  # tables that are computed, not saved
        computed = dict(assemble(model.spec, kernel).named_buffers())
        for path, part in model.named_modules():
            for name in part._buffers:
                part._buffers[name] = computed[f"{path}.{name}" if path else name]
    return model


REAL = {"F64", "F32", "F16", "BF16"}


def _compare(wanted: dict[str, torch.Tensor], found: Tensors, where: Path) -> None:
    """Raise with all that is missing, unexpected, misshapen or of the wrong type, before anything is read."""
    faults = [f"  missing     {name} {list(wanted[name].shape)}" for name in wanted.keys() - found.keys()]
    faults += [f"  unexpected  {shown(name)[1:-1]} {list(found.shape(name))}" for name in found.keys() - wanted.keys()]
    kinds = set()
    for name in wanted.keys() & found.keys():
        if list(found.shape(name)) != list(wanted[name].shape):
            faults.append(f"  misshapen   {name} {list(found.shape(name))}, expected {list(wanted[name].shape)}")
        allowed = {"I8"} if wanted[name].dtype == torch.int8 else REAL
        if found.kind(name) not in allowed:
            faults.append(f"  wrong type  {name} is {found.kind(name)}, expected one of {', '.join(sorted(allowed))}")
        elif found.kind(name) != "I8":
            kinds.add(found.kind(name))
    if len(kinds) > 1:
        faults.append(f"  mixed types {', '.join(sorted(kinds))}; all weights must be of one")
    if faults:
        raise CheckpointError(f"{where} does not fit its specification:\n" + "\n".join(sorted(faults)))


def check_finite(found: Tensors, where: Path) -> None:
    """Raise with the names of all weights that hold NaN or infinity."""
    bad = []
    for name in found:
        if not finite(found[name]):
            bad.append(f"  non-finite  {name} holds NaN or infinity")
        found.release(name)  # what was looked at may never be used as it is
    if bad:
        raise CheckpointError(f"{where} does not fit its specification:\n" + "\n".join(sorted(bad)))


def _card(model: Model) -> str:
    count = count_parameters(model.spec)
    return f"# A Clearformer model\n\n{count:,} parameters.\n\n```\n{model.spec}\n```\n"
