"""The arithmetic of one cell, from the named numbers it was made of.

An operation is explained in one of four ways: it moves cells (views, lookups: found by replaying it on the numbers of
the cells), works cell by cell (sums, activations), contracts (matrix products), or normalises a row (softmax, norms).
Each explanation can be evaluated again, in double precision, so that tests can hold it against the recorded value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer.explain.address import write
from clearformer.explain.tape import Operation, Tape

Index = tuple[int, ...]


class Expression:
    """A number with the way it was made."""

    def value(self) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class Number(Expression):
    """A recorded cell, or a constant if it has no address."""

    number: float
    address: str | None = None

    def value(self) -> float:
        return self.number


@dataclass(frozen=True)
class Masked(Expression):
    """A cell that a mask has set."""

    number: float

    def value(self) -> float:
        return self.number


@dataclass(frozen=True)
class Apply(Expression):
    """A function of a few numbers, written `sign(a, b)` or `a sign b`."""

    sign: str
    parts: tuple[Expression, ...]
    compute: Callable[..., float]

    def value(self) -> float:
        return self.compute(*(part.value() for part in self.parts))


@dataclass(frozen=True)
class Products(Expression):
    """a₁·b₁ + a₂·b₂ + ... (+ bias)"""

    pairs: tuple[tuple[Expression, Expression], ...]
    bias: Expression | None = None

    def value(self) -> float:
        return sum(a.value() * b.value() for a, b in self.pairs) + (self.bias.value() if self.bias else 0.0)


@dataclass(frozen=True)
class Share(Expression):
    """exp(x_n) / Σ exp(x): one place of a softmax."""

    row: tuple[Expression, ...]
    place: int

    def value(self) -> float:
        numbers = [each.value() for each in self.row]
        top = max(numbers)
        return math.exp(numbers[self.place] - top) / sum(math.exp(n - top) for n in numbers)


@dataclass(frozen=True)
class Normed(Expression):
    """(x_n − mean) / √(variance + eps) · weight + bias, or x_n / √(mean square + eps) · weight."""

    row: tuple[Expression, ...]
    place: int
    eps: float
    centred: bool
    weight: Expression | None
    bias: Expression | None

    def mean(self) -> float:
        return sum(e.value() for e in self.row) / len(self.row) if self.centred else 0.0

    def spread(self) -> float:
        mean = self.mean()
        return math.sqrt(sum((e.value() - mean) ** 2 for e in self.row) / len(self.row) + self.eps)

    def value(self) -> float:
        scaled = (self.row[self.place].value() - self.mean()) / self.spread()
        return scaled * (self.weight.value() if self.weight else 1.0) + (self.bias.value() if self.bias else 0.0)


MOVES = {
    *("view", "reshape", "transpose", "permute", "expand", "expand_as", "unsqueeze", "squeeze", "flatten", "unflatten"),
    *("__getitem__", "gather", "index_select", "cat", "stack", "chunk", "split", "repeat_interleave", "mT", "T"),
    *("embedding", "contiguous", "view_as", "select", "broadcast_tensors", "unbind"),
}
SAME = {"to", "clone", "detach", "type", "float", "double", "dropout"}
CELLWISE: dict[str, tuple[str, Callable[..., float]]] = {
    "add": ("+", lambda a, b: a + b),
    "sub": ("−", lambda a, b: a - b),
    "mul": ("·", lambda a, b: a * b),
    "div": ("/", lambda a, b: a / b),
    "truediv": ("/", lambda a, b: a / b),
    "pow": ("^", lambda a, b: a**b),
    "neg": ("−", lambda a: -a),
    "abs": ("abs", abs),
    "relu": ("relu", lambda a: max(a, 0.0)),
    "gelu": ("gelu", lambda a: a * 0.5 * (1 + math.erf(a / math.sqrt(2)))),
    "silu": ("silu", lambda a: a / (1 + math.exp(-a))),
    "tanh": ("tanh", math.tanh),
    "sin": ("sin", math.sin),
    "cos": ("cos", math.cos),
}


def explain(tape: Tape, tensor: Tensor, index: Index, *, top: bool = True) -> Expression:
    """The expression of one cell; only the outermost named tensor is opened, the others are leaves."""
    record = tape.named.get(id(tensor))
    operation = tape.operations.get(id(tensor))
    number = float(tensor.detach()[index])
    if record is not None and (not top or operation is None or record.changed):
        batch = tensor.size(0) if record.axes[:1] == ["b"] else 0
        return Number(number, write(record.name, record.axes, index, batch))
    if operation is None:
        return Number(number)
    return _explain(tape, operation, tensor, index) or Number(number)


def _explain(tape: Tape, op: Operation, out: Tensor, index: Index) -> Expression | None:
    def inside(tensor: Any, where: Index) -> Expression:
        if not isinstance(tensor, Tensor):
            return Number(float(tensor))
        return explain(tape, tensor, where, top=False)

    def cell(operand: Any) -> Expression:
        """The cell of an operand that is broadcast against the result."""
        return inside(operand, _broadcast(index, operand)) if isinstance(operand, Tensor) else inside(operand, ())

    name, args = op.name.strip("_"), op.args
    if op.name in MOVES:
        return inside(*_moved(tape, op, index))
    if op.name in SAME:
        return inside(args[0], index)
    reverse = name not in CELLWISE and name.removeprefix("r") in CELLWISE  # such as __rsub__
    if name in CELLWISE or reverse:
        sign, compute = CELLWISE[name.removeprefix("r") if reverse else name]
        operands = [arg for arg in args[:2] if isinstance(arg, Tensor | int | float)]
        if name == "gelu" and op.kwargs.get("approximate") == "tanh":
            sign, compute = "gelu_tanh", _gelu_tanh
        return Apply(sign, tuple(cell(arg) for arg in (reversed(operands) if reverse else operands)), compute)
    if name in ("matmul", "linear"):
        return _product(name, args, index, inside)
    if name == "softmax":
        axis = args[1] if len(args) > 1 else op.kwargs["dim"]
        row = [_put(index, axis, n) for n in range(args[0].size(axis))]
        return Share(tuple(inside(args[0], where) for where in row), index[axis])
    if name in ("layer_norm", "rms_norm"):
        return _normed(op, index, inside)
    if name == "masked_fill":
        hidden = bool(args[1].expand_as(out)[index])
        return Masked(float(args[2])) if hidden else cell(args[0])
    if name == "where":
        return cell(args[1] if bool(args[0].expand_as(out)[index]) else args[2])
    if name == "scatter_add":
        base, axis, place, source = args
        along = [_put(index, axis, n) for n in range(source.size(axis))]
        hit = [where for where in along if int(place[where]) == index[axis]]
        return Products(tuple((inside(source, where), Number(1.0)) for where in hit), inside(base, index))
    return None


def _product(name: str, args: Any, index: Index, inside: Callable[[Any, Index], Expression]) -> Expression:
    a, b = args[0], args[1]
    if name == "linear":
        bias = inside(args[2], index[-1:]) if len(args) > 2 and args[2] is not None else None
        pairs = tuple((inside(a, (*index[:-1], n)), inside(b, (index[-1], n))) for n in range(a.size(-1)))
        return Products(pairs, bias)
    rows, columns = (*index[:-1], 0), (*index[:-2], 0, index[-1])
    left, right = _broadcast(rows, a, skip=1), _broadcast(columns, b, skip=2)
    return Products(tuple((inside(a, _put(left, -1, n)), inside(b, _put(right, -2, n))) for n in range(a.size(-1))))


def _normed(op: Operation, index: Index, inside: Callable[[Any, Index], Expression]) -> Expression:
    named = dict(zip(("input", "shape", "weight", "bias", "eps"), op.args, strict=False)) | op.kwargs
    x, weight, bias, eps = named["input"], named.get("weight"), named.get("bias"), named["eps"]
    return Normed(
        tuple(inside(x, (*index[:-1], n)) for n in range(x.size(-1))),
        index[-1],
        eps,
        op.name == "layer_norm",
        None if weight is None else inside(weight, index[-1:]),
        None if bias is None else inside(bias, index[-1:]),
    )


def _gelu_tanh(a: float) -> float:
    return 0.5 * a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


def _put(index: Index, axis: int, number: int) -> Index:
    axis %= len(index)
    return (*index[:axis], number, *index[axis + 1 :])


def _broadcast(index: Index, operand: Tensor, skip: int = 0) -> Index:
    """The cell of a smaller operand; the last `skip` axes are the caller's."""
    tail = index[len(index) - operand.dim() :]
    keep = operand.dim() - skip
    return tuple(0 if n < keep and operand.size(n) == 1 else where for n, where in enumerate(tail))


def _moved(tape: Tape, op: Operation, index: Index) -> tuple[Tensor, Index]:
    """Where a moved cell came from."""
    if op not in tape.moves:
        tape.moves[op] = _numbered(op)
    numbers, operands = tape.moves[op]
    source = int(numbers[index])
    for operand in operands:
        if source < operand.numel():
            place = []
            for size in reversed(operand.shape):
                source, rest = divmod(source, size)
                place.append(rest)
            return operand, tuple(reversed(place))
        source -= operand.numel()
    raise IndexError(index)


def _numbered(op: Operation) -> tuple[Tensor, list[Tensor]]:
    """The operation run again on tensors whose cells are numbered, through all its operands in turn."""
    operands: list[Tensor] = []

    def number(arg: Any) -> Any:
        if isinstance(arg, tuple | list) and any(isinstance(each, Tensor) for each in arg) and op.name != "__getitem__":
            return type(arg)(number(each) for each in arg)
        first = not operands or op.name in ("cat", "stack")
        wanted = isinstance(arg, Tensor) and (op.name != "embedding" or arg.is_floating_point())
        if not (wanted and first):
            return arg
        start = sum(operand.numel() for operand in operands)
        operands.append(arg)
        return torch.arange(start, start + arg.numel()).view(arg.shape)

    return op.replay([number(arg) for arg in op.args], op.kwargs), operands
