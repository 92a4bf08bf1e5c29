"""Continuing texts: greedy, sampled, token by token as they come, or by beam search, all through one `Stepper`.

Every function takes a prompt of shape batch × length (for an encoder–decoder: the start of the target, with
`source=`), padded on either side if `mask` says where tokens are, and returns what was added to each row.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearformer.core.model import EncoderDecoder, Transformer, Trees
from clearformer.errors import DataError
from clearformer.generate.beams import Beam, Continuation, Early, Finish, Rules, candidates
from clearformer.generate.logits_rules import FREE, Controls
from clearformer.generate.sampling import drawn, keep_likeliest, likeliest
from clearformer.generate.stepper import Stepper

__all__ = ["Continuation", "Finish", "Step", "beam", "greedy", "keep_likeliest", "sample", "stream"]

Model = Transformer | EncoderDecoder
Limit = int | Sequence[int]  # the most tokens to add: to every row, or to each its own
End = int | Sequence[int] | None  # the tokens that end a text
Stop = Callable[[int, list[int]], bool | None]  # told a row and its tokens; a row that it answers True for stops
Watcher = Callable[[int, int, list[int], float], None]


class Step(NamedTuple):
    """A token added to a row, its log-probability, and why the row stops here, if it does."""

    row: int
    token: int
    score: float
    finish: Finish | None


def greedy(
    model: Model,
    prompt: Tensor,
    *,
    limit: Limit,
    end: End = None,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    controls: Controls = FREE,
    stop: Stop | None = None,
) -> list[Continuation]:
    """The likeliest token at every step."""
    given = {"source": source, "source_mask": source_mask, "source_trees": source_trees}
    rest: dict[str, Any] = {"limit": limit, "end": end, "mask": mask, "controls": controls, "stop": stop, **given}
    return _collected(prompt, stream(model, prompt, **rest))


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
    end: End = None,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    controls: Controls = FREE,
    stop: Stop | None = None,
) -> list[Continuation]:
    """A random token at every step, by probability; `top_k`, `top_p` and `min_p` keep the likeliest ones only.

    Rows draw from seeds of their own: one for each, or `seed`, `seed` + 1, ...
    """
    given = {"source": source, "source_mask": source_mask, "source_trees": source_trees}
    ways: dict[str, Any] = {"seed": seed, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    rest: dict[str, Any] = {"limit": limit, "end": end, "mask": mask, "controls": controls, "stop": stop, **given}
    return _collected(prompt, stream(model, prompt, **ways, **rest))


def _collected(prompt: Tensor, steps: Iterator[Step]) -> list[Continuation]:
    found = [Continuation([], 0.0, "limit") for _ in prompt]
    for row, token, gain, finish in steps:
        tokens, score, _ = found[row]
        tokens.append(token)
        found[row] = Continuation(tokens, score + gain, finish or "limit")
    return found


@torch.inference_mode()
def stream(
    model: Model,
    prompt: Tensor,
    *,
    limit: Limit,
    seed: int | Sequence[int] | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    end: End = None,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    controls: Controls = FREE,
    stop: Stop | None = None,
) -> Iterator[Step]:
    """Tokens as they come, drawn if there is a seed, else the likeliest; a step gives one to every row that goes on.

    `stop` is told a row and its tokens after each of them, and ends the row by answering True.
    """
    stepper = Stepper(model, source, source_mask, source_trees)
    limits, ends = _check(model, prompt, mask, limit, end, controls)
    choose = likeliest if seed is None else drawn(len(prompt), seed, temperature, top_k, top_p, min_p)
    before = _tokens(prompt, mask) if controls.whole else [[] for _ in prompt]
    added: list[list[int]] = [[] for _ in prompt]
    rows = list(range(len(prompt)))  # those that go on, in the order of the stepper's batch
    new, real = prompt, mask  # what the model is told next, and where in it tokens are
    while rows:
        if seed is None and controls == FREE:
            gained, chosen = (found[:, 0] for found in stepper.best(new, 1, real))
        else:
            logits = stepper(new, real)
            rest = (ends, [before[row] for row in rows], [limits[row] for row in rows])
            allowed = controls(logits, [added[row] for row in rows], *rest)
            if allowed is not logits and bool((allowed.amax(-1) == -torch.inf).any()):
                raise DataError(NOTHING)
            chosen = choose(allowed, rows)
            gained = logits.gather(-1, chosen[:, None])[:, 0] - logits.logsumexp(-1)
        going = []
        for place, (row, token, gain) in enumerate(zip(rows, chosen.tolist(), gained.tolist(), strict=True)):
            added[row].append(token)
            stops = stop is not None and stop(row, list(added[row]))
            full = len(added[row]) >= limits[row]
            finish: Finish | None = "end" if token in ends else "stop" if stops else "limit" if full else None
            yield Step(row, token, gain, finish)
            if finish is None:
                going.append(place)
        if 0 < len(going) < len(rows):
            stepper.select(torch.tensor(going, device=prompt.device))
            chosen = chosen[going]
        rows = [rows[place] for place in going]
        new, real = chosen[:, None], None


NOTHING = "the rules leave no token that could come next; forbid less, or give a lower limit"


def _tokens(prompt: Tensor, mask: Tensor | None) -> list[list[int]]:
    """The prompt's tokens, row by row, without padding."""
    return [row.tolist() if mask is None else row[mask[n]].tolist() for n, row in enumerate(prompt)]


def _check(
    model: Model, prompt: Tensor, mask: Tensor | None, limit: Limit, end: End, controls: Controls
) -> tuple[list[int], tuple[int, ...]]:
    """The limit of every row and the tokens that end it; what cannot be continued is an error."""
    words = len(model.head.weight)  # type: ignore[arg-type]
    ends = () if end is None else (end,) if isinstance(end, int) else tuple(end)
    for each in ends:
        if not 0 <= each < words:
            raise DataError(f"end must be a token of the vocabulary, 0 to {words - 1}, given {each}")
    controls.check(words)
    limits = [limit] * len(prompt) if isinstance(limit, int) else list(limit)
    if len(limits) != len(prompt):
        raise DataError(f"{len(limits)} limits given for {len(prompt)} rows; give one for each, or one for all")
    if min([*limits, limit if isinstance(limit, int) else 1]) < 1:
        raise DataError(f"limit must be at least 1, given {limit}")
    full = [prompt.size(1) > 0] * len(prompt) if mask is None else mask.any(1).tolist()
    if not all(full):
        raise DataError(f"row {full.index(False)} of the prompt has no token to go on from; give at least one")
    return limits, ends


@torch.inference_mode()
def beam(
    model: Model,
    prompt: Tensor,
    *,
    limit: Limit,
    end: End,
    size: int = 4,
    length_penalty: float = 1.0,
    early: Early = True,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    controls: Controls = FREE,
    watch: Watcher | None = None,
) -> list[list[Continuation]]:
    """The `size` best continuations of every row, best first by score / length^length_penalty.

    At each step every hypothesis is extended by every token and the best `size` survive. One that ends while among
    the best leaves the beam. A row is done when `size` have ended; if not `early`, it goes on as long as the best
    that grows would, were it to end now, displace one of these; "never" asks this of its best length. `watch` is told
    of every hypothesis that survives or ends: its row, its length, its tokens and its score. Rules apply to
    log-probabilities here.
    """
    if size < 1:
        raise DataError(f"beam size must be at least 1, given {size}")
    stepper = Stepper(model, source, source_mask, source_trees)
    limits, ends = _check(model, prompt, mask, limit, end, controls)
    rules = Rules(size, length_penalty, early, ends)
    beams = [Beam(most) for most in limits]
    before = _tokens(prompt, mask) if controls.whole else [[] for _ in prompt]
    rows = list(range(len(beams)))  # of the prompt, those that go on; each has one row a hypothesis in the batch
    new, real = prompt, mask  # what the model is told next, and where in it tokens are
    keep = min(rules.keep, len(model.head.weight))  # type: ignore[arg-type]
    while rows:
        if controls == FREE:  # the best logits are the best chances
            gains, tokens = stepper.best(new, keep, real)
        else:
            owners = [(row, tokens) for row in rows for _, tokens in beams[row].growing]
            chances = controls(
                stepper(new, real).log_softmax(-1),  # before the rules: scores are the model's own probabilities
                [tokens for _, tokens in owners],
                ends,
                [before[row] for row, _ in owners],
                [limits[row] for row, _ in owners],
            )
            gains, tokens = chances.topk(keep)
        parents: list[int] = []
        going: list[int] = []
        place = 0
        extended = candidates([beams[row].growing for row in rows], gains, tokens, rules)
        for row, grown in zip(rows, extended, strict=True):
            one = beams[row]
            after = place + len(one.growing)
            from_here, ended = one.grow(grown, rules)
            if watch is not None:
                for score, added in [(each.score, each.tokens) for each in ended] + one.growing:
                    watch(row, len(added), added, score)
            if not one.done(rules):
                going.append(row)
                parents += [place + number for number in from_here]
            elif not one.ended:
                raise DataError(NOTHING)
            place = after
        rows = going
        if rows:
            stepper.select(torch.tensor(parents, device=prompt.device))
            last = [added[-1] for row in rows for _, added in beams[row].growing]
            new, real = torch.tensor(last, device=prompt.device)[:, None], None
    return [each.ended for each in beams]
