"""Drawing the next token: temperature, top-k, top-p and min-p on logits that come best first, without sorting any."""

from collections.abc import Callable
from typing import Any

import numpy as np

from clearformer.generate.logits_rules import top
from clearformer.generate.options import Plan

Array = np.ndarray[Any, Any]
BLOCK = 256  # tokens whose chances are added up together; one by one, their sums would take longer than the rest
CANDIDATES = 128  # of the best logits, for draws; enough for most steps of top-p


def wanted(plan: Plan) -> int | None:
    """How many of the best logits a draw asks for; None where it needs all."""
    if plan.top_k:
        return plan.top_k
    return CANDIDATES if plan.top_p < 1.0 or plan.min_p > 0.0 else None


def draw(scores: Array, total: float, plan: Plan, whole: bool, at: float) -> int | None:
    """The place of the token drawn, among scores that come best first, or None where more of them are needed.

    `total` is Σ exp((x − highest) / temperature) over the vocabulary, `whole` whether the scores are all that may
    count, and `at`, from 0 to 1, decides. In this order, as in transformers: top-k, top-p of what is left, min-p.
    """
    chances = np.exp((scores.astype(np.float64) - float(scores[0])) / plan.temperature)
    if 0 < plan.top_k <= len(chances):
        chances, whole = chances[: plan.top_k], True
    if whole:
        total = float(chances.sum())
    kept = len(chances)
    if plan.top_p < 1.0:
        before = np.cumsum(chances) - chances
        kept = int(np.searchsorted(before, plan.top_p * total, side="left"))
    if plan.min_p > 0.0:
        kept = min(kept, int(np.searchsorted(-chances, -plan.min_p, side="right")))
    if kept >= len(chances) and not whole:
        return None
    chances = chances[: max(kept, 1)]
    return _place(chances, np.cumsum(chances), at)


def draw_from_all(logits: Array, plan: Plan, random: Callable[[], float]) -> int:
    """The token drawn from the logits of a whole vocabulary, of which nothing is sorted; −∞ never comes.

    Of top-k the few best are found first. Else tokens are drawn from all of them until one is among those that top-p
    and min-p leave: one is, if the tokens that are likelier have less than `top_p` together.
    """
    if plan.top_k:
        scores, tokens = top(logits, plan.top_k)
        possible = int(np.searchsorted(-scores, np.inf))
        place = draw(scores[:possible], 0.0, plan, True, random())
        assert place is not None
        return int(tokens[place])
    chances = np.exp((logits - logits.max()) / np.float32(plan.temperature))
    whole = len(chances) // BLOCK * BLOCK
    blocks = np.append(chances[:whole].reshape(-1, BLOCK).sum(1, dtype=np.float64), chances[whole:].sum())
    sums = np.cumsum(blocks)
    while True:
        at = random() * sums[-1]
        block = min(int(np.searchsorted(sums, at, side="right")), int(np.flatnonzero(blocks)[-1]))
        within = chances[BLOCK * block : BLOCK * (block + 1)]
        inner = np.cumsum(within, dtype=np.float64)
        token = BLOCK * block + _place(within, inner, (at - (sums[block] - blocks[block])) / inner[-1])
        if chances[token] < plan.min_p:
            continue
        if plan.top_p == 1.0:
            return token
        likelier = float((chances * (logits > logits[token])).sum(dtype=np.float64))
        # of equals, those with the lower number come first
        likelier += float(chances[token]) * int((logits[:token] == logits[token]).sum())
        if likelier < plan.top_p * sums[-1]:
            return token


def _place(chances: Array, sums: Array, at: float) -> int:
    return min(int(np.searchsorted(sums, at * sums[-1], side="right")), int(np.flatnonzero(chances)[-1]))
