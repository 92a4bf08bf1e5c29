"""Detokenise while ids still come: text is given out once nothing that follows can change it."""

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearformer.text.tokenizer import PublicTokenizer

BYTE = re.compile(r"<0x[0-9A-F]{2}>")
# between such characters no space is ever taken out, whatever comes later
SETTLED = re.compile(r"[0-9A-Za-z](?= [0-9A-Za-mo-z])")


class Stream:
    """`add` gives the text that has become certain, `end` the rest; together they are `decode` of all ids."""

    def __init__(self, words: "PublicTokenizer"):
        self.words = words
        self._local = _is_local(words)
        self._before: list[int] = []  # an id whose text is out already: what follows it is spelt as inside a text
        self._waiting: list[int] = []
        self._held = ""  # text that cleaning may still change
        self._told = False

    @property
    def local(self) -> bool:
        """Whether the text of some tokens is the same whatever stands before the one before them."""
        return self._local and not (self.words.clean or self.words.trim)

    def add(self, number: int) -> str:
        spoken = self.words.spoken([number])
        self._waiting += spoken
        if not spoken or not self._local or BYTE.fullmatch(self.words.pieces(spoken)[0]):
            return ""  # bytes are characters, or broken, only all together
        text = self._text()
        if text.endswith("\ufffd"):  # the first half of a character, it may be
            return ""
        self._before, self._waiting = spoken, []
        return self._settled(text)

    def end(self) -> str:
        text = self.words.cleaned(self._held + self._text())
        if self.words.trim:
            text = text.rstrip() if self._told else text.strip()
        self.__init__(self.words)  # type: ignore[misc]
        return text

    def _text(self) -> str:
        """What the waiting ids add to the text."""
        known = self.words.raw(self._before)
        return self.words.raw(self._before + self._waiting)[len(known) :]

    def _settled(self, text: str) -> str:
        """As much of the text as neither cleaning nor trimming can change any more."""
        self._held += text
        end = len(self._held)
        if self.words.trim:
            self._held = self._held if self._told else self._held.lstrip()
            end = len(self._held.rstrip())
        if self.words.clean:
            end = max((match.end() for match in SETTLED.finditer(self._held, 0, end)), default=0)
        text, self._held = self._held[:end], self._held[end:]
        self._told = self._told or bool(text)
        return self.words.cleaned(text)


def _is_local(words: "PublicTokenizer") -> bool:
    """Whether a token's text depends on the token before it only, so that it can be told without all the others."""
    decoder = words.engine.decoder
    if decoder is None:
        return True
    state = json.loads(decoder.__getstate__())
    steps = state["decoders"] if state["type"] == "Sequence" else [state]
    return all(_is_local_step(step, number, steps) for number, step in enumerate(steps))


def _is_local_step(step: dict, number: int, steps: list[dict]) -> bool:
    fused = any(earlier["type"] == "Fuse" for earlier in steps[:number])
    match step["type"]:
        case "ByteLevel" | "WordPiece" | "Metaspace":
            return not fused and number == 0
        case "Replace":  # of one character inside a token
            return not fused and len(step["pattern"].get("String", "")) == 1
        case "Strip":
            return step["stop"] == 0 and step["start"] <= 1
        case "ByteFallback":
            return not fused
        case kind:
            return kind == "Fuse"
