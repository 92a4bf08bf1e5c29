"""A sentencepiece model file, read as far as tokenizing needs it.

The file is a protobuf: a row of (field number, kind, value), where a value may be such a row again.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM, BPE = 1, 2  # kinds of models; others are not read


@dataclass(frozen=True)
class Sentencepiece:
    """What a file says. Where it says nothing, the format's own defaults hold."""

    pieces: list[str]
    scores: list[float]
    kinds: list[int]
    model: int = UNIGRAM
    byte_fallback: bool = False
    suffix: bool = False  # whether spaces belong to the word before them
    charsmap: bytes = b""
    prefix: bool = True  # whether a space is put in front
    squeeze: bool = True  # whether spaces at the ends and doubled ones are dropped
    spaced: bool = True  # whether spaces are shown as ▁


def parse(raw: bytes) -> Sentencepiece:
    """A ValueError says what is wrong."""
    pieces, scores, kinds = list[str](), list[float](), list[int]()
    said: dict[str, Any] = {}
    for number, value in _fields(raw):
        if number == 1 and isinstance(value, bytes):
            piece = dict(_fields(value))
            text = piece.get(1, b"")
            score, kind = piece.get(2, 0.0), piece.get(3, NORMAL)
            if not isinstance(text, bytes) or not isinstance(score, float) or not isinstance(kind, int):
                raise ValueError(f"piece {len(pieces)} is no text with a score")
            pieces.append(text.decode())
            scores.append(score)
            kinds.append(kind)
        elif number == 2 and isinstance(value, bytes):
            said |= _named(value, {3: "model", 24: "suffix", 35: "byte_fallback"}, int)
        elif number == 3 and isinstance(value, bytes):
            said |= _named(value, {3: "prefix", 4: "squeeze", 5: "spaced"}, int)
            said |= _named(value, {2: "charsmap"}, bytes)
    if not pieces:
        raise ValueError("it holds no pieces")
    flags: dict[str, Any] = {key: v if key in ("model", "charsmap") else bool(v) for key, v in said.items()}
    return Sentencepiece(pieces, scores, kinds, **flags)


def _named(raw: bytes, names: dict[int, str], kind: type) -> dict[str, Any]:
    return {names[n]: value for n, value in _fields(raw) if n in names and isinstance(value, kind)}


def _fields(raw: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    place = 0
    while place < len(raw):
        key, place = _number(raw, place)
        match key & 7:
            case 0:
                value, place = _number(raw, place)
                yield key >> 3, value
            case 1:
                place += 8
            case 2:
                size, place = _number(raw, place)
                if place + size > len(raw):
                    raise ValueError("it ends inside a value")
                yield key >> 3, raw[place : place + size]
                place += size
            case 5:
                if place + 4 > len(raw):
                    raise ValueError("it ends inside a value")
                yield key >> 3, struct.unpack_from("<f", raw, place)[0]
                place += 4
            case kind:
                raise ValueError(f"it has a value of the unknown kind {kind}")


def _number(raw: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(raw):
            raise ValueError("it ends inside a number")
        value |= (raw[place] & 127) << shift
        place += 1
        if raw[place - 1] < 128:
            return value, place
    raise ValueError("it has a number of more than ten bytes")
