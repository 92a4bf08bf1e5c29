"""Draws against a brute force over the whole vocabulary, sorted, in double precision."""

import math
from collections.abc import Callable
from itertools import chain, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.generate.logits_rules import top
from clearformer.generate.options import GenerationOptions, Plan, plan
from clearformer.generate.sampling import draw, draw_from_all


def brute(logits: np.ndarray, ways: Plan) -> tuple[list[int], np.ndarray]:
    """The tokens that are left, likeliest first, and their probabilities: top-k, then top-p of those, then min-p."""
    order = sorted(range(len(logits)), key=lambda n: (-logits[n], n))
    order = [n for n in order if logits[n] > -math.inf]
    if ways.top_k:
        order = order[: ways.top_k]
    chances = np.exp((logits[order].astype(np.float64) - logits[order[0]]) / ways.temperature)
    chances /= chances.sum()
    if ways.top_p < 1:
        kept = next((n for n in range(1, len(order)) if chances[:n].sum() >= ways.top_p), len(order))
        order, chances = order[:kept], chances[:kept] / chances[:kept].sum()
    kept = max(1, sum(chance >= ways.min_p * chances[0] for chance in chances))
    return order[:kept], chances[:kept] / chances[:kept].sum()


def ways(**options: float | None) -> Plan:
    return plan(GenerationOptions(do_sample=True, **options), 1)  # type: ignore[arg-type]


OPTIONS = st.builds(
    ways,
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([None, 1, 3, 20]),
    top_p=st.sampled_from([None, 0.11, 0.5, 0.93]),
    min_p=st.sampled_from([None, 0.013, 0.31]),
)


@given(st.integers(1, 300), OPTIONS, st.integers(0, 2**16), st.floats(0, 1, exclude_max=True))
@settings(max_examples=200, deadline=None)
def test_a_draw_is_that_of_the_brute_force(size: int, options: Plan, seed: int, at: float) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(size) * 3).astype(np.float32)
    logits[random.random(size) < 0.1] = -math.inf
    logits[int(random.integers(size))] = 1.0
    tokens, chances = brute(logits, options)
    found = draw_from_all(logits, options, numbers(at))
    assert found in tokens
    if options.top_k:  # likeliest first
        sums, place = np.cumsum(chances), tokens.index(found)
    elif options.top_p < 1 or options.min_p:
        return  # drawn until one is left: how often is the next test's
    else:  # in the order of numbers
        order = np.argsort(tokens)
        sums, place = np.cumsum(chances[order]), np.array(tokens)[order].tolist().index(found)
    assert (sums[place - 1] if place else 0.0) - 1e-6 <= at <= sums[place] + 1e-6


def numbers(first: float) -> Callable[[], float]:
    """This number, and then random ones."""
    rest = np.random.default_rng(0)
    given = chain([first], (float(rest.random()) for _ in repeat(0)))
    return lambda: next(given)


@pytest.mark.parametrize("options", [{"top_p": 0.7}, {"min_p": 0.2}, {"top_p": 0.9, "min_p": 0.05, "temperature": 2.0}])
def test_what_is_left_comes_as_often_as_it_is_likely(options: dict[str, float]) -> None:
    logits = (np.random.default_rng(3).standard_normal(40) * 2).astype(np.float32)
    tokens, chances = brute(logits, ways(**options))
    random, count = np.random.default_rng(1), 20_000
    drawn = [draw_from_all(logits, ways(**options), random.random) for _ in range(count)]
    for token, chance in zip(tokens, chances, strict=True):
        assert abs(drawn.count(token) - count * chance) < 5 * math.sqrt(count * chance * (1 - chance)) + 1
    assert set(drawn) <= set(tokens)


@given(st.integers(2, 200), OPTIONS, st.integers(0, 2**16), st.integers(1, 200), st.floats(0, 1, exclude_max=True))
@settings(max_examples=200, deadline=None)
def test_of_the_few_best_the_same_is_drawn_or_more_are_asked_for(
    size: int, options: Plan, seed: int, few: int, at: float
) -> None:
    logits = (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)
    few = min(size, max(few, options.top_k))
    scores, tokens = top(logits, few)
    total = float(np.exp((logits.astype(np.float64) - float(scores[0])) / options.temperature).sum())
    place = draw(scores, total, options, few >= size, at)
    if place is None:
        assert not options.top_k
        assert few < size
    elif options.top_k or options.top_p < 1 or options.min_p:
        everything, of = top(logits, size)
        again = draw(everything, total, options, True, at)
        assert again is not None
        assert tokens[place] == of[again]


def test_top_p_keeps_the_token_that_reaches_it() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32))
    left = {name: _left(logits, **{name: value}) for name, value in (("top_k", 2), ("top_p", 0.6))}
    assert left == {"top_k": {1, 3}, "top_p": {1, 3}}
    assert _left(logits, top_p=0.05) == {1}
    assert _left(logits) == {0, 1, 2, 3}


def test_min_p_keeps_what_is_near_the_likeliest() -> None:
    logits = np.log(np.array([0.5, 0.26, 0.24], dtype=np.float32))
    assert _left(logits, min_p=0.5) == {0, 1}
    assert _left(logits, min_p=0.0) == {0, 1, 2}


@pytest.mark.parametrize("at", [0.0, 0.5, math.nextafter(1.0, 0.0), 1.0])
def test_what_is_impossible_is_never_drawn(at: float) -> None:
    logits = np.array([-math.inf, 0.0, -math.inf, 0.0, -math.inf], dtype=np.float32)
    for options in (ways(), ways(top_p=0.9), ways(top_k=5), ways(min_p=0.1)):
        assert draw_from_all(logits, options, numbers(at)) in (1, 3)


def _left(logits: np.ndarray, **options: float) -> set[int]:
    return {draw_from_all(logits, ways(**options), numbers(at)) for at in np.linspace(0, 1, 501)}
