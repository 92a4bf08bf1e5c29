"""The text normaliser of sentencepiece, exactly: rewriting by the longest match, then spaces.

The rewriting rules (NFKC and such, some 200,000) are in the model file, as a double-array trie over UTF-8 with the
texts it leads to. They are looked up as texts ask for them, and remembered.
"""

import re
import struct
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from clearformer.text.limits import MOST_GROWTH, longest_text
from clearformer.text.proto import USER, Sentencepiece

SPACE = "▁"
PRINTABLE = [chr(code) for code in range(33, 127)]


class Rules:
    """What is rewritten, and as what. A ValueError says what is wrong."""

    def __init__(self, charsmap: bytes):
        size = int.from_bytes(charsmap[:4], "little")
        if charsmap and (len(charsmap) < 4 or size % 4 or not 0 < size <= len(charsmap) - 4):
            raise ValueError("its normaliser is damaged")
        if longest_text(charsmap[4 + size :]) > MOST_GROWTH:
            raise ValueError("its normaliser makes characters into long texts")
        self._units = struct.unpack_from(f"<{size // 4}I", charsmap, 4) if charsmap else (0,)
        self._texts = charsmap[4 + size :]
        self._steps: dict[tuple[int, str], tuple[int, str | None] | None] = {}
        self._root = self._below(0)

    def longest(self, text: str, start: int) -> tuple[int, str] | None:
        """Where the longest match from `start` ends, and what it becomes."""
        node, best = self._root, None
        for place in range(start, len(text)):
            key = node, text[place]
            step = self._steps[key] if key in self._steps else self._steps.setdefault(key, self._step(*key))
            if step is None:
                break
            node = step[0]
            if step[1] is not None:
                best = place + 1, step[1]
        return best

    def _step(self, node: int, character: str) -> tuple[int, str | None] | None:
        """The node that a character leads to, with the text that ends there."""
        leaf = False
        for byte in character.encode():
            place = node ^ byte
            if place >= len(self._units) or self._units[place] & 0x800000FF != byte:
                return None
            node, leaf = place ^ self._offset(place), bool(self._units[place] >> 8 & 1)
        return node, self._text(node) if leaf and node < len(self._units) else None

    def _below(self, place: int) -> int:
        return place ^ self._offset(place)

    def _offset(self, place: int) -> int:
        unit = self._units[place]
        return unit >> 10 << ((unit & 512) >> 6)

    def _text(self, node: int) -> str:
        place = self._units[node] & 0x7FFFFFFF
        end = self._texts.find(b"\0", place)
        return self._texts[place : end if end >= 0 else None].decode(errors="replace")

    def leave_ascii(self) -> bool:
        """Whether printable ASCII with the same after it is never rewritten, as is usual."""
        pairs = (self.longest(a + b, 0) for a, b in product(PRINTABLE, PRINTABLE))
        return not any(pairs)


class Normal(NamedTuple):
    text: str
    starts: list[int]  # of what each character stands for, in the text as it was given
    ends: list[int]


class Normaliser:
    """Text as the pieces are cut from it."""

    def __init__(self, model: Sentencepiece):
        self.model, self.rules = model, Rules(model.charsmap)
        kinds = zip(model.pieces, model.kinds, strict=True)
        self._kept = {piece for piece, kind in kinds if kind == USER and piece}  # these are never rewritten
        whole = "|".join(re.escape(piece) for piece in sorted(self._kept, key=len, reverse=True)) or "(?!)"
        if not model.charsmap:
            other = " "
        elif self.rules.leave_ascii():
            other = "[^!-~]|[!-~](?=[^ -~])"  # what may be rewritten, or be the first half of it
        else:
            other = "."
        self._next = re.compile(f"{whole}|{other}", re.DOTALL)

    def __call__(self, text: str, *, prefix: bool = True) -> Normal:
        """The text, with a space in front unless `prefix` is off."""
        space, squeeze = SPACE if self.model.spaced else " ", self.model.squeeze
        made, starts, ends = [], list[int](), list[int]()
        if text and prefix and self.model.prefix and not self.model.suffix:
            made, starts, ends = [" "], [0], [0]
        spaced = squeeze  # so that one more space is one too many
        for start, end, chunk in self._chunks(text):
            if spaced and chunk.startswith(" "):
                chunk = chunk.lstrip(" ")
            if chunk:
                made.append(chunk)
                same = len(chunk) == end - start
                starts += range(start, end) if same else [start] * len(chunk)
                ends += range(start + 1, end + 1) if same else [end] * len(chunk)
                spaced = squeeze and chunk.endswith(" ")
        whole = "".join(made).replace(" ", space)
        if squeeze:
            whole = whole.rstrip(space)
        if whole and prefix and self.model.prefix and self.model.suffix:
            whole, starts, ends = whole + space, [*starts[: len(whole)], len(text)], [*ends[: len(whole)], len(text)]
        return Normal(whole, starts[: len(whole)], ends[: len(whole)])

    def _chunks(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where each stretch of text begins and ends, and what becomes of it."""
        place = 0
        while match := self._next.search(text, place):
            start, end = match.span()
            if start > place:
                yield place, start, text[place:start]
            place, chunk = end, match.group()
            if chunk != " " and chunk not in self._kept and (found := self.rules.longest(text, start)):
                place, chunk = found
            yield start, place, chunk
        if place < len(text):
            yield place, len(text), text[place:]
