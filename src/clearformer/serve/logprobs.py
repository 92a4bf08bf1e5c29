"""Log-probabilities of tokens, as OpenAI says them: in chats with the bytes of every token, in completions as lists."""

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from clearformer.serve.writing import Told
from clearformer.text.detokenize import BYTE

LEAST = -9999.0  # what cannot come; JSON has no infinity


@lru_cache(maxsize=1)
def _alphabet() -> dict[str, int]:
    """The characters that byte-level tokenizers write bytes as: those that can be seen, and others from 256 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + n): byte for n, byte in enumerate(rest)}


class Names:
    """Tokens of one tokenizer as people and programs read them."""

    def __init__(self, words: Any):
        self.words = words
        self.levels = re.search(
            r'"type":\s*"ByteLevel"', str(words.engine.decoder and words.engine.decoder.__getstate__())
        )
        self.before = words.spoken(words.encode("a", special=False).ids)[-1:]
        self.known = len(words.raw(self.before))
        self._seen: dict[int, tuple[str, bytes]] = {}  # no more than there are tokens

    def of(self, token: int) -> tuple[str, bytes]:
        """A token as text, and as bytes."""
        if token not in self._seen:
            self._seen[token] = self._text(token), self._bytes(token)
        return self._seen[token]

    def text(self, token: int) -> str:
        return self.of(token)[0]

    def _bytes(self, token: int) -> bytes:
        """What a token adds to a text: whole characters, or some bytes of one."""
        piece = self.words.token(token)
        if piece is None:
            return b""
        if token in self.words.special:
            return piece.encode()
        if BYTE.fullmatch(piece):
            return bytes([int(piece[3:5], 16)])
        if self.levels and all(character in _alphabet() for character in piece):
            return bytes(_alphabet()[character] for character in piece)
        return self.words.raw([*self.before, token])[self.known :].encode()

    def _text(self, token: int) -> str:
        """The same as text; bytes that are no characters are written as OpenAI does."""
        found = self._bytes(token)
        try:
            return found.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in found)


_names: "WeakKeyDictionary[Any, Names]" = WeakKeyDictionary()


def names_of(words: Any) -> Names:
    if (found := _names.get(words)) is None:
        found = _names[words] = Names(words)
    return found


def in_chat(names: Names, tokens: Iterable[Told]) -> dict[str, Any]:
    def one(token: int, logprob: float) -> dict[str, Any]:
        text, coded = names.of(token)
        return {"token": text, "logprob": shown(logprob), "bytes": list(coded)}

    content = [{**one(each.id, each.logprob), "top_logprobs": [one(*other) for other in each.top]} for each in tokens]
    return {"content": content, "refusal": None}


def in_completion(names: Names, tokens: Sequence[Told], offset: int = 0, count: int = 0) -> dict[str, Any]:
    """`offset` characters stand before the text; each token has itself among its likeliest, and `count` others."""
    tops = []
    for each in tokens:
        top = {names.text(token): shown(logprob) for token, logprob in each.top[:count]}
        if not math.isnan(each.logprob):
            top.setdefault(names.text(each.id), shown(each.logprob))
        tops.append(top or None)
    return {
        "text_offset": [offset + each.start for each in tokens],
        "tokens": [names.text(each.id) for each in tokens],
        "token_logprobs": [shown(each.logprob) for each in tokens],
        "top_logprobs": tops if count else None,
    }


def shown(logprob: float) -> float | None:
    """A number that JSON has; None for the first token of a text, which nothing stands before."""
    return None if math.isnan(logprob) else max(LEAST, logprob)
