"""Words, one-hot and TF-IDF, against numbers worked by hand and a float64 loop."""

import gzip
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.errors import CheckpointError, DataError
from clearformer.static import OneHot, TfIdf, Vocabulary, words

APPLE = [  # the lecture notes' four sentences
    "An apple a day keeps the doctor away",
    "Apple is healthy",
    "Apple is better than orange",
    "Apple makes great phones",
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Don't, I say!", ["don't", "i", "say"]),
        ("Don’t 'quote' 42-mal", ["don't", "quote", "42", "mal"]),
        ("मुझे आइसक्रीम खाना पसंद है।", ["मुझे", "आइसक्रीम", "खाना", "पसंद", "है"]),
        ("U\u0308BER Straße", ["über", "straße"]),
        ("… — !", []),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert words(text) == found


@given(st.text())
def test_words_of_any_text_are_words_again(text: str) -> None:
    for word in words(text):
        assert words(word) == [word] or not word.isascii()  # a small letter of some scripts has another small letter
        assert "\n" not in word


def test_one_hot_of_the_notes() -> None:
    hot = OneHot.fit(["Mat Cat Rat"])
    assert hot.vectors("mat cat rat").to_dense().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert hot.vectors("rat mat").to_dense().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert hot.word(hot.vectors("cat").to_dense()[0]) == "cat"
    with pytest.raises(DataError, match=r"'bat' was never seen.*'rat'"):
        hot.vectors("bat")


def test_tf_idf_of_the_notes_by_hand() -> None:
    model = TfIdf.fit(APPLE)
    idf = dict(zip(model.vocabulary, model.idf.tolist(), strict=True))
    assert idf["apple"] == 1.0  # ln(5/5) + 1: in all four
    assert idf["is"] == pytest.approx(1.5108256)  # ln(5/3) + 1: in two
    assert idf["healthy"] == pytest.approx(1.9162907)  # ln(5/2) + 1: in one
    row = model.row("Apple is healthy")
    weights = {model.vocabulary[n]: w for n, w in zip(row.ids.tolist(), row.weights.tolist(), strict=True)}
    # 1, 1.5108, 1.9163 over their length √(1 + 2.2826 + 3.6722) = 2.6372
    assert weights == pytest.approx({"apple": 0.37919, "is": 0.57289, "healthy": 0.72664}, abs=1e-4)


def slowly(texts: Sequence[str], text: str) -> dict[str, float]:
    """The docstring's equations, one word at a time."""
    x = {}
    for word in set(words(text)):
        having = sum(word in words(other) for other in texts)
        if having:
            x[word] = words(text).count(word) * (math.log((1 + len(texts)) / (1 + having)) + 1)
    length = math.sqrt(math.fsum(each * each for each in x.values()))
    return {word: each / length for word, each in x.items()}


TEXTS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=6).map(" ".join), min_size=1, max_size=8)


@given(texts=TEXTS, asked=st.lists(st.sampled_from(["a", "b", "c", "x", "y"]), max_size=6).map(" ".join))
def test_tf_idf_is_its_equation(texts: list[str], asked: str) -> None:
    if not any(texts):
        with pytest.raises(DataError, match="no words"):
            TfIdf.fit(texts)
        return
    model = TfIdf.fit(texts)
    for text in (*texts, asked):
        row = model.row(text)
        found = {model.vocabulary[n]: w for n, w in zip(row.ids.tolist(), row.weights.tolist(), strict=True)}
        assert found == pytest.approx(slowly(texts, text), abs=1e-6)
        assert row.ids.tolist() == sorted(row.ids.tolist())
    cosines = (model.matrix(texts) @ model.matrix(texts).to_dense().T).numpy()
    one, two = (slowly(texts, each) for each in (texts[0], texts[-1]))
    assert cosines[0, -1] == pytest.approx(sum(one[w] * two.get(w, 0.0) for w in one), abs=1e-6)


def test_a_file_gives_what_its_lines_give(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("\n".join(APPLE[:2]) + "\n")
    (tmp_path / "two.txt").write_bytes(gzip.compress(("\r\n".join(APPLE[2:])).encode()))
    held, read = TfIdf.fit(APPLE), TfIdf.fit([tmp_path / "one.txt", tmp_path / "two.txt"])
    assert (held.vocabulary, held.texts) == (read.vocabulary, read.texts)
    assert held.documents.tolist() == read.documents.tolist()
    rows = zip(held.rows(APPLE), read.rows([tmp_path / "one.txt", tmp_path / "two.txt"]), strict=True)
    assert all((a.ids == b.ids).all() and (a.weights == b.weights).all() for a, b in rows)


def test_tf_idf_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    model = TfIdf.fit(APPLE)
    again = TfIdf.load(model.save(tmp_path / "new"))
    assert (again.vocabulary, again.texts) == (model.vocabulary, model.texts)
    np.testing.assert_array_equal(again.documents, model.documents)
    with pytest.raises(CheckpointError, match="exists already"):
        model.save(tmp_path / "new")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("static.json", '"texts": 4', '"texts": 0', "how many texts"),
        ("static.json", '"texts": 4', '"texts": 3', "in none of 3 texts, or in more"),
        ("static.json", '"kind": "tfidf"', '"kind": "word2vec"', "expected 'tfidf'"),
        ("static.json", '"version": 1', '"version": 9', "reads version 1"),
        ("static.json", "{", "[", "no JSON"),
        ("words.txt", "apple\n", "", "make it"),
        ("words.txt", "apple\n", "an\n", "there twice"),
        ("words.txt", "apple\n", "\n", "line 3 is empty"),
    ],
)
def test_what_is_damaged_is_named(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    folder = TfIdf.fit(APPLE).save(tmp_path / "new")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises(CheckpointError, match=said):
        TfIdf.load(folder)


def test_what_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    for model in (TfIdf, OneHot):
        with pytest.raises(DataError, match="no words in these texts"):
            model.fit(tmp_path / "empty.txt")
        with pytest.raises(DataError, match="binary file"):
            model.fit(tmp_path / "picture.png")
        with pytest.raises(DataError, match="no file"):
            model.fit("nowhere.txt")
        with pytest.raises(DataError, match="given bytes"):
            model.fit([b"text"])  # type: ignore[list-item]


def test_a_word_that_was_never_seen_is_said_with_its_nearest() -> None:
    known = Vocabulary(["apple", "orange", *(f"word{n}" for n in range(30))])
    assert known.id("APPLE") == 0
    with pytest.raises(DataError, match=r"'aple' was never seen, or too seldom: 32 words.*did you mean 'apple'"):
        known.id("aple")
    with pytest.raises(DataError, match="'two words' is not one word"):
        known.id("two words")
    assert known.unseen("an apple, an orange, a pear") == ["an", "a", "pear"]
