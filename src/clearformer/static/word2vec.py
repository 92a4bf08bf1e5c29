"""Word2Vec as it is used: a vector a word; which are near, and what is to c as a is to b."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.checkpoints.atomic import write_folder
from clearformer.errors import CheckpointError, DataError
from clearformer.static import folder as folders
from clearformer.static.settings import Settings
from clearformer.static.vocabulary import Texts, Vocabulary

if TYPE_CHECKING:
    from clearformer.static.run import Progress

KIND = "word2vec"
Counts = np.ndarray[Any, np.dtype[np.int64]]


class Neighbour(NamedTuple):
    word: str
    cosine: float


@dataclass(frozen=True)
class Trained:
    """How a model came about, and how far it is."""

    text: str  # the SHA-256 of the text as numbers
    chunks: int  # that were to be seen
    done: int  # that were


class Word2Vec:
    """`vectors` is v d: those of words as centres. `beside` are the words' vectors as neighbours of others, which
    training needs."""

    def __init__(
        self, vocabulary: Vocabulary, counts: Counts, vectors: Tensor, beside: Tensor, settings: Settings, run: Trained
    ):
        self.vocabulary, self.counts, self.vectors, self.beside = vocabulary, counts, vectors, beside
        self.settings, self.run = settings, run

    @classmethod
    def train(cls, texts: Texts, *, watch: "Callable[[Progress], object] | None" = None, **settings: Any) -> "Word2Vec":
        """From a file (its path), a list of texts, or a list of files (as `Path`s). Settings are those of `Settings`:
        width, window, min_count, negatives, epochs, rate, subsample, seed. The same texts and settings give the same
        numbers, bit for bit, on the same machine."""
        from clearformer.static.run import Run

        run = Run.begin(texts, Settings(**settings))
        for progress in run.go():
            if watch is not None:
                watch(progress)
        return run.model()

    def __repr__(self) -> str:
        part = "" if self.run.done == self.run.chunks else f", {self.run.done / self.run.chunks:.0%} of its training"
        return f"Word2Vec({len(self.vocabulary):,} words, width {self.settings.width}{part})"

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __contains__(self, word: object) -> bool:
        return word in self.vocabulary

    def __getitem__(self, word: str) -> Tensor:
        return self.vectors[self.vocabulary.id(word)]

    @cached_property
    def unit(self) -> Tensor:
        """v d: the same directions with length one."""
        return F.normalize(self.vectors, dim=1)

    def similarity(self, a: str, b: str) -> float:
        """The cosine of two words."""
        return float(self.unit[self.vocabulary.id(a)] @ self.unit[self.vocabulary.id(b)])

    def neighbours(self, word: str, top: int = 10) -> list[Neighbour]:
        """The words with the highest cosines to this one."""
        own = self.vocabulary.id(word)
        return self._nearest(self.unit[own], {own}, top)

    def analogy(self, a: str, b: str, c: str, top: int = 10) -> list[Neighbour]:
        """The words nearest to a − b + c: what is to c as a is to b. king − man + woman: what a king among women is."""
        one, two, three = (self.vocabulary.id(word) for word in (a, b, c))
        wanted = self.unit[one] - self.unit[two] + self.unit[three]
        return self._nearest(F.normalize(wanted, dim=0), {one, two, three}, top)

    def _nearest(self, vector: Tensor, without: set[int], top: int) -> list[Neighbour]:
        if top < 1:
            raise DataError(f"top must be at least 1, given {top}", param="top")
        cosines = self.unit @ vector
        best = cosines.topk(min(top + len(without), len(cosines)))
        found = [
            Neighbour(self.vocabulary[number], round(cosine, 6))
            for number, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            if number not in without
        ]
        return found[:top]

    def text_vectors(self, texts: Sequence[str]) -> Tensor:
        """n d: the mean of the unit vectors of each text's known words; zeros where there are none.

        A word counts a / (a + its share of the training text), a = 0.001, so that small words do not drown the others
        (Arora et al. 2017).
        """
        share = torch.from_numpy(self.counts / self.counts.sum()).float()
        weight = 1e-3 / (1e-3 + share)
        made = torch.zeros(len(texts), self.vectors.size(1))
        for row, text in enumerate(texts):
            if ids := self.vocabulary.ids(text):
                made[row] = weight[ids] @ self.unit[ids] / weight[ids].sum()
        return made

    def unseen(self, text: str) -> list[str]:
        """The words of a text that have no vector."""
        return self.vocabulary.unseen(text)

    def save(self, folder: str | Path) -> Path:
        """Write a new folder; it appears when it is complete."""
        return write_folder(Path(folder), self._write)

    def _write(self, folder: Path) -> None:
        about = {"kind": KIND, "settings": asdict(self.settings), "text": self.run.text, "chunks": self.run.chunks}
        folders.write(folder, about, self.vocabulary, self.tensors())
        (folder / "README.md").write_text(self.card(), encoding="utf-8")

    def tensors(self) -> dict[str, Tensor]:
        """All that changes while it learns, in one file, so that a run's folder is whole at any moment."""
        counts, done = torch.from_numpy(self.counts), torch.tensor([self.run.done])
        return {"vectors": self.vectors, "beside": self.beside, "counts": counts, "done": done}

    def card(self) -> str:
        said = self.settings
        return (
            f"# {len(self):,} words, {said.width} numbers each\n\n"
            f"Skip-gram with {said.negatives} negative samples (Word2Vec), window {said.window}, words that occur"
            f" {said.min_count} times or more, {said.epochs:g} passes over {int(self.counts.sum()):,} of them, seed"
            f" {said.seed}. Written by Clearformer (`train words`).\n\n"
            "`words.txt` has a word a line, `static.safetensors` the vectors in that order.\n\n"
            "```python\nimport clearformer as cf\n\n"
            f'cf.static.Word2Vec.load(".").neighbours({self.vocabulary[0]!r})\n```\n\n'
            "A word has one vector, the average of all its senses in this text.\n"
        )

    @classmethod
    def load(cls, folder: str | Path) -> "Word2Vec":
        folder = Path(folder)
        about, vocabulary, tensors = folders.read(folder, KIND)
        try:
            said = about.get("settings")
            if not isinstance(said, dict):
                raise TypeError("it has no settings")
            settings = Settings(**said)
            if settings.epochs is None or not isinstance(about.get("text"), str):
                raise TypeError("it does not say how long it was trained, or on what")
            if type(chunks := about.get("chunks")) is not int or not 0 < chunks < 2**60:
                raise TypeError("chunks must be a whole number")
        except (TypeError, DataError) as error:
            raise CheckpointError(f"{folder / folders.ABOUT} does not describe word vectors: {error}") from None
        shape = (len(vocabulary), settings.width)
        vectors, beside = (folders.tensor(tensors, name, torch.float32, shape) for name in ("vectors", "beside"))
        counts = folders.tensor(tensors, "counts", torch.int64, shape[:1])
        done = int(folders.tensor(tensors, "done", torch.int64, (1,)))
        if not (0 <= done <= chunks and bool(((counts > 0) & (counts < 2**40)).all())):
            raise CheckpointError(f"{folder} is damaged: counts must be above 0, and {done} of {chunks} chunks be done")
        return cls(vocabulary, counts.numpy(), vectors, beside, settings, Trained(about["text"], chunks, done))
