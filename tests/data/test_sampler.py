"""Which rows an epoch has: shares equal the weights, every pair as often as its neighbours, and no state."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.data.batches import Batches
from clearformer.data.sampler import Sampler, Stretch, stretches
from tests.data.test_batches import Known

SETS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 4), st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 1.0, 1.5, 2.0, 3.7])),
    min_size=1,
    max_size=4,
)


def made(sets: list[tuple[int, int, float]], seed: int = 0) -> Sampler:
    found = stretches([n for n, _, _ in sets], [v for _, v, _ in sets])
    return Sampler(found, tuple(weight for _, _, weight in sets), seed)


def test_sets_lie_one_after_another() -> None:
    assert stretches([3, 0, 2], [1, 2, 4]) == (Stretch(0, 3, 1), Stretch(3, 0, 2), Stretch(3, 2, 4))
    assert stretches([3, 0, 2], [1, 2, 4])[-1].last == 11


def test_weights_of_one_are_every_row_in_its_place() -> None:
    """So that runs from before there were weights go on as they were."""
    sampler = made([(5, 1, 1.0), (3, 1, 1.0)])
    assert all(sampler.rows(epoch).tolist() == list(range(8)) for epoch in range(3))


def test_by_hand() -> None:
    """Ten pairs at 0.25 are 2, 3, 2, 3 an epoch, every pair once in four epochs; two at 3 are each three times."""
    sampler = made([(10, 1, 0.25), (2, 1, 3.0)])
    epochs = [sampler.rows(epoch).tolist() for epoch in range(4)]
    assert [sum(row < 10 for row in rows) for rows in epochs] == [2, 3, 2, 3]
    assert sorted(row for rows in epochs for row in rows if row < 10) == list(range(10))
    assert all(sorted(row for row in rows if row >= 10) == [10] * 3 + [11] * 3 for rows in epochs)


def test_decimal_weights_are_what_they_say() -> None:
    """0.1 of 10 is one pair an epoch, though the float nearest to 0.1 times 10 times 3 is above 3."""
    assert [len(made([(10, 1, 0.1)]).rows(epoch)) for epoch in range(40)] == [1] * 40
    assert [len(made([(100, 1, 0.07)]).rows(epoch)) for epoch in range(40)] == [7] * 40


@given(SETS, st.integers(1, 12), st.integers(0, 5))
def test_after_any_number_of_epochs_all_pairs_of_a_set_are_even(
    sets: list[tuple[int, int, float]], epochs: int, seed: int
) -> None:
    """weight × epochs times each, rounded down or up; and a set as a whole to one pair."""
    sampler = made(sets, seed)
    counts = Counter(int(row) for epoch in range(epochs) for row in sampler.rows(epoch))
    for stretch, (n, versions, weight) in zip(sampler.stretches, sets, strict=True):
        times = [
            sum(counts[stretch.first + example * versions + version] for version in range(versions))
            for example in range(n)
        ]
        assert abs(sum(times) - weight * n * epochs) < 1 + 1e-6
        assert all(abs(many - weight * epochs) < 1 + 1e-6 for many in times)


@given(st.integers(1, 30), st.integers(2, 5), st.integers(1, 4))
def test_every_version_comes_once_in_its_turn(n: int, versions: int, weight: int) -> None:
    sampler = made([(n, versions, float(weight))])
    rows = [int(row) for epoch in range(versions) for row in sampler.rows(epoch)]
    assert Counter(rows) == dict.fromkeys(range(n * versions), weight)


def test_versions_of_one_epoch_are_mixed() -> None:
    """Not the first of all pairs, then the second of all."""
    first = made([(1000, 4, 1.0)]).rows(0) % 4
    assert np.bincount(first).min() > 150


@given(SETS, st.integers(0, 50))
@settings(max_examples=30)
def test_an_epoch_is_a_function_of_seed_and_number(sets: list[tuple[int, int, float]], epoch: int) -> None:
    used = made(sets)
    for before in range(3):
        used.rows(before)
    np.random.seed(epoch)
    assert used.rows(epoch).tolist() == made(sets).rows(epoch).tolist()


def test_another_seed_or_set_is_another_order() -> None:
    draws = [tuple(made([(50, 1, 0.5)], seed).rows(0)) for seed in range(3)]
    both = made([(50, 1, 0.5), (50, 1, 0.5)]).rows(0)
    assert len({*draws, tuple(both[25:] - 50)}) == 4


def test_every_round_is_another_shuffle() -> None:
    """Halves of epochs 0 and 1 are one round, those of 2 and 3 the next."""
    halves = [frozenset(made([(50, 1, 0.5)]).rows(epoch).tolist()) for epoch in range(4)]
    assert halves[0] | halves[1] == halves[2] | halves[3] == frozenset(range(50))
    assert halves[0] not in halves[2:]


def test_the_batches_of_an_epoch_have_its_rows() -> None:
    corpus = Known([(1 + n % 7, 1 + n % 5) for n in range(40)])
    sampler = Sampler(stretches([10, 10], [1, 3]), (2.0, 0.5), 3)
    batches = Batches(corpus, 20, start=1, pad=0, seed=3, sampler=sampler)
    for epoch in range(4):
        plan = batches.plan(epoch)
        assert sorted(row for rows in plan for row in rows.tolist()) == sorted(sampler.rows(epoch).tolist())
        assert [rows.tolist() for rows in plan] == [rows.tolist() for rows in batches.plan(epoch)]
    corpus.stretches = sampler.stretches
    assert batches.make(np.array([9, 10, 0, 39])).sets.tolist() == [0, 1, 0, 1]
