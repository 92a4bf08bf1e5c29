"""Sources as people type them, by hand; and drawn as often as was asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.data.noise import Noiser, mixed, noised, other_quotes, without_end
from clearformer.data.training_pairs import Noise
from clearformer.errors import SpecError

TEXT = '"How are you?" he asked.'
NEVER = 0xFFFF


def bits(case: int = NEVER, what: int = 0, end: int = NEVER, quotes: int = NEVER) -> int:
    return case << 48 | what << 32 | end << 16 | quotes


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("How are you?", "How are you"),
        ("Wait...", "Wait"),
        ("No !  ", "No"),
        ("आप कैसे हैं।", "आप कैसे हैं"),
        ("At 8.45", "At 8.45"),
        ("He said “Go.”", "He said “Go.”"),
        ("?!", "?!"),  # there is nothing else
        ("", ""),
    ],
)
def test_the_end_is_dropped(given: str, wanted: str) -> None:
    assert without_end(given) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("“Don’t,” she said.", '"Don\'t," she said.'),
        ('"Don\'t," she said.', "“Don’t,” she said."),
        ('(\'tis "so")', "(‘tis “so”)"),
        ("„Ja“", '"Ja"'),
        ("Nothing here.", "Nothing here."),
    ],
)
def test_quotes_change_sides(given: str, wanted: str) -> None:
    assert other_quotes(given) == wanted


def test_what_the_bits_say() -> None:
    """Sixteen each; 0.5 is 0x8000, so 0x7fff is below it and 0x8000 is not."""
    assert noised(TEXT, bits(), 0.5, 0.5) == TEXT
    assert noised(TEXT, bits(case=0x7FFF), 0.5, 0.5) == '"how are you?" he asked.'
    assert noised(TEXT, bits(case=0x8000), 0.5, 0.5) == TEXT
    assert noised(TEXT, bits(case=0, what=0xBFFF), 0.5, 0) == '"how are you?" he asked.'
    assert noised(TEXT, bits(case=0, what=0xC000), 0.5, 0) == '"HOW ARE YOU?" HE ASKED.'
    assert noised(TEXT, bits(end=0x7FFF), 0, 0.5) == '"How are you?" he asked'
    assert noised(TEXT, bits(quotes=0x7FFF), 0, 0.5) == "“How are you?” he asked."
    assert noised(TEXT, 0, 0.5, 0.5) == "“how are you?” he asked"


@given(st.text(), st.integers(0, 2**64 - 1))
def test_no_probability_changes_nothing(text: str, dice: int) -> None:
    assert noised(text, dice, 0.0, 0.0) == text


def test_as_often_as_was_asked() -> None:
    """Of 20,000 draws 0.1 are 2,000 ± 42 (one standard deviation); a quarter of these are capitals."""
    noise = Noiser(Noise(case=0.1, punctuation=0.2, versions=2), mixed(1, 0))
    made = [noise.text("Ab.", row, version) for row in range(10_000) for version in range(2)]
    counts = {text: made.count(text) for text in set(made)}
    assert set(counts) == {"Ab.", "Ab", "ab.", "ab", "AB.", "AB"}
    assert abs(counts["ab."] + counts["ab"] - 1500) < 200
    assert abs(counts["AB."] + counts["AB"] - 500) < 120
    assert abs(counts["Ab"] + counts["ab"] + counts["AB"] - 4000) < 250


def test_a_draw_is_a_function_of_its_address() -> None:
    noise = Noiser(Noise(case=0.5), mixed(7, 2))
    assert [noise.bits(row, 1) for row in range(9)] == [noise.bits(row, 1) for row in range(9)]
    addresses = {
        mixed(seed, number, row, version)
        for seed in (1, 2)
        for number in (0, 1)
        for row in range(50)
        for version in range(4)
    }
    assert len(addresses) == 2 * 2 * 50 * 4
    assert mixed(0, 1) != mixed(1, 0)
    assert mixed(0) == 0xE220A8397B1DCDAF  # the first number of splitmix64 from 0, as published


def test_noise_of_nothing_is_refused() -> None:
    Noise()  # a table may be begun
    from clearformer.data.training_pairs import TrainingPairs

    with pytest.raises(SpecError, match="give case, punctuation or subwords a probability"):
        TrainingPairs(file="a.tsv", noise={})
    with pytest.raises(SpecError, match="case"):
        Noise(case=1.5)
