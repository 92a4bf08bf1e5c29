"""Searching: documents as vectors in a folder, and those nearest to a question by cosine.

The folder holds `index.json` (what it is and which model made it), `vectors.npy` (unit length, read through a memory
map) and `documents.jsonl`; with an approximate index, `graph.faiss` too. It is written beside its name and renamed.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearformer.checkpoints.metadata import Pool
from clearformer.errors import CheckpointError, DataError
from clearformer.kernels.int8 import Matrix
from clearformer.kernels.pack import plain
from clearformer.tasks.bundled import bundled
from clearformer.tasks.embed import Vectors
from clearformer.tasks.encoder_task import Done, OnLong
from clearformer.tasks.word_vectors import WordVectors
from clearformer.untrusted_files import read_json

ABOUT, VECTORS, DOCUMENTS, GRAPH = "index.json", "vectors.npy", "documents.jsonl", "graph.faiss"
VERSION = 1
CHUNK = 65_536  # vectors compared at once
AT_ONCE = 2_000  # documents embedded at once
PLACES = 6  # decimals of a score: what is finer is rounding, and would decide between equal documents
WIDER = 8  # an approximate search looks up so many times more than asked, and ranks them exactly


@dataclass(frozen=True)
class Hit:
    """A document that was found; `number` counts the lines it came from, from 1."""

    number: int
    score: float  # the cosine, to 6 decimals; equal ones go by number
    text: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class About:
    """What `index.json` says."""

    model: str | None  # the folder of the model that made it
    weights: str  # and the SHA-256 of its weights
    pool: str
    on_long: str
    count: int
    width: int
    skipped: int  # blank documents
    approximate: bool = False
    version: int = VERSION
    own: str | None = None  # how that model pools by itself; older indexes do not say
    precision: str | None = None  # what it computed with; older indexes do not say, and the weights were as kept


Documents = Sequence[tuple[int, str]]  # number and text


class Index:
    """Documents that can be searched. Make one with `Index.build`, or open one with `Index.load`."""

    def __init__(
        self, about: About, vectors: Vectors, documents: Documents, embedder: Any = None, folder: Path | None = None
    ):
        self.about, self.vectors, self.documents, self.folder = about, vectors, documents, folder
        self._embedder, self._graph = embedder, None

    def __len__(self) -> int:
        return self.about.count

    @classmethod
    def build(
        cls,
        embedder: Any,
        documents: Iterable[str],
        *,
        model: str | Path | None = None,
        pool: Pool | None = None,
        on_long: OnLong = "split",
        approximate: bool = False,
        done: Done | None = None,
    ) -> "Index":
        """An index of documents, one vector each; blank ones are skipped and counted. `model` is the folder of the
        embedder, for whoever opens the index later. `approximate` adds a graph for large sets, with faiss."""
        if approximate:
            faiss()
        kept: list[tuple[int, str]] = []
        parts = [embedder.embed([])]
        count, waiting = 0, iter(documents)
        while chunk := list(islice(waiting, AT_ONCE)):
            real = [(n, text) for n, text in enumerate(chunk, count + 1) if not isinstance(text, str) or text.strip()]
            texts, numbers = [text for _, text in real], [n for n, _ in real]
            options: dict[str, Any] = {"pool": pool, "normalise": True, "on_long": on_long, "number": numbers}
            parts.append(embedder.embed(texts, **options, done=done))
            kept += real
            count += len(chunk)
        if not kept:
            raise DataError(f"there is nothing to index: of {count:,} documents, none holds text")
        about = About(
            model=None if model is None else _kept_name(model),
            weights=fingerprint(embedder.model),
            pool=embedder.pool(pool),
            on_long=on_long,
            count=len(kept),
            width=parts[0].shape[1],
            skipped=count - len(kept),
            approximate=approximate,
            own=own_way(embedder),
            precision=embedder.precision,
        )
        return cls(about, np.concatenate(parts), kept, embedder)

    def save(self, folder: str | Path) -> Path:
        """Write the index to a new folder."""
        folder = Path(folder)
        if folder.exists():
            raise DataError(f"{folder} exists already; give a new name")
        try:
            waiting = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        except OSError as error:
            raise DataError(f"cannot write to {folder.parent}: {error.strerror}") from None
        try:
            self._write(waiting)
            waiting.chmod(0o755)
            waiting.rename(folder)
        except BaseException as error:
            shutil.rmtree(waiting, ignore_errors=True)
            if isinstance(error, OSError):
                raise DataError(f"cannot write {folder}: {error.strerror}; nothing was saved") from None
            raise
        return folder

    def _write(self, folder: Path) -> None:
        np.save(folder / VECTORS, self.vectors, allow_pickle=False)
        with (folder / DOCUMENTS).open("w", encoding="utf-8", newline="\n") as stream:
            for number, text in self.documents:
                stream.write(json.dumps({"number": number, "text": text}, ensure_ascii=False) + "\n")
        (folder / ABOUT).write_text(json.dumps(asdict(self.about), indent=1) + "\n", encoding="utf-8")
        if self.about.approximate:
            faiss().write_index(self.graph(), str(folder / GRAPH))
        for file in folder.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())

    @classmethod
    def load(cls, folder: str | Path, embedder: Any = None) -> "Index":
        """Open an index. Without an `embedder`, the model it names is loaded when it is first asked."""
        folder = Path(folder)
        if not (folder / ABOUT).is_file():
            raise CheckpointError(f"{folder} is no index: it has no {ABOUT}; make one with: clearformer search index")
        about = _about(folder / ABOUT)
        try:
            vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
            documents = DocumentLines(folder / DOCUMENTS)
        except (OSError, ValueError, EOFError) as error:
            raise CheckpointError(f"{folder} is damaged: {error}") from None
        if vectors.shape != (about.count, about.width) or vectors.dtype != np.float32 or len(documents) != about.count:
            raise CheckpointError(
                f"{folder} is damaged: it has {len(documents):,} documents and {vectors.dtype} vectors of shape"
                f" {vectors.shape}, and {ABOUT} speaks of {about.count:,} of {about.width}"
            )
        found = cls(about, vectors, documents, folder=folder)
        if embedder is not None:
            found.use(embedder)
        return found

    def use(self, embedder: Any) -> None:
        """Ask with this model; it must have the weights and the precision of the one that made the index, and pool as
        that does."""
        if self.about.precision not in (None, embedder.precision):
            raise DataError(
                f"this index was made with {self.about.precision} and the model was loaded as {embedder.precision};"
                f" load it with precision {self.about.precision}, or index the documents again"
            )
        if fingerprint(embedder.model) != self.about.weights:
            raise DataError(
                "this model's weights are not those that made the index, so its vectors mean something else; give the"
                " model that made it, or index the documents again with this one"
            )
        if self.about.own not in (None, own_way(embedder)):
            raise DataError(
                f"this model's vectors are {own_way(embedder)}, and those of the model that made the index"
                f" {self.about.own}; give the model that made it, or index the documents again with this one"
            )
        self._embedder = embedder

    def query(
        self, texts: str | Sequence[str], *, top: int = 10, exact: bool = False, number: int = 0
    ) -> list[list[Hit]]:
        """For each text the `top` nearest documents, best first. `exact` passes over an approximate index's graph."""
        if top < 1:
            raise DataError(f"top must be at least 1, given {top}", param="top")
        if self._embedder is None:
            self.use(self.embedder())
        about = self.about
        options: dict[str, Any] = {"pool": about.pool, "normalise": True, "on_long": about.on_long, "number": number}
        asked = self._embedder.embed(texts, **options)
        top = min(top, about.count)
        if about.approximate and not exact:
            found = [self._ranked(one, rows[rows >= 0], top) for one, rows in self._near(asked, top)]
        else:
            found = nearest_rows(asked, self.vectors, top)
        return [[Hit(self.documents[row][0], score, self.documents[row][1]) for row, score in each] for each in found]

    def unseen(self, text: str) -> list[str]:
        """The words of a question that nothing is known of. Models read pieces of words, and know something of all."""
        if self._embedder is None:
            self.use(self.embedder())
        return self._embedder.unseen(text) if isinstance(self._embedder, WordVectors) else []

    def embedder(
        self, model: str | Path | None = None, precision: str | None = None, ignore: Collection[str] | None = None
    ) -> Any:
        """The model that the index names, or another, in the precision that the index was made with. `ignore` are
        unknown keys of its config.json to go on without."""
        from clearformer.tasks.load import load

        precision = precision or self.about.precision
        if model is not None:
            return load(model, precision=precision, ignore=ignore)
        if self.about.model is None:
            raise DataError("this index does not say where its model is; give the model")
        if not Path(self.about.model).is_dir() and self.about.model not in bundled():
            raise DataError(f"this index was made with the model in {self.about.model}, which is gone; give the model")
        return load(self.about.model, precision=precision, ignore=ignore)

    def graph(self) -> Any:
        """The graph of an approximate index: read if the index was, else made."""
        if self._graph is None:
            self._graph = _graph(self.vectors) if self.folder is None else _read_graph(self.folder / GRAPH, self.about)
        return self._graph

    def _near(self, asked: Vectors, top: int) -> Any:
        count = min(WIDER * top, self.about.count)
        self.graph().hnsw.efSearch = max(128, count)
        return zip(asked, self.graph().search(asked, count)[1], strict=True)

    def _ranked(self, one: Vectors, rows: Any, top: int) -> "list[tuple[int, float]]":
        rows = np.sort(rows)
        return [(int(rows[n]), score) for n, score in nearest_rows(one[None], self.vectors[rows], top)[0]]


class DocumentLines(Documents):
    """The lines of a file, each read when asked for."""

    def __init__(self, path: Path):
        self.bytes = np.memmap(path, np.uint8, "r")
        self.ends = np.concatenate(
            [np.flatnonzero(self.bytes[n : n + 2**24] == 10) + n for n in range(0, len(self.bytes), 2**24)]
        )

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: Any) -> Any:
        start = 0 if row == 0 else int(self.ends[row - 1]) + 1
        try:
            found = json.loads(self.bytes[start : int(self.ends[row])].tobytes())
            return int(found["number"]), str(found["text"])
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{DOCUMENTS} is damaged in line {row + 1}") from None


def nearest_rows(asked: Vectors, vectors: Vectors, top: int) -> "list[list[tuple[int, float]]]":
    """For each vector asked, the `top` rows with the highest products, best first; equal ones in order."""
    rows = [np.zeros(0, np.int64)] * len(asked)
    scores = [np.zeros(0, np.float32)] * len(asked)
    for start in range(0, len(vectors), CHUNK):
        products = np.round(asked @ vectors[start : start + CHUNK].T, PLACES)
        for n, product in enumerate(products):
            least = np.partition(product, -top)[-top] if len(product) > top else -np.inf
            near = np.flatnonzero(product >= least)
            both = np.concatenate([scores[n], product[near]]), np.concatenate([rows[n], near + start])
            order = np.lexsort((both[1], -both[0]))[:top]
            scores[n], rows[n] = both[0][order], both[1][order]
    return [
        [(int(row), round(float(score), PLACES)) for row, score in zip(*each, strict=True)]
        for each in zip(rows, scores, strict=True)
    ]


def _kept_name(model: str | Path) -> str:
    """The path of a folder, which is not where the index is; a bundled model by its name, wherever the package is."""
    return str(model) if not Path(model).exists() and str(model) in bundled() else str(Path(model).resolve())


def fingerprint(model: torch.nn.Module) -> str:
    """The SHA-256 of a model's weights, whatever file they came from."""
    found = hashlib.sha256()
    part = plain(model)  # type: ignore[type-var]
    weights: dict[str, torch.Tensor] = dict(part.named_parameters())
    for name, module in part.named_modules():
        if isinstance(module, Matrix):  # int8, which are no parameters
            weights |= {f"{name}.panels": module.pairs, f"{name}.scale": module.scale}
    for name, weight in sorted(weights.items()):
        found.update(f"{name} {tuple(weight.shape)}\n".encode())
        found.update(weight.detach().float().cpu().contiguous().numpy().data)
    return found.hexdigest()


def own_way(embedder: Any) -> str:
    """How a model makes vectors where nothing is asked for: what it pools, and whether they have length one."""
    states = {"mean": "the mean of all states", "first": "the first state", "last": "the last state"}[embedder.pool()]
    return f"{states}, {'with length one' if embedder.metadata.normalise else 'as it is'}"


def faiss() -> Any:
    try:
        return import_module("faiss")
    except ImportError:
        raise DataError(
            "an approximate index needs faiss, which is not installed: pip install 'clearformer[search]'; without"
            " --approximate, search is exact"
        ) from None


def _graph(vectors: Vectors) -> Any:
    library = faiss()
    graph = library.IndexHNSWFlat(vectors.shape[1], 32, library.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 200
    graph.add(np.ascontiguousarray(vectors))
    return graph


def _read_graph(path: Path, about: About) -> Any:
    try:
        found = faiss().read_index(str(path))
    except RuntimeError as error:
        raise CheckpointError(f"{path} is damaged: {error}; index again, or ask with --exact") from None
    if (found.ntotal, found.d) != (about.count, about.width) or not hasattr(found, "hnsw"):
        raise CheckpointError(f"{path} is not the graph of this index; index again, or ask with --exact")
    return found


def _about(path: Path) -> About:
    found = read_json(path)
    if found.get("by") == "tfidf":
        raise CheckpointError(f"{path.parent} was made by TF-IDF; open_index, or TfIdfIndex.load, reads it")
    if found.get("version") != VERSION:
        raise CheckpointError(f"{path} is of version {found.get('version')!r}; this program reads version {VERSION}")
    try:
        about = About(**found)
        if not all(type(number) is int and number >= 0 for number in (about.count, about.width, about.skipped)):
            raise TypeError("count, width and skipped must be numbers")
        if not isinstance(about.weights, str) or not all(
            isinstance(text, str | None) for text in (about.model, about.own, about.precision)
        ):
            raise TypeError("model, weights, own and precision must be texts")
    except TypeError as error:
        raise CheckpointError(f"{path} does not describe an index: {error}") from None
    return about
