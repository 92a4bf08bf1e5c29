"""A stack that runs as one program: for inference on a CPU, in float32 or int8, on rows without padding."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.core.embed import Tokens
from clearformer.core.model import Context, Encoded, Stack
from clearformer.core.places import Places
from clearformer.core.positions import Learned
from clearformer.kernels.native.fused_step import FusedStep
from clearformer.kernels.native.isa import stride
from clearformer.kernels.native.launch import Array, Job, wide
from clearformer.kernels.native.lower import compose, memories, reason, width_of
from clearformer.kernels.native.paged_kv import Cells, Texts
from clearformer.kernels.native.program import Program

MADE = ("program", "memories", "tables", "fused_step")  # from the modules, anew in another process


class NativeStack(Stack):
    """The modules of a stack, run by the machine where no gradients are asked for, and one by one elsewhere."""

    program: Program
    memories: Program
    original: tuple[Stack]
    fused_step: FusedStep | None  # made by its own module
    tables: list[tuple[int, int]]

    def __init__(self, stack: Stack):
        super().__init__(stack.embed, stack.blocks, stack.final)
        self.original, self.fused_step = (stack,), None  # not parts of this one
        self.train(stack.training)
        self._compose()
        self.register_load_state_dict_post_hook(_compose_again)

    def _compose(self) -> None:
        self.reason = reason(self)
        if self.reason is None:
            self.width = width_of(self)
            self.program, self.memories, self.tables = compose(self, self.width), memories(self), self._tables()

    def _tables(self) -> list[tuple[int, int]]:
        """Where vectors of tokens are looked up, and how many there are."""
        if not isinstance(self.embed, Tokens):
            return []
        table: Any = self.embed.table
        found = [table if isinstance(table, Tensor) else table.panels, getattr(self.embed.positions, "table", None)]
        return [(each.data_ptr(), len(each)) for each in found if each is not None]

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Weights that move or change their type are at other addresses."""
        result = super()._apply(*args, **kwargs)
        self._compose()
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> "NativeStack":
        return NativeStack(copy.deepcopy(self.original[0], memo))

    def __getstate__(self) -> dict[str, Any]:
        """Without what has addresses in it, which are those of this process."""
        return {name: value for name, value in self.__dict__.items() if name not in MADE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.fused_step = None
        self._compose()

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
        real = None if places.start is not None else places.real
        cells = context if context is not None else Cells(self, None, cached=False)
        texts = Texts.of(places, len(inputs))
        ids = None
        if segments is None and self.program.given:
            ids = self.ids(inputs if real is None else inputs[real], texts.position)
        if ids is None:
            x = self.embed(inputs, places, segments)
            rows, begin = wide(x.flatten(0, 1) if real is None else x[real]), self.program.given
        else:
            rows, begin = torch.empty(len(ids), stride(self.width)), 0
        cells.take(texts)
        job = Job(self.program, rows, cells.longest)
        cells.show(job, texts)
        if ids is not None:
            job.ids(ids)
        job.run(texts.position, begin)
        cells.advance(places)
        if real is None:
            return rows[:, : self.width].unflatten(0, (len(inputs), places.length))
        out = rows.new_zeros(len(inputs), places.length, self.width)
        out[real] = rows[:, : self.width]
        return out

    def read(self, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Texts] | None:
        """Texts of ids, all at once and without padding: their states, row by row as the machine has them, and which
        row is what. None where it cannot look up their vectors."""
        count = np.array([len(text) for text in texts])
        ids = np.concatenate([np.asarray(text, dtype=np.int64) for text in texts])
        position = np.arange(len(ids)) - np.repeat(np.cumsum(count) - count, count)
        found = self.ids(torch.from_numpy(ids), position) if self.runs else None
        if found is None:
            return None
        given = Texts(np.repeat(np.arange(len(texts)), count), position, count)
        cells, rows = Cells(self, None, cached=False), torch.empty(len(ids), stride(self.width))
        cells.take(given)
        job = Job(self.program, rows, cells.longest)
        cells.show(job, given)
        job.ids(found)
        job.run(position)
        return rows, given

    def ids(self, tokens: Tensor, position: Array) -> Array | None:
        """Tokens as the machine wants them, or None where it cannot look up their vectors, or there are none."""
        if self.tables != self._tables():
            self._compose()
        if not self.program.given:
            return None
        ids = np.ascontiguousarray(tokens.flatten().numpy(), dtype=np.int64)
        assert isinstance(self.embed, Tokens)
        known, places = len(self.embed.table), self.embed.positions
        if len(ids) and (ids.min() < 0 or ids.max() >= known):
            return None
        return None if isinstance(places, Learned) and position.max(initial=0) >= places.length else ids


def _compose_again(stack: NativeStack, _: Any) -> None:
    """After a state was loaded: weights may be others."""
    stack._compose()
