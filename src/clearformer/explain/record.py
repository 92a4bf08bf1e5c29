"""Running a model so that every step is kept: its value, its axes, and the operations that made it.

The run happens on a twin: a copy of the modules that shares the model's tensors, uses the reference kernel, and has
its step methods wrapped. The model itself is never touched, and its forward code knows nothing of this.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearformer.core.attention import Attention
from clearformer.core.kernel import Kernel, Reference
from clearformer.core.kv import Keys, Memory
from clearformer.core.model import EncoderDecoder, Stack, Transformer
from clearformer.core.places import Places
from clearformer.explain.address import shorten
from clearformer.explain.tape import Block, Operation, Record, Tape
from clearformer.kernels.int8 import Matrix
from clearformer.kernels.pack import plain

Model = Transformer | EncoderDecoder


Change = Callable[[str, Tensor, list[str]], Tensor | None]


class _Recorder(TorchFunctionMode):
    def __init__(self, tape: Tape):
        super().__init__()
        self.tape = tape

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        parts = result if isinstance(result, tuple | list) else [result]
        for number, part in enumerate(parts):
            if isinstance(part, Tensor) and not any(part is arg for arg in args):
                index = number if isinstance(result, tuple | list) else None
                self.tape.operations[id(part)] = Operation(name, func, args, kwargs, index)
                self.tape.alive.append(part)
        return result


class WholeNumbers(nn.Module):
    """An int8 matrix row by row, so that each of its numbers has an address; it gives what the panels give, to the
    bit."""

    whole: Tensor  # n k
    scale: Tensor  # n

    def __init__(self, matrix: Matrix):
        super().__init__()
        self.register_buffer("whole", matrix.whole)
        self.register_buffer("scale", matrix.scale)
        self.shape = matrix.shape

    @property
    def meant(self) -> Tensor:
        return self.whole * self.scale[:, None]

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.whole.to(x.dtype)) * self.scale

    def rows(self, ids: Tensor) -> Tensor:
        return self.whole[ids] * self.scale[:, None][ids]

    def __len__(self) -> int:
        return len(self.scale)


def twin(model: Model) -> Model:
    """A copy of the modules on the same tensors, with the reference kernel, in evaluation mode."""
    tensors: dict[int, Any] = {id(t): t for t in [*model.parameters(), *model.buffers()]}
    tensors[id(model.spec)] = model.spec
    double = copy.deepcopy(model, dict(tensors)).eval()
    made: dict[int, WholeNumbers] = {}  # tied matrices stay tied
    for module in list(double.modules()):
        for name, part in module._modules.items():
            if isinstance(part, Matrix):
                module._modules[name] = made.setdefault(id(part), WholeNumbers(part))
        if isinstance(module, Attention):
            assert isinstance(module.kernel, Kernel)
            module.kernel = Reference(module.kernel.layer, module.kernel.scale).eval()
            module.relative = copy.deepcopy(module.relative, dict(tensors))  # one each, where layers share one
    return double


def record(
    model: Model,
    change: Change,
    inputs: Mapping[str, Tensor],
    call: Callable[[Model], Tensor],
    most: float = float("inf"),
) -> tuple[Tensor, Tape]:
    """Run `call` on a twin of the model; `change` may replace the result of any step. Of the insides of blocks, `most`
    bytes are kept, and the others computed again when they are asked for."""
    double, tape = twin(plain(model)), Tape(most)
    tape.recorder = lambda: _Recorder(tape)
    for name, parameter in [*double.named_parameters(remove_duplicate=False), *double.named_buffers()]:
        tape.give(Record(shorten(name), [f"axis {n}" for n in range(parameter.dim())], parameter))
    for name, tensor in inputs.items():
        tape.give(Record(name, ["b", "t"] if tensor.dim() == 2 else ["b", "c", "row", "column"], tensor))
    for name, stack in double.named_children():
        if isinstance(stack, Stack):
            stack.places = _placed(stack, name, tape)  # type: ignore[method-assign]
            for block in stack.blocks:
                block.forward = _in_blocks(block.forward, tape)  # type: ignore[method-assign]
    for path, module in double.named_modules():
        for name in dir(type(module)):
            if hasattr(getattr(type(module), name), "axes"):
                setattr(module, name, _wrap(module, path, name, tape, change))
    with torch.no_grad(), _Recorder(tape):
        result = call(double)
    return result, tape


def rerun(model: Model, change: Change, call: Callable[[Model], Tensor]) -> Tensor:
    """The same run without a tape: only what `change` makes of the heads' mixed values is taken."""
    double = twin(plain(model))
    for path, module in double.named_modules():
        if isinstance(module, Reference):
            address = shorten(f"{path}.mixed")
            module.mixed = _changed(module.mixed, address, change)  # type: ignore[method-assign]
    with torch.no_grad():
        return call(double)


def _changed(method: Any, address: str, change: Change) -> Callable[..., Tensor]:
    def changed(*args: Any) -> Tensor:
        value = method(*args)
        other = change(address, value, method.axes)
        return value if other is None else other

    return changed


def _placed(stack: Stack, name: str, tape: Tape) -> Callable[..., Places]:
    """Positions have addresses too: sines, angles and distances are computed from them."""
    method = stack.places

    def places(*args: Any, **kwargs: Any) -> Places:
        found = method(*args, **kwargs)
        tape.give(Record(f"{name}.places", ["b", "t"], found.index))
        tape.places[name] = found
        return found

    return places


def _in_blocks(method: Any, tape: Tape) -> Callable[..., Tensor]:
    """A block that can be run again: with memories of its own, so that nothing it needs is another block's."""

    def forward(x: Tensor, places: Places, keys: Mapping[str, Keys]) -> Tensor:
        if any(not isinstance(each, Memory) for each in keys.values()):
            return method(x, places, keys)  # a KV cache is written to: once only

        def run() -> Tensor:
            own = {name: Memory(each.states, each.places) for name, each in keys.items()}  # type: ignore[attr-defined]
            return method(x, replace(places, memo={}), own)

        return Block(tape, run).first()

    return forward


def _wrap(module: nn.Module, path: str, name: str, tape: Tape, change: Change) -> Callable[..., Any]:
    method = getattr(module, name)
    axes, address = method.axes, shorten(f"{path}.{name}")

    def recorded(*args: Any, **kwargs: Any) -> Any:
        value = method(*args, **kwargs)
        if value is None:
            return None
        other = change(address, value, axes)
        if other is not None:
            value = other
        elif id(value) in tape.named:  # a step that gave back what it got
            value = value.view_as(value)
        tape.keep(Record(address, axes, value, changed=other is not None))
        return value

    return recorded
