"""Packing: from a model to a model that computes the same, faster or smaller, for inference on a CPU.

The packed model is of the same classes and answers the same calls. Its stacks are programs where the machine of
`native` can run them, its matrices int8 if asked for, and everything else is shared with the model it was made from.
"""

import copy
import sys
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from clearformer.core.embed import Tokens
from clearformer.core.heads import MaskedToken, NextToken
from clearformer.core.model import EncoderDecoder, Stack, Transformer
from clearformer.errors import KernelError, nearest
from clearformer.kernels.int8 import Done, Int8MaskedToken, Int8NextToken, Int8Tokens, Matrix, MatrixLinear
from clearformer.kernels.packed_float import FloatLinear, FloatMatrix

PRECISIONS = ("float32", "int8", "auto")
Model = TypeVar("Model", bound=Transformer | EncoderDecoder)


def pack(
    model: Model,
    precision: str = "float32",
    *,
    native: bool | None = None,
    done: Done | None = None,
    spent: bool = False,
) -> Model:
    """A model for inference; `auto` is int8 where all of it has a fast path and float32 elsewhere.

    `native` False leaves the fast path alone, True raises where there is none; None takes it where it is there, and
    says once on stderr why it is not. `done` is told of every part of a
    weight that was read. A model that is `spent` is not used again: its layers are emptied on the way, so that no two
    copies of all of them are ever there.
    """
    if precision not in PRECISIONS:
        raise KernelError(f"unknown precision {precision!r}{nearest(precision, PRECISIONS)}", param="precision")
    why = "it was not asked for" if native is False else missing()
    if native and why:
        raise KernelError(f"the fast path is not there: {why}")
    if native is None and why:
        _say_slow(why)
    if is_int8(model):
        model = dequantise(model) if precision == "float32" else model
    elif precision == "int8" or (precision == "auto" and why is None and choice(model).auto == "int8"):
        model = quantise(model, done)
    return model if why else _programmed(model, done, spent)


class Choice(NamedTuple):
    """What a model's weights are kept as, what `auto` computes with and why, and how each stack would run."""

    kept: str
    auto: str
    why: str
    paths: list[tuple[str, str | None]]  # of each stack, None or why it cannot be a program


def choice(model: Transformer | EncoderDecoder) -> Choice:
    """What `pack` would do with a model; its weights need not be there."""
    paths = _paths(model)
    if is_int8(model):
        return Choice("int8", "int8", "it is kept so", paths)
    if missing() is not None:
        return Choice("float32", "float32", "without the fast path int8 has nothing to gain but memory", paths)
    for name, why in paths:
        if why is not None:
            return Choice("float32", "float32", f"the {name} cannot be one program, and int8 is slower without", paths)
    from clearformer.kernels.native.processor import multiplies_bytes

    inputs = "bytes" if multiplies_bytes() else "sixteen bits"
    return Choice("float32", "int8", f"this machine has the fast path for it, with inputs of {inputs}", paths)


def _paths(model: Transformer | EncoderDecoder) -> list[tuple[str, str | None]]:
    """Of each stack, None or why it cannot be a program."""
    stacks = {name: part for name, part in model.named_children() if isinstance(part, Stack)}
    if (why := missing()) is not None:
        return [(name, why) for name in stacks]
    from clearformer.kernels.native.lower import unfit

    return [(name, unfit(stack)) for name, stack in stacks.items()]


@cache
def missing() -> str | None:
    """None, or why this machine has no fast path."""
    try:
        from clearformer.kernels.native.runtime import machine

        machine()
    except ImportError as error:
        return f"{error.name or error} is not installed; pip install 'clearformer[fast]'"
    except (OSError, RuntimeError) as error:
        return f"its code could not be compiled: {error}"
    return None


@cache  # once a process
def _say_slow(why: str) -> None:
    if sys.stderr is not None:  # else it would be printed among the results
        with suppress(OSError, ValueError):
            print(f"clearformer: the fast path is not taken: {why}", file=sys.stderr)


def is_int8(model: Transformer | EncoderDecoder) -> bool:
    return any(isinstance(module, Matrix) for module in model.modules())


def quantise(model: Model, done: Done | None = None) -> Model:
    """The model with all its matrices and token tables as int8; norms, biases and positions stay as they are."""
    made: dict[int, Any] = {}

    def table(weight: Tensor) -> Matrix:
        if id(weight) not in made:
            made[id(weight)] = Matrix.of(weight, done)
        return made[id(weight)]  # tied ones stay tied

    def change(module: nn.Module) -> nn.Module:
        match module:
            case nn.Linear():
                return MatrixLinear(table(module.weight), module.bias)
            case Tokens():
                return _as(Int8Tokens, module, table=table(module.table))
            case NextToken():
                return _as(Int8NextToken, module, weight=table(module.weight))
            case MaskedToken():
                return _as(Int8MaskedToken, module, weight=table(module.weight))
        return module

    return _changed(model, change)


def dequantise(model: Model) -> Model:
    """The model with floats for its int8 matrices: the rounded numbers, and float arithmetic with them."""
    made: dict[int, nn.Parameter] = {}

    def floats(matrix: Any) -> nn.Parameter:
        if id(matrix) not in made:
            made[id(matrix)] = nn.Parameter(matrix.meant, requires_grad=False)
        return made[id(matrix)]  # tied ones stay tied

    def change(module: nn.Module) -> nn.Module:
        match module:
            case MatrixLinear(matrix=Matrix()):
                linear = nn.Linear(module.in_features, module.out_features, False, "meta")
                linear.weight = floats(module.matrix)
                linear.register_parameter("bias", module.bias)
                return linear
            case Int8Tokens():
                return _with_parameter(Tokens, module, "table", floats(module.table))
            case Int8NextToken():
                return _with_parameter(NextToken, module, "weight", floats(module.weight))
            case Int8MaskedToken():
                return _with_parameter(MaskedToken, module, "weight", floats(module.weight))
        return module

    return _changed(model, change)


def float_weights(model: Transformer | EncoderDecoder) -> dict[str, Tensor]:
    """All weights as floats, by their names in a model that is not quantised; int8 ones dequantised."""
    found: dict[str, Tensor] = dict(model.named_parameters())
    for name, module in model.named_modules():
        match module:
            case MatrixLinear() | Int8NextToken() | Int8MaskedToken():
                weight = module.weight
                found[f"{name}.weight"] = weight.meant if isinstance(weight, Matrix) else weight
            case Int8Tokens():
                found[f"{name}.table"] = module.table.meant
    return found


def plain(model: Model) -> Model:
    """The model with stacks and heads that run module by module, as they are to be looked into."""

    def change(module: nn.Module) -> nn.Module:
        if isinstance(module, FloatLinear):
            return module.plain()
        original = getattr(module, "original", None)
        return module if original is None else _changed(original[0], change)

    return _changed(model, change)


def _programmed(model: Model, done: Done | None, spent: bool) -> Model:
    from clearformer.kernels.native.heads import native_head
    from clearformer.kernels.native.lower import reason
    from clearformer.kernels.native.processor import multiplies_bytes
    from clearformer.kernels.native.stack import NativeStack

    made: dict[int, FloatMatrix] = {}

    def panelled(module: nn.Module) -> nn.Module:
        if not isinstance(module, nn.Linear):
            return module
        if id(module.weight) not in made:
            made[id(module.weight)] = FloatMatrix.of(module.weight, done)
            if spent:
                module.weight.data = torch.empty(0)
        return FloatLinear(made[id(module.weight)], module.bias)

    def change(module: nn.Module) -> nn.Module:
        if isinstance(module, Stack) and not isinstance(module, NativeStack) and reason(module) is None:
            embed = module._modules.pop("embed")  # its layers run as they are
            module = _changed(module, panelled)
            module._modules = {"embed": embed, **module._modules}
            return NativeStack(module)  # type: ignore[arg-type]
        if isinstance(module, Matrix):
            return module.arranged(multiplies_bytes(), done)
        return native_head(module, done)

    return _changed(model, change)


def _with_parameter(kind: type[nn.Module], module: nn.Module, name: str, value: nn.Parameter) -> nn.Module:
    """The same module as another kind, with one of its modules replaced by a parameter."""
    twin = _as(kind, module)
    del twin._modules[name]
    twin._parameters[name] = value
    return twin


def _changed(module: Any, change: Any) -> Any:
    """A copy of a module on the same tensors in which each part is what `change` makes of it, innermost first."""
    seen: dict[int, nn.Module] = {}

    def visit(part: nn.Module) -> nn.Module:
        if id(part) not in seen:
            twin = copy.copy(part)
            twin._modules = {name: None if child is None else visit(child) for name, child in part._modules.items()}
            twin._parameters, twin._buffers = dict(part._parameters), dict(part._buffers)
            seen[id(part)] = change(twin)
        return seen[id(part)]

    with torch.no_grad():
        return visit(module)


def _as(kind: type[nn.Module], module: nn.Module, **parts: nn.Module) -> nn.Module:
    """The same module as another kind, with some of its parameters replaced by modules."""
    twin = copy.copy(module)
    twin.__class__ = kind
    twin._parameters = {name: value for name, value in module._parameters.items() if name not in parts}
    twin._modules = {**module._modules, **parts}
    return twin
