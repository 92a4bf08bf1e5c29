"""Text ↔ ids by sentencepiece models: T5's `spiece.model`, Llama's `tokenizer.model`, Marian's pair of `.spm` files.

The pieces are those of the sentencepiece library itself. Its normaliser is in `charsmap`; finding the best pieces is
left to the tokenizers library; what stands around a text and inside it as a special token is done here.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenizers import Encoding, decoders, models
from tokenizers import Tokenizer as Engine

from clearformer.text.charsmap import Normal, Normaliser
from clearformer.text.proto import BPE, BYTE, CONTROL, UNIGRAM, UNKNOWN, USER, Sentencepiece

MOST_WORK = 100_000_000  # splits of pieces to try, where pairs that merge must be found
LARGEST_CHARSMAP = 8 * 2**20
HIDDEN = (UNKNOWN, CONTROL, BYTE)  # what no text may match
MARK = "\ufdd0"  # stands in front of it; it is no character


class Cut(NamedTuple):
    """One piece of a text, and the characters it stands for."""

    piece: str
    start: int
    end: int


class Cutter:
    """Cuts texts into pieces, exactly as the library does. A ValueError says why a model cannot be used."""

    def __init__(self, model: Sentencepiece):
        _check(model)
        self.model, self._normal = model, Normaliser(model)
        self._unknown = model.kinds.index(UNKNOWN)
        self.engine = _bpe(model) if model.model == BPE else _unigram(model)
        self.engine.encode_special_tokens = True
        self.engine.decoder = _decoder(model)

    def cut(self, text: str, *, prefix: bool = True) -> list[Cut]:
        return self.cut_all([(text, prefix)])[0]

    def cut_all(self, texts: Sequence[tuple[str, bool]]) -> list[list[Cut]]:
        """The pieces of texts, each with a space in front or not. What is unknown is the piece it is written as."""
        normal = [self._normal(text, prefix=prefix) for text, prefix in texts]
        plain = [each.text for each in normal]
        if len(plain) == 1:  # without the cost of sharing work out
            found = [self.engine.encode(plain[0], add_special_tokens=False)]
        else:
            found = self.engine.encode_batch(plain, add_special_tokens=False)
        return [self._cuts(text, n, f) for (text, _), n, f in zip(texts, normal, found, strict=True)]

    def _cuts(self, text: str, normal: Normal, found: Encoding) -> list[Cut]:
        plain, starts, ends = normal
        cuts = []
        for number, (start, end) in zip(found.ids, found.offsets, strict=True):
            if number == self._unknown and self.model.byte_fallback:
                for at in range(start, end):
                    span = _trimmed(text, starts[at], ends[at])
                    cuts += [Cut(f"<0x{byte:02X}>", *span) for byte in plain[at].encode()]
            else:
                piece = plain[start:end] if number == self._unknown else self.model.pieces[number]
                cuts.append(Cut(piece, *_trimmed(text, starts[start], ends[end - 1])))
        return cuts


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the spaces at its ends: they are in the piece, but not of the word."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _check(model: Sentencepiece) -> None:
    if model.model not in (UNIGRAM, BPE):
        raise ValueError("it is neither a unigram model nor BPE; others are not read")
    if model.kinds.count(UNKNOWN) != 1:
        raise ValueError("it has no piece, or more than one, for what is unknown")
    if len(set(model.pieces)) < len(model.pieces) or "" in model.pieces:
        raise ValueError("it has a piece twice, or an empty one")
    if not all(map(math.isfinite, model.scores)):
        raise ValueError("a score is not finite")
    if len(model.charsmap) > LARGEST_CHARSMAP:
        raise ValueError(f"its normaliser is larger than {LARGEST_CHARSMAP:,} bytes")
    if model.byte_fallback and {f"<0x{byte:02X}>" for byte in range(256)} - set(model.pieces):
        raise ValueError("it spells unknown characters in bytes, but has not all 256 of them")


def _unigram(model: Sentencepiece) -> Engine:
    every = list(zip(model.pieces, model.scores, model.kinds, strict=True))
    highest = max((score for _, score, kind in every if kind not in HIDDEN), default=0.0)
    vocabulary = []
    for piece, score, kind in every:
        if kind in HIDDEN:
            vocabulary.append((MARK + piece, 0.0))
        else:  # what a user defined is better than any other way
            vocabulary.append((piece, len(piece) * highest - 0.1 if kind == USER else score))
    return Engine(models.Unigram(vocabulary, model.kinds.index(UNKNOWN), False))


def _bpe(model: Sentencepiece) -> Engine:
    every = list(zip(model.pieces, model.scores, model.kinds, strict=True))
    vocabulary = {MARK + piece if kind in HIDDEN else piece: n for n, (piece, _, kind) in enumerate(every)}
    scores = {piece: score for piece, score, kind in every if kind not in HIDDEN}
    if sum(len(piece) ** 2 for piece in scores) > MOST_WORK:
        raise ValueError("its pieces are too long")
    merges = [
        (-score, at, number, piece[:at], piece[at:])
        for number, (piece, score) in enumerate(scores.items())
        for at in range(1, len(piece))
        if piece[:at] in scores and piece[at:] in scores
    ]
    pairs = [(left, right) for *_, left, right in sorted(merges)]
    unknown = MARK + model.pieces[model.kinds.index(UNKNOWN)]
    engine = Engine(models.BPE(vocabulary, pairs, unk_token=unknown, fuse_unk=True))
    engine.add_tokens([piece for piece, _, kind in every if kind == USER])
    return engine


def _decoder(model: Sentencepiece) -> Any:
    steps: list[Any] = [decoders.Replace("▁", " ")]
    if model.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    if model.prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def splitter(tokens: Sequence[str]) -> re.Pattern[str]:
    """Finds special tokens in a text, the longest first."""
    return re.compile("|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True) if token) or "(?!)")
