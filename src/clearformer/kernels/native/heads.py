"""Heads, whose matrix products the machine does."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.core.heads import Classes, MaskedToken, NextToken, TokenClasses, Vector
from clearformer.core.step import step
from clearformer.kernels.int8 import Done, Matrix, MatrixLinear
from clearformer.kernels.native import processor
from clearformer.kernels.native.isa import LOGITS, STATES
from clearformer.kernels.native.launch import Job, wide
from clearformer.kernels.native.program import Program
from clearformer.kernels.native.topk import best
from clearformer.kernels.packed_float import FloatMatrix

KEPT = (torch.float32, torch.int8, torch.uint8)  # what products are made from


class Product:
    """x · matrixᵀ + bias"""

    def __init__(self, matrix: Matrix | FloatMatrix | Tensor, bias: Tensor | None, done: Done | None = None):
        (self.outputs, self.inputs), self.made_from = matrix.shape, _mark(matrix, bias)
        if isinstance(matrix, Matrix):
            matrix = matrix.arranged(processor.multiplies_bytes())
        matrix = FloatMatrix.of(matrix, done) if isinstance(matrix, Tensor) else matrix
        self.program = Program()
        self.program.buffer(STATES, self.inputs)
        if isinstance(matrix, Matrix):
            self.program.whole(STATES, self.inputs, matrix.quads)
        self.program.product(matrix, bias, STATES, LOGITS, more=False)

    def __call__(self, x: Tensor) -> Tensor:
        rows = wide(x.reshape(-1, self.inputs))
        y = rows.new_empty(rows.size(0), self.outputs)
        job = Job(self.program, rows)
        job.buffers[LOGITS] = y.data_ptr()
        job.run()
        return y.view(*x.shape[:-1], self.outputs)


def _kept(matrix: Matrix | FloatMatrix | Tensor) -> Tensor:
    return matrix if isinstance(matrix, Tensor) else matrix.panels


def _mark(matrix: Matrix | FloatMatrix | Tensor, bias: Tensor | None) -> list[tuple[int, int]]:
    """What changes when weights move or their numbers do: some of them are copied."""
    parts = [_kept(matrix), matrix.scale if isinstance(matrix, Matrix) else None, bias]
    return [(each.data_ptr(), 0 if each.is_inference() else each._version) for each in parts if each is not None]


class ByMachine(nn.Module):
    """A module with one great product, done by the machine; where gradients are asked for or weights lie elsewhere, as
    the module does that it was made from."""

    bias: Any
    original: tuple[Any]
    product: Product | None
    done: Done | None  # told of the parts of a weight that were read

    def of(self, x: Tensor) -> Tensor | None:
        """The product, or None where it must be done plainly."""
        product = self.ready()
        return None if product is None or x.dtype != torch.float32 else product(x)

    def ready(self) -> Product | None:
        matrix: Any = self.matrix if isinstance(self, MatrixLinear) else self.weight
        kept = _kept(matrix)
        if (
            torch.is_grad_enabled()
            or kept.device.type != "cpu"
            or kept.dtype not in (torch.float32, torch.int8, torch.uint8)
        ):
            return None
        if self.product is None or self.product.made_from != _mark(
            matrix, self.bias
        ):  # the first time, or changed since
            self.product = Product(matrix, self.bias, self.done)
        return self.product

    def __getstate__(self) -> dict[str, Any]:
        """Without the product: it has addresses in it, which are those of this process."""
        return {**self.__dict__, "product": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return by_machine(copy.deepcopy(self.original[0], memo))


class NativeNextToken(ByMachine, NextToken):
    @step("b t v")
    def logits(self, x: Tensor) -> Tensor:
        found = self.of(x * self.scale if self.scale != 1.0 else x)
        return self.original[0].logits(x) if found is None else found

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        if logits.device.type != "cpu" or logits.dtype != torch.float32:
            return super().best(logits, count)
        return best(logits.contiguous(), count)


class NativeMaskedToken(ByMachine, MaskedToken):
    @step("b t v")
    def logits(self, x: Tensor) -> Tensor:
        found = self.of(x)
        return self.original[0].logits(x) if found is None else found


class NativeLinear(ByMachine, nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        found = self.of(x)
        return self.original[0](x) if found is None else found


class NativeMatrixLinear(ByMachine, MatrixLinear):
    def forward(self, x: Tensor) -> Tensor:
        found = self.of(x)
        return self.original[0](x) if found is None else found


def by_machine(module: nn.Module, done: Done | None = None) -> Any:
    """The module with its product done by the machine."""
    kinds = {NextToken: NativeNextToken, MaskedToken: NativeMaskedToken, MatrixLinear: NativeMatrixLinear}
    kind: type[ByMachine] = next((new for old, new in kinds.items() if isinstance(module, old)), NativeLinear)
    twin = kind.__new__(kind)
    twin.__dict__.update(copy.copy(module).__dict__)
    twin.original, twin.product, twin.done = (module,), None, done
    return twin


def native_head(module: nn.Module, done: Done | None = None) -> nn.Module:
    """A head with its products done by the machine; anything else as it is."""
    if isinstance(module, ByMachine) or not isinstance(module, HEADS):
        return module
    for name, part in module._modules.items():
        if isinstance(part, nn.Linear | MatrixLinear):
            module._modules[name] = by_machine(part, done)
    return by_machine(module, done) if isinstance(module, NextToken | MaskedToken) else module


HEADS = NextToken | MaskedToken | Vector | Classes | TokenClasses
