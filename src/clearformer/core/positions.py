"""Where a token is, as numbers the model can use.

Absolute schemes give a vector to add to the embedding. Relative schemes act inside attention, in up to three
places, each the identity unless the scheme says otherwise: they `rotate` queries and keys, add a `bias` to the
scores, and add to the `mixture` of values. Every scheme reads `Places` only, so padding and caches need no care.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer import spec
from clearformer.core.places import Places
from clearformer.core.step import step
from clearformer.errors import DataError


def frequencies(base: float, width: int, like: Tensor) -> Tensor:
    """base^(−2i/width) for i = 0 ... width/2 − 1, in at least single precision."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return base ** (-torch.arange(0, width, 2, device=like.device, dtype=dtype) / width)


def sinusoid(position: Tensor, width: int, base: float, layout: str, like: Tensor) -> Tensor:
    """... m: sin and cos of the position at falling frequencies, in turn or in two halves."""
    angle = position[..., None] * frequencies(base, width, like)
    pair = (angle.sin(), angle.cos())
    waves = torch.stack(pair, -1).flatten(-2) if layout == "interleaved" else torch.cat(pair, -1)
    return waves.to(like.dtype)


class Sinusoid(nn.Module):
    def __init__(self, base: float, layout: str):
        super().__init__()
        self.base, self.layout = base, layout

    @step("b t m")
    def forward(self, x: Tensor, places: Places) -> Tensor:
        return sinusoid(places.index, x.size(-1), self.base, self.layout, x)


class Learned(nn.Module):
    def __init__(self, length: int, width: int, offset: int):
        super().__init__()
        self.table = nn.Parameter(torch.empty(length + offset, width))
        self.length, self.offset = length, offset

    @step("b t m")
    def forward(self, x: Tensor, places: Places) -> Tensor:
        try:
            return F.embedding(places.index.clamp(min=0) + self.offset, self.table)
        except IndexError:
            longest = int(places.index.max()) + 1
            raise DataError(
                f"the text has {longest} tokens and the position table {self.length} rows;"
                " shorten the text, or build the model with more positions"
            ) from None


class TreeDepth(nn.Module):
    """tanh(W [sequential ; sinusoid(depth)]), Wang et al. 2019."""

    def __init__(self, sequential: nn.Module, width: int):
        super().__init__()
        self.sequential = sequential
        self.mix = nn.Linear(2 * width, width)

    @step("b t m")
    def forward(self, x: Tensor, places: Places) -> Tensor:
        order = self.sequential(x, places)
        depth = sinusoid(places.depth, x.size(-1), 10_000.0, "interleaved", x)
        return self.mix(torch.cat([order.expand_as(depth), depth], -1)).tanh()


class Relative(nn.Module):
    """No relative positions: the three places left as they are."""

    def rotate(self, x: Tensor, places: Places) -> Tensor:
        return x

    def bias(self, q: Tensor, scale: float, queries: Places, keys: Places) -> Tensor | None:
        """b h t s to add to the scores, which are q kᵀ · scale."""
        return None

    def mixture(self, weights: Tensor, queries: Places, keys: Places) -> Tensor | None:
        """b h t d to add to the weighted values."""
        return None


def scaled_frequencies(base: float, scaling: spec.Linear | spec.Llama3 | None, width: int, like: Tensor) -> Tensor:
    fast = frequencies(base, width, like)
    match scaling:
        case spec.Linear(factor=factor):
            return fast / factor
        case spec.Llama3(factor=factor, low=low, high=high, original=original):
            turns = original * fast / (2 * math.pi)  # full turns within the original context
            keep = ((turns - low) / (high - low)).clamp(0, 1)
            return keep * fast + (1 - keep) * fast / factor
    return fast


class Rotary(Relative):
    def __init__(self, base: float, scaling: spec.Linear | spec.Llama3 | None, layout: str):
        super().__init__()
        self.base, self.scaling, self.layout = base, scaling, layout

    def rotate(self, x: Tensor, places: Places) -> Tensor:
        """Turn each pair of coordinates by position · frequency: (a, b) → (a cos − b sin, b cos + a sin)."""
        cos, sin = places.once(
            (self.base, self.scaling, self.layout, x.size(-1), x.dtype), lambda: self._turns(x, places)
        )
        if self.layout == "halves":
            a, b = x.chunk(2, -1)
            other = torch.cat([-b, a], -1)
        else:
            a, b = x[..., 0::2], x[..., 1::2]
            other = torch.stack([-b, a], -1).flatten(-2)
        return x * cos + other * sin

    def _turns(self, x: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        angle = places.index[:, None, :, None] * scaled_frequencies(self.base, self.scaling, x.size(-1), x)
        both = torch.cat([angle, angle], -1) if self.layout == "halves" else angle.repeat_interleave(2, -1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)  # b 1 t d


def distance(queries: Places, keys: Places) -> Tensor:
    """b t s: the key's position minus the query's."""
    return keys.index[:, None, :] - queries.index[:, :, None]


class Buckets(Relative):
    """T5: near distances have a bucket each, far ones share buckets that widen logarithmically up to `reach`."""

    def __init__(self, heads: int, count: int, reach: int, two_way: bool):
        super().__init__()
        self.count, self.reach, self.two_way = count, reach, two_way
        self.table = nn.Parameter(torch.empty(count, heads))

    def bucket(self, away: Tensor) -> Tensor:
        count, first = self.count, torch.zeros_like(away)
        if self.two_way:
            count //= 2
            first = (away > 0) * count
            away = away.abs()
        else:
            away = (-away).clamp(min=0)
        exact = count // 2
        widening = (away.clamp(min=1) / exact).log() / math.log(self.reach / exact) * (count - exact)
        far = (exact + widening.long()).clamp(max=count - 1)
        return first + torch.where(away < exact, away, far)

    @step("b h t s")
    def bias(self, q: Tensor, scale: float, queries: Places, keys: Places) -> Tensor:
        return F.embedding(self.bucket(distance(queries, keys)), self.table).permute(0, 3, 1, 2)


class ALiBi(Relative):
    slopes: Tensor

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(heads), persistent=False)

    @step("b h t s")
    def bias(self, q: Tensor, scale: float, queries: Places, keys: Places) -> Tensor:
        return -self.slopes.to(q.dtype)[:, None, None] * distance(queries, keys).abs()[:, None]


def alibi_slopes(heads: int) -> Tensor:
    """2^(−8/n), 2^(−16/n), ... for n heads; between powers of two, every other slope of twice as many heads."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (n + 1) / power) for n in range(power)]
    between = [2 ** (-4 * (n + 1) / power) for n in range(0, 2 * (heads - power), 2)]
    return torch.tensor(slopes + between)


class Vectors(Relative):
    """Shaw et al. 2018: a learned vector per clipped distance, shared by the heads.

    Score: q · (k + a_ij), so q · a_ij joins the bias. Value: Σ_j w_ij (v_j + c_ij), so Σ_j w_ij c_ij joins the mixture.
    """

    def __init__(self, reach: int, head_width: int, values: bool):
        super().__init__()
        self.reach = reach
        self.key_table = nn.Parameter(torch.empty(2 * reach + 1, head_width))
        self.value_table = nn.Parameter(torch.empty(2 * reach + 1, head_width)) if values else None

    def away(self, queries: Places, keys: Places) -> Tensor:
        return distance(queries, keys)

    def _row(self, queries: Places, keys: Places, heads: int) -> Tensor:
        row = self.away(queries, keys).clamp(-self.reach, self.reach) + self.reach
        return row[:, None].expand(-1, heads, -1, -1)  # b h t s

    @step("b h t s")
    def bias(self, q: Tensor, scale: float, queries: Places, keys: Places) -> Tensor:
        by_distance = q @ self.key_table.T * scale  # b h t r
        row = self._row(queries, keys, q.size(1))
        return by_distance.gather(-1, row.expand(q.size(0), -1, -1, -1))

    @step("b h t d")
    def mixture(self, weights: Tensor, queries: Places, keys: Places) -> Tensor | None:
        if self.value_table is None:
            return None
        row = self._row(queries, keys, weights.size(1)).expand_as(weights)
        empty = weights.new_zeros(*weights.shape[:-1], 2 * self.reach + 1)
        return empty.scatter_add(-1, row, weights) @ self.value_table


class TreeVectors(Vectors):
    """The same with the distance in the dependency tree (Wang et al. 2019, relative structural positions)."""

    def away(self, queries: Places, keys: Places) -> Tensor:
        return tree_distance(queries, keys)


def tree_distance(queries: Places, keys: Places) -> Tensor:
    """b t s: depth_i − depth_j where one token is the other's ancestor; elsewhere ±(depth_i + depth_j), + if i > j."""
    i, j = queries.depth[:, :, None], keys.depth[:, None, :]
    after = -distance(queries, keys).sign()
    return torch.where(_above(queries, keys) | _above(keys, queries).mT, i - j, after * (i + j))


def _above(below: Places, above: Places) -> Tensor:
    """b t s: whether the second token lies on the first's path from the root (or is the same)."""
    path, depth = below.path, above.depth.clamp(min=0)
    assert path is not None  # `above.depth` has raised otherwise
    wanted = depth[:, None, :].expand(-1, below.length, -1).clamp(max=path.size(2) - 1)
    deep_enough = above.depth[:, None, :] < path.size(2)
    return (path.gather(2, wanted.expand(path.size(0), -1, -1)) == above.index[:, None, :]) & deep_enough


class Sum(Relative):
    """Several schemes at once: biases and mixtures add up."""

    def __init__(self, **parts: Relative):
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def bias(self, q: Tensor, scale: float, queries: Places, keys: Places) -> Tensor | None:
        return add(*(part.bias(q, scale, queries, keys) for part in self.parts.values()))  # type: ignore[operator]

    def mixture(self, weights: Tensor, queries: Places, keys: Places) -> Tensor | None:
        return add(*(part.mixture(weights, queries, keys) for part in self.parts.values()))  # type: ignore[operator]


def add(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that are there."""
    there = [term for term in terms if term is not None]
    return sum(there[1:], there[0]) if there else None
