"""Searching by the words that documents and questions have in common, weighed by TF-IDF.

The folder holds `index.json`, `documents.jsonl`, the words as `TfIdf` keeps them, and `postings.safetensors`: for each
word the documents that have it (`rows`, from `starts[w]` to `starts[w + 1]`) and its weight in each. A question looks
at the postings of its own words alone.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.checkpoints.atomic import write_folder
from clearformer.checkpoints.safe import finite, open_tensors
from clearformer.errors import CheckpointError, DataError
from clearformer.static.folder import write_tensors
from clearformer.static.tfidf import TfIdf
from clearformer.tasks.encoder_task import Done
from clearformer.tasks.index import ABOUT, DOCUMENTS, PLACES, DocumentLines, Hit, Index
from clearformer.untrusted_files import read_json

POSTINGS = "postings"
VERSION = 1
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class About:
    """What `index.json` says."""

    count: int
    skipped: int  # blank documents
    by: str = "tfidf"
    version: int = VERSION


@dataclass(frozen=True)
class Postings:
    starts: Array  # v + 1, int64
    rows: Array  # int32
    weights: Array  # float32


class TfIdfIndex:
    """Make one with `TfIdfIndex.build`, or open one with `TfIdfIndex.load`."""

    def __init__(self, about: About, model: TfIdf, postings: Postings, documents: Sequence[tuple[int, str]]):
        self.about, self.model, self.postings, self.documents = about, model, postings, documents

    def __len__(self) -> int:
        return self.about.count

    @classmethod
    def build(cls, documents: Iterable[str], folder: str | Path, *, done: Done | None = None) -> "TfIdfIndex":
        """Write an index to a new folder, and open it. Documents go to the disk as they come and are read from there
        once more, so that they are never held; blank ones are skipped and counted."""
        folder = Path(folder)
        if folder.exists():
            raise DataError(f"{folder} exists already; give a new name")
        write_folder(folder, lambda waiting: _write(waiting, documents, done))
        return cls.load(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "TfIdfIndex":
        folder = Path(folder)
        about = _about(folder / ABOUT)
        model = TfIdf.load(folder)
        try:
            documents = DocumentLines(folder / DOCUMENTS)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder} is damaged: {error}") from None
        if not len(documents) == about.count == model.texts:
            raise CheckpointError(
                f"{folder} is damaged: it has {len(documents):,} documents, {ABOUT} speaks of {about.count:,}, and the"
                f" words of {model.texts:,}"
            )
        return cls(about, model, _postings(folder, model, about.count), documents)

    def query(self, texts: str | Sequence[str], *, top: int = 10, number: int = 0, **_: Any) -> list[list[Hit]]:
        """For each text the `top` documents with the highest cosines, best first; none that shares no word with it."""
        if top < 1:
            raise DataError(f"top must be at least 1, given {top}", param="top")
        asked = [texts] if isinstance(texts, str) else list(texts)
        for n, text in enumerate(asked, number + 1):
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"text {n} is empty")
        return [list(self._hits(text, top)) for text in asked]

    def unseen(self, text: str) -> list[str]:
        """The words of a question that are in no document."""
        return self.model.vocabulary.unseen(text)

    def _hits(self, text: str, top: int) -> Iterator[Hit]:
        row, held = self.model.row(text), self.postings
        scores = np.zeros(len(self), np.float64)
        for word, weight in zip(row.ids.tolist(), row.weights.tolist(), strict=True):
            here = slice(held.starts[word], held.starts[word + 1])
            scores[held.rows[here]] += weight * held.weights[here].astype(np.float64)
        scores = np.round(scores, PLACES)
        found = np.flatnonzero(scores > 0)
        if len(found) > top:
            found = found[scores[found] >= np.partition(scores[found], -top)[-top]]
        for n in found[np.lexsort((found, -scores[found]))][:top].tolist():
            number, document = self.documents[n]
            yield Hit(number, float(scores[n]), document)


def open_index(folder: str | Path) -> Index | TfIdfIndex:
    """The index in a folder, whatever it was made by."""
    path = Path(folder) / ABOUT
    by_words = path.is_file() and read_json(path).get("by") == "tfidf"
    return TfIdfIndex.load(folder) if by_words else Index.load(folder)


def _write(folder: Path, documents: Iterable[str], done: Done | None) -> None:
    number = count = 0
    with (folder / DOCUMENTS).open("w", encoding="utf-8", newline="\n") as stream:
        for number, text in enumerate(documents, 1):
            if not isinstance(text, str):
                raise DataError(f"text {number} is no text but {type(text).__name__}")
            if text.strip():
                stream.write(json.dumps({"number": number, "text": text}, ensure_ascii=False) + "\n")
                count += 1
            if done is not None:
                done(1)
    if not count:
        raise DataError(f"there is nothing to index: of {number:,} documents, none holds text")
    held = DocumentLines(folder / DOCUMENTS)
    model = TfIdf.fit(held[n][1] for n in range(count))
    model.write(folder)
    made = _inverted(model, (held[n][1] for n in range(count)))
    write_tensors(folder / f"{POSTINGS}.safetensors", made)
    (folder / ABOUT).write_text(json.dumps(asdict(About(count, number - count)), indent=1) + "\n", encoding="utf-8")


def _inverted(model: TfIdf, texts: Iterable[str]) -> dict[str, Tensor]:
    """Rows of texts turned into rows of words."""
    starts = np.concatenate([[0], np.cumsum(model.documents)])
    rows, weights = np.zeros(starts[-1], np.int32), np.zeros(starts[-1], np.float32)
    at = starts[:-1].copy()  # where the next document of each word goes
    for n, row in enumerate(model.rows(texts)):
        places = at[row.ids]
        rows[places], weights[places] = n, row.weights
        at[row.ids] += 1
    return {name: torch.from_numpy(each) for name, each in (("starts", starts), ("rows", rows), ("weights", weights))}


def _postings(folder: Path, model: TfIdf, count: int) -> Postings:
    tensors = open_tensors(folder, POSTINGS)
    total = int(model.documents.sum())
    shapes = {"starts": ("I64", (len(model.vocabulary) + 1,)), "rows": ("I32", (total,)), "weights": ("F32", (total,))}
    for name, (kind, shape) in shapes.items():
        if name not in tensors or (tensors.kind(name), tensors.shape(name)) != (kind, shape):
            raise CheckpointError(f"{folder} is damaged: {POSTINGS}.safetensors should have {name}, {kind} {shape}")
    found = Postings(*(tensors[name].numpy() for name in shapes))
    ends = np.cumsum(model.documents)
    if found.starts[0] != 0 or not (found.starts[1:] == ends).all() or not finite(tensors["weights"]):
        raise CheckpointError(f"{folder} is damaged: its postings are not those of its words")
    if total and not (found.rows.min() >= 0 and found.rows.max() < count):
        raise CheckpointError(f"{folder} is damaged: a word is said to be in a document that is not there")
    return found


def _about(path: Path) -> About:
    found = read_json(path)
    if found.get("version") != VERSION or found.get("by") != "tfidf":
        raise CheckpointError(f"{path} is not that of an index by TF-IDF of version {VERSION}")
    try:
        about = About(**found)
    except TypeError as error:
        raise CheckpointError(f"{path} does not describe an index: {error}") from None
    if not all(type(number) is int and number >= 0 for number in (about.count, about.skipped)):
        raise CheckpointError(f"{path} does not describe an index: count and skipped must be numbers")
    return about
