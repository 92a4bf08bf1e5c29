"""The learning rate of every step, in numbers by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.training.schedule import rate_at


def rates(kind: str, top: float, warmup: int, steps: int) -> list[float]:
    return [rate_at(step, kind=kind, top=top, warmup=warmup, steps=steps) for step in range(1, steps + 1)]  # type: ignore[arg-type]


def test_all_rise_in_a_line_to_the_top() -> None:
    for kind in ("paper", "cosine", "linear", "constant"):
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
    st.sampled_from(["paper", "cosine", "linear", "constant"]),
    st.integers(0, 50),
    st.integers(1, 100),
    st.integers(1, 200),
)
def test_never_below_zero_nor_above_the_top(kind: str, warmup: int, steps: int, step: int) -> None:
    assert 0 <= rate_at(step, kind=kind, top=0.7, warmup=warmup, steps=steps) <= 0.7  # type: ignore[arg-type]
