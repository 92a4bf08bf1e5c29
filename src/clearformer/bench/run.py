"""A benchmark from beginning to end: the model is made or read, handed to every contender in its own format, and the
contenders take turns; on a quiet machine, and then beside other processes where asked."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clearformer.bench.contention import busy as busy_beside
from clearformer.bench.contention import confined
from clearformer.bench.inputs import Given, inputs_of, made, read, vocabulary
from clearformer.bench.peers import Peer, peers_of
from clearformer.bench.process import alone, merged
from clearformer.bench.workloads import MODELS, Column, Job, Lengths, columns_of, sizes_of
from clearformer.errors import ClearformerError, DataError
from clearformer.kernels.native.processor import cores as cores_here

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
    ways: dict[str, str] = field(default_factory=dict)  # by column: the best configuration
    tried: dict[str, dict[str, float]] = field(default_factory=dict)  # seconds of all of them


@dataclass
class Measured:
    work: str
    model: str
    parameters: int
    texts: int
    threads: int
    cores: int
    confined: bool
    rounds: int
    columns: list[Column]
    limits: dict[str, float]
    rows: list[Row]
    busy: int = 0
    busy_rows: list[Row] = field(default_factory=list)


def run(
    work: str,
    *,
    model: str | None = None,
    shape: str | None = None,
    precision: str = "both",
    against: Sequence[str] | None = None,
    threads: int | None = None,
    cores: int | None = None,
    busy: int = 0,
    rounds: int = 3,
    texts: Sequence[str] | None = None,
    tell: Tell = lambda words: None,
) -> Measured:
    """Measure a work. Without a model or shape, the work's usual one; `busy` processes run beside a second part of it,
    and `cores` keeps the whole of it to some of the machine's."""
    threads = threads or min(cores_here(), cores or cores_here())
    if rounds < 1 or threads < 1 or busy < 0:
        raise DataError(
            f"rounds and threads must be at least 1 and busy at least 0, given {rounds}, {threads} and {busy}"
        )
    if model is not None and shape is not None:
        raise DataError("give a model or a shape, not both")
    if shape is None and model is None:
        model = MODELS.get(work)
    if texts is not None and (work == "train" or (model is None and work != "embed")):
        raise DataError(f"--texts is for a model that reads text; {work} with random weights makes its own")
    peers = peers_of(work, None if against is None else list(against))
    with confined(cores), tempfile.TemporaryDirectory(prefix="clearformer-bench-") as scratch:
        tell("making the model ready")
        given = made(work, shape, Path(scratch)) if model is None else read(work, model, Path(scratch))
        told, lengths = inputs_of(
            Job(work, OURS, "", str(given.folder), threads, vocabulary=vocabulary(given.what)), given, texts
        )
        precisions = ("float32",) if work == "train" else PRECISIONS[precision]
        turns = Turns(given, told, precisions, peers, rounds, Path(scratch), tell)
        rows = turns.rows()
        limits = turns.run(rows, "", limits=True)
        busy_rows = turns.rows() if busy else []
        if busy:
            turns.run(busy_rows, f"beside {_processes(busy)}, ", busy=busy)
        columns = columns_of(work, sizes_of(given.what), _answered(lengths, rows, told))
    from clearformer.assemble import count_parameters

    return Measured(
        work,
        given.name,
        count_parameters(given.what),
        len(told.texts),
        threads,
        cores or cores_here(),
        cores is not None,
        rounds,
        columns,
        limits,
        rows,
        busy,
        busy_rows,
    )


class Turns:
    """The contenders of a run, which have their turns in every round."""

    def __init__(
        self,
        given: Given,
        told: Job,
        precisions: Sequence[str],
        peers: Sequence[type[Peer]],
        rounds: int,
        scratch: Path,
        tell: Tell,
    ):
        self.told, self.rounds, self.tell = told, rounds, tell
        self.jobs: list[tuple[Row, Job]] = []
        self.kinds: dict[str, Any] = {peer.name: peer for peer in peers}
        for each in precisions:
            folder = str(_kept(given.folder, each, scratch))
            self.jobs.append((Row(OURS, each, version(OURS)), replace(told, precision=each, folder=folder)))
        for peer in peers:
            for each in peer.precisions:
                row = Row(peer.name, each, version(peer.packages[0]))
                job = replace(told, contender=peer.name, precision=each)
                self.jobs.append((row, _prepared(peer, given, job, scratch, row)))

    def rows(self) -> list[Row]:
        """New ones, without figures."""
        return [replace(row, figures={}, ways={}, tried={}) for row, _ in self.jobs]

    def run(self, rows: list[Row], where: str, *, limits: bool = False, busy: int = 0) -> dict[str, float]:
        """All rounds; what the machine allows, where asked."""
        found: dict[str, Any] | None = None
        with busy_beside(busy):
            for row, (_, job) in zip(rows, self.jobs, strict=True):
                self._try(row, job, where)
        for number in range(1, self.rounds + 1):
            told = f"{where}round {number} of {self.rounds}"
            if limits:
                self.tell(f"{told}: the machine")
                found = merged(found, alone(replace(self.told, contender="limits", texts=(), long="")))
            with busy_beside(busy):
                for row, (_, job) in zip(rows, self.jobs, strict=True):
                    if row.why is None:
                        self.tell(f"{told}: {row.name} {row.precision}")
                        _turn(row, replace(job, ways=row.ways))
        return found or {}

    def _try(self, row: Row, job: Job, where: str) -> None:
        """Find the best configuration for every column of a peer that has several."""
        kind = self.kinds.get(row.name)
        if row.why is not None or kind is None or len(kind.ways(job)) < 2:
            return
        self.tell(f"{where}configurations of {row.name} {row.precision}")
        try:
            row.tried = alone(replace(job, trial=True))["tried"]
        except DataError as error:
            row.why = str(error)
        row.ways = {name: min(seconds, key=lambda way: seconds[way]) for name, seconds in row.tried.items()}


def _processes(count: int) -> str:
    return f"{count} busy process{'es' if count > 1 else ''}"


def _answered(lengths: Lengths, rows: list[Row], told: Job) -> Lengths:
    """The lengths of translations, where the model ends them itself: those of our first row."""
    if told.work != "translate" or lengths.targets:
        return lengths
    said = next((row.figures["said"] for row in rows if row.name == OURS and row.why is None), None)
    if said is None:
        return replace(lengths, targets=lengths.sources)
    from clearformer.bench.ours import Reader

    return replace(lengths, targets=[len(ids) for ids in Reader(told.reader, told.work).encode(said)])


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


def _prepared(peer: type[Peer], given: Given, job: Job, scratch: Path, row: Row) -> Job:
    """The job with what the peer loads, or a row that says why there is none."""
    row.why = peer.missing()
    if row.why is None:
        try:
            return replace(
                job, folder=str(peer.prepare(given, job.precision, scratch / f"{peer.name}-{job.precision}"))
            )
        except (ClearformerError, OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            row.why = f"cannot load this model: {error}"
    return job
