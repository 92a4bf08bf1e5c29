"""Batches: every pair once an epoch, within the budget, with little padding, and the same for the same seed."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearformer.data.batches import AHEAD, Batches, ahead, pad
from clearformer.data.corpus import Corpus
from clearformer.errors import DataError

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)


class Known(Corpus):
    """A corpus in memory: ids count up from 10, so that every place has its own."""

    def __init__(self, lengths: list[tuple[int, int]]):
        sides = np.asarray(lengths, np.int64).reshape(-1, 2)
        self.sources, self.targets = sides[:, 0], sides[:, 1]
        self.tokens = np.arange(10, 10 + sides.sum(), dtype=np.uint16)
        self.starts = np.concatenate([[0], np.cumsum(sides.sum(1))])


def batches(lengths: list[tuple[int, int]], tokens: int, seed: int = 0) -> Batches:
    return Batches(Known(lengths), tokens, start=1, pad=0, seed=seed)


def listed(plan: list) -> list[list[int]]:
    return [rows.tolist() for rows in plan]


# --- the plan ---------------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(1, 200), st.integers(0, 3))
def test_every_pair_comes_once_an_epoch(lengths: list[tuple[int, int]], tokens: int, epoch: int) -> None:
    plan = listed(batches(lengths, tokens).plan(epoch))
    assert sorted(row for rows in plan for row in rows) == list(range(len(lengths)))
    assert all(plan)


@given(LENGTHS, st.integers(1, 200))
def test_the_budget_holds_unless_one_pair_is_larger(lengths: list[tuple[int, int]], tokens: int) -> None:
    for rows in listed(batches(lengths, tokens).plan(0)):
        assert len(rows) * max(max(lengths[row]) for row in rows) <= tokens or len(rows) == 1


def test_a_batch_that_begins_with_its_longest_pair_holds_the_budget() -> None:
    """By hand: in this order, 38, 40 and 38 long; two rows of 40 are 80 tokens, two of 38 only 76."""
    assert sorted(map(len, batches([(1, 38), (2, 40), (3, 38)], 78).plan(0))) == [1, 1, 1]


def test_batches_are_filled() -> None:
    """By hand: twelve pairs of length 5 at 20 tokens are three batches of four; at 19, four of three."""
    assert sorted(map(len, batches([(5, 3)] * 12, 20).plan(0))) == [4, 4, 4]
    assert sorted(map(len, batches([(3, 5)] * 12, 19).plan(0))) == [3, 3, 3, 3]


def test_pairs_of_like_length_come_together() -> None:
    lengths = [(5, 5), (30, 30)] * 10
    for rows in batches(lengths, 60).plan(0):
        assert len({lengths[row] for row in rows}) == 1


def test_seed_and_epoch_alone_decide() -> None:
    lengths = [(1 + n % 7, 1 + n % 5) for n in range(200)]
    first = listed(batches(lengths, 50).plan(3))
    again = batches(lengths, 50)
    again.plan(0)  # what was asked before does not matter
    np.random.seed(99)
    torch.manual_seed(99)
    assert listed(again.plan(3)) == first
    others = [listed(batches(lengths, 50).plan(4)), listed(batches(lengths, 50, seed=1).plan(3))]
    assert first not in others
    assert others[0] != others[1]


def test_epochs_mix_pairs_and_not_only_the_order_of_batches() -> None:
    lengths = [(4, 4)] * 100
    plans = [{frozenset(rows) for rows in listed(batches(lengths, 40).plan(epoch))} for epoch in (0, 1)]
    assert len(plans[0] & plans[1]) < 3


def test_batches_do_not_come_sorted_by_length() -> None:
    lengths = [(1 + n // 4, 1 + n // 4) for n in range(200)]
    widths = [max(lengths[row][0] for row in rows) for rows in listed(batches(lengths, 60).plan(0))]
    assert np.corrcoef(widths, range(len(widths)))[0, 1] ** 2 < 0.3


def test_no_pairs_make_no_batches() -> None:
    with pytest.raises(DataError, match="no pairs"):
        batches([], 10).plan(0)


# --- padding ----------------------------------------------------------------------------------------------


def test_the_share_of_padding_by_hand() -> None:
    """One batch: sources 1 and 3 fill 4 of 6 cells, targets 2 and 2 all of 4; 8 of 10 are real."""
    assert batches([(1, 2), (3, 2)], 100).padding() == pytest.approx(0.2)
    assert batches([(3, 2)] * 5, 6).padding() == 0.0


@pytest.mark.parametrize(
    ("pairs", "tokens", "most"), [(20_000, 1_000, 0.06), (20_000, 4_096, 0.11), (100_000, 4_096, 0.06)]
)
def test_sentences_as_they_are_get_little_padding(pairs: int, tokens: int, most: float) -> None:
    """Lengths as of sentences: log-normal around 20 tokens, the other side longer or shorter by a quarter.
    In the order of the data more than half of all cells would be padding."""
    random = np.random.default_rng(0)
    sources = np.clip(np.exp(random.normal(3.0, 0.6, pairs)).round(), 2, 250)
    targets = np.clip((sources * np.exp(random.normal(0.1, 0.25, pairs))).round(), 2, 250)
    assert batches(np.stack([sources, targets], 1).astype(int).tolist(), tokens).padding() < most


# --- tensors ----------------------------------------------------------------------------------------------


def test_a_batch_by_hand() -> None:
    """Pairs of 2 + 3 and 1 + 1 ids, from 10 on."""
    batch = batches([(2, 3), (1, 1)], 100).make(np.array([1, 0]))
    assert batch.source.tolist() == [[15, 0], [10, 11]]
    assert batch.source_mask.tolist() == [[True, False], [True, True]]
    assert batch.labels.tolist() == [[16, 0, 0], [12, 13, 14]]
    assert batch.target.tolist() == [[1, 16, 0], [1, 12, 13]]
    assert batch.target_mask.tolist() == [[True, False, False], [True, True, True]]
    assert batch.tokens == 4
    assert {tensor.dtype for tensor in batch} == {torch.int64, torch.bool}


@given(LENGTHS)
def test_the_model_sees_the_labels_one_step_late(lengths: list[tuple[int, int]]) -> None:
    every = batches(lengths, 100)
    for rows in every.plan(0):
        batch = every.make(rows)
        for place, row in enumerate(rows.tolist()):
            source, target = (side.tolist() for side in every.corpus.pair(row))
            assert batch.source[place][batch.source_mask[place]].tolist() == source
            assert batch.labels[place][batch.target_mask[place]].tolist() == target
            assert batch.target[place][batch.target_mask[place]].tolist() == [1, *target[:-1]]
        assert batch.source[~batch.source_mask].eq(0).all()
        assert batch.labels[~batch.target_mask].eq(0).all()
        assert batch.tokens == sum(lengths[row][1] for row in rows)


def test_rows_are_filled_up_at_their_ends() -> None:
    ids, mask = pad([[5, 6], [7], []], 9)
    assert ids.tolist() == [[5, 6], [7, 9], [9, 9]]
    assert mask.tolist() == [[True, True], [True, False], [False, False]]
    assert pad([], 9)[0].shape == (0, 0)


def test_batches_are_read_from_the_disk(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    np.arange(10, 15, dtype="<u4").tofile(tmp_path / "a.tokens")
    lengths = {"sources": np.array([2], np.int32), "targets": np.array([3], np.int32), "bytes": np.array([4])}
    save_file(lengths, tmp_path / "a.safetensors")
    batch = Batches(Corpus(tmp_path, "a"), 10, start=1, pad=0).make(np.array([0]))
    assert (batch.source.tolist(), batch.labels.tolist()) == ([[10, 11]], [[12, 13, 14]])


# --- ahead ------------------------------------------------------------------------------------------------


def threads() -> int:
    return sum(thread.name == "batches" for thread in threading.enumerate())


def test_items_come_through_in_their_order() -> None:
    for many in (0, 1, AHEAD, 100):
        assert list(ahead(iter(range(many)))) == list(range(many))
    assert list(ahead(iter([None, False, 0]))) == [None, False, 0]
    assert threads() == 0


def test_an_error_comes_out_where_it_belongs() -> None:
    def broken() -> Iterator[int]:
        yield from range(10)
        raise DataError("the eleventh")

    found: list[int] = []
    with pytest.raises(DataError, match="the eleventh"):
        found.extend(ahead(broken()))
    assert found == list(range(10))
    assert threads() == 0


def test_the_thread_works_while_the_caller_does() -> None:
    made = []

    def items() -> Iterator[int]:
        for n in range(100):
            made.append(n)
            yield n

    stream = ahead(items())
    assert not made  # not before it is asked
    assert next(stream) == 0
    end = time.monotonic() + 60
    while len(made) < AHEAD + 2 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(made) == AHEAD + 2  # one is out, the queue is full, and one waits for room
    stream.close()  # type: ignore[attr-defined]


def test_closing_stops_the_thread() -> None:
    def forever() -> Iterator[int]:
        while True:
            yield 0

    stream = ahead(forever())
    next(stream)
    assert threads() == 1
    stream.close()  # type: ignore[attr-defined]
    assert threads() == 0
