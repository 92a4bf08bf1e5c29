"""Averages of the weights over time: steadier than the last step's, and nearly always better.

Polyak & Juditsky 1992; the paper averages its last checkpoints.
"""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from clearformer.training.distributed import fill
from clearformer.training.settings import Averaging


class Average(Protocol):
    """Fed with every step and every validation; gives the weights to validate and keep."""

    def after_step(self, step: int) -> None: ...
    def at_validation(self) -> None: ...
    def weights(self) -> dict[str, Tensor]: ...
    def state(self) -> dict[str, Tensor]: ...
    def load(self, state: Mapping[str, Tensor]) -> None: ...


class Nothing:
    """The weights as they are."""

    def __init__(self, live: dict[str, Tensor]):
        self.live = live

    def after_step(self, step: int) -> None:
        pass

    def at_validation(self) -> None:
        pass

    def weights(self) -> dict[str, Tensor]:
        return self.live

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        pass


class Moving(Nothing):
    """ema ← decay · ema + (1 − decay) · weights; early on the decay is smaller, so that the start is forgotten."""

    EVERY = 4  # steps between updates, with the decay to match: an update reads and writes all weights

    def __init__(self, live: dict[str, Tensor], decay: float):
        super().__init__(live)
        self.decay = decay
        self.mean = {name: weight.detach().clone() for name, weight in live.items()}

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        if step >= self.EVERY and step % self.EVERY:
            return
        decay = min(self.decay, (1 + step) / (10 + step)) ** self.EVERY if step >= self.EVERY else 0.0
        torch._foreach_lerp_(list(self.mean.values()), list(self.live.values()), 1 - decay)

    def weights(self) -> dict[str, Tensor]:
        return self.mean

    def state(self) -> dict[str, Tensor]:
        return self.mean

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name, mean in self.mean.items():
            fill(mean, state[name])


class Last(Nothing):
    """The mean of the weights at the last n validations."""

    def __init__(self, live: dict[str, Tensor], count: int):
        super().__init__(live)
        self.kept: deque[dict[str, Tensor]] = deque(maxlen=count)

    def at_validation(self) -> None:
        self.kept.append({name: weight.detach().clone() for name, weight in self.live.items()})

    def weights(self) -> dict[str, Tensor]:
        if not self.kept:
            return self.live
        return {name: torch.stack([each[name] for each in self.kept]).mean(0) for name in self.live}

    def state(self) -> dict[str, Tensor]:
        return {f"{n}/{name}": weight for n, each in enumerate(self.kept) for name, weight in each.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.kept.clear()
        for n in range(len(state) // max(1, len(self.live))):
            self.kept.append({name: _filled(weight, state[f"{n}/{name}"]) for name, weight in self.live.items()})


def _filled(like: Tensor, content: Tensor) -> Tensor:
    made = torch.zeros_like(like, requires_grad=False)
    fill(made, content)
    return made


def average(live: dict[str, Tensor], settings: Averaging) -> Average:
    if settings.kind == "ema":
        assert settings.decay is not None  # chosen with the run's length
        return Moving(live, settings.decay)
    return Last(live, settings.last) if settings.kind == "last" else Nothing(live)
