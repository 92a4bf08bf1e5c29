"""When threads should work alone: told by how long runs took and for how much of that they had a core."""

import pytest

from clearformer.kernels.native import contention
from clearformer.kernels.native.contention import ALONE, LONGEST, WINDOW, Contention


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(contention, "time", made)
    return made


def runs(told: Contention, clock: Clock, seconds: float, share: float, each: float = 0.001) -> None:
    """Runs of a millisecond that have a core for a share of it, until it is enough or they are told to be alone."""
    end = clock.now + seconds
    while clock.now < end and not told.alone():
        clock.now += each
        told.saw(each, share * each)


def test_a_machine_of_ones_own_is_shared_by_all_threads(clock: Clock) -> None:
    told = Contention()
    runs(told, clock, 10, share=0.97)
    assert not told.alone()


def test_one_long_run_without_a_core_counts_as_much_as_many_short_ones(clock: Clock) -> None:
    few, many = Contention(), Contention()
    few.saw(WINDOW, 0.5 * WINDOW)
    runs(many, clock, 5 * WINDOW, share=0.5)
    assert few.alone()
    assert many.alone()


def test_a_single_short_wait_does_not_count(clock: Clock) -> None:
    told = Contention()
    told.saw(0.002, 0.0)
    assert not told.alone()


def test_it_is_tried_again_later_and_later(clock: Clock) -> None:
    told, pauses = Contention(), []
    for _ in range(8):
        runs(told, clock, 1, share=0.3)
        assert told.alone()
        began = clock.now
        while told.alone():
            clock.now += 0.001
        pauses.append(round(clock.now - began, 2))
    assert pauses[:5] == [pytest.approx(ALONE * 2**n, abs=0.01) for n in range(5)]
    assert pauses[5:] == [pytest.approx(LONGEST, abs=0.01)] * 3


def test_a_try_that_goes_well_ends_it(clock: Clock) -> None:
    told = Contention()
    runs(told, clock, 1, share=0.3)
    clock.now += 2 * ALONE
    runs(told, clock, 5, share=0.95)
    assert not told.alone()
    runs(told, clock, 1, share=0.3)
    clock.now += 1.5 * ALONE  # as long as the first time, and no longer
    assert not told.alone()


def test_a_run_of_no_time_says_nothing(clock: Clock) -> None:
    told = Contention()
    told.saw(0.0, 0.0)
    assert told.lost == 0.0
