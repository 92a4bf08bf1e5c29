"""The learning rate of every step, in numbers by hand."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clearformer.training.schedule import lengthened, rate_at, stable_until


def rates(kind: str, top: float, warmup: int, steps: int) -> list[float]:
    return [rate_at(step, kind=kind, top=top, warmup=warmup, steps=steps) for step in range(1, steps + 1)]  # type: ignore[arg-type]


def test_all_rise_in_a_line_to_the_top() -> None:
    for kind in ("paper", "cosine", "linear", "constant", "wsd"):
        assert rates(kind, 0.8, 4, 12)[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_the_paper_falls_with_one_over_the_root_of_the_step() -> None:
    assert rates("paper", 0.8, 4, 64)[15] == pytest.approx(0.4)  # four times the warm-up: half
    assert rates("paper", 0.8, 4, 64)[63] == pytest.approx(0.2)


def test_the_paper_s_own_numbers() -> None:
    """Equation 3: width^-0.5 · min(step^-0.5, step · warmup^-1.5), for the base model."""
    top = 512**-0.5 * 4000**-0.5
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        wanted = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert rate_at(step, kind="paper", top=top, warmup=4000, steps=100_000) == pytest.approx(wanted)


def test_cosine() -> None:
    found = rates("cosine", 2.0, 2, 10)
    assert found[5] == pytest.approx(1.0)  # half way down
    assert found[3] == pytest.approx(1 + math.cos(math.pi / 4))
    assert found[9] == pytest.approx(0.0, abs=1e-12)


def test_linear() -> None:
    assert rates("linear", 1.0, 2, 6) == pytest.approx([0.5, 1.0, 0.75, 0.5, 0.25, 0.0])


def test_constant() -> None:
    assert rates("constant", 0.3, 1, 5) == [0.3] * 5


@given(
    st.sampled_from(["paper", "cosine", "linear", "constant", "wsd"]),
    st.integers(0, 50),
    st.integers(1, 100),
    st.integers(1, 200),
)
def test_never_below_zero_nor_above_the_top(kind: str, warmup: int, steps: int, step: int) -> None:
    assert 0 <= rate_at(step, kind=kind, top=0.7, warmup=warmup, steps=steps) <= 0.7  # type: ignore[arg-type]


# --- warm-up, stable, decay -------------------------------------------------------------------------------


def test_wsd_by_hand() -> None:
    """Two of ten steps up, six at the top, two down: the last step has none."""
    assert rates("wsd", 1.0, 2, 10) == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 1, 0.5, 0.0])
    assert [rate_at(n, kind="wsd", top=1.0, warmup=0, steps=4, decay=1.0) for n in (1, 2, 3, 4)] == [0.75, 0.5, 0.25, 0]
    assert [stable_until(steps, 3, 0.1) for steps in (1, 10, 30, 1000)] == [0, 9, 27, 900]
    assert stable_until(10, 7, 0.5) == 7  # not before the top is reached


@given(st.integers(0, 20), st.integers(1, 200), st.integers(0, 200), st.sampled_from([0.1, 0.2, 0.5]))
def test_a_longer_wsd_is_the_same_until_the_shorter_falls(warmup: int, steps: int, more: int, decay: float) -> None:
    assume(steps > warmup)
    until = stable_until(steps, warmup, decay)
    assert until <= stable_until(steps + more, warmup, decay)
    for step in range(1, until + 1):
        one, other = (
            rate_at(step, kind="wsd", top=0.3, warmup=warmup, steps=each, decay=decay) for each in (steps, steps + more)
        )
        assert one == other


def test_what_a_change_of_length_means_is_said() -> None:
    same = {"top": 1.0, "warmup": 2}
    said, was, now = lengthened(8, 10, 20, kind="wsd", **same)  # type: ignore[arg-type]
    assert "those of a run that was so long from the start" in said
    assert (was, now) == (0.5, 1.0)
    said, was, now = lengthened(9, 10, 20, kind="wsd", **same)  # type: ignore[arg-type]
    assert "goes from 0.00e+00 to 1.00e+00, so it falls twice" in said
    said, was, now = lengthened(6, 10, 20, kind="cosine", **same)  # type: ignore[arg-type]
    assert said.startswith("its length changes from 10 to 20 steps: the rate had been falling towards step 10 (cosine)")
    assert said.endswith("so it falls twice; a run that may be lengthened is one with optimizer.schedule = wsd")
    assert was < now
    assert "falls faster" in lengthened(6, 20, 10, kind="linear", **same)[0]  # type: ignore[arg-type]
    for kind in ("constant", "paper"):
        assert "so long from the start" in lengthened(6, 10, 20, kind=kind, **same)[0]  # type: ignore[arg-type]
