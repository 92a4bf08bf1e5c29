"""A text in another language than the translator's source is translated, with a word about it."""

import json
import subprocess
import sys

import pytest

from clearformer.tasks.language import other_languages

GERMAN = "Das ist ein sehr schöner Tag, und wir gehen alle in den Garten."
ENGLISH = "The old man is reading a book in the garden this morning."


def test_only_what_is_surely_another_language_is_named() -> None:
    texts = [ENGLISH, GERMAN, "Guten Tag", "", "12 34 56 78 90 12", "😀 😀 😀 😀 😀 😀"]
    assert other_languages(texts, "en") == {1: "de"}
    assert other_languages(texts, "de") == {0: "en"}


@pytest.mark.parametrize("expected", [None, "xx"])
def test_nothing_is_said_where_nothing_is_expected(expected: str | None) -> None:
    assert other_languages([GERMAN], expected) == {}


def test_translate_says_so_and_goes_on() -> None:
    words = [sys.executable, "-m", "clearformer", "translate", ENGLISH, GERMAN]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    one, other = map(json.loads, done.stdout.splitlines())
    assert "note" not in one
    assert other["note"] == "the text looks like de, not en"
    assert other["text"]
    assert "text 2 looks like de; this model translates from en" in done.stderr
