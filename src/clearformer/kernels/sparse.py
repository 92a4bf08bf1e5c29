"""Block-sparse attention: time and memory that grow with the length, not with its square.

The text is cut into blocks. Each block of queries gathers the few blocks of keys its pattern can reach and becomes
one small dense attention; all of them together are one batch. The small problems are given their true positions,
so the pattern decides inside them, and a block that is not there, or there twice, has position −1. The first blocks,
where a global pattern sees everything, are computed densely.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer import spec
from clearformer.core.attend import Kernel, Reference
from clearformer.core.patterns import Visible
from clearformer.core.places import Places
from clearformer.core.positions import Relative
from clearformer.kernels.fused import Fused
from clearformer.kernels.layout import Layout, block_size, layout


class Sparse(Kernel):
    name = "sparse"

    def __init__(self, layer: spec.SelfAttention | spec.CrossAttention, scale: float):
        super().__init__(layer, scale)
        self.dense = (Reference if Fused.supports(layer) else Fused)(layer, scale)

    @classmethod
    def supports(cls, layer: spec.SelfAttention | spec.CrossAttention) -> str | None:
        if isinstance(layer, spec.CrossAttention):
            return "cross-attention has no pattern to exploit"
        if layer.compressed is not None:
            return "compressed keys are already few"
        if layout(layer.pattern, block_size(layer.pattern), 4) is None:
            return f"pattern {layer.pattern.kind!r} lets most queries see most keys: there is nothing to skip"
        return None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, relative: Relative) -> Tensor:
        found = self._layout(visible)
        if found is None:
            return self.dense(q, k, v, visible, relative)
        batch, length = q.size(0), q.size(2)
        queries, keys = visible.queries.rows(batch), visible.keys.rows(batch)
        first = found.full * found.size  # these queries see everything
        near = self.dense(
            _fold(_cut(q, found.size)[:, :, found.full :]),
            _gather(k, found),
            _gather(v, found),
            Visible(visible.pattern, _cut_places(queries, found), _gather_places(keys, found)),
            relative,
        )  # (b n) h size d
        out = near.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, : length - first]
        if first:
            everywhere = Visible(visible.pattern, _part(queries, slice(first)), keys)
            out = torch.cat([self.dense(q[:, :, :first], k, v, everywhere, relative), out], 2)
        return out

    def _layout(self, visible: Visible) -> Layout | None:
        """The blocks to compute, or None where the dense equation is the way: a short text, a step with a cache,
        or padding in front, which parts slots from positions."""
        size, length = block_size(visible.pattern), visible.queries.length
        blocks = -(-length // size)
        if visible.queries is not visible.keys:
            return None
        found = visible.queries.once((visible.pattern, "layout"), lambda: layout(visible.pattern, size, blocks))
        if found is None or found.full + found.keys.size(1) >= blocks:
            return None
        slots = torch.arange(length, device=visible.queries.index.device)
        aligned = (visible.queries.index == slots) | ~visible.queries.real
        return found if visible.queries.start == 0 or bool(aligned.all()) else None


def _cut(x: Tensor, size: int) -> Tensor:
    """b h t d → b h n size d, zeros at the end of the last block."""
    return F.pad(x, (0, 0, 0, -x.size(2) % size)).unflatten(2, (-1, size))


def _fold(x: Tensor) -> Tensor:
    """b h n size d → (b n) h size d: every block a row of the batch."""
    return x.transpose(1, 2).flatten(0, 1)


def _gather(x: Tensor, found: Layout) -> Tensor:
    """b g s d → (b n) g (r size) d: the keys that each block of queries may see."""
    near = _cut(x, found.size).transpose(1, 2)[:, found.keys[found.full :].clamp(min=0)]  # b n r g size d
    return near.transpose(2, 3).flatten(3, 4).flatten(0, 1)


def _part(places: Places, which: slice) -> Places:
    return Places(places.index[:, which], None if places.path is None else places.path[:, which])


def _cut_places(places: Places, found: Layout) -> Places:
    def cut(x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, found.size))[:, found.full :].flatten(0, 1)

    return _each(places, found, cut)


def _gather_places(places: Places, found: Layout) -> Places:
    rows = found.keys[found.full :]

    def gather(x: Tensor) -> Tensor:
        near = x.unflatten(1, (-1, found.size))[:, rows.clamp(min=0)]  # b n r size ...
        missing = (rows < 0).view(1, *rows.shape, *[1] * (near.dim() - 3))
        return near.masked_fill(missing, -1).flatten(2, 3).flatten(0, 1)

    return _each(places, found, gather)


def _each(places: Places, found: Layout, change) -> Places:  # type: ignore[no-untyped-def]
    spare = -places.length % found.size
    index = change(F.pad(places.index, (0, spare), value=-1))
    path = None if places.path is None else change(F.pad(places.path, (0, 0, 0, spare), value=-1))
    return Places(index, path)
