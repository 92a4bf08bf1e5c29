"""The program of a stack that goes on with its head: from a token to the likeliest that follow, in one run."""

from typing import TYPE_CHECKING

from clearformer.kernels.native.heads import NativeNextToken, Product
from clearformer.kernels.native.isa import STATES, Linear, Scale, bits, stride

if TYPE_CHECKING:
    from clearformer.kernels.native.stack import NativeStack


class FusedStep:
    """The program of one more token."""

    def __init__(self, stack: "NativeStack", product: Product, scale: float):
        self.made_from, self.program = (stack.program, product), stack.program.copy()
        if scale != 1.0:
            self.program.add(Scale(STATES, stack.width, stride(stack.width), bits(scale)))
        *before, logits = product.program.operations
        assert isinstance(logits, Linear)
        for operation in before:
            self.program.add(operation)
        self.program.rank(logits)
        self.outputs = product.outputs


def fused_step(stack: "NativeStack", head: object) -> FusedStep | None:
    """The program, made when it is first asked for; None where the machine cannot do one of both."""
    if not isinstance(head, NativeNextToken) or not stack.runs or (product := head.ready()) is None:
        return None
    if stack.fused_step is None or stack.fused_step.made_from != (stack.program, product):
        stack.fused_step = FusedStep(stack, product, head.scale)
    return stack.fused_step
