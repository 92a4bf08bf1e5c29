"""Block-sparse attention: time and memory that grow with the length, not with its square.

The text is cut into blocks. Each block of queries gathers the few blocks of keys its pattern can reach and becomes
one small dense attention, a row of a batch. The small problems are given their true positions,
so the pattern decides inside them, and a block that is not there, or there twice, has position −1. Blocks are taken in
groups that fit the cache. The first blocks, where a global pattern sees everything, are computed densely.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from clearformer import spec
from clearformer.core.kernel import Kernel, Reference
from clearformer.core.patterns import Visible
from clearformer.core.places import Places
from clearformer.core.positions import Relative
from clearformer.kernels.block_layout import Layout, block_size, layout
from clearformer.kernels.fused import Fused

GROUP = 2**13  # gathered keys at a time


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
        if not _in_order(visible.queries):
            return self._moved(q, k, v, visible, relative)
        batch, length = q.size(0), q.size(2)
        parts = visible.queries.once(found, lambda: _parts(visible, found, batch))
        q_blocks, k_blocks, v_blocks = (_cut(x, found.size).transpose(1, 2) for x in (q, k, v))  # b n h size d
        near = _Groups.apply(self, parts, relative, q_blocks, k_blocks, v_blocks, *relative.parameters())
        out = near.transpose(1, 2).flatten(2, 3)
        first = found.full * found.size  # these queries see everything
        if first:
            keys = visible.keys.rows(batch)
            everywhere = Visible(visible.pattern, Places(*_sliced(keys, slice(first))), keys)
            out = torch.cat([self.dense(q[:, :, :first], k, v, everywhere, relative), out], 2)
        return out[:, :, :length]

    def _moved(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, relative: Relative) -> Tensor:
        """Padding in front parts slots from positions: every row is moved to its start, and the result back."""
        order, there = visible.queries.once("in order", lambda: _ordered(visible.queries, len(q)))
        out = self(*(_take(x, order) for x in (q, k, v)), Visible(visible.pattern, there, there), relative)
        return _take(out, order.argsort(1))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, part: "_Part", relative: Relative) -> Tensor:
        """b n h size d for a group of n query blocks, from the b n r g size d of the keys that each may see."""
        return self.dense(q.flatten(0, 1), _beside(k), _beside(v), part.visible, relative).unflatten(0, q.shape[:2])

    def _layout(self, visible: Visible) -> Layout | None:
        """The blocks to compute, or None where the dense equation is the way: a short text, or a step with a cache."""
        size, length = block_size(visible.pattern), visible.queries.length
        blocks = -(-length // size)
        if visible.queries is not visible.keys:
            return None
        found = visible.queries.once((visible.pattern, "layout"), lambda: layout(visible.pattern, size, blocks))
        if found is None or found.full + found.keys.size(1) >= blocks:
            return None
        return found


def _in_order(places: Places) -> bool:
    """Whether every token stands in the slot of its position."""
    slots = torch.arange(places.length, device=places.index.device)
    return places.start == 0 or bool(((places.index == slots) | ~places.real).all())


def _ordered(places: Places, batch: int) -> tuple[Tensor, Places]:
    """The slots of each row's tokens in the order of their positions, padding last, and the places they then have."""
    own = places.rows(batch)
    order = torch.where(own.real, own.index, own.length).argsort(dim=1, stable=True)
    path = None if own.path is None else own.path.gather(1, order[..., None].expand_as(own.path))
    return order, Places(own.index.gather(1, order), path)


def _take(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(2, order[:, None, :, None].expand(-1, x.size(1), -1, x.size(3)))


def _cut(x: Tensor, size: int) -> Tensor:
    """b h t d → b h n size d, with zeros at the end of the last block."""
    return F.pad(x, (0, 0, 0, -x.size(2) % size)).unflatten(2, (-1, size))


def _beside(x: Tensor) -> Tensor:
    """b n r g size d → (b n) g (r size) d: the keys of several blocks side by side."""
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 1)


class _Groups(torch.autograd.Function):
    """The groups one after the other. What they gather is many times the keys, so it is not kept for the way back but
    gathered again, and its gradients are added to those of the keys at once: memory and time stay linear."""

    @staticmethod
    def forward(ctx: Any, kernel: Sparse, parts: list["_Part"], relative: Relative, *tensors: Tensor) -> Tensor:
        q, k, v = tensors[:3]
        ctx.kernel, ctx.parts, ctx.relative = kernel, parts, relative
        ctx.replay = _Replay(q.device)
        ctx.save_for_backward(*tensors)
        near = [kernel.attend(q[:, part.queries], k[:, part.keys], v[:, part.keys], part, relative) for part in parts]
        return torch.cat(near, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, *parameters = ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        dq, dk, dv, *rest = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, *parameters))
        first = ctx.parts[0].queries.start
        with ctx.replay, torch.enable_grad():
            for part in ctx.parts:
                group = [x.detach() for x in (q[:, part.queries], k[:, part.keys], v[:, part.keys])]
                for x, need in zip(group, needed, strict=False):
                    x.requires_grad_(need)
                out = ctx.kernel.attend(*group, part, ctx.relative)
                above = grads[0][:, part.queries.start - first : part.queries.stop - first]
                wanted = [x for x, need in zip([*group, *parameters], needed, strict=True) if need]
                pieces = iter(torch.autograd.grad(out, wanted, above, allow_unused=True))
                pq, pk, pv, *others = (next(pieces) if need else None for need in needed)
                if pq is not None:
                    dq[:, part.queries] = pq
                for whole, piece in ((dk, pk), (dv, pv)):
                    if piece is not None:
                        whole.index_add_(1, part.keys.flatten(), piece.flatten(1, 2))
                for whole, piece in zip(rest, others, strict=True):
                    if piece is not None:
                        whole += piece
        return None, None, None, *(x if need else None for x, need in zip([dq, dk, dv, *rest], needed, strict=True))


class _Replay:
    """The random numbers and the precision of a forward pass, taken up again on the way back."""

    def __init__(self, device: torch.device):
        self.device = device
        self.cpu = torch.get_rng_state()
        self.accelerator = get_device_states(torch.empty(0, device=device))
        self.enabled = torch.is_autocast_enabled(device.type)
        self.dtype = torch.get_autocast_dtype(device.type)

    def __enter__(self) -> None:
        self.stack = ExitStack()
        devices = self.accelerator[0]
        kind = self.device.type if devices else "cuda"
        self.stack.enter_context(torch.random.fork_rng(devices=devices, device_type=kind))
        self.stack.enter_context(torch.autocast(self.device.type, self.dtype, self.enabled))
        torch.set_rng_state(self.cpu)
        set_device_states(*self.accelerator)

    def __exit__(self, *_: object) -> None:
        self.stack.close()


@dataclass(frozen=True)
class _Part:
    """A group of query blocks, the key blocks each of them gathers, and who sees whom among them."""

    queries: slice
    keys: Tensor  # n r
    visible: Visible


def _parts(visible: Visible, found: Layout, batch: int) -> list[_Part]:
    places = visible.queries.rows(batch)
    spare = -places.length % found.size
    index = F.pad(places.index, (0, spare), value=-1).unflatten(1, (-1, found.size))  # b n size
    path = None
    if places.path is not None:
        path = F.pad(places.path, (0, 0, 0, spare), value=-1).unflatten(1, (-1, found.size))
    step = max(1, GROUP // (batch * found.size * found.keys.size(1)))
    parts = []
    for start in range(found.full, len(found.keys), step):
        rows = slice(start, min(start + step, len(found.keys)))
        keys = found.keys[rows].to(index.device)
        missing = (keys < 0)[None, :, :, None]  # no such block, or named already: nobody sees it
        near = index[:, keys.clamp(min=0)].masked_fill(missing, -1).flatten(2).flatten(0, 1)
        tree = None if path is None else path[:, keys.clamp(min=0)].flatten(2, 3).flatten(0, 1)
        own = Places(index[:, rows].flatten(0, 1), None if path is None else path[:, rows].flatten(0, 1))
        parts.append(_Part(rows, keys.clamp(min=0), Visible(visible.pattern, own, Places(near, tree))))
    return parts


def _sliced(places: Places, which: slice) -> tuple[Tensor, Tensor | None]:
    return places.index[:, which], None if places.path is None else places.path[:, which]
