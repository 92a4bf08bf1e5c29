"""One-hot: as many places as there are words, and a single 1 in the word's own. Says which word it is, and no more."""

from collections import Counter
from typing import Self

import torch
from torch import Tensor

from clearformer.errors import DataError
from clearformer.static.vocabulary import Texts, Vocabulary, each_text, words


class OneHot:
    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary

    @classmethod
    def fit(cls, texts: Texts) -> Self:
        """Of all words of the texts, in the order in which they come."""
        found = Counter(word for text in each_text(texts) for word in words(text))
        if not found:
            raise DataError("there are no words in these texts")
        return cls(Vocabulary(found))

    def vectors(self, text: str) -> Tensor:
        """t v, sparse: a row for each word of a text. One that was never seen is an error."""
        ids = [self.vocabulary.id(word) for word in words(text)]
        places = torch.tensor([range(len(ids)), ids])
        return torch.sparse_coo_tensor(
            places, torch.ones(len(ids)), (len(ids), len(self.vocabulary)), is_coalesced=True, check_invariants=True
        )

    def word(self, vector: Tensor) -> str:
        """The word of a dense vector."""
        return self.vocabulary[int(vector.argmax())]
