"""What a text may not become: rules on the logits of the next token, given what each row has so far."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.errors import DataError


@dataclass(frozen=True)
class Controls:
    """`repetition` above 1 makes tokens that were used less likely (Keskar et al. 2019: positive logits are divided
    by it, negative ones multiplied); `no_repeat` n forbids any n tokens in a row to come twice; `shortest` is the
    least number of tokens before the end; `forbidden` tokens never come."""

    repetition: float = 1.0
    no_repeat: int = 0
    shortest: int = 0
    forbidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.repetition < float("inf"):
            raise DataError(f"repetition must be above 0, 1 changes nothing; given {self.repetition}")
        for name in ("no_repeat", "shortest"):
            if getattr(self, name) < 0:
                raise DataError(f"{name} must be 0 or more, given {getattr(self, name)}")

    def __call__(self, logits: Tensor, so_far: Sequence[Sequence[int]], end: int | None) -> Tensor:
        """The logits of b rows, b v, as these rules leave them."""
        if self == Controls():
            return logits
        logits = logits.clone()
        if self.forbidden:
            logits[:, list(self.forbidden)] = -torch.inf
        for row, tokens in enumerate(so_far):
            if self.repetition != 1.0 and tokens:
                used = torch.tensor(sorted(set(tokens)), device=logits.device)
                now = logits[row, used]
                logits[row, used] = torch.where(now > 0, now / self.repetition, now * self.repetition)
            if self.no_repeat and (banned := self._would_repeat(tokens)):
                logits[row, banned] = -torch.inf
            if end is not None and len(tokens) + 1 < self.shortest:
                logits[row, end] = -torch.inf
        return logits

    def _would_repeat(self, tokens: Sequence[int]) -> list[int]:
        """Tokens that would end a run of `no_repeat` tokens that was there before."""
        kept = self.no_repeat - 1
        if len(tokens) < kept:
            return []
        tail = list(tokens[len(tokens) - kept :])
        return [tokens[i + kept] for i in range(len(tokens) - kept) if list(tokens[i : i + kept]) == tail]


FREE = Controls()
