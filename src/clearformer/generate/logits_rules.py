"""What a text may not become: rules on the logits of the next token, given what each row has so far."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.errors import DataError


@dataclass(frozen=True)
class Controls:
    """`repetition` above 1 makes tokens that were used less likely (Keskar et al. 2019: positive logits are divided
    by it, negative ones multiplied); `no_repeat` n forbids any n tokens in a row to come twice; with `whole`, both
    count the prompt too. An end is token number `shortest` at the earliest. `forbidden` tokens never come,
    and none of `forbidden_words`, each of several tokens, is ended (with `whole`, one begun in the prompt neither);
    `forced_first` is the first of every text and `forced_last` the last of one that reaches its limit."""

    repetition: float = 1.0
    no_repeat: int = 0
    shortest: int = 0
    forbidden: tuple[int, ...] = ()
    forbidden_words: tuple[tuple[int, ...], ...] = ()
    forced_first: int | None = None
    forced_last: int | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.repetition < float("inf"):
            raise DataError(f"repetition must be above 0, 1 changes nothing; given {self.repetition}")
        for name in ("no_repeat", "shortest"):
            if getattr(self, name) < 0:
                raise DataError(f"{name} must be 0 or more, given {getattr(self, name)}")

    def check(self, words: int) -> None:
        """Refuse tokens that are not in a vocabulary of so many."""
        for word in self.forbidden_words:
            if len(word) < 2 or not all(0 <= token < words for token in word):
                raise DataError(
                    f"forbidden_words must have two or more tokens of the vocabulary, 0 to {words - 1}, given {word}"
                )
        for name in ("forbidden", "forced_first", "forced_last"):
            given = getattr(self, name)
            for token in given if isinstance(given, tuple) else () if given is None else (given,):
                if not 0 <= token < words:
                    raise DataError(f"{name} must be of the vocabulary, 0 to {words - 1}, given {token}")

    def __call__(
        self,
        logits: Tensor,
        so_far: Sequence[Sequence[int]],
        ends: Sequence[int] = (),
        prompts: Sequence[Sequence[int]] = (),
        limits: Sequence[int] = (),
    ) -> Tensor:
        """The logits of b rows, b v, as these rules leave them; `so_far` is what was added to each row's prompt."""
        if self == FREE:
            return logits
        logits = logits.clone()
        for row, tokens in enumerate(so_far):
            seen = [*prompts[row], *tokens] if self.whole and prompts else tokens
            if self.repetition != 1.0 and seen:
                used = torch.tensor(sorted(set(seen)), device=logits.device)
                now = logits[row, used]
                logits[row, used] = torch.where(now > 0, now / self.repetition, now * self.repetition)
            if self.no_repeat and (banned := self._would_repeat(seen)):
                logits[row, banned] = -math.inf
            if self.forbidden_words and (banned := self._would_end_word(seen)):
                logits[row, banned] = -math.inf
            if ends and len(tokens) + 1 < self.shortest:
                logits[row, list(ends)] = -math.inf
        if self.forbidden:
            logits[:, list(self.forbidden)] = -math.inf
        for row, tokens in enumerate(so_far):
            forced = None if tokens else self.forced_first
            if limits and len(tokens) + 1 == limits[row] and self.forced_last is not None:
                forced = self.forced_last
            if forced is not None:  # certain, so it costs nothing
                logits[row], logits[row, forced] = -math.inf, 0.0
        return logits

    def _would_repeat(self, tokens: Sequence[int]) -> list[int]:
        """Tokens that would end a run of `no_repeat` tokens that was there before."""
        kept = self.no_repeat - 1
        if len(tokens) < kept:
            return []
        tail = list(tokens[len(tokens) - kept :])
        return [tokens[i + kept] for i in range(len(tokens) - kept) if list(tokens[i : i + kept]) == tail]

    def _would_end_word(self, tokens: Sequence[int]) -> list[int]:
        """Tokens that would end a forbidden word."""
        return [last for *begun, last in self.forbidden_words if list(tokens[len(tokens) - len(begun) :]) == begun]


FREE = Controls()
