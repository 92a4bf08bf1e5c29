"""Tokens as clients are told them: the bytes of a text are those of its tokens, whatever kind of tokenizer."""

from pathlib import Path

import pytest

from clearformer.serve.logprobs import LEAST, in_completion, names_of, shown
from clearformer.serve.writing import Told
from clearformer.text.tokenizer import PublicTokenizer
from tests.tasks.writers import words
from tests.text.kinds import KINDS

TEXT = "ka lo 12 thé кот 你好 😀 x"


@pytest.mark.parametrize("kind", ["llama3", "gpt2", "qwen2", "llama"])
def test_the_bytes_of_a_text_are_those_of_its_tokens(kind: str, tmp_path: Path) -> None:
    found = PublicTokenizer.load(KINDS[kind](tmp_path))
    names = names_of(found)
    ids = found.encode(TEXT, special=False).ids
    assert b"".join(names.of(token)[1] for token in ids).decode().strip() == TEXT
    for token in ids:
        text, coded = names.of(token)
        assert text.encode() == coded or text.startswith("bytes:\\x")


def test_tokens_of_ours() -> None:
    names = names_of(words())
    ids = words().encode("one 😀", special=False).ids
    assert b"".join(names.of(token)[1] for token in ids).decode().strip() == "one 😀"
    assert names.of(2) == ("</s>", b"</s>")
    assert names.of(10**6) == ("", b"")
    assert names_of(words()) is names


def test_lists_of_a_completion() -> None:
    names = names_of(words())
    one, two = words().encode("one two", special=False).ids[:2]
    told = in_completion(names, [Told(one, float("nan"), (), 0), Told(two, -1.0, ((one, -0.5),), 3)], 4, 1)
    assert told["text_offset"] == [4, 7]
    assert told["token_logprobs"] == [None, -1.0]
    assert told["top_logprobs"] == [None, {names.text(one): -0.5, names.text(two): -1.0}]
    assert shown(float("-inf")) == LEAST
