"""Telling a text while its tokens still come."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearformer.text.detokenize import BYTE

if TYPE_CHECKING:
    from clearformer.text.tokenizer import PublicTokenizer

BYTES = 4  # tokens of a character at most
MARGIN = 8  # tokens, for those that say nothing


class Telling:
    """The text that tokens add to a prompt: as far as it is certain, and up to the first text to stop at."""

    def __init__(self, words: "PublicTokenizer", prompt: list[int], stop: Sequence[str]):
        self.words, self.stop = words, tuple(stop)
        self.context = _context(words, prompt)
        self.before = len(words.decode(self.context))
        self.stream = words.stream()
        self.certain = "".join(self.stream.add(token) for token in self.context)
        self.told = self.before
        self.reach = BYTES * max(map(len, self.stop), default=0) + MARGIN  # tokens

    @property
    def length(self) -> int:
        """Characters that are certain, whether they are told or not."""
        return len(self.certain) - self.before

    def add(self, token: int | None, *, last: bool) -> str:
        """What can be told now that a token has come; at the last one, all that is left. None is an end that says
        nothing."""
        if token is not None:
            self.certain += self.stream.add(token)
        if last:
            self.certain += self.stream.end()
        end = self._end(self.certain[self.before :]) if self.stop else None
        safe = self.before + end if end is not None else len(self.certain) - (0 if last else self._begun())
        piece = self.certain[self.told : safe]
        self.told = max(self.told, safe)
        return piece

    def stops(self, tokens: list[int]) -> bool:
        if not self.stop:
            return False
        return self._end(self._recent(tokens).rstrip("\ufffd")) is not None  # half a character, it may be

    def _recent(self, tokens: list[int]) -> str:
        """The last of the text: so much that a text to stop at which was not there before is in it. To decode all of it
        for every token would take longer and longer."""
        first = len(tokens) - self.reach
        if first < 1 or not self.stream.local:
            return self._text(tokens)
        while first > 1 and BYTE.fullmatch(self.words.pieces(tokens[first - 1 : first])[0]):
            first -= 1  # bytes are characters, or broken, only all together
        before = tokens[first - 1 : first]
        return self.words.decode(tokens[first - 1 :])[len(self.words.decode(before)) :]

    def whole(self, tokens: list[int]) -> tuple[str, bool]:
        """All of the text, and whether it was ended by one to stop at."""
        text = self._text(tokens)
        end = self._end(text)
        return (text, False) if end is None else (text[:end], True)

    def _text(self, tokens: list[int]) -> str:
        return self.words.decode([*self.context, *tokens])[self.before :]

    def _end(self, text: str) -> int | None:
        found = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return min(found, default=None)

    def _begun(self) -> int:
        """How many of the last characters may be the beginning of a text to stop at."""
        if not self.stop:
            return 0
        text = self.certain[self.before :]
        sizes = [n for stop in self.stop for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return max(sizes, default=0)


def _context(words: "PublicTokenizer", prompt: list[int]) -> list[int]:
    """A token to stand before the others, for the first of a text may lose its space; none where nothing was said.

    The last of the prompt, unless it is a byte, which bytes that follow could spoil.
    """
    said = next(([token] for token in reversed(prompt) if words.spoken([token])), [])
    return words.encode("a", special=False).ids if said and BYTE.fullmatch(words.pieces(said)[0]) else said
