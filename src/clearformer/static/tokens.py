"""A text of any length as numbers in a file of their own, read back a chunk at a time."""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from clearformer.errors import DataError
from clearformer.static.vocabulary import Texts, Vocabulary, each_text, words

END = -1  # after the words of each text
CHUNK = 2**16
AT_ONCE = 4_096  # texts between two writes
Array = np.ndarray[Any, np.dtype[np.int32]]
Read = Callable[[int], None]  # called with the number of texts read so far


def nothing(count: int) -> None:
    pass


def count(texts: Texts, min_count: int, read: Read = nothing) -> tuple[Vocabulary, np.ndarray[Any, np.dtype[np.int64]]]:
    """The first pass: the words that occur at least so often, the most frequent first, and how often each does."""
    found: Counter[str] = Counter()
    number = 0
    for number, text in enumerate(each_text(texts), 1):
        found.update(words(text))
        if number % AT_ONCE == 0:
            read(number)
    if not found:
        raise DataError(f"there are no words in these texts ({number:,} lines)")
    kept = sorted((word for word, times in found.items() if times >= min_count), key=lambda word: (-found[word], word))
    if len(found) == 1:
        raise DataError(
            f"there is one word only, {next(iter(found))!r}: a word's vector comes from the others beside it"
        )
    if len(kept) < 2:
        most = found.most_common(2)[1][1]
        raise DataError(
            f"of {len(found):,} words, {len(kept)} occur {min_count} times or more, and two are needed; give more text,"
            f" or a min_count of {most} at most",
            param="min_count",
        )
    return Vocabulary(kept), np.array([found[word] for word in kept], np.int64)


class Tokens:
    """The second pass: the known words of the texts, by number."""

    def __init__(self, texts: Texts, vocabulary: Vocabulary, read: Read = nothing):
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 it lives as long as this object
        seen = hashlib.sha256()
        self.words, pairs = 0, False
        waiting: list[int] = []

        def write() -> None:
            raw = np.array(waiting, np.int32).tobytes()
            seen.update(raw)
            self._file.write(raw)
            waiting.clear()

        for number, text in enumerate(each_text(texts), 1):
            if ids := vocabulary.ids(text):
                waiting += [*ids, END]
                self.words += len(ids)
                pairs = pairs or len(ids) > 1
            if number % AT_ONCE == 0:
                write()
                read(number)
        write()
        self._file.flush()
        self.fingerprint = seen.hexdigest()
        if not pairs:
            raise DataError(
                "no two known words stand in one line, so none is beside another; put a sentence or more on each"
            )
        self._ids = np.memmap(self._file, np.int32, "r")

    @property
    def chunks(self) -> int:
        return -(-len(self._ids) // CHUNK)

    def chunk(self, number: int) -> Array:
        return np.array(self._ids[number * CHUNK : (number + 1) * CHUNK])
