"""What turns states into answers: logits, or vectors. Every head takes the states and where they are."""

import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.feedforward import ACTIVATIONS
from clearformer.core.places import Places
from clearformer.core.step import step


class States(nn.Module):
    @step("b t m")
    def forward(self, x: Tensor, places: Places) -> Tensor:
        return x


class NextToken(nn.Module):
    """Logits over the vocabulary: states times the (possibly tied) table."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None, scale: float):
        super().__init__()
        self.weight, self.bias, self.scale = weight, bias, scale

    def forward(self, x: Tensor, places: Places) -> Tensor:
        return self.logits(x)

    @step("b t v")
    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x * self.scale if self.scale != 1.0 else x, self.weight, self.bias)

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """b count: the largest log-probabilities of each row, best first, and their tokens."""
        best, tokens = logits.topk(count)
        return best - logits.logsumexp(-1, keepdim=True), tokens


class MaskedToken(nn.Module):
    """norm(activation(dense(x))), then logits over the vocabulary."""

    def __init__(self, dense: nn.Linear, activation: str, norm: nn.Module, weight: nn.Parameter, bias: nn.Parameter):
        super().__init__()
        self.dense, self.norm, self.weight, self.bias = dense, norm, weight, bias
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor, places: Places) -> Tensor:
        return self.logits(self.norm(self.active(x)))

    @step("b t m")
    def active(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))

    @step("b t v")
    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Vector(nn.Module):
    """One vector per sequence; a sequence with no tokens gives zeros before the dense layer."""

    def __init__(self, pool: str, dense: nn.Linear | None, activation: str | None):
        super().__init__()
        self.pool, self.dense = pool, dense
        self.activation = ACTIVATIONS[activation] if activation else None

    def forward(self, x: Tensor, places: Places) -> Tensor:
        pooled = self.pooled(x, places)
        return pooled if self.dense is None or self.activation is None else self.vector(pooled)

    @step("b m")
    def pooled(self, x: Tensor, places: Places) -> Tensor:
        return (self._shares(places, x).to(x.dtype).expand(len(x), -1)[:, None] @ x).squeeze(1)

    def _shares(self, places: Places, like: Tensor) -> Tensor:
        """b t: how much of each position goes into the vector."""
        if self.pool == "mean":
            real = places.real.to(like.dtype)
            return real / real.sum(1, keepdim=True).clamp(min=1)
        if self.pool == "first":
            return places.index == 0
        return places.real & (places.index == places.index.amax(1, keepdim=True))

    @step("b m")
    def vector(self, pooled: Tensor) -> Tensor:
        assert self.dense is not None
        assert self.activation is not None
        return self.activation(self.dense(pooled))


class Classes(nn.Module):
    def __init__(self, vector: Vector, drop: nn.Module, output: nn.Linear):
        super().__init__()
        self.vector, self.drop, self.output = vector, drop, output

    def forward(self, x: Tensor, places: Places) -> Tensor:
        return self.logits(self.drop(self.vector(x, places)))

    @step("b c")
    def logits(self, x: Tensor) -> Tensor:
        return self.output(x)


class TokenClasses(nn.Module):
    """Logits for every token; `Spans` is the same with two classes, start and end."""

    def __init__(self, drop: nn.Module, output: nn.Linear):
        super().__init__()
        self.drop, self.output = drop, output

    def forward(self, x: Tensor, places: Places) -> Tensor:
        return self.logits(self.drop(x))

    @step("b t c")
    def logits(self, x: Tensor) -> Tensor:
        return self.output(x)
