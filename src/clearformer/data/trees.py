"""Sentences with a tag and a head for every word, from CoNLL-U files (https://universaldependencies.org/format.html)."""

from collections.abc import Iterator
from itertools import islice

from clearformer.data.lines import lines
from clearformer.data.pairs import Pair, Pairs
from clearformer.errors import DataError, nearest

JOINED = "\u2060"  # between two words that stand without a space in the text
COLUMNS = {"form": 1, "lemma": 2, "upos": 3, "xpos": 4, "deprel": 7}


def read_trees(part: Pairs) -> Iterator[Pair]:
    """A pair for each sentence: its words, separated by spaces, its tags likewise, and the heads as `more`.

    Words that stand without a space in the text (SpaceAfter=No), such as one and a full stop, have `JOINED` between
    them instead. Where letters meet (can|not, do|n't), it is a space: no tokenizer would tell them apart.
    `fields` are the columns of the words and of the tags; without them, form and upos.
    """
    form, tag, *_ = part.fields or ("form", "upos")
    for name in (form, tag):
        if name not in COLUMNS:
            raise DataError(f"fields: CoNLL-U has no column {name!r}{nearest(name, COLUMNS)}")
    return islice(_sentences(part, COLUMNS[form], COLUMNS[tag]), *(part.rows or (None,)))


def _sentences(part: Pairs, form: int, tag: int) -> Iterator[Pair]:
    if part.file is None:
        raise DataError("tags are read from one CoNLL-U file; give it as file")
    words: list[list[str]] = []
    number = began = 0
    for number, line in enumerate(lines(part.file), 1):
        if not line.strip():
            if words:
                yield _sentence(words, form, tag, f"{part.file}, line {began}")
            words = []
        elif not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 10:
                raise DataError(
                    f"{part.file}, line {number}: {len(columns)} columns, and CoNLL-U has 10, separated by tabs"
                )
            if columns[0].isdecimal():  # not a range of words written as one, nor a word that was left out
                began = number if not words else began
                words.append(columns)
    if words:
        yield _sentence(words, form, tag, f"{part.file}, line {began}")


def _sentence(words: list[list[str]], form: int, tag: int, where: str) -> Pair:
    heads = []
    for number, columns in enumerate(words, 1):
        head = columns[6]
        if int(columns[0]) != number or not (head == "_" or (head.isdecimal() and int(head) <= len(words))):
            raise DataError(f"{where}: word {number} of the sentence has id {columns[0]} and head {head!r}")
        heads.append(0 if head == "_" else int(head))

    forms = [columns[form].replace(" ", "\u00a0").replace(JOINED, "\u200b") for columns in words]
    source = "".join(
        text + _between(columns, text, after)
        for columns, text, after in zip(words, forms, [*forms[1:], ""], strict=True)
    )
    tags = " ".join(columns[tag].replace(" ", "\u00a0") for columns in words)
    return Pair(source, tags, where, tuple(float(head) for head in heads))


def _between(columns: list[str], text: str, after: str) -> str:
    if not after:
        return ""
    apart = text[-1:].isalnum() and after[:1].isalnum()
    return JOINED if "SpaceAfter=No" in columns[9].split("|") and not apart else " "


def words_of(source: str) -> list[str]:
    """The words of a sentence."""
    return source.replace(JOINED, " ").split(" ")
