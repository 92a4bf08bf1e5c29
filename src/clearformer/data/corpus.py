"""Pairs, encoded once and kept on disk: training reads token ids from a memory map, however large the data.

A corpus is two files: `NAME.tokens`, all ids one after another, source then target, pair by pair; and
`NAME.safetensors`, the length of every side, and how many pairs of each set there are, in how many versions of their
sources (`noise`), which lie side by side. Its report says what was read and what was left out, and why.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from clearformer.data.clean import REASONS, Clean
from clearformer.data.noise import Noiser
from clearformer.data.pairs import Pair
from clearformer.data.sampler import Stretch, stretches
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
    """What became of the pairs that were read, of one set or of several."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    long: int = 0
    duplicate: int = 0  # repeated: of these, so many were in an earlier set, or are validated on
    elsewhere: int = 0
    validation: int = 0
    ratio: int = 0
    script: int = 0
    copy: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    longest: tuple[int, int] = (0, 0)
    examples: dict[str, str] = field(default_factory=dict)  # the first of each kind left out
    name: str = ""
    sets: list["Report"] = field(default_factory=list)  # where there are several

    @classmethod
    def of(cls, sets: list["Report"]) -> "Report":
        """The sum of the reports of sets."""
        if len(sets) == 1:
            return sets[0]
        found = cls(sets=sets)
        for name in SUMS:
            setattr(found, name, sum(getattr(each, name) for each in sets))
        for each in sets:
            found.longest = max(found.longest[0], each.longest[0]), max(found.longest[1], each.longest[1])
            found.examples = {**each.examples, **found.examples}
        return found

    @classmethod
    def read_from(cls, facts: Mapping[str, Any]) -> "Report":
        """A report that was written as JSON."""
        sets = [cls.read_from(each) for each in facts.get("sets", ())]
        return cls(**{**facts, "longest": tuple(facts["longest"]), "sets": sets})

    def count(self, source: int, target: int) -> None:
        """One more pair of so many tokens is kept."""
        self.kept += 1
        self.source_tokens += source
        self.target_tokens += target
        self.longest = max(self.longest[0], source), max(self.longest[1], target)

    def leave(self, why: str, where: str) -> bool:
        """One more is left out."""
        setattr(self, why, getattr(self, why) + 1)
        self.examples.setdefault(why, where)
        return False

    def __str__(self) -> str:
        said = f"{self.kept:,} pairs, {self.source_tokens:,} + {self.target_tokens:,} tokens"
        if self.kept:
            means = self.source_tokens / self.kept, self.target_tokens / self.kept
            said += f" ({means[0]:.1f} + {means[1]:.1f} a pair, longest {self.longest[0]} + {self.longest[1]})"
        return said + self.left_out()

    def left_out(self) -> str:
        kinds = {"empty": "with an empty side", "long": "too long", **REASONS, "duplicate": "repeated"}
        left = [
            f"{getattr(self, kind):,} {why} ({self._inside(kind)}first: {self.examples[kind]})"
            for kind, why in kinds.items()
            if getattr(self, kind)
        ]
        return f"; left out of {self.read:,}: " + ", ".join(left) if left else ""

    def _inside(self, kind: str) -> str:
        if kind != "duplicate":
            return ""
        said = (self.elsewhere, "in an earlier set"), (self.validation, "in the validation data")
        return "".join(f"{count:,} {where}; " for count, where in said if count)


SUMS = [each.name for each in fields(Report) if each.type is int]


EVERYTHING = Clean()


@dataclass(frozen=True)
class Treatment:
    """What is done to a set besides encoding it: what is left out of it, the ids in front of its sources, its noise."""

    name: str = ""
    clean: Clean = EVERYTHING
    front: tuple[int, ...] = ()
    noise: Noiser | None = None

    @property
    def versions(self) -> int:
        return 1 if self.noise is None else self.noise.versions


class Corpus:
    """Encoded pairs on disk; `sources` and `targets` are the lengths, `pair(i)` the ids of row i."""

    stretches: tuple[Stretch, ...] = ()  # its sets

    def __init__(self, folder: Path, name: str):
        self.tokens_file, self.index_file = folder / f"{name}.tokens", folder / f"{name}.safetensors"
        try:
            index = load_file(self.index_file)
            self.sources, self.targets = index["sources"].astype(np.int64), index["targets"].astype(np.int64)
            self.stretches = _sets(index, len(self.sources))
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

    def sets_of(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The number of the set that each row belongs to."""
        return np.searchsorted([stretch.last for stretch in self.stretches[:-1]], rows, "right")

    def pair(self, number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        start, middle = self.starts[number], self.starts[number] + self.sources[number]
        return self.tokens[start:middle], self.tokens[middle : self.starts[number + 1]]


def _sets(index: Mapping[str, np.ndarray[Any, Any]], rows: int) -> tuple[Stretch, ...]:
    """The sets of a corpus; one that does not tell is one set."""
    if "examples" not in index:
        return stretches([rows], [1])
    examples, versions = index["examples"].tolist(), index["versions"].tolist()
    found = stretches(examples, versions)
    if not found or found[-1].last != rows or min(examples) < 0 or min(versions) < 1:
        raise ValueError("its sets do not add up to its rows")
    return found


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
    treatments: Sequence[Treatment] | None = None,
) -> Report:
    """Read, filter and encode pairs into a corpus of that name. Pairs are numbered over all files as they are read;
    those `held_out` are passed over, and with `only` all others are. Pairs with a `digest` in `without` count as
    repeated: what is validated on is not trained on, wherever it stands. `treatments` say what more is done to each
    set."""
    treatments = treatments or [Treatment() for _ in pairs]
    kind = np.dtype("<u2" if len(coder) <= 2**16 else "<u4")
    lengths = array("i")  # source, target, source, ...
    reports, seen, number = list[Report](), [set(without)], 0
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.tokens").open("wb") as out:
        for part, treatment in zip(pairs, treatments, strict=True):
            report, first = Report(name=treatment.name), number
            seen.append(set())
            stream = part.read()
            while chunk := list(islice(stream, AT_ONCE)):
                chosen = [
                    (n - first, pair)
                    for n, pair in enumerate(chunk, number)
                    if n not in held_out
                    and (only is None or n in only)
                    and _worth(pair, part.to, treatment.clean, report, seen, duplicates)
                ]
                number += len(chunk)
                ids: list[int] = []
                for sources, target in _coded(chosen, coder, part.to, treatment, longest, report):
                    for source in sources:
                        lengths.extend((len(source), len(target)))
                        ids += source
                        ids += target
                out.write(np.asarray(ids, kind).tobytes())
            reports.append(report)
    sides = np.asarray(lengths, np.int32).reshape(-1, 2)
    index = {"sources": sides[:, 0].copy(), "targets": sides[:, 1].copy(), "bytes": np.asarray([kind.itemsize])}
    index["examples"] = np.asarray([report.kept for report in reports], np.int64)
    index["versions"] = np.asarray([treatment.versions for treatment in treatments], np.int64)
    save_file(index, folder / f"{name}.safetensors")
    return Report.of(reports)


def _coded(
    chosen: list[tuple[int, Pair]],
    coder: Coder,
    to: str | None,
    treatment: Treatment,
    longest: int,
    report: Report,
) -> Iterator[tuple[list[list[int]], list[int]]]:
    """The sources of every pair, one or as many as it has versions, and its target; pairs too long are left out, and a
    version that is too long is the source as it stands."""
    coded = list(coder.code([pair for _, pair in chosen], to))
    front = list(treatment.front)
    fits = [len(front) + len(source) <= longest and len(target) <= longest for source, target in coded]
    for (_, pair), (source, target), fit in zip(chosen, coded, fits, strict=True):
        if not fit:
            report.long += 1
            report.examples.setdefault("long", f"{pair.where}, {len(front) + len(source)} + {len(target)} tokens")
    kept = [(row, pair, *ids) for (row, pair), ids, fit in zip(chosen, coded, fits, strict=True) if fit]
    versions = _versions([(row, pair) for row, pair, *_ in kept], [ids for *_, ids, _ in kept], coder, to, treatment)
    for (_, _, source, target), others in zip(kept, versions, strict=True):
        report.count(len(front) + len(source), len(target))
        fitting = [other if len(front) + len(other) <= longest else source for other in others]
        yield [front + source for source in fitting] if front else fitting, target


def _versions(
    rows: list[tuple[int, Pair]], plain: list[list[int]], coder: Coder, to: str | None, treatment: Treatment
) -> list[list[list[int]]]:
    """For every pair, the ids of all versions of its source; what the noise has not changed is not encoded again."""
    noise = treatment.noise
    if noise is None:
        return [[ids] for ids in plain]
    made = [[ids] * noise.versions for ids in plain]
    texts = [[noise.text(pair.source, row, version) for version in range(noise.versions)] for row, pair in rows]
    if noise.sample is not None:
        for (row, _), mine, found in zip(rows, texts, made, strict=True):
            found[:] = noise.pieces(mine, to, [(row, version) for version in range(noise.versions)])
        return made
    changed = [
        (number, version)
        for number, (_, pair) in enumerate(rows)
        for version in range(noise.versions)
        if texts[number][version] != pair.source
    ]
    if noise.encode is not None:
        sources = noise.encode([texts[number][version] for number, version in changed], to)
    else:
        noised = [rows[number][1]._replace(source=texts[number][version]) for number, version in changed]
        sources = [source for source, _ in coder.code(noised, to)]
    for (number, version), source in zip(changed, sources, strict=True):
        made[number][version] = source
    return made


def _worth(pair: Pair, to: str | None, clean: Clean, report: Report, seen: list[set[int]], duplicates: bool) -> bool:
    report.read += 1
    if not pair.source.strip() or not pair.target.strip():
        return report.leave("empty", pair.where)
    if fault := clean.fault(pair.source, pair.target):
        return report.leave(fault, pair.where)
    mark = digest(pair.source, pair.target, to or "")
    found = next((number for number, marks in enumerate(seen) if mark in marks), None)
    if found is not None:
        report.validation += found == 0
        report.elsewhere += 0 < found < len(seen) - 1
        return report.leave("duplicate", pair.where)
    if not duplicates:
        seen[-1].add(mark)
    return True


def digest(*sides: str) -> int:
    joined = b"\xff".join(side.encode() for side in sides)  # a byte that no text has
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest())


def count(pairs: Iterable[Readable]) -> int:
    """How many pairs there are; this also finds files that do not match before anything is begun."""
    return sum(1 for part in pairs for _ in part.read())
