"""TF-IDF: how much a word tells about the text it stands in.

    idf(w) = ln((1 + n) / (1 + n_w)) + 1        n texts, n_w of them with the word w
    x_w    = count(w in the text) · idf(w)
    weights = x / |x|

as scikit-learn's `TfidfVectorizer` has it. The ones added are those of one text more that has every word: without them
(ln(n / n_w), as in the lecture notes) a word of all texts would weigh nothing, and one of none infinitely much. A
product of two texts' weights is their cosine.

Texts are read one at a time, twice: once to count, once to weigh. What is held is the words and their counts.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from clearformer.checkpoints.atomic import write_folder
from clearformer.errors import CheckpointError, DataError
from clearformer.static import folder as folders
from clearformer.static.vocabulary import Texts, Vocabulary, each_text, words

KIND = "tfidf"
Array = np.ndarray[Any, np.dtype[Any]]


class Row(NamedTuple):
    """A text: the numbers of its words, ascending, and their weights."""

    ids: Array  # int64
    weights: Array  # float32


class TfIdf:
    def __init__(self, vocabulary: Vocabulary, documents: Array, texts: int):
        self.vocabulary, self.documents, self.texts = vocabulary, documents, texts

    @classmethod
    def fit(cls, texts: Texts) -> Self:
        """The first pass: how many texts there are, and how many of them have each word."""
        found: Counter[str] = Counter()
        count = 0
        for text in each_text(texts):
            found.update(set(words(text)))
            count += 1
        if not found:
            raise DataError(f"there are no words in these texts ({count:,} lines)")
        known = sorted(found)
        return cls(Vocabulary(known), np.array([found[word] for word in known], np.int64), count)

    @cached_property
    def idf(self) -> Array:
        return np.log((1 + self.texts) / (1 + self.documents)) + 1

    def row(self, text: str) -> Row:
        """The weights of one text; words that were never seen are left out."""
        ids, counts = np.unique(np.array(self.vocabulary.ids(text), np.int64), return_counts=True)
        x = counts * self.idf[ids]
        return Row(ids, (x / (np.sqrt(x @ x) or 1.0)).astype(np.float32))

    def rows(self, texts: Texts) -> Iterator[Row]:
        """The second pass, one text at a time."""
        return map(self.row, each_text(texts))

    def matrix(self, texts: Texts) -> Tensor:
        """All rows as one sparse matrix, n v."""
        rows = list(self.rows(texts))
        texts_of = np.repeat(np.arange(len(rows)), [len(row.ids) for row in rows])
        ids = np.concatenate([np.zeros(0, np.int64), *(row.ids for row in rows)])
        weights = np.concatenate([np.zeros(0, np.float32), *(row.weights for row in rows)])
        places, size = torch.from_numpy(np.stack([texts_of, ids])), (len(rows), len(self.vocabulary))
        return torch.sparse_coo_tensor(
            places, torch.from_numpy(weights), size, is_coalesced=True, check_invariants=True
        )

    def save(self, folder: str | Path) -> Path:
        """Write a new folder; it appears when it is complete."""
        return write_folder(Path(folder), self.write)

    def write(self, folder: Path) -> None:
        about = {"kind": KIND, "texts": self.texts}
        folders.write(folder, about, self.vocabulary, {"documents": torch.from_numpy(self.documents)})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        about, vocabulary, tensors = folders.read(Path(folder), KIND)
        texts, documents = about.get("texts"), folders.tensor(tensors, "documents", torch.int64, (len(vocabulary),))
        if type(texts) is not int or not 0 < texts < 2**60:
            raise CheckpointError(f"{folder} is damaged: {folders.ABOUT} does not say how many texts there were")
        if not bool(((documents > 0) & (documents <= texts)).all()):
            raise CheckpointError(f"{folder} is damaged: a word is said to be in none of {texts:,} texts, or in more")
        return cls(vocabulary, documents.numpy().copy(), texts)
