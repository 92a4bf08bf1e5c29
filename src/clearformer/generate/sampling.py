"""Which token comes next: the likeliest, or one drawn by probability."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from clearformer.errors import DataError

Choose = Callable[[Tensor, list[int]], Tensor]  # logits, b v, and the numbers of their rows → tokens, b


def likeliest(logits: Tensor, rows: list[int]) -> Tensor:
    return logits.argmax(-1)


def drawn(
    count: int,
    seed: int | Sequence[int],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Choose:
    """A choice for `count` rows that draw from seeds of their own: one for each, or `seed`, `seed` + 1, ..."""
    if not 0 < temperature < math.inf:
        raise DataError(f"temperature must be above 0, given {temperature}; for the likeliest tokens use greedy")
    if top_k is not None and top_k < 1:
        raise DataError(f"top_k must be at least 1, given {top_k}; leave it out to keep all tokens")
    if top_p is not None and not 0 < top_p <= 1:
        raise DataError(f"top_p must be above 0 and at most 1, given {top_p}")
    if min_p is not None and not 0 <= min_p <= 1:
        raise DataError(f"min_p must be from 0 to 1, given {min_p}")
    seeds = [seed + row for row in range(count)] if isinstance(seed, int) else list(seed)
    if len(seeds) != count:
        raise DataError(f"{len(seeds)} seeds given for {count} rows; give one for each, or one for all")
    generators = [torch.Generator().manual_seed(each) for each in seeds]

    def choose(logits: Tensor, rows: list[int]) -> Tensor:
        chances = keep_likeliest(logits / temperature, top_k, top_p, min_p).softmax(-1)
        found = [
            torch.multinomial(chance, 1, generator=generators[row]) for row, chance in zip(rows, chances, strict=True)
        ]
        return torch.cat(found) if found else chances.new_zeros(0, dtype=torch.long)

    return choose


def keep_likeliest(logits: Tensor, top_k: int | None, top_p: float | None, min_p: float | None = None) -> Tensor:
    """Logits with −∞ for all but the `top_k` likeliest, all beyond the first that together reach `top_p`, and all
    less than `min_p` times as likely as the likeliest, in this order."""
    if top_k is not None:
        lowest = logits.topk(min(top_k, logits.size(-1))).values[..., -1:]
        logits = logits.masked_fill(logits < lowest, float("-inf"))
    if top_p is not None:
        ordered, order = logits.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        dropped = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= top_p)
        logits = logits.masked_fill(dropped, float("-inf"))
    if min_p:
        logits = logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(min_p), float("-inf"))
    return logits
