"""Pairs, encoded once and kept on disk: training reads token ids from a memory map, however large the data.

A corpus is two files: `NAME.tokens`, all ids one after another, source then target, pair by pair; and
`NAME.safetensors`, the length of every side. Its report says what was read and what was left out, and why.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from clearformer.data.pairs import Pair
from clearformer.errors import DataError

AT_ONCE = 4096  # pairs encoded in one call


class Coder(Protocol):
    """What turns pairs into ids below its length; every side has at least one."""

    def __len__(self) -> int: ...

    def code(self, pairs: Sequence[Pair], to: str | None) -> Iterable[tuple[list[int], list[int]]]: ...


class Readable(Protocol):
    """Where pairs are, as often as they are asked for; `Pairs` is one."""

    @property
    def to(self) -> str | None: ...

    def read(self) -> Iterator[Pair]: ...


@dataclass
class Report:
    """What became of the pairs that were read."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    long: int = 0
    duplicate: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    longest: tuple[int, int] = (0, 0)
    examples: dict[str, str] = field(default_factory=dict)  # the first of each kind left out

    def __str__(self) -> str:
        said = f"{self.kept:,} pairs, {self.source_tokens:,} + {self.target_tokens:,} tokens"
        if self.kept:
            means = self.source_tokens / self.kept, self.target_tokens / self.kept
            said += f" ({means[0]:.1f} + {means[1]:.1f} a pair, longest {self.longest[0]} + {self.longest[1]})"
        return said + self.left_out()

    def left_out(self) -> str:
        left = [
            f"{count:,} {why} (first: {self.examples[name]})"
            for name, count, why in (
                ("empty", self.empty, "with an empty side"),
                ("long", self.long, "too long"),
                ("duplicate", self.duplicate, "repeated"),
            )
            if count
        ]
        return f"; left out of {self.read:,}: " + ", ".join(left) if left else ""


class Corpus:
    """Encoded pairs on disk; `sources` and `targets` are the lengths, `pair(i)` the ids of one."""

    def __init__(self, folder: Path, name: str):
        self.tokens_file, self.index_file = folder / f"{name}.tokens", folder / f"{name}.safetensors"
        try:
            index = load_file(self.index_file)
            self.sources, self.targets = index["sources"].astype(np.int64), index["targets"].astype(np.int64)
            kind = np.dtype({2: "<u2", 4: "<u4"}[index["bytes"].item()])
            self.tokens: np.ndarray[Any, Any] = (
                np.memmap(self.tokens_file, kind, "r") if len(self.sources) else np.zeros(0, kind)
            )
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise DataError(f"{self.index_file} and {self.tokens_file.name} cannot be read ({error})") from None
        if self.sources.ndim != 1 or self.sources.shape != self.targets.shape:
            raise DataError(f"{self.index_file} does not have two lengths for every pair; it is damaged")
        if min(self.sources.min(initial=1), self.targets.min(initial=1)) < 1:
            raise DataError(f"{self.index_file} has a length below 1; it is damaged")
        if len(self.tokens) != int(self.sources.sum() + self.targets.sum()):
            raise DataError(f"{self.tokens_file} is not as long as {self.index_file.name} says; one is damaged")
        self.starts = np.concatenate([[0], np.cumsum(self.sources + self.targets)])

    def __len__(self) -> int:
        return len(self.sources)

    def pair(self, number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        start, middle = self.starts[number], self.starts[number] + self.sources[number]
        return self.tokens[start:middle], self.tokens[middle : self.starts[number + 1]]


def both(pair: Pair) -> Iterable[str]:
    return pair.source, pair.target


@dataclass(frozen=True)
class Texts:
    """Texts of pairs for a tokenizer to learn from, as often as it asks."""

    pairs: Sequence[Readable]
    limit: int | None = None
    sides: Callable[[Pair], Iterable[str]] = both

    def __iter__(self) -> Iterator[str]:
        found = (text for part in self.pairs for pair in part.read() for text in self.sides(pair) if text)
        return islice(found, self.limit)


def encode(
    folder: Path,
    name: str,
    pairs: Sequence[Readable],
    coder: Coder,
    *,
    longest: int,
    duplicates: bool = False,
    held_out: frozenset[int] = frozenset(),
    only: frozenset[int] | None = None,
    without: frozenset[int] = frozenset(),
) -> Report:
    """Read, filter and encode pairs into a corpus of that name. Pairs are numbered over all files as they are read;
    those `held_out` are passed over, and with `only` all others are. Pairs with a `digest` in `without` count as
    repeated: what is validated on is not trained on, wherever it stands."""
    report, seen = Report(), set(without)
    kind = np.dtype("<u2" if len(coder) <= 2**16 else "<u4")
    lengths = array("i")  # source, target, source, ...
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.tokens").open("wb") as out:
        number = 0
        for part in pairs:
            stream = part.read()
            while chunk := list(islice(stream, AT_ONCE)):
                wanted = [
                    pair for n, pair in enumerate(chunk, number) if n not in held_out and (only is None or n in only)
                ]
                number += len(chunk)
                chosen = [pair for pair in wanted if _worth(pair, part.to, report, seen, duplicates)]
                for pair, (source, target) in zip(chosen, coder.code(chosen, part.to), strict=True):
                    if max(len(source), len(target)) > longest:
                        report.long += 1
                        report.examples.setdefault("long", f"{pair.where}, {len(source)} + {len(target)} tokens")
                        continue
                    lengths.extend((len(source), len(target)))
                    out.write(np.asarray(source + target, kind).tobytes())
    sides = np.asarray(lengths, np.int32).reshape(-1, 2)
    index = {"sources": sides[:, 0].copy(), "targets": sides[:, 1].copy(), "bytes": np.asarray([kind.itemsize])}
    save_file(index, folder / f"{name}.safetensors")
    report.kept = len(sides)
    report.source_tokens, report.target_tokens = (int(total) for total in sides.sum(0, dtype=np.int64))
    report.longest = (int(sides[:, 0].max()), int(sides[:, 1].max())) if lengths else (0, 0)
    return report


def _worth(pair: Pair, to: str | None, report: Report, seen: set[int], duplicates: bool) -> bool:
    report.read += 1
    if not pair.source.strip() or not pair.target.strip():
        report.empty += 1
        report.examples.setdefault("empty", pair.where)
        return False
    mark = digest(pair.source, pair.target, to or "")
    if mark in seen:
        report.duplicate += 1
        report.examples.setdefault("duplicate", pair.where)
        return False
    if not duplicates:
        seen.add(mark)
    return True


def digest(*sides: str) -> int:
    joined = b"\xff".join(side.encode() for side in sides)  # a byte that no text has
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest())


def count(pairs: Iterable[Readable]) -> int:
    """How many pairs there are; this also finds files that do not match before anything is begun."""
    return sum(1 for part in pairs for _ in part.read())
