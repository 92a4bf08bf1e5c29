"""The beam of one text: hypotheses that grow, and the best of those that have ended."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal, NamedTuple

Finish = Literal["end", "stop", "limit"]
Early = bool | Literal["never"]


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

    def normal(self, score: float, length: int) -> float:
        return score / length**self.penalty


@dataclass
class Beam:
    """`growing` hypotheses are all of one length, best first; `ended` are the best `size` that have ended."""

    limit: int
    growing: list[tuple[float, list[int]]] = field(default_factory=lambda: [(0.0, [])])
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

    def grow(
        self, gains: list[list[float]], tokens: list[list[int]], rules: Rules
    ) -> tuple[list[int], list[Continuation]]:
        """Extend every hypothesis by its best tokens and keep the best of all: the numbers of those they came from,
        and what has ended. Only what is among the best `size` may end; at the limit all of it does."""
        candidates = [
            (score + gain, number, token)
            for number, (score, _) in enumerate(self.growing)
            for gain, token in zip(gains[number], tokens[number], strict=True)
            if gain > -math.inf  # not forbidden
        ]
        candidates.sort(key=itemgetter(0), reverse=True)  # equals stay in their order
        kept: list[tuple[float, list[int]]] = []
        parents: list[int] = []
        new: list[Continuation] = []
        for rank, (score, number, token) in enumerate(candidates):
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
