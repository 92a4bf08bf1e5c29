"""One step of skip-gram against loops over its definition in float64, and autograd through them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearformer.static import Settings
from clearformer.static.run import Run
from clearformer.static.skipgram import DRAWS, GROUP, Batch, loss, score, step

WORDS, WIDTH = 7, 3


def batch(seed: int, n: int, window: int) -> Batch:
    random = np.random.default_rng(seed)
    reach = random.integers(0, window + 1, n)
    line = np.cumsum(random.random(n) < 0.2)
    return Batch(
        torch.from_numpy(random.integers(0, WORDS, n)),
        torch.from_numpy(line),
        torch.from_numpy(reach),
        torch.from_numpy(random.integers(0, WORDS, (n // GROUP, DRAWS))),
    )


def pairs(given: Batch) -> list[tuple[int, int]]:
    """Places of centres and of the words they see."""
    n = len(given.ids)
    return [
        (c, o)
        for c in range(n)
        for o in range(n)
        if 0 < abs(c - o) <= int(given.reach[c]) and given.line[c] == given.line[o]
    ]


def slowly(v: Tensor, u: Tensor, given: Batch, negatives: int) -> Tensor:
    """− log σ(u_o · v_c) − k · mean of log σ(−u_n · v_c), pair by pair."""
    total = torch.zeros((), dtype=torch.float64)
    for c, o in pairs(given):
        centre = v[given.ids[c]]
        total = total - torch.log(torch.sigmoid(u[given.ids[o]] @ centre))
        drawn = u[given.drawn[c // GROUP]]
        total = total - negatives * torch.log(torch.sigmoid(-(drawn @ centre))).mean()
    return total


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), window=st.integers(1, 6), negatives=st.integers(1, 9))
def test_a_step_is_the_gradient_of_the_definition(seed: int, window: int, negatives: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    v, u = (torch.randn(WORDS, WIDTH, dtype=torch.float64, generator=generator) for _ in range(2))
    given = batch(seed, GROUP, window)
    v_, u_ = v.clone().requires_grad_(), u.clone().requires_grad_()
    wanted = slowly(v_, u_, given, negatives)
    scored = score(v, u, given, window, negatives)
    assert int(scored.sees.sum()) == len(pairs(given))
    torch.testing.assert_close(loss(scored), wanted.detach())
    if not pairs(given):
        return
    by_v, by_u = torch.autograd.grad(wanted, (v_, u_))
    before = v.clone(), u.clone()
    step(v, u, scored, given, 0.01)
    torch.testing.assert_close(v, before[0] - 0.01 * by_v)
    torch.testing.assert_close(u, before[1] - 0.01 * by_u)


def test_two_groups_have_draws_of_their_own() -> None:
    generator = torch.Generator().manual_seed(1)
    v, u = (torch.randn(WORDS, WIDTH, dtype=torch.float64, generator=generator) for _ in range(2))
    given = batch(3, 2 * GROUP, 2)
    torch.testing.assert_close(loss(score(v, u, given, 2, 5)), slowly(v, u, given, 5))


TEXTS = [" ".join(["often"] * 60 + ["some"] * 30 + ["rare"] * 10)] * 40


def run(**changes: object) -> Run:
    return Run.begin(TEXTS, Settings(**{"width": 4, "epochs": 1, "subsample": 1.0, **changes}))  # type: ignore[arg-type]


def test_draws_follow_counts_to_the_power_of_three_quarters() -> None:
    made = run()
    tokens = made.tokens.chunk(0)
    drawn = torch.cat([b.drawn.flatten() for n in range(10) for b in made._batches(tokens, np.random.default_rng(n))])
    found = torch.bincount(drawn, minlength=3).double()
    wanted = torch.tensor([60.0, 30.0, 10.0], dtype=torch.float64) ** 0.75
    wanted *= len(drawn) / wanted.sum()
    chi = float(((found - wanted) ** 2 / wanted).sum())
    assert len(drawn) > 5_000
    assert chi < 13.8  # 2 degrees of freedom: one in a thousand is above
    plain = torch.tensor([60.0, 30.0, 10.0], dtype=torch.float64) / 100 * len(drawn)
    assert float(((found - plain) ** 2 / plain).sum()) > 50  # not the counts themselves


def test_reach_is_any_length_up_to_the_window_alike() -> None:
    made = run(window=4)
    found = torch.cat([b.reach for b in made._batches(made.tokens.chunk(0), np.random.default_rng(0))])
    counts = torch.bincount(found[found > 0], minlength=5)[1:].double()
    assert float(((counts - counts.mean()) ** 2 / counts.mean()).sum()) < 16.3  # 3 degrees of freedom


def test_frequent_words_are_seen_less() -> None:
    made = run(subsample=0.05)
    share = np.array([0.6, 0.3, 0.1])
    assert made.kept == pytest.approx([min(math.sqrt(0.05 / s) + 0.05 / s, 1) for s in share])
    batches = list(made._batches(made.tokens.chunk(0), np.random.default_rng(0)))
    ids = torch.cat([b.ids[b.line != -2] for b in batches])
    found = torch.bincount(ids, minlength=3) / torch.tensor([2400, 1200, 400])
    assert found.tolist() == pytest.approx(made.kept.tolist(), abs=0.06)


def test_the_rate_falls_in_a_straight_line() -> None:
    made = run(rate=0.1)
    made.chunks, made.rate = 4, 0.1
    rates = []
    for made.done in range(4):
        rates += [made._rate(0), made._rate(0.5)]
    assert rates == pytest.approx([0.1, 0.0875, 0.075, 0.0625, 0.05, 0.0375, 0.025, 0.0125])
    made.done = 4
    assert made._rate(0) == pytest.approx(1e-5)
