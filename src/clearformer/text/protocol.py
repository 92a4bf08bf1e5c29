"""What every tokenizer is: text → ids and back (detokenise), with the ids of its special tokens."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Encoded(NamedTuple):
    """A text, or a pair of texts, as ids. All lists are of one length."""

    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]  # characters of the text, or of the pair where `sequence` is 1; (0, 0) if special
    special: list[bool]  # put there by the template
    sequence: list[int | None]  # 0 the text, 1 the pair, None special


class Tokenizer(Protocol):
    """`LearnedTokenizer` (of a translator that was trained here) and `PublicTokenizer` (all others) are two."""

    # ids of special tokens; None where there is no such token
    @property
    def pad(self) -> int | None: ...
    @property
    def start(self) -> int | None: ...
    @property
    def end(self) -> int | None: ...
    @property
    def unknown(self) -> int | None: ...

    def __len__(self) -> int:
        """One more than the highest id."""
        ...

    def encode(self, text: str, pair: str | None = None, *, special: bool = True) -> Encoded:
        """Ids of a text, or of two, in the tokenizer's template; without its special tokens if `special` is off."""
        ...

    def encode_all(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[Encoded]: ...

    def ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of `encode_all` and nothing else, which may be faster."""
        ...

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids; special tokens are left out unless asked for."""
        ...

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The tokens themselves, for people to look at."""
        ...

    def target(self) -> "Tokenizer":
        """The tokenizer of what the model writes, where that is another than the one of what it reads."""
        ...
