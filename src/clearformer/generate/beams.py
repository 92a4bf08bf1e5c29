"""The beam of one text: hypotheses that grow, and the best of those that have ended."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Finish = Literal["end", "stop", "limit"]
Early = bool | Literal["never"]
Hypothesis = tuple[float, list[int]]  # the sum of its log-probabilities, and its tokens
Candidate = tuple[float, int, int]  # a sum, the number of the hypothesis it comes from, and the token it adds


class Continuation(NamedTuple):
    """Tokens added to one row (the end token included), the sum of their log-probabilities, and why it stopped."""

    tokens: list[int]
    score: float
    finish: Finish


@dataclass
class Rules:
    """What the beams of a batch share."""

    size: int
    penalty: float
    early: Early
    ends: Collection[int]

    @property
    def keep(self) -> int:
        """How many extensions may matter, of one hypothesis and of all."""
        return max(2, 1 + len(self.ends)) * self.size

    def normal(self, score: float, length: int) -> float:
        return score / length**self.penalty


@dataclass
class Beam:
    """`growing` hypotheses are all of one length, best first; `ended` are the best `size` that have ended."""

    limit: int
    growing: list[Hypothesis] = field(default_factory=lambda: [(0.0, [])])
    ended: list[Continuation] = field(default_factory=list)

    def done(self, rules: Rules) -> bool:
        """Whether nothing can grow or, with `size` ended, need not: at once if `early`, else as soon as the best
        that grows is no better than the worst that ended, at its present length or, if "never", at any."""
        if not self.growing:
            return True
        if len(self.ended) < rules.size:
            return False
        score, tokens = self.growing[0]
        longest = self.limit if rules.early == "never" and rules.penalty > 0 else len(tokens)
        worst = self.ended[-1]
        return rules.early is True or rules.normal(score, longest) <= rules.normal(worst.score, len(worst.tokens))

    def grow(self, candidates: Iterable[Candidate], rules: Rules) -> tuple[list[int], list[Continuation]]:
        """Keep the best extensions: the numbers of the hypotheses they came from, and what has ended. Only what is
        among the best `size` may end; at the limit all of it does."""
        kept: list[Hypothesis] = []
        parents: list[int] = []
        new: list[Continuation] = []
        for rank, (score, number, token) in enumerate(candidates):
            if score == -math.inf:  # forbidden, as are all that follow
                break
            grown = [*self.growing[number][1], token]
            ends = token in rules.ends
            if ends or len(grown) >= self.limit:
                if rank < rules.size:
                    new.append(Continuation(grown, score, "end" if ends else "limit"))
            elif len(kept) < rules.size:
                kept.append((score, grown))
                parents.append(number)
            if len(kept) == rules.size:
                break
        self.growing = kept
        if new:
            ended = sorted([*self.ended, *new], key=lambda each: -rules.normal(each.score, len(each.tokens)))
            self.ended = ended[: rules.size]
        return parents, new


def candidates(
    beams: Sequence[Sequence[Hypothesis]], gains: Tensor, tokens: Tensor, rules: Rules
) -> Iterator[Iterator[Candidate]]:
    """For each of some beams its hypotheses extended by their best tokens, best first; equals stay in their order.
    There are as many as may matter: each of `size` hypotheses can end in as many ways as there are ends."""
    gains, tokens = gains.cpu(), tokens.cpu()
    gains = torch.where(gains > -math.inf, gains, -math.inf)  # what is no number is as little possible
    counts = torch.tensor([len(beam) for beam in beams])
    there = torch.arange(int(counts.max())) < counts[:, None]
    scores = torch.tensor([score for beam in beams for score, _ in beam], dtype=torch.float64)
    sums = gains.new_full((*there.shape, gains.size(1)), -math.inf, dtype=torch.float64)
    which = tokens.new_zeros(sums.shape)
    sums[there], which[there] = scores[:, None] + gains, tokens
    best, order = sums.flatten(1).sort(dim=1, descending=True, stable=True)
    best, order = best[:, : rules.keep], order[:, : rules.keep]
    found = (best.tolist(), (order // gains.size(1)).tolist(), which.flatten(1).gather(1, order).tolist())
    return (zip(*each, strict=True) for each in zip(*found, strict=True))
