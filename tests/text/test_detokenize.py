"""Text told while ids still come: never taken back, and in the end the whole text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.text.tokenizer import PublicTokenizer
from tests.text.kinds import KINDS, MIXED, SPOKEN


def told(ours: PublicTokenizer, ids: list[int]) -> str:
    stream, whole = ours.stream(), ""
    text = ours.decode(ids)
    for i in ids:
        piece = stream.add(i)
        whole += piece
        assert text.startswith(whole)
    whole += stream.end()
    return whole


@given(data=st.data())
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("name", [*KINDS, "bpe", "unigram", "char", "word"])
def test_streams_tell_the_whole_text(
    words: dict[str, PublicTokenizer], name: str, clean: bool, data: st.DataObject
) -> None:
    ours = words[name].target()
    texts = data.draw(st.lists(st.one_of(SPOKEN, MIXED), max_size=2))
    ids = data.draw(st.lists(st.integers(-1, len(ours) + 2), max_size=10))
    for text in texts:
        ids += ours.encode(text, special=data.draw(st.booleans())).ids
    kept, ours.clean = ours.clean, clean
    try:
        assert told(ours, ids) == ours.decode(ids)
    finally:
        ours.clean = kept


def test_a_stream_by_hand(words: dict[str, PublicTokenizer]) -> None:
    ours = words["gpt2"]
    ids = ours.encode("ka Ω!").ids
    stream = ours.stream()
    parts = [stream.add(i) for i in ids]
    assert "".join(parts) == "ka Ω!"
    assert "\ufffd" not in "".join(parts)
    assert stream.end() == ""
    half = ours.encode("Ω").ids[:1]
    assert (stream.add(half[0]), stream.end()) == ("", "\ufffd")
    assert (stream.add(ids[0]), stream.end()) == (ours.decode(ids[:1]), "")  # and it can be used again


def test_pieces_come_as_they_are_told(words: dict[str, PublicTokenizer]) -> None:
    stream = words["llama"].stream()
    ids = words["llama"].encode("ka lo é").ids
    assert len([piece for piece in map(stream.add, ids) if piece]) >= 3
