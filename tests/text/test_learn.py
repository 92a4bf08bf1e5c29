"""The tokenizer: every text comes back, no text is read as a special token, and learning is the same each time."""

import json
import os
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearformer.errors import CheckpointError, DataError
from clearformer.text.learn import BYTES, LARGEST, SPECIAL, Kind, LearnedTokenizer, learn
from clearformer.text.translation import TranslationCodec

TEXTS = [
    "The cat sat on the mat, and the dog sat on the cat.",
    "Die Katze saß auf der Matte, und der Hund saß auf der Katze.",
    "THE CAT! Der Hund? 3.14 </s> <2de> <pad> <0x0A>",
    "l’été où là-bas ça et là",
] * 3
SUBWORD: list[Kind] = ["bpe", "unigram", "char"]
KINDS: list[Kind] = [*SUBWORD, "word"]
# any text but U+2581, which stands for a space; of the letters in TEXTS more often than of others
ANY = st.characters(codec="utf-8", exclude_characters="▁")
TEXT = st.text(st.one_of(ANY, st.sampled_from("the catßé  .,<>/\n\t\r\0e\u0301ﬁ２\u2028\u00a0\ufeff漢🙂")), max_size=30)


@cache
def tokenizer(kind: Kind, form: str = "NFC") -> LearnedTokenizer:
    return learn(TEXTS, kind, 340, form, ["de", "fr"])  # type: ignore[arg-type]


# --- there and back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SUBWORD)
@given(TEXT)
@example(" ")
@example("  a  b  ")
@example("\n")
@example("</s><2de><pad><0x0A><0xC3>")
def test_every_text_comes_back(kind: Kind, text: str) -> None:
    as_it_is, composed = tokenizer(kind, "none"), tokenizer(kind)
    assert as_it_is.decode(as_it_is.encode(text).ids) == text
    assert composed.decode(composed.encode(text).ids) == unicodedata.normalize("NFC", text)
    assert composed.unknown not in composed.encode(text).ids


@pytest.mark.parametrize("kind", SUBWORD)
def test_the_compatible_form_is_a_choice(kind: Kind) -> None:
    for text in ("ﬁne ２\u00a0km² … Å", "e\u0301", "ｶﾞ"):
        found = tokenizer(kind, "NFKC")
        assert found.decode(found.encode(text).ids) == unicodedata.normalize("NFKC", text) != text


def test_the_sign_for_a_space_is_read_as_one() -> None:
    for kind in SUBWORD:
        assert tokenizer(kind).decode(tokenizer(kind).encode("a▁b").ids) == "a b"


def test_casing_is_kept() -> None:
    for kind in KINDS:
        assert tokenizer(kind).decode(tokenizer(kind).encode("THE cat").ids) == "THE cat"
        assert tokenizer(kind).encode("THE").ids != tokenizer(kind).encode("the").ids


@pytest.mark.parametrize("kind", SUBWORD)
@pytest.mark.parametrize("texts", [["aaaaaaaa"], [" "], ["漢字 かな"], ["a b c d e f g"]])
def test_the_smallest_vocabularies_still_bring_every_text_back(kind: Kind, texts: list[str]) -> None:
    for room in (1, 2, 5, 30):
        found = learn(texts, kind, len(SPECIAL) + len(BYTES) + room)
        assert len(found) <= len(SPECIAL) + len(BYTES) + room
        for text in ("aa b", " ", "漢  z\n"):
            assert found.decode(found.encode(text).ids) == text


def test_a_character_outside_the_alphabet_is_spelt_in_bytes() -> None:
    found = tokenizer("char")
    assert found.pieces(found.encode("a漢").ids) == ["▁", "a", "<0xE6>", "<0xBC>", "<0xA2>", "</s>"]  # UTF-8 of U+6F22


def test_half_a_character_is_no_text() -> None:
    for kind in KINDS:
        with pytest.raises(DataError, match="lone surrogate"):
            tokenizer(kind).encode("a\ud800")


def test_half_the_bytes_of_a_character_are_shown_as_such() -> None:
    found = tokenizer("char")
    assert found.decode(found.encode("漢").ids[:-2]) == "\ufffd\ufffd"


# --- special tokens ---------------------------------------------------------------------------------------

WRITTEN = [*SPECIAL, "<2de>", "<2fr>", "<0x0A>", "<0xE6>", "a</s>b", "</s></s>", " <pad> ", "<s>a", "x <2de> y"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", WRITTEN)
def test_a_special_token_written_in_a_text_is_text(kind: Kind, text: str) -> None:
    found = tokenizer(kind)
    body = found.encode(text).ids[:-1]
    allowed = {found.unknown} if kind == "word" else set()
    assert not set(range(len(SPECIAL) + 2)) & set(body) - allowed
    if kind != "word":
        assert found.decode(body) == text


def test_the_first_ids_are_fixed() -> None:
    for kind in KINDS:
        found = tokenizer(kind)
        assert (found.pad, found.start, found.end, found.unknown) == (0, 1, 2, 3)
        assert found.languages == {"de": 4, "fr": 5}


@pytest.mark.parametrize("kind", KINDS)
def test_the_wanted_language_stands_in_front(kind: Kind) -> None:
    found = TranslationCodec.of(tokenizer(kind))
    plain, tagged = found.encode("the cat"), found.encode("the cat", "de")
    assert tagged == [4, *plain]
    assert plain[-1] == 2
    assert found.encode_all(["the", "cat"], "fr") == [[5, *found.encode("the")], [5, *found.encode("cat")]]
    assert found.decode([1, *tagged, 0, 0]) == "the cat"
    with pytest.raises(DataError, match="does not translate to 'dee'; did you mean 'de'"):
        found.encode("the cat", "dee")
    with pytest.raises(DataError, match="one language only"):
        TranslationCodec.of(learn(TEXTS, kind, 300)).encode("the cat", "de")


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_learned_tokenizer_tells_of_a_text(kind: Kind) -> None:
    """Ids, where they stand in the text, and which belong to which of two texts; the same ids without the rest."""
    found = tokenizer(kind)
    texts = ["the cat", "", "</s> cat <pad>"]
    assert found.ids_of(texts) == [each.ids for each in found.encode_all(texts)] == [found.encode(t).ids for t in texts]
    assert found.encode("the cat", special=False).ids == found.encode("the cat").ids[:-1]
    two = found.encode("the cat", "a dog")
    count = len(found.encode("the cat").ids)
    assert two.ids == found.encode("the cat").ids + found.encode("a dog").ids
    assert two.sequence == [0] * (count - 1) + [None] + [1] * (len(two.ids) - count - 1) + [None]
    assert two.special == [each is None for each in two.sequence]
    assert two.segments == [0] * count + [1] * (len(two.ids) - count)
    assert [len(part) for part in two] == [len(two.ids)] * 5
    assert two.offsets[count - 2][1] == len("the cat")
    assert two.offsets[count - 1] == (0, 0)


def test_a_language_named_twice_has_one_tag() -> None:
    assert learn(TEXTS, "char", 300, languages=["de", "de", "fr"]).languages == {"de": 4, "fr": 5}


# --- what is learned --------------------------------------------------------------------------------------


def test_bpe_merges_the_most_frequent_neighbours_first() -> None:
    """By hand: `pug` 5×, `pun` 12×, `hug` 10×, `bun` 4×. p-u stands 17 times (u-n 16, u-g 15), then ▁-pu 17 times,
    then ▁pu-n 12 times, more than h-u or u-g."""
    texts = ["hug"] * 10 + ["pug"] * 5 + ["pun"] * 12 + ["bun"] * 4
    found = json.loads(learn(texts, "bpe", 260 + 28).to_json())["model"]  # a quarter of 28 are ▁ and six letters
    assert list(found["vocab"])[260:267] == sorted("▁hugpnb")
    assert [tuple(merge) for merge in found["merges"][:3]] == [("p", "u"), ("▁", "pu"), ("▁pu", "n")]


def test_no_token_reaches_over_a_space_or_into_punctuation() -> None:
    for kind in SUBWORD:
        found = learn(["good-morning, (you)! good-morning, (you)!"] * 50, kind, 400)
        for piece in found.pieces(range(len(SPECIAL) + len(BYTES), len(found))):
            assert "▁" not in piece[1:]
            assert len(piece) == 1 or not set(piece) & set("-,()!")


PARTS = ["ba", "de", "ki", "lo", "mu", "sch", "ung", "zu", "ra", "te"]
WORDS = [f"{a}{b}{c}" for a in PARTS for b in PARTS for c in PARTS[:3]]


def test_frequent_parts_are_one_token() -> None:
    for kind in ("bpe", "unigram"):
        found = learn([" ".join(WORDS)] * 3, kind, 400)  # type: ignore[arg-type]
        text = " ".join(WORDS[::7])
        assert len(found.encode(text).ids) < 0.5 * len(text)


def test_characters_are_taken_by_frequency() -> None:
    found = learn(["abbccc"], "char", 260 + 3)
    assert found.pieces(range(260, 263)) == ["▁", "c", "b"]


def test_words_are_taken_by_frequency_and_others_are_unknown() -> None:
    found = learn(["b a b", "c a b d"], "word", 4 + 2)
    assert found.pieces(range(6)) == ["<pad>", "<s>", "</s>", "<unk>", "b", "a"]
    assert found.encode("a c b").ids == [5, 3, 4, 2]
    assert found.decode([5, 3, 4, 2]) == "a <unk> b"


def test_more_characters_than_the_vocabulary_holds_are_no_obstacle() -> None:
    texts = [" ".join(WORDS[n % 40 :: 40]) + chr(0x4E00 + n) for n in range(600)]
    for kind in SUBWORD:
        found = learn(texts, kind, 400)
        assert len(found) <= 400
        assert found.decode(found.encode(texts[-1]).ids) == texts[-1]
        share = len(found.encode(" ".join(WORDS)).ids) / len(" ".join(WORDS))
        assert share < (0.7 if kind != "char" else 1.1)  # the parts of words are still learned


@pytest.mark.parametrize("kind", KINDS)
def test_without_text_or_room_nothing_is_learned(kind: Kind) -> None:
    for texts in ([], [""]):
        with pytest.raises(DataError, match="no text to learn"):
            learn(texts, kind)
    fixed = 5 if kind == "word" else 261
    with pytest.raises(DataError, match=f"{fixed} tokens are fixed"):
        learn(TEXTS, kind, fixed, languages=["de"])


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_can_be_read_once_are_enough(kind: Kind) -> None:
    assert learn(iter(TEXTS), kind, 340).to_json() == learn(TEXTS, kind, 340).to_json()


LEARN = """
import hashlib, random
from clearformer.text.learn import learn
random = random.Random(1)
parts = ["ba", "de", "ki", "lo", "mu", "sch", "ung", "zu", "ra", "te"]
words = ["".join(random.choices(parts, k=random.randint(1, 4))) for _ in range(200)]
texts = [" ".join(random.choices(words, k=10)) + chr(0x4E00 + n) for n in range(400)]  # equals among characters
for kind in ("bpe", "unigram", "char", "word"):
    for size in (320, 900):
        print(kind, size, hashlib.sha256(learn(texts, kind, size).to_json().encode()).hexdigest())
"""


def test_learning_is_the_same_in_every_process() -> None:
    def run(seed: str, threads: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        return subprocess.run(
            [sys.executable, "-c", LEARN], env=environment, capture_output=True, text=True, check=True
        ).stdout

    runs = [run("1", "1"), run("2", "2")]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == 8


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_gives_the_same_ids(kind: Kind, tmp_path: Path) -> None:
    first, path = tokenizer(kind), tmp_path / "tokenizer.json"
    path.write_text(first.to_json(), encoding="utf-8")
    second = LearnedTokenizer.load(path)
    assert second.to_json() == first.to_json()
    for text in (*TEXTS, *WRITTEN, "漢 🙂\n", ""):
        assert second.encode(text).ids == first.encode(text).ids
    assert (len(second), second.languages) == (len(first), first.languages)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        LearnedTokenizer.load(tmp_path / "tokenizer.json")
    with pytest.raises(CheckpointError, match="is no tokenizer"):
        LearnedTokenizer.load(tmp_path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as handle:
        handle.truncate(LARGEST + 1)
    with pytest.raises(CheckpointError, match=r"^\S+tokenizer\.json: larger than"):
        LearnedTokenizer.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named(kind: Kind, tmp_path: Path) -> None:
    path, whole = tmp_path / "tokenizer.json", tokenizer(kind).to_json()
    content = json.loads(whole)

    def changed(section: str, **values: object) -> str:
        return json.dumps(content | {section: content[section] | values})

    vocabulary = content["model"]["vocab"]
    if kind == "unigram":
        worse = [changed("model", unk_id=10**6), changed("model", vocab=vocabulary[:2])]
    else:
        worse = [changed("model", vocab=vocabulary | {"new": 10**6})]
    if kind == "word":
        worse.append(changed("model", unk_token="gone"))
    for damaged in (
        "",
        "{}",
        "[1, 2]",
        "[" * 100_000,
        whole[: len(whole) // 2],
        whole.replace("<pad>", "<pud>"),
        changed("model", type="Nonsense"),
        changed("model", vocab=[]),
        *worse,
    ):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
            LearnedTokenizer.load(path)
