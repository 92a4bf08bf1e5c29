"""What a word is, and the words that are known, by number."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from typing import overload

from clearformer.data.lines import lines
from clearformer.errors import DataError

Texts = str | Path | Iterable[str | Path]  # a file; or texts, and files as `Path`s
FEW = 20_000  # words that are compared with one that was never seen


def words(text: str) -> list[str]:
    """The words of a text in small letters: letters with their marks, digits, and apostrophes between them."""
    if text.isascii():
        return _PLAIN.findall(text.lower())
    return _marked().findall(unicodedata.normalize("NFC", text).lower().replace("’", "'"))


_PLAIN = re.compile(r"\w+(?:'\w+)*")  # five times as fast


@cache
def _marked() -> re.Pattern[str]:
    signs = (*range(0x300, 0x1E950), *range(0xE0100, 0xE01F0))
    marks = "".join(chr(sign) for sign in signs if unicodedata.category(chr(sign))[0] == "M")
    # \w knows no marks, and vowels of Hindi are some; the last two join letters
    part = rf"\w+(?:[{marks}\u200c\u200d]+\w*)*"
    return re.compile(rf"{part}(?:'{part})*")


def each_text(texts: Texts) -> Iterator[str]:
    """Texts one after the other; those of a file are its lines, and are never held all at once."""
    for given in [Path(texts)] if isinstance(texts, str | Path) else texts:
        if isinstance(given, Path):
            yield from lines(given)
        elif isinstance(given, str):
            yield given
        else:
            raise DataError(f"a text must be a str, and a file a Path; given {type(given).__name__}")


def twice(texts: Texts) -> Texts:
    """The same, if it can be read twice."""
    if isinstance(texts, Iterator):
        raise DataError("texts are read twice, and an iterator can be read once; give a list, or the path of a file")
    return texts


class Vocabulary(Sequence[str]):
    """Different words, in order; each one's number is its place."""

    def __init__(self, known: Iterable[str]):
        self._words = tuple(known)
        self._ids = {word: number for number, word in enumerate(self._words)}
        if len(self._ids) < len(self._words):
            raise ValueError("a word is there twice")

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[str, ...]: ...
    def __getitem__(self, number: int | slice) -> str | tuple[str, ...]:
        return self._words[number]

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._words == other._words

    def __hash__(self) -> int:
        return hash(self._words)

    def id(self, word: str) -> int:
        """The number of a word, in whatever case it is given."""
        found = [word] if word in self._ids else words(word)
        if len(found) != 1:
            raise DataError(f"{word!r} is not one word")
        if found[0] not in self._ids:
            raise DataError(
                f"{word!r} was never seen, or too seldom: {len(self):,} words are known{self.near(found[0])}"
            )
        return self._ids[found[0]]

    def ids(self, text: str) -> list[int]:
        """The numbers of the known words of a text, in order."""
        found = map(self._ids.get, words(text))
        return [number for number in found if number is not None]

    def unseen(self, text: str) -> list[str]:
        """The words of a text that are not known, each once."""
        return [word for word in dict.fromkeys(words(text)) if word not in self._ids]

    def near(self, word: str) -> str:
        """`; did you mean 'apple'?`, where a word is spelled much like it."""
        alike = (
            each
            for each in self._words
            if abs(len(each) - len(word)) <= 2 and (each[:1] == word[:1] or each[-1:] == word[-1:])
        )
        found = get_close_matches(word, list(islice(alike, FEW)), n=3, cutoff=0.5)
        return "; did you mean " + " or ".join(map(repr, found)) + "?" if found else ""
