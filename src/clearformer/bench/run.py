"""A benchmark from beginning to end: the model is made or read, handed to every contender in its own format, and the
contenders take turns."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clearformer.bench.inputs import Given, lengths, made, read, texts_of, vocabulary
from clearformer.bench.peers import Peer, peers_of
from clearformer.bench.process import alone, merged
from clearformer.bench.workloads import Column, Job, columns_of, sizes_of
from clearformer.errors import ClearformerError, DataError
from clearformer.kernels.native.processor import cores

WORKS = ("translate", "complete", "embed", "train")
PRECISIONS = {"float32": ("float32",), "int8": ("int8",), "both": ("float32", "int8")}
OURS = "clearformer"
Tell = Callable[[str], None]


@dataclass
class Row:
    """A contender in one precision: its figures, or why there are none."""

    name: str
    precision: str
    version: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    why: str | None = None


@dataclass
class Measured:
    work: str
    model: str
    parameters: int
    threads: int
    rounds: int
    columns: list[Column]
    limits: dict[str, float]
    rows: list[Row]


def run(
    work: str,
    *,
    model: str | None = None,
    shape: str | None = None,
    precision: str = "both",
    against: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 3,
    texts: Sequence[str] | None = None,
    tell: Tell = lambda words: None,
) -> Measured:
    """Measure a work. Without a model, one of the work's usual shape with random weights."""
    threads = threads or cores()
    precisions = ("float32",) if work == "train" else PRECISIONS[precision]
    if rounds < 1 or threads < 1:
        raise DataError(f"rounds and threads must be at least 1, given {rounds} and {threads}")
    if model is not None and shape is not None:
        raise DataError("give a model or a shape, not both")
    peers = peers_of(work, None if against is None else list(against))
    with tempfile.TemporaryDirectory(prefix="clearformer-bench-") as scratch:
        tell("making the model ready")
        given = made(work, shape, Path(scratch)) if model is None else read(work, model, Path(scratch))
        rows, jobs = [], []
        chosen = texts_of(texts) if work == "embed" else ()
        told = Job(work, OURS, "", str(given.folder), threads, vocabulary(given.what), given.start, chosen)
        for each in precisions:
            rows.append(Row(OURS, each, version(OURS)))
            jobs.append(replace(told, precision=each, folder=str(_kept(given.folder, each, Path(scratch)))))
        for peer in peers:
            for each in peer.precisions:
                rows.append(Row(peer.name, each, version(peer.packages[0])))
                jobs.append(
                    _prepared(peer, given, replace(told, contender=peer.name, precision=each), scratch, rows[-1])
                )
        limits: dict[str, Any] | None = None
        for number in range(1, rounds + 1):
            tell(f"round {number} of {rounds}: the machine")
            limits = merged(limits, alone(replace(told, contender="limits", texts=())))
            for row, job in zip(rows, jobs, strict=True):
                if row.why is None:
                    tell(f"round {number} of {rounds}: {row.name} {row.precision}")
                    _turn(row, job)
        tokens = lengths(given.folder, chosen) if work == "embed" else ()
        columns = columns_of(work, sizes_of(given.what), tokens)
    from clearformer.assemble import count_parameters

    parameters = count_parameters(given.what)
    return Measured(work, given.name, parameters, threads, rounds, columns, limits or {}, rows)


def version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _kept(folder: Path, precision: str, scratch: Path) -> Path:
    """The folder with its model kept in a precision, as one would who uses it often."""
    from clearformer.checkpoints.convert import convert

    if precision != "int8":
        return folder
    try:
        return convert(folder, scratch / "int8", "clearformer", precision="int8")
    except ClearformerError:  # kept so already, or of no known task: then it is made when it is loaded
        return folder


def _turn(row: Row, job: Job) -> None:
    try:
        row.figures = merged(row.figures or None, alone(job))
    except DataError as error:
        row.why = str(error)


def _prepared(peer: type[Peer], given: Given, job: Job, scratch: str, row: Row) -> Job:
    """The job with what the peer loads, or a row that says why there is none."""
    row.why = peer.missing()
    if row.why is None and given.public is None:
        row.why = f"cannot load this model: {given.why}"
    if row.why is None:
        assert given.public is not None
        try:
            to = Path(scratch) / f"{peer.name}-{job.precision}"
            return replace(job, folder=str(peer.prepare(given.public, job.precision, to)))
        except (ClearformerError, OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            row.why = f"cannot load this model: {error}"
    return job
