"""The two sides of a translation as ids: sources with their language's tag or prompt in front, targets with an end."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clearformer.errors import CheckpointError
from clearformer.text.learn import LearnedTokenizer
from clearformer.text.protocol import Tokenizer
from clearformer.text.subwords import Subwords

TAG = re.compile(r">>(\S+)<<")  # a language's token in public vocabularies


class Sides(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...


@dataclass(frozen=True)
class TranslationCodec:
    """A tokenizer as a translator asks for it, whichever kind it is."""

    tokenizer: Tokenizer  # of sources
    target: Tokenizer  # of targets: the same one, but for models with two vocabularies
    start: int
    end: int
    pad: int
    languages: dict[str, int] = field(default_factory=dict)  # the ids of their tags, where there are any
    front: Callable[[str | None], str | None] | None = None  # language → what `encode` is given as `to`, in training

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, *, start: int | None = None, end: int | None = None, pad: int | None = None
    ) -> "TranslationCodec":
        """Ids that are given come before the tokenizer's own."""
        start = tokenizer.start if start is None else start
        end = tokenizer.end if end is None else end
        pad = tokenizer.pad if pad is None else pad
        if start is None or end is None:
            raise CheckpointError("the model does not say which tokens begin and end a text (decoder_start_token_id)")
        if isinstance(tokenizer, LearnedTokenizer):
            languages = tokenizer.languages
        else:
            pieces = tokenizer.pieces(range(len(tokenizer)))
            languages = {found[1]: n for n, piece in enumerate(pieces) if (found := TAG.fullmatch(piece))}
        return cls(tokenizer, tokenizer.target(), start, end, pad if pad is not None else 0, languages)

    def __len__(self) -> int:
        return max(len(self.tokenizer), len(self.target))

    def encode(self, text: str, to: str | None = None) -> list[int]:
        """A source; `to` is a language that has a tag, or else words to put in front."""
        return self.encode_all([text], to)[0]

    def encode_all(self, texts: Sequence[str], to: str | None = None) -> list[list[int]]:
        tag, words = self._front(to)
        return [[*tag, *ids] for ids in self.tokenizer.ids_of([words + text for text in texts] if words else texts)]

    def _front(self, to: str | None) -> tuple[list[int], str]:
        """What stands in front of a source: the id of a language's tag, or words."""
        if to in self.languages:
            return [self.languages[to]], ""
        if to is not None and isinstance(self.tokenizer, LearnedTokenizer):
            self.tokenizer.tag(to)  # which it does not have
        return [], to or ""

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids if ids[-1:] == [self.end] else [*ids, self.end] for ids in self.target.ids_of(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        return self.target.decode(ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.target.pieces(ids)

    def code(self, pairs: Sequence[Sides], to: str | None) -> list[tuple[list[int], list[int]]]:
        """The ids of both sides of pairs, for training."""
        sources = self.sources([pair.source for pair in pairs], to)
        return list(zip(sources, self.encode_targets([pair.target for pair in pairs]), strict=True))

    def sources(self, texts: Sequence[str], to: str | None) -> list[list[int]]:
        """The ids of one side alone, for training."""
        return self.encode_all(texts, self._wanted(to))

    def _wanted(self, to: str | None) -> str | None:
        """What `encode` is given for the language of a set of pairs."""
        return self.front(to) if self.front is not None else to if self.languages else None

    def sample(self, subwords: Subwords, texts: Sequence[str], to: str | None, bits: Sequence[int]) -> list[list[int]]:
        """Sources cut into subwords at random, each as its bits say, for training."""
        tag, _ = self._front(self._wanted(to))
        return [[*tag, *subwords.encode(text, mine)] for text, mine in zip(texts, bits, strict=True)]
