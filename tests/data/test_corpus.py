"""The corpus on disk holds what the tokenizer says; what is empty, too long or repeated is left out and reported."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from clearformer.data import corpus as module
from clearformer.data.corpus import Corpus, Report, Texts, count, digest, encode
from clearformer.data.pairs import Pairs
from clearformer.errors import DataError
from clearformer.text.learn import learn
from clearformer.text.translation import TranslationCodec

ROWS = [(f"word {n}", f"Wort {n} {'x' * (n % 5)}") for n in range(50)]


@pytest.fixture(scope="module")
def tokenizer() -> TranslationCodec:
    return TranslationCodec.of(learn([side for row in ROWS for side in row], "char", 300, languages=["de", "fr"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus")


def written(folder: Path, rows: Sequence[tuple[str, str]], name: str = "a", **rest: str) -> Pairs:
    path = folder / f"{name}.tsv"
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in rows).encode())
    return Pairs(file=path, **rest)


def content(folder: Path, name: str = "train") -> list[tuple[list[int], list[int]]]:
    corpus = Corpus(folder, name)
    pairs = [tuple(side.tolist() for side in corpus.pair(n)) for n in range(len(corpus))]
    assert [(len(a), len(b)) for a, b in pairs] == list(zip(corpus.sources, corpus.targets, strict=True))
    return pairs  # type: ignore[return-value]


def direct(tokenizer: TranslationCodec, rows: Sequence[tuple[str, str]], to: str | None = None) -> list:
    return [(tokenizer.encode(a, to), tokenizer.encode(b)) for a, b in rows]


def test_ids_on_disk_are_those_of_the_tokenizer(
    folder: Path, tokenizer: TranslationCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 7)  # several calls, the last one not full
    report = encode(folder, "train", [written(folder, ROWS)], tokenizer, longest=99)
    assert content(folder) == direct(tokenizer, ROWS)
    assert (folder / "train.tokens").stat().st_size == 2 * (report.source_tokens + report.target_tokens)


def test_the_wanted_language_stands_in_front_of_the_source(folder: Path, tokenizer: TranslationCodec) -> None:
    parts = [written(folder, ROWS[:2], "a", to="de"), written(folder, ROWS[2:3], "b", to="fr")]
    encode(folder, "train", parts, tokenizer, longest=99)
    assert content(folder) == direct(tokenizer, ROWS[:2], "de") + direct(tokenizer, ROWS[2:3], "fr")


def test_what_is_left_out_is_counted_and_shown(folder: Path, tokenizer: TranslationCodec) -> None:
    rows = [
        ("ab", "c"),
        ("", "x"),
        ("y", " \u3000"),
        ("ab", "c"),
        ("a" * 20, "d"),
        ("e", "f" * 8),
        ("ab", "d"),
        ("ab", "c"),
    ]
    pairs = written(folder, rows)
    report = encode(folder, "train", [pairs], tokenizer, longest=10)
    # a side is ▁, its letters and the end: "ab" 4, "c" 3, eight letters 10, twenty letters 22
    assert content(folder) == direct(tokenizer, [rows[0], rows[5], rows[6]])
    path = pairs.file
    assert report == Report(
        read=8,
        kept=3,
        empty=2,
        long=1,
        duplicate=2,
        source_tokens=4 + 3 + 4,
        target_tokens=3 + 10 + 3,
        longest=(4, 10),
        examples={
            "empty": f"{path}, line 2",
            "long": f"{path}, line 5, 22 + 3 tokens",
            "duplicate": f"{path}, line 4",
        },
    )
    assert str(report) == (
        "3 pairs, 11 + 16 tokens (3.7 + 5.3 a pair, longest 4 + 10); left out of 8:"
        f" 2 with an empty side (first: {path}, line 2), 1 too long (first: {path}, line 5, 22 + 3 tokens),"
        f" 2 repeated (first: {path}, line 4)"
    )


def test_repeated_pairs_may_be_kept(folder: Path, tokenizer: TranslationCodec) -> None:
    rows = [("a", "b"), ("a", "b"), ("a", "")]
    report = encode(folder, "train", [written(folder, rows)], tokenizer, longest=9, duplicates=True)
    assert content(folder) == direct(tokenizer, rows[:2])
    assert (report.read, report.kept, report.duplicate, report.empty) == (3, 2, 0, 1)


def test_a_pair_for_another_language_is_no_repetition(folder: Path, tokenizer: TranslationCodec) -> None:
    parts = [written(folder, [("OK", "OK")], to="de"), written(folder, [("OK", "OK")], "b", to="fr")]
    assert encode(folder, "train", [*parts, parts[0]], tokenizer, longest=9).duplicate == 1
    assert content(folder) == direct(tokenizer, [("OK", "OK")], "de") + direct(tokenizer, [("OK", "OK")], "fr")


def test_texts_cut_elsewhere_are_no_repetition() -> None:
    sides = [("a", "bc"), ("ab", "c"), ("a\0b", "c"), ("a", "b\0c"), ("abc", ""), ("", "abc"), ("abc",)]
    assert len({digest(*pair) for pair in sides}) == len(sides)


@given(st.frozensets(st.integers(0, 59)))
def test_held_out_pairs_and_the_others_are_all_pairs(
    folder: Path, tokenizer: TranslationCodec, held: frozenset[int]
) -> None:
    parts = [written(folder, ROWS[:20], "a"), written(folder, ROWS[20:], "b")]  # numbers run on over files
    train = encode(folder, "train", parts, tokenizer, longest=99, held_out=held)
    valid = encode(folder, "valid", parts, tokenizer, longest=99, only=held)
    assert content(folder, "train") == direct(tokenizer, [row for n, row in enumerate(ROWS) if n not in held])
    assert content(folder, "valid") == direct(tokenizer, [row for n, row in enumerate(ROWS) if n in held])
    assert train.read + valid.read == train.kept + valid.kept == len(ROWS)


def test_a_corpus_without_pairs_is_one(folder: Path, tokenizer: TranslationCodec) -> None:
    report = encode(folder, "train", [written(folder, [("", "a")])], tokenizer, longest=9)
    assert content(folder) == []
    assert str(report).startswith("0 pairs, 0 + 0 tokens; left out of 1: 1 with an empty side")


def test_large_vocabularies_take_four_bytes(folder: Path) -> None:
    words = [f"w{n}" for n in range(70_000)]
    for size, width in ((2**16, 2), (2**16 + 1, 4)):
        tokenizer = TranslationCodec.of(learn(words, "word", size))
        assert len(tokenizer) == size
        last = tokenizer.pieces([size - 1])[0]
        encode(folder, "train", [written(folder, [(last, "w0")])], tokenizer, longest=9)
        assert content(folder)[0][0] == [size - 1, tokenizer.end]
        assert (folder / "train.tokens").stat().st_size == 4 * width


def test_texts_are_both_sides_and_can_be_read_again(folder: Path) -> None:
    parts = [written(folder, [("a", "b"), ("", "c")]), written(folder, [("d", "e")], "b")]
    found = Texts(parts)
    assert list(found) == list(found) == ["a", "b", "c", "d", "e"]
    assert list(Texts(iter(parts), 2)) == ["a", "b"]
    assert count(parts) == 3


def test_an_error_in_the_data_comes_through(folder: Path, tokenizer: TranslationCodec) -> None:
    pairs = written(folder, [("a", "b"), ("c\xff", "d")])
    assert pairs.file is not None
    pairs.file.write_bytes(b"a\tb\n\xff\td\n")
    for use in (lambda: count([pairs]), lambda: encode(folder, "train", [pairs], tokenizer, longest=9)):
        with pytest.raises(DataError, match=r"a\.tsv, line 2: byte 1"):
            use()


# --- damage -----------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path, tokenizer: TranslationCodec) -> Path:
    encode(tmp_path, "train", [written(tmp_path, ROWS)], tokenizer, longest=99)
    return tmp_path


@pytest.mark.parametrize("name", ["train.tokens", "train.safetensors"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "odd", "longer", "folder"])
def test_a_damaged_file_is_named(whole: Path, name: str, damage: str) -> None:
    path = whole / name
    raw = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes({"empty": b"", "cut": raw[:-100], "odd": raw[:-1], "longer": raw + raw[:10]}[damage])
    with pytest.raises(DataError, match=r"train\.(tokens|safetensors)"):
        Corpus(whole, "train")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sources", None),
        ("sources", [1]),
        ("sources", [[4, 4]]),
        ("sources", "shorter"),
        ("sources", "negative"),
        ("targets", "two-dimensional"),
        ("bytes", []),
        ("bytes", [3]),
        ("bytes", [4]),
        ("bytes", None),
        ("examples", [49]),
        ("examples", [51, -1]),
        ("examples", []),
        ("versions", [2]),
        ("versions", None),
    ],
)
def test_an_index_that_says_something_else_is_refused(whole: Path, key: str, value: object) -> None:
    index = load_file(whole / "train.safetensors")
    array = index.pop(key)
    if value == "shorter":  # the sum is right
        index[key] = np.concatenate([array[:-2], array[-2:].sum(keepdims=True)]).astype(np.int32)
    elif value == "negative":
        index[key] = np.concatenate([[-array[1]], [array[0] + 2 * array[1]], array[2:]]).astype(np.int32)
    elif value == "two-dimensional":
        index[key] = array[:, None].copy()
    elif value is not None:
        index[key] = np.asarray(value, array.dtype)
    save_file(index, whole / "train.safetensors")
    with pytest.raises(DataError, match=r"train\.(tokens|safetensors)"):
        Corpus(whole, "train")


def test_a_corpus_that_tells_no_sets_is_one(whole: Path) -> None:
    """As those were that runs of before have."""
    index = load_file(whole / "train.safetensors")
    save_file({name: index[name] for name in ("sources", "targets", "bytes")}, whole / "train.safetensors")
    (stretch,) = Corpus(whole, "train").stretches
    assert (stretch.first, stretch.examples, stretch.versions) == (0, 50, 1)
