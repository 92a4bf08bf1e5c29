"""Residual branches, norms, and the block that is a list of them."""

from collections.abc import Iterator, Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.kv import Keys
from clearformer.core.places import Places
from clearformer.core.step import step


class LayerNorm(nn.LayerNorm):
    """(x − mean) / √(variance + eps) · weight + bias, over the features of one position."""

    @step("b t m")
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """x / √(mean of squares + eps) · weight, over the features of one position."""

    @step("b t m")
    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class HeadNorm(RMSNorm):
    """The same over the features of one head (Qwen 3)."""

    @step("b h t d")
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Residual(nn.Module):
    """after(x + drop(between(layer(before(x)))))

    `after` alone is the original and BERT; `before` alone is GPT-2, Llama, T5 and ViT. The rest is the identity.
    """

    def __init__(self, layer: nn.Module, before: nn.Module, between: nn.Module, after: nn.Module, drop: nn.Module):
        super().__init__()
        self.layer, self.before, self.between, self.after, self.drop = layer, before, between, after, drop

    def forward(self, x: Tensor, places: Places, keys: Keys | None) -> Tensor:
        return self.after(self.sum(x, self.drop(self.between(self.layer(self.before(x), places, keys)))))

    @step("b t m")
    def sum(self, x: Tensor, change: Tensor) -> Tensor:
        return x + change


class Block(nn.Module):
    def __init__(self, branches: Mapping[str, Residual]):
        super().__init__()
        self.branches: Mapping[str, Residual] = nn.ModuleDict(branches)  # type: ignore[assignment]

    def forward(self, x: Tensor, places: Places, keys: Mapping[str, Keys]) -> Tensor:
        for name, branch in self.branches.items():
            x = branch(x, places, keys.get(name))
        return x

    def layers(self) -> Iterator[tuple[str, nn.Module]]:
        return ((name, branch.layer) for name, branch in self.branches.items())
