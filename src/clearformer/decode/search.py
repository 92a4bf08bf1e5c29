"""Continuing texts: greedy, sampled, or by beam search, all through one `Stepper`.

Every function takes a prompt of shape batch × length (for an encoder–decoder: the start of the target, with
`source=`), padded on either side if `mask` says where tokens are, and returns what was added to each row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from clearformer.core.model import EncoderDecoder, Transformer, Trees
from clearformer.decode.controls import FREE, Controls
from clearformer.decode.stepper import Stepper
from clearformer.errors import DataError

Model = Transformer | EncoderDecoder
Finish = Literal["end", "limit"]
Limit = int | Sequence[int]  # the most tokens to add: to every row, or to each its own
Watcher = Callable[[int, int, list[int], float], None]


class Continuation(NamedTuple):
    """Tokens added to one row (the end token included), the sum of their log-probabilities, and why it stopped."""

    tokens: list[int]
    score: float
    finish: Finish


@torch.inference_mode()
def greedy(
    model: Model,
    prompt: Tensor,
    *,
    limit: Limit,
    end: int | None = None,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    controls: Controls = FREE,
) -> list[Continuation]:
    """The likeliest token at every step."""
    stepper = Stepper(model, source, source_mask, source_trees)
    return _one_by_one(stepper, prompt, mask, limit, end, lambda logits, rows: logits.argmax(-1), controls)


@torch.inference_mode()
def sample(
    model: Model,
    prompt: Tensor,
    *,
    limit: Limit,
    seed: int | Sequence[int],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    end: int | None = None,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    controls: Controls = FREE,
) -> list[Continuation]:
    """A random token at every step, by probability; `top_k`, `top_p` and `min_p` keep the likeliest ones only.

    Rows draw from seeds of their own: one for each, or `seed`, `seed` + 1, ...
    """
    if not 0 < temperature < math.inf:
        raise DataError(f"temperature must be above 0, given {temperature}; for the likeliest tokens use greedy")
    if top_k is not None and top_k < 1:
        raise DataError(f"top_k must be at least 1, given {top_k}; leave it out to keep all tokens")
    if top_p is not None and not 0 < top_p <= 1:
        raise DataError(f"top_p must be above 0 and at most 1, given {top_p}")
    if min_p is not None and not 0 <= min_p <= 1:
        raise DataError(f"min_p must be from 0 to 1, given {min_p}")
    seeds = [seed + row for row in range(len(prompt))] if isinstance(seed, int) else list(seed)
    if len(seeds) != len(prompt):
        raise DataError(f"{len(seeds)} seeds given for {len(prompt)} rows; give one for each, or one for all")
    generators = [torch.Generator().manual_seed(each) for each in seeds]

    def choose(logits: Tensor, rows: list[int]) -> Tensor:
        chances = keep_likeliest(logits / temperature, top_k, top_p, min_p).softmax(-1)
        drawn = [
            torch.multinomial(chance, 1, generator=generators[row]) for row, chance in zip(rows, chances, strict=True)
        ]
        return torch.cat(drawn) if drawn else chances.new_zeros(0, dtype=torch.long)

    stepper = Stepper(model, source, source_mask, source_trees)
    return _one_by_one(stepper, prompt, mask, limit, end, choose, controls)


def keep_likeliest(logits: Tensor, top_k: int | None, top_p: float | None, min_p: float | None = None) -> Tensor:
    """Logits with −∞ for all but the `top_k` likeliest, all beyond the first that together reach `top_p`, and all
    less than `min_p` times as likely as the likeliest."""
    if min_p:
        logits = logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(min_p), float("-inf"))
    if top_k is not None:
        lowest = logits.topk(min(top_k, logits.size(-1))).values[..., -1:]
        logits = logits.masked_fill(logits < lowest, float("-inf"))
    if top_p is not None:
        ordered, order = logits.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        dropped = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= top_p)
        logits = logits.masked_fill(dropped, float("-inf"))
    return logits


def _one_by_one(
    stepper: Stepper,
    prompt: Tensor,
    mask: Tensor | None,
    limit: Limit,
    end: int | None,
    choose: Callable[[Tensor, list[int]], Tensor],
    controls: Controls,
) -> list[Continuation]:
    limits = _check(stepper.model, prompt, mask, limit, end)
    found = [Continuation([], 0.0, "limit") for _ in prompt]
    rows = list(range(len(prompt)))  # those that go on, in the order of the stepper's batch
    logits = stepper(prompt, mask) if rows else prompt.new_zeros(0, 1)
    while rows:
        allowed = controls(logits, [found[row].tokens for row in rows], end)
        chosen = choose(allowed, rows)
        gained = allowed.gather(-1, chosen[:, None])[:, 0] - logits.logsumexp(-1)
        for row, token, gain in zip(rows, chosen.tolist(), gained.tolist(), strict=True):
            tokens, score, _ = found[row]
            found[row] = Continuation([*tokens, token], score + gain, "end" if token == end else "limit")
        going = [n for n, row in enumerate(rows) if found[row].finish != "end" and len(found[row].tokens) < limits[row]]
        if not going:
            break
        if len(going) < len(rows):
            stepper.select(torch.tensor(going, device=prompt.device))
            chosen, rows = chosen[going], [rows[n] for n in going]
        logits = stepper(chosen[:, None])
    return found


def _check(model: Model, prompt: Tensor, mask: Tensor | None, limit: Limit, end: int | None) -> list[int]:
    """The limit of every row; what cannot be continued is an error."""
    words = len(model.head.weight)  # type: ignore[arg-type]
    if end is not None and not 0 <= end < words:
        raise DataError(f"end must be a token of the vocabulary, 0 to {words - 1}, given {end}")
    limits = [limit] * len(prompt) if isinstance(limit, int) else list(limit)
    if len(limits) != len(prompt):
        raise DataError(f"{len(limits)} limits given for {len(prompt)} rows; give one for each, or one for all")
    if min([*limits, limit if isinstance(limit, int) else 1]) < 1:
        raise DataError(f"limit must be at least 1, given {limit}")
    full = [prompt.size(1) > 0] * len(prompt) if mask is None else mask.any(1).tolist()
    if not all(full):
        raise DataError(f"row {full.index(False)} of the prompt has no token to go on from; give at least one")
    return limits


@dataclass
class _Text:
    """Beam search over one row: hypotheses still growing, those that have ended, and the most tokens they may have."""

    limit: int
    growing: list[tuple[float, list[int]]]
    ended: list[tuple[float, Continuation]] = field(default_factory=list)

    def done(self, size: int) -> bool:
        return len(self.ended) >= size or not self.growing or len(self.growing[0][1]) >= self.limit

    def grow(self, gains: list[list[float]], tokens: list[list[int]], end: int, size: int, penalty: float) -> list[int]:
        """Extend every hypothesis by its best tokens and keep the best of all; the numbers of those they came from."""
        candidates = [
            (score + gain, number, token)
            for number, (score, _) in enumerate(self.growing)
            for gain, token in zip(gains[number], tokens[number], strict=True)
            if gain > -math.inf  # not forbidden
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        kept: list[tuple[float, list[int]]] = []
        parents: list[int] = []
        for rank, (score, number, token) in enumerate(candidates):
            grown = [*self.growing[number][1], token]
            if token != end:
                kept.append((score, grown))
                parents.append(number)
            elif rank < size:
                self.ended.append((_normal(score, grown, penalty), Continuation(grown, score, "end")))
            if len(kept) == size:
                break
        self.growing = kept
        return parents


@torch.inference_mode()
def beam(
    model: Model,
    prompt: Tensor,
    *,
    limit: Limit,
    end: int,
    size: int = 4,
    length_penalty: float = 1.0,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    controls: Controls = FREE,
    watch: Watcher | None = None,
) -> list[list[Continuation]]:
    """The `size` best continuations of every row, best first by score / length^length_penalty.

    At each step every hypothesis is extended by every token and the best `size` survive. One that ends while among
    the best leaves the beam; a row is done when `size` have ended. `watch` is told of every hypothesis that survives
    or ends: its row, its length, its tokens and its score.
    """
    if size < 1:
        raise DataError(f"beam size must be at least 1, given {size}")
    stepper = Stepper(model, source, source_mask, source_trees)
    texts = [_Text(most, [(0.0, [])]) for most in _check(model, prompt, mask, limit, end)]
    rows = list(range(len(texts)))  # of the prompt, those that go on; each has one row a hypothesis in the batch
    logits = stepper(prompt, mask) if rows else prompt.new_zeros(0, 1)
    while rows:
        everything = logits.logsumexp(-1, keepdim=True)  # before the rules: scores are the model's own probabilities
        so_far = [tokens for row in rows for _, tokens in texts[row].growing]
        best, which = (controls(logits, so_far, end) - everything).topk(min(2 * size, logits.size(-1)))
        gains, tokens = best.tolist(), which.tolist()
        parents: list[int] = []
        going: list[int] = []
        place = 0
        for row in rows:
            text, count, had = texts[row], len(texts[row].growing), len(texts[row].ended)
            mine = slice(place, place + count)
            from_here = text.grow(gains[mine], tokens[mine], end, size, length_penalty)
            if watch is not None:
                new = [(c.score, c.tokens) for _, c in text.ended[had:]] + text.growing
                for score, added in new:
                    watch(row, len(added), added, score)
            if not text.done(size):
                going.append(row)
                parents += [place + number for number in from_here]
            place += count
        rows = going
        if rows:
            stepper.select(torch.tensor(parents, device=prompt.device))
            last = [tokens[-1] for row in rows for _, tokens in texts[row].growing]
            logits = stepper(torch.tensor(last, device=prompt.device)[:, None])
    return [_ranked(text, size, length_penalty) for text in texts]


def _normal(score: float, tokens: list[int], length_penalty: float) -> float:
    return score / len(tokens) ** length_penalty


def _ranked(text: _Text, size: int, length_penalty: float) -> list[Continuation]:
    unfinished = text.growing if len(text.ended) < size else []
    all_found = text.ended + [
        (_normal(score, tokens, length_penalty), Continuation(tokens, score, "limit"))
        for score, tokens in unfinished
        if tokens
    ]
    return [found for _, found in sorted(all_found, key=lambda pair: -pair[0])[:size]]
