"""The position-wise feed-forward layer: each position by itself, the same weights for all."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.step import step

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}


class Plain(nn.Module):
    """down(activation(up(x)))"""

    def __init__(self, up: nn.Linear, down: nn.Linear, activation: str, drop: nn.Module):
        super().__init__()
        self.up, self.down, self.drop = up, down, drop
        self.name, self.activation = activation, ACTIVATIONS[activation]

    def forward(self, x: Tensor, *_: object) -> Tensor:
        return self.out(self.drop(self.active(self.inner(x))))

    @step("b t f")
    def inner(self, x: Tensor) -> Tensor:
        return self.up(x)

    @step("b t f")
    def active(self, inner: Tensor) -> Tensor:
        return self.activation(inner)

    @step("b t m")
    def out(self, active: Tensor) -> Tensor:
        return self.down(active)


class Gated(nn.Module):
    """down(activation(gate(x)) ∘ up(x))"""

    def __init__(self, gate: nn.Linear, up: nn.Linear, down: nn.Linear, activation: str, drop: nn.Module):
        super().__init__()
        self.gate, self.up, self.down, self.drop = gate, up, down, drop
        self.name, self.activation = activation, ACTIVATIONS[activation]

    def forward(self, x: Tensor, *_: object) -> Tensor:
        return self.out(self.drop(self.active(self.gates(x), self.inner(x))))

    @step("b t f")
    def gates(self, x: Tensor) -> Tensor:
        return self.activation(self.gate(x))

    @step("b t f")
    def inner(self, x: Tensor) -> Tensor:
        return self.up(x)

    @step("b t f")
    def active(self, gates: Tensor, inner: Tensor) -> Tensor:
        return gates * inner

    @step("b t m")
    def out(self, active: Tensor) -> Tensor:
        return self.down(active)
