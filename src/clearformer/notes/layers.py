"""Layers of the core with matrices set by hand, and what each of their steps gives."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from clearformer import spec
from clearformer.assemble import build
from clearformer.core.attention import Attention
from clearformer.core.kernel import Reference, spread
from clearformer.core.patterns import Visible
from clearformer.core.places import Places
from clearformer.core.positions import Relative

Kind = TypeVar("Kind", bound=nn.Module)


class Steps(NamedTuple):
    """What attention computes for one text; the heads' axis first."""

    q: Tensor  # h t d
    k: Tensor  # h s d
    v: Tensor  # h s d
    scores: Tensor  # h t s, scaled
    weights: Tensor  # h t s
    mixed: Tensor  # h t d


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def attended(q: Tensor, k: Tensor, v: Tensor, scale: float = 1.0, pattern: spec.Pattern = spec.Everyone()) -> Steps:
    """softmax(scale · Q Kᵀ) V by the reference kernel; q, k and v are h t d, or t d for one head."""
    q, k, v = (x if x.dim() == 3 else x[None] for x in (q, k, v))
    kernel = Reference(spec.SelfAttention(heads=len(q), pattern=pattern), scale)
    visible = Visible(pattern, Places.span(0, q.size(1)), Places.span(0, k.size(1)))
    scores = kernel.scores(q[None], k[None], None)
    weights = kernel.weights(scores, visible)
    mixed = kernel(q[None], k[None], v[None], visible, Relative())
    return Steps(q, k, v, scores[0], weights[0], mixed[0])


def softmax(scores: Tensor, pattern: spec.Pattern = spec.Everyone()) -> Tensor:
    """t s → t s: the reference kernel's weights for these scores."""
    visible = Visible(pattern, Places.span(0, scores.size(0)), Places.span(0, scores.size(1)))
    return Reference(spec.SelfAttention(heads=1), 1.0).weights(scores[None, None], visible)[0, 0]


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """t s, s d → t d: the reference kernel's mixture."""
    return Reference(spec.SelfAttention(heads=1), 1.0).mixed(weights[None, None], values[None, None], None)[0, 0]


def self_attention(layer: spec.SelfAttention, width: int, seed: int = 0) -> Attention:
    """The layer alone, as `build` makes it."""
    block = spec.Block(branches=(spec.Residual(name="self", layer=layer),))
    stack = spec.Stack(width=width, embed=spec.Tokens(vocabulary=1), blocks=(block,))
    model = build(spec.Transformer(stack=stack, head=spec.States()), kernel="reference", seed=seed)
    return part(model, "stack.blocks.0.branches.self.layer", Attention)


def by_hand(query: Tensor, key: Tensor, value: Tensor, *, heads: int = 1, scale: float | None = None) -> Attention:
    """The layer with these matrices, written as the notes write them: Q = X W."""
    width, columns = query.shape
    layer = spec.SelfAttention(heads=heads, head_width=columns // heads, bias=False, output_bias=False, scale=scale)
    attention = self_attention(layer, width).to(query.dtype)
    with torch.no_grad():
        for module, weight in ((attention.query, query), (attention.key, key), (attention.value, value)):
            module.weight.copy_(weight.T)
    return attention


@torch.no_grad()
def steps(attention: Attention, x: Tensor) -> Steps:
    """What the layer computes for one text, t m."""
    places = Places.span(0, len(x))
    q, k, v = attention.q(x[None], places)[0], attention.k(x[None], places)[0], attention.v(x[None])[0]
    return attended(q, k, v, attention.kernel.scale, attention.pattern)


def kernel_steps(model: nn.Module, path: str, run: Callable[[], object]) -> Steps:
    """The attention layer at `path` while `run` runs the model, for the first text."""
    given: list[tuple[Tensor, Tensor, Tensor, Visible, Relative]] = []
    kernel = part(model, f"{path}.kernel", Reference)
    hook = kernel.register_forward_pre_hook(lambda _, inputs: given.append(inputs))
    with torch.no_grad():
        run()
        hook.remove()
        q, k, v, visible, relative = given[0]
        k, v = spread(k, q.size(1)), spread(v, q.size(1))
        scores = kernel.scores(q, k, relative.bias(q, kernel.scale, visible.queries, visible.keys))
        weights, mixed = kernel.weights(scores, visible), kernel(q, k, v, visible, relative)
    return Steps(q[0], k[0], v[0], scores[0], weights[0], mixed[0])


def part(model: nn.Module, path: str, kind: type[Kind]) -> Kind:
    """The module at a dotted path, known to be of a kind."""
    found = model.get_submodule(path)
    assert isinstance(found, kind)
    return found


def furthest(a: Tensor, b: Tensor) -> float:
    """The largest difference between two tensors."""
    return float((a - b).abs().max())
