"""What is left out by its texts alone, pair by pair, and the counts by hand."""

from pathlib import Path

import pytest

from clearformer.data.clean import Clean, mostly
from clearformer.data.corpus import Treatment, encode
from clearformer.data.training_pairs import Scripts, TrainingPairs, names_of
from clearformer.text.learn import learn
from clearformer.text.translation import TranslationCodec
from tests.data.test_corpus import content, direct, written


@pytest.mark.parametrize(
    ("text", "script", "wanted"),
    [
        ("Wie geht's?", "Latin", True),
        ("Größe Ünal ŷ", "Latin", True),
        ("cafe\u0301", "Latin", True),  # the accent is no letter of its own
        ("आप कैसे हैं?", "Devanagari", True),
        ("आप कैसे हैं?", "Latin", False),
        ("WiFi चालू करें", "Devanagari", True),  # 8 letters and signs of 12
        ("Wi-Fi network चालू", "Devanagari", False),  # 4 of 15
        ("8:45 — 100 % 😀", "Devanagari", True),  # no letters
        ("ab яб", "Latin", False),  # exactly half
        ("日本語です", "Japanese", True),
        ("日本語です", "Han", True),  # 3 of 5
        ("ＡＢＣ", "Latin", True),
        ("한국어", "Hangul", True),
        ("שלום", "Hebrew", True),
    ],
)
def test_the_script_of_most_letters(text: str, script: str, wanted: bool) -> None:
    assert mostly(text, script) is wanted  # type: ignore[arg-type]


def test_sides_of_like_length() -> None:
    """Twice the characters and no more; a side below ten characters counts as ten."""
    clean = Clean(ratio=2.0)
    assert clean.fault("a" * 15, "b" * 30) is None
    assert clean.fault("a" * 15, "b" * 31) == "ratio"
    assert clean.fault("b" * 31, "a" * 15) == "ratio"
    assert clean.fault("Hi!", "b" * 20) is None
    assert clean.fault("Hi!", "b" * 21) == "ratio"
    assert Clean().fault("a", "b" * 999) is None


def test_copies() -> None:
    assert Clean(copies=False).fault("OK ", "OK") == "copy"
    assert Clean(copies=False).fault("8:45", "8:45") is None
    assert Clean(copies=False).fault("OK", "Ok") is None
    assert Clean().fault("OK", "OK") is None


def test_counts_are_told_by_set(tmp_path: Path) -> None:
    one = [
        ("ab", "cd"),
        ("ab", "cd"),  # repeated in its set
        ("held", "out"),  # is validated on
        ("я", "cd"),  # script
        ("a", "b" * 21),  # ratio
        ("same", "same"),  # copy
        ("", "x"),
    ]
    two = [("ab", "cd"), ("ef", "gh"), ("ef", "gh")]
    three = [("ef", "gh"), ("ab", "cd"), ("я", "ij")]
    texts = [side for rows in (one, two, three) for row in rows for side in row]
    tokenizer = TranslationCodec.of(learn(texts, "char", 400))
    from clearformer.data.corpus import digest

    latin = Clean(2.0, False, Scripts(source="Latin"))
    parts = [written(tmp_path, rows, name) for rows, name in ((one, "one"), (two, "two"), (three, "three"))]
    report = encode(
        tmp_path,
        "train",
        parts,
        tokenizer,
        longest=99,
        without=frozenset({digest("held", "out", "")}),
        treatments=[Treatment("one", latin), Treatment("two", latin), Treatment("three")],
    )
    assert content(tmp_path) == direct(tokenizer, [one[0], two[1], three[2]])
    told = [(r.name, r.read, r.kept, r.duplicate, r.elsewhere, r.validation) for r in report.sets]
    assert told == [("one", 7, 1, 2, 0, 1), ("two", 3, 1, 2, 1, 0), ("three", 3, 1, 2, 2, 0)]
    assert [(r.script, r.ratio, r.copy, r.empty) for r in report.sets] == [(1, 1, 1, 1), (0, 0, 0, 0), (0, 0, 0, 0)]
    assert (report.read, report.kept, report.duplicate, report.elsewhere, report.validation) == (13, 3, 6, 3, 1)
    path = parts[0].file
    assert report.sets[0].left_out() == (
        f"; left out of 7: 1 with an empty side (first: {path}, line 7),"
        f" 1 with sides of too different length (first: {path}, line 5), 1 in another script (first: {path}, line 4),"
        f" 1 with equal sides (first: {path}, line 6),"
        f" 2 repeated (1 in the validation data; first: {path}, line 2)"
    )
    assert "2 repeated (1 in an earlier set; first:" in report.sets[1].left_out()


def test_a_set_without_a_name_is_called_as_its_file() -> None:
    def part(**given: str) -> TrainingPairs:
        return TrainingPairs(**given)

    assert names_of((part(file="a/x.tsv.gz"), part(source="a/y.en", target="a/y.de"))) == ["x", "y"]
    same = (part(file="a/x.tsv"), part(file="b/x.tsv"), part(file="c/x.tsv", name="mine"))
    assert names_of(same) == ["a/x", "b/x", "mine"]
    assert names_of((part(file="a/x.tsv", name="n"), part(file="b/x.tsv", name="n"))) == ["n 1", "n 2"]
