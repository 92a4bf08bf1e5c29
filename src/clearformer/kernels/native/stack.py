"""A stack that runs as one program: for inference on a CPU, in float32 or int8, on rows without padding."""

import copy
from typing import Any

import torch
from torch import Tensor

from clearformer.core.model import Context, Encoded, Stack
from clearformer.core.places import Places
from clearformer.kernels.native.cells import Cells, Texts
from clearformer.kernels.native.compose import Program, compose, memories, reason, width_of
from clearformer.kernels.native.job import Job, wide


class NativeStack(Stack):
    """The modules of a stack, run by the machine where no gradients are asked for, and one by one elsewhere."""

    program: Program
    memories: Program
    original: tuple[Stack]

    def __init__(self, stack: Stack):
        super().__init__(stack.embed, stack.blocks, stack.final)
        self.original = (stack,)  # not a part of this one
        self.train(stack.training)
        self._compose()

    def _compose(self) -> None:
        self.reason = reason(self)
        if self.reason is None:
            self.width = width_of(self)
            self.program, self.memories = compose(self, self.width), memories(self)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Weights that move or change their type are at other addresses."""
        result = super()._apply(*args, **kwargs)
        self._compose()
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> "NativeStack":
        return NativeStack(copy.deepcopy(self.original[0], memo))

    @property
    def runs(self) -> bool:
        return self.reason is None and not self.training and not torch.is_grad_enabled()

    def context(self, encoded: Encoded | None = None, cached: bool = False) -> Context:
        return Cells(self, encoded, cached) if self.runs else super().context(encoded, cached)

    def forward(
        self, inputs: Tensor, places: Places, context: Context | None = None, segments: Tensor | None = None
    ) -> Tensor:
        if not self.runs or (context is not None and not isinstance(context, Cells)):
            return super().forward(inputs, places, context, segments)
        x = self.embed(inputs, places, segments)
        cells = context if context is not None else Cells(self, None, cached=False)
        real = None if places.start is not None else places.real
        rows = wide(x.flatten(0, 1) if real is None else x[real])
        texts = Texts.of(places, len(x))
        cells.take(texts)
        job = Job(self.program, rows, cells.longest)
        cells.show(job, texts)
        job.run(texts.position)
        cells.advance(places)
        if real is None:
            return rows[:, : self.width].unflatten(0, x.shape[:2])
        out = x.new_zeros(x.shape)
        out[real] = rows[:, : self.width]
        return out
