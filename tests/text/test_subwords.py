"""Words cut at random: without chance as the tokenizer cuts them, with it in ways that spell the same text."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.errors import DataError
from clearformer.text import subwords as module
from clearformer.text.learn import LearnedTokenizer, learn
from clearformer.text.subwords import Subwords

LINES = ["the lower the lowest", "new newer newest", "a slow, low tower?", "wider and wider", "über größer"] * 5
CHARACTERS = "abdehilnorstuwü ,?▁éß日"
PARTS = sorted({word[a : a + n] for line in LINES for word in line.split() for a in range(6) for n in (1, 2, 3, 5)})
TEXTS = st.text(CHARACTERS, max_size=30) | st.lists(st.sampled_from([*PARTS, " "]), max_size=12).map("".join)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> LearnedTokenizer:
    return learn(LINES, request.param, 330)


@given(text=TEXTS, bits=st.integers(0, 2**64 - 1))
def test_without_chance_they_are_the_tokenizer_s_own(tokenizer: LearnedTokenizer, text: str, bits: int) -> None:
    assert Subwords(tokenizer, 0.0).encode(text, bits) == tokenizer.ids_of([text])[0]


def test_where_merges_compete_too(tokenizer: LearnedTokenizer) -> None:
    """All parts of words next to each other: in "ther" the earlier merge is e r, in "hew" it is e w."""
    texts, cuts = [a + b for a in PARTS for b in PARTS], Subwords(tokenizer, 0.0)
    assert [cuts.encode(text, 0) for text in texts] == tokenizer.ids_of(texts)


@given(text=TEXTS, bits=st.integers(0, 2**64 - 1))
def test_the_text_is_the_same(tokenizer: LearnedTokenizer, text: str, bits: int) -> None:
    made = Subwords(tokenizer, 0.5).encode(text, bits)
    assert tokenizer.decode(made) == tokenizer.decode(tokenizer.ids_of([text])[0])
    assert made[-1] == tokenizer.end


def test_they_depend_on_seed_and_bits_alone(tokenizer: LearnedTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the lowest tower and newer wider lower"
    made = [Subwords(tokenizer, 0.5, 3).encode(text, bits << 59) for bits in range(16)]
    used = Subwords(tokenizer, 0.5, 3)
    used.encode("newest lowest the", 5)
    monkeypatch.setattr(module, "KEPT", 3)  # what is forgotten is made again
    assert [used.encode(text, bits << 59) for bits in range(16)] == made
    assert len({tuple(ids) for ids in made}) > 4
    assert Subwords(tokenizer, 0.5, 4).encode(text, 0) != made[0]


def hand() -> LearnedTokenizer:
    """Merges l+o and lo+w: "low" is low, or lo w, or l o w."""
    import json

    from tokenizers import Tokenizer

    content = json.loads(learn(LINES, "bpe", 330).to_json())
    fixed = {token: n for token, n in content["model"]["vocab"].items() if n < 260}
    tokens = [*fixed, "▁", "l", "o", "w", "lo", "low"]
    content["model"]["vocab"] = {token: n for n, token in enumerate(tokens)}
    content["model"]["merges"] = [["l", "o"], ["lo", "w"]]
    return LearnedTokenizer(Tokenizer.from_str(json.dumps(content)))


def test_bpe_dropout_by_hand() -> None:
    """At 0.3: l o w if the first merge is dropped (0.3), lo w if the second is (0.7 · 0.3), else low (0.49). In l o w
    only one merge is possible, so once it is dropped there is none."""
    tokenizer = hand()
    cuts, made = Subwords(tokenizer, 0.3), Counter[str]()
    for variant in range(2**14):
        made[" ".join(tokenizer.pieces(cuts.cut("low", variant)))] += 1
    assert set(made) == {"low", "lo w", "l o w"}
    for cut, share in (("l o w", 0.3), ("lo w", 0.21), ("low", 0.49)):
        assert made[cut] / 2**14 == pytest.approx(share, abs=0.02)


def test_unigram_sampling_by_hand() -> None:
    """Words of a vocabulary of a, b and ab: P(ab)^α against (P(a) P(b))^α."""
    tokenizer = learn(LINES, "unigram", 330)
    cuts = Subwords(tokenizer, 0.999999)
    cuts.scores, cuts.longest = {"a": -1.0, "b": -2.0, "ab": -4.0}, 2
    cuts.ids |= {"a": 1000, "b": 1001, "ab": 1002}
    made = Counter(cuts.cut("ab", variant) for variant in range(8000))
    together, apart = 2.718281828 ** (-4.0 * 0.2), 2.718281828 ** (-3.0 * 0.2)
    assert set(made) == {(1002,), (1000, 1001)}
    assert made[1002,] / 8000 == pytest.approx(together / (together + apart), abs=0.02)


@pytest.mark.parametrize("kind", ["word", "char"])
def test_whole_units_have_no_pieces(kind: str) -> None:
    with pytest.raises(DataError, match="bpe or unigram vocabulary only"):
        Subwords(learn(LINES, kind, 400), 0.1)  # type: ignore[arg-type]
