"""What a text may not become: rules on the logits of the next token, given what the text has so far.

Rules work on the few best logits. `more` says how many of them could be struck out; with so many more asked for, what
is left are the best of all. Scores stay the model's own: rules choose tokens and leave the normaliser alone.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from clearformer.errors import DataError
from clearformer.generate.options import Plan

Array = np.ndarray[Any, Any]
Allowed = Callable[[list[int]], Sequence[int] | Array | None]  # told the tokens so far: what may follow, None for all
NOTHING = "the rules leave no token that could come next; forbid less, or give a lower limit"


@lru_cache(maxsize=64)  # requests of one kind share it; those of a server that runs for long do not add up
def _lookup(tokens: tuple[int, ...], vocabulary: int) -> Array:
    table = np.zeros(vocabulary, dtype=bool)
    table[list(tokens)] = True
    return table


class LogitsRules:
    """The rules of one request. Repetitions count the prompt too, as in transformers."""

    def __init__(self, plan: Plan, prompt: Sequence[int], vocabulary: int, allowed: Allowed | None = None):
        self.plan, self.prompt, self.vocabulary, self.allowed = plan, list(prompt), vocabulary, allowed
        self.suppressed = _lookup(plan.suppress, vocabulary) if plan.suppress else None
        self.adds = bool(plan.presence_penalty or plan.frequency_penalty or plan.logit_bias)
        self.by_history = bool(
            plan.repetition_penalty != 1.0
            or plan.no_repeat_ngram_size
            or plan.bad_words
            or allowed is not None
            or self.adds
        )
        self.forces = plan.forced_first is not None or plan.forced_last is not None

    @property
    def needs_all(self) -> bool:
        """Whether the few best are not enough, whatever their number: something may rise, or a mask leave few."""
        return self.allowed is not None or self.plan.repetition_penalty < 1.0 or self.adds

    def simple(self, length: int) -> bool:
        """Whether tokens are struck out at most, the same ones in every text of this length."""
        return not self.by_history and length >= self.plan.least and self.forced(length) is None

    def more(self, tokens: Sequence[int]) -> int:
        """How many of the best could be struck out, or fall behind."""
        found = len(self.plan.suppress)
        if len(tokens) < self.plan.least:
            found += len(self.plan.ends)
        if self.by_history:
            seen = [*self.prompt, *tokens]
            found += len(self._banned(seen)) + (len(set(seen)) if self.plan.repetition_penalty != 1.0 else 0)
        return found

    def forced(self, length: int) -> int | None:
        """The token that must come after so many."""
        if length + 1 == self.plan.limit and self.plan.forced_last is not None:
            return self.plan.forced_last
        return self.plan.forced_first if length == 0 else None

    def few(self, scores: Array, tokens: Array, so_far: Sequence[int]) -> tuple[Array, Array]:
        """Scores of some tokens (logits or log-probabilities), as the rules leave them: best first, then by number."""
        forced = self.forced(len(so_far))
        if forced is not None:  # certain, so it costs nothing
            return np.zeros(1, dtype=scores.dtype), np.array([forced], dtype=tokens.dtype)
        used, banned = self._changes(so_far)
        scores = scores.copy()
        if used:
            self._repeated(scores, np.isin(tokens, np.array(used)))
        if self.adds:
            scores += self._added(so_far)[tokens]
        if banned:
            scores[np.isin(tokens, np.array(banned))] = -math.inf
        if self.suppressed is not None:
            scores[self.suppressed[tokens]] = -math.inf
        order = np.lexsort((tokens, -scores))
        return scores[order], tokens[order]

    def all(self, scores: Array, so_far: Sequence[int]) -> Array:
        """The same for the scores of the whole vocabulary, which keep their order."""
        forced = self.forced(len(so_far))
        scores = np.full_like(scores, -math.inf) if forced is not None else scores.copy()
        if forced is not None:
            scores[forced] = 0.0
            return scores
        used, banned = self._changes(so_far)
        if used:
            self._repeated(scores, np.array(used))
        if self.adds:
            scores += self._added(so_far)
        scores[banned] = -math.inf
        if self.suppressed is not None:
            scores[self.suppressed] = -math.inf
        if self.allowed is not None and (allowed := self.allowed(list(so_far))) is not None:
            ids = allowed if isinstance(allowed, np.ndarray) else np.array(list(allowed), dtype=np.int64)
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocabulary:
                raise DataError(f"allowed must give token ids from 0 to {self.vocabulary - 1}, given {ids.tolist()}")
            kept = np.full_like(scores, -math.inf)
            kept[ids] = scores[ids]
            return kept
        return scores

    def _changes(self, so_far: Sequence[int]) -> tuple[list[int], list[int]]:
        """Tokens that were used and count, and those that may not come now, beside what never comes."""
        banned = list(self.plan.ends) if len(so_far) < self.plan.least else []
        if not self.by_history:
            return [], banned
        seen = [*self.prompt, *so_far]
        used = sorted(set(seen)) if self.plan.repetition_penalty != 1.0 else []
        return used, banned + self._banned(seen)

    def _repeated(self, scores: Array, used: Array) -> None:
        """Keskar et al. 2019: positive scores of what was used are divided by the penalty, others multiplied."""
        now, penalty = scores[used], np.float32(self.plan.repetition_penalty)
        scores[used] = np.where(now > 0, now / penalty, now * penalty)

    def _added(self, so_far: Sequence[int]) -> Array:
        """v: what is added to every logit, as OpenAI has it: a bias, less the penalties of what was written."""
        change = np.zeros(self.vocabulary, dtype=np.float32)
        for token, bias in self.plan.logit_bias:
            change[token] += bias
        if so_far and (self.plan.presence_penalty or self.plan.frequency_penalty):
            tokens, counts = np.unique(np.array(so_far), return_counts=True)
            change[tokens] -= np.float32(self.plan.frequency_penalty) * counts + np.float32(self.plan.presence_penalty)
        return change

    def _banned(self, seen: list[int]) -> list[int]:
        """Tokens that would end a forbidden word, or a run of tokens that was there before."""
        found = [last for *begun, last in self.plan.bad_words if seen[len(seen) - len(begun) :] == begun]
        kept = self.plan.no_repeat_ngram_size - 1
        if 0 <= kept <= len(seen):
            tail = seen[len(seen) - kept :]
            found += [seen[i + kept] for i in range(len(seen) - kept) if seen[i : i + kept] == tail]
        return found


def top(scores: Array, count: int) -> tuple[Array, Array]:
    """The best of the scores of a vocabulary and their tokens, best first, equals by their number."""
    tokens = np.arange(len(scores))
    if count < len(scores):  # a partition alone would keep any of those that are equal
        least = np.partition(-scores, count - 1)[count - 1]
        better = np.flatnonzero(-scores < least)
        tokens = np.concatenate([better, np.flatnonzero(-scores == least)[: count - len(better)]])
    order = np.lexsort((tokens, -scores[tokens]))
    return scores[tokens[order]], tokens[order]


def check_possible(scores: Array) -> None:
    """Refuse to go on where nothing is left."""
    if not len(scores) or not scores[0] > -math.inf:
        raise DataError(NOTHING)
