"""Running a model so that every step is kept: its value, its axes, and the operations that made it.

The run happens on a twin: a copy of the modules that shares the model's tensors, uses the reference kernel, and has
its step methods wrapped. The model itself is never touched, and its forward code knows nothing of this.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearformer.core.attention import Attention
from clearformer.core.kernel import Kernel, Reference
from clearformer.core.model import EncoderDecoder, Transformer
from clearformer.explain.address import shorten
from clearformer.kernels.pack import plain

Model = Transformer | EncoderDecoder


@dataclass(frozen=True, eq=False)
class Operation:
    """One call of a PyTorch function."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    part: int | None = None  # which tensor of a tuple of results

    def replay(self, args: Any, kwargs: Any) -> Tensor:
        result = self.function(*args, **kwargs)
        return result if self.part is None else result[self.part]


@dataclass(frozen=True, eq=False)
class Record:
    """A named tensor of the run."""

    name: str
    axes: list[str]
    value: Tensor
    changed: bool = False


@dataclass
class Tape:
    """All that a run left behind."""

    records: dict[str, Record] = field(default_factory=dict)
    named: dict[int, Record] = field(default_factory=dict)  # by id of the tensor
    operations: dict[int, Operation] = field(default_factory=dict)  # by id of the result
    alive: list[Any] = field(default_factory=list)  # keeps ids from being used again
    moves: dict[Operation, Any] = field(default_factory=dict)  # where cells came from, once asked

    def keep(self, record: Record) -> None:
        self.records[record.name] = record
        self.named.setdefault(id(record.value), record)
        self.alive.append(record.value)


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


def twin(model: Model) -> Model:
    """A copy of the modules on the same tensors, with the reference kernel, in evaluation mode."""
    tensors: dict[int, Any] = {id(t): t for t in [*model.parameters(), *model.buffers()]}
    tensors[id(model.spec)] = model.spec
    double = copy.deepcopy(model, dict(tensors)).eval()
    for module in double.modules():
        if isinstance(module, Attention):
            assert isinstance(module.kernel, Kernel)
            module.kernel = Reference(module.kernel.layer, module.kernel.scale).eval()
            module.relative = copy.deepcopy(module.relative, dict(tensors))  # one each, where layers share one
    return double


def record(
    model: Model, change: Change, inputs: Mapping[str, Tensor], call: Callable[[Model], Tensor]
) -> tuple[Tensor, Tape]:
    """Run `call` on a twin of the model; `change` may replace the result of any step."""
    double, tape = twin(plain(model)), Tape()
    for name, parameter in [*double.named_parameters(remove_duplicate=False), *double.named_buffers()]:
        tape.keep(Record(shorten(name), [f"axis {n}" for n in range(parameter.dim())], parameter))
    for name, tensor in inputs.items():
        tape.keep(Record(name, ["b", "t"] if tensor.dim() == 2 else ["b", "c", "row", "column"], tensor))
    for path, module in double.named_modules():
        for name in dir(type(module)):
            if hasattr(getattr(type(module), name), "axes"):
                setattr(module, name, _wrap(module, path, name, tape, change))
    with torch.no_grad(), _Recorder(tape):
        result = call(double)
    return result, tape


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
