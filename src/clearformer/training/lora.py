"""Fine-tuning a few numbers instead of all: LoRA (Hu et al. 2021).

W x + (alpha / rank) · B A x, with W frozen, A random and B zero at first, so that the model begins as it was. After
training, W + (alpha / rank) · B A is one matrix again: the model that is kept has no trace of it but the values.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.errors import TrainingError
from clearformer.training.settings import Lora

DOWN, UP = "lora_down", "lora_up"


class Adapted(nn.Linear):
    """A linear layer with a narrow one beside it; made of one that is there, whose weights it shares."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, generator: torch.Generator):
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias, self.scale = base.weight, base.bias, alpha / rank
        down = torch.empty(rank, base.in_features).uniform_(-1, 1, generator=generator) / math.sqrt(base.in_features)
        self.lora_down = nn.Parameter(down)  # A
        self.lora_up = nn.Parameter(torch.zeros(base.out_features, rank))  # B

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.scale * F.linear(F.linear(x, self.lora_down), self.lora_up)


def adapt(model: nn.Module, lora: Lora, seed: int) -> None:
    """Freeze a model and put narrow layers beside the projections that `lora.on` names; a head stays trainable if it
    has weights of its own that are no vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    named = dict(model.named_modules())
    chosen = [
        name for name, module in named.items() if name.split(".")[-1] in lora.on and isinstance(module, nn.Linear)
    ]
    if not chosen:
        raise TrainingError(f"model.lora.on: this model has no {' or '.join(lora.on)}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_own_head(model, name))
    for name in chosen:
        parent, _, last = name.rpartition(".")
        layer: Any = named[name]
        setattr(named[parent], last, Adapted(layer, lora.rank, lora.alpha, generator))


def _own_head(model: Any, name: str) -> bool:
    return name.startswith("head.") and model.spec.head.kind not in ("next_token", "masked_token")


def merged(weights: Mapping[str, Tensor], frozen: Mapping[str, Tensor], lora: Lora) -> dict[str, Tensor]:
    """The weights of a plain model: the frozen ones, with what was learned added in."""
    found = {name: tensor for name, tensor in frozen.items() if DOWN not in name and UP not in name}
    for name, tensor in weights.items():
        if name.endswith(f".{UP}"):
            stem = name.removesuffix(f".{UP}")
            change = tensor.double() @ weights[f"{stem}.{DOWN}"].double()
            base = found[f"{stem}.weight"]
            found[f"{stem}.weight"] = (base.double() + lora.alpha / lora.rank * change).to(base.dtype)
        elif not name.endswith(f".{DOWN}"):
            found[name] = tensor
    return found
