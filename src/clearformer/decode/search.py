"""Continuing texts: greedy, sampled, or by beam search, all through one `Stepper`.

Every function takes a prompt of shape batch × length (for an encoder–decoder: the start of the target, with
`source=`), padded on either side if `mask` says where tokens are, and returns what was added to each row.
"""

import math
from collections.abc import Callable
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
    limit: int,
    end: int | None = None,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    controls: Controls = FREE,
) -> list[Continuation]:
    """The likeliest token at every step."""
    stepper = Stepper(model, source, source_mask, source_trees)
    return _one_by_one(stepper, prompt, mask, limit, end, lambda logits: logits.argmax(-1), controls)


@torch.inference_mode()
def sample(
    model: Model,
    prompt: Tensor,
    *,
    limit: int,
    seed: int,
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
    """A random token at every step, by probability; `top_k`, `top_p` and `min_p` keep the likeliest ones only."""
    if not 0 < temperature < math.inf:
        raise DataError(f"temperature must be above 0, given {temperature}; for the likeliest tokens use greedy")
    if top_k is not None and top_k < 1:
        raise DataError(f"top_k must be at least 1, given {top_k}; leave it out to keep all tokens")
    if top_p is not None and not 0 < top_p <= 1:
        raise DataError(f"top_p must be above 0 and at most 1, given {top_p}")
    if min_p is not None and not 0 <= min_p <= 1:
        raise DataError(f"min_p must be from 0 to 1, given {min_p}")
    generators = [torch.Generator().manual_seed(seed + row) for row in range(len(prompt))]

    def choose(logits: Tensor) -> Tensor:
        chances = keep_likeliest(logits / temperature, top_k, top_p, min_p).softmax(-1)
        drawn = [torch.multinomial(row, 1, generator=g) for row, g in zip(chances, generators, strict=True)]
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
    limit: int,
    end: int | None,
    choose: Callable[[Tensor], Tensor],
    controls: Controls,
) -> list[Continuation]:
    _check(stepper.model, prompt, mask, limit, end)
    running = torch.ones(len(prompt), dtype=torch.bool, device=prompt.device)
    tokens: list[list[int]] = [[] for _ in prompt]
    scores = [0.0] * len(prompt)
    new, there = prompt, mask
    for _ in range(limit):
        logits = controls(stepper(new, there), tokens, end)
        chosen = choose(logits)
        gained = logits.log_softmax(-1).gather(-1, chosen[:, None])[:, 0]
        for row in running.nonzero()[:, 0].tolist():
            tokens[row].append(int(chosen[row]))
            scores[row] += float(gained[row])
        if end is not None:
            running = running & (chosen != end)
        if not running.any():
            break
        new, there = chosen[:, None], None if bool(running.all()) else running[:, None]
    return [
        Continuation(row, score, "limit" if still else "end")
        for row, score, still in zip(tokens, scores, running.tolist(), strict=True)
    ]


def _check(model: Model, prompt: Tensor, mask: Tensor | None, limit: int, end: int | None) -> None:
    words = len(model.head.weight)  # type: ignore[arg-type]
    if end is not None and not 0 <= end < words:
        raise DataError(f"end must be a token of the vocabulary, 0 to {words - 1}, given {end}")
    if limit < 1:
        raise DataError(f"limit must be at least 1, given {limit}")
    full = [prompt.size(1) > 0] * len(prompt) if mask is None else mask.any(1).tolist()
    if not all(full):
        raise DataError(f"row {full.index(False)} of the prompt has no token to go on from; give at least one")


@dataclass
class _Text:
    """Beam search over one row: hypotheses still growing, and those that have ended."""

    growing: list[tuple[float, list[int]]]
    ended: list[tuple[float, Continuation]] = field(default_factory=list)

    def done(self, size: int) -> bool:
        return len(self.ended) >= size or not self.growing


@torch.inference_mode()
def beam(
    model: Model,
    prompt: Tensor,
    *,
    limit: int,
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
    or ends: its row, its step, its tokens and its score.
    """
    if size < 1:
        raise DataError(f"beam size must be at least 1, given {size}")
    stepper = Stepper(model, source, source_mask, source_trees)
    _check(model, prompt, mask, limit, end)
    logits = stepper(prompt, mask)
    texts = [_Text([(0.0, [])]) for _ in prompt]
    first = torch.arange(len(prompt), device=prompt.device).repeat_interleave(size)
    stepper.select(first)
    logits = logits[first]
    for step in range(limit):
        if controls != FREE:
            rows = [text.growing[n][1] if n < len(text.growing) else [] for text in texts for n in range(size)]
            logits = controls(logits, rows, end)
        gains = logits.log_softmax(-1)
        best, which = gains.topk(min(2 * size, gains.size(-1)))
        parents, tokens = list(range(len(gains))), [0] * len(gains)
        for row, text in enumerate(texts):
            if text.done(size):
                continue
            candidates = [
                (score + gain, number, token)
                for number, (score, _) in enumerate(text.growing)
                for gain, token in zip(
                    best[row * size + number].tolist(), which[row * size + number].tolist(), strict=True
                )
            ]
            candidates.sort(key=lambda c: -c[0])
            survivors = []
            for rank, (score, number, token) in enumerate(candidates):
                grown = [*text.growing[number][1], token]
                if score == -math.inf:
                    continue  # forbidden
                if token != end:
                    survivors.append((score, grown, row * size + number))
                elif rank < size:
                    text.ended.append((_normal(score, grown, length_penalty), Continuation(grown, score, "end")))
                    if watch is not None:
                        watch(row, step, grown, score)
                if len(survivors) == size:
                    break
            text.growing = [(score, grown) for score, grown, _ in survivors]
            if watch is not None:
                for score, grown in text.growing:
                    watch(row, step, grown, score)
            for number, (_, grown, parent) in enumerate(survivors):
                parents[row * size + number], tokens[row * size + number] = parent, grown[-1]
        if step + 1 == limit or all(text.done(size) for text in texts):
            break
        stepper.select(torch.tensor(parents, device=prompt.device))
        going = torch.tensor([not text.done(size) for text in texts], device=prompt.device)
        there = None if bool(going.all()) else going.repeat_interleave(size)[:, None]  # a finished row adds nothing
        logits = stepper(torch.tensor(tokens, device=prompt.device)[:, None], there)
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
