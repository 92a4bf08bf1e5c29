"""Filling: what could stand where a text has a mask token, with the probability of each candidate."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearformer import spec
from clearformer.core.model import Transformer
from clearformer.errors import CheckpointError, DataError
from clearformer.tasks.base import Given
from clearformer.tasks.embed import Embedder
from clearformer.tasks.encoder_task import Batch, Done, Read

if TYPE_CHECKING:
    from clearformer.text.protocol import Encoded
    from clearformer.text.tokenizer import PublicTokenizer

SPELLINGS = ("[MASK]", "<mask>")  # BERT's and RoBERTa's; either is taken for the model's own
SPACED = ("Ġ", "▁")  # pieces that begin with a space


@dataclass(frozen=True)
class Candidate:
    token: str
    probability: float
    id: int


@dataclass(frozen=True)
class Filled:
    """One text: with every mask filled by its best candidate, and the candidates of every mask, best first."""

    text: str
    masks: tuple[tuple[Candidate, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Filler(Embedder):
    """A model with a masked-token head."""

    can = ("fill", "embed")
    heads = (spec.MaskedToken,)

    def __init__(self, model: Transformer, tokenizer: "PublicTokenizer", metadata: Given = None):
        super().__init__(model, tokenizer, metadata)
        if tokenizer.mask is None and len(tokenizer):
            raise CheckpointError("this model's tokenizer has no mask token, so there is nothing to fill")

    @property
    def mask(self) -> str:
        """The mask token as it is written in texts."""
        if self.tokenizer.mask is None:
            self.tokenizer.encode("")  # the error that says that there is no tokenizer
        return self.tokenizer.pieces([self.tokenizer.mask])[0]

    def fill(
        self, texts: str | Sequence[str], *, top: int = 5, done: Done | None = None, number: int = 0
    ) -> list[Filled]:
        """The `top` candidates for every mask in each text. Several masks in a text are filled each by itself: the
        model is not told what the others became."""
        if top < 1:
            raise DataError(f"top must be at least 1, given {top}", param="top")
        texts = [texts] if isinstance(texts, str) else list(texts)
        texts = [self._spelled(text, n) if isinstance(text, str) else text for n, text in enumerate(texts, number + 1)]
        found: list[Filled] = []
        for reads in self.read(texts, number=number):
            for read, rows in zip(reads, self.run(reads, self._probabilities, done), strict=True):
                found.append(self._filled(texts[len(found)], read, rows[0], top))
        return found

    def _spelled(self, text: str, number: int) -> str:
        for spelling in SPELLINGS:
            text = text.replace(spelling, self.mask)
        if text.strip() and self.mask not in text:
            raise DataError(f"text {number} has no {self.mask} to fill; write it where the model is to say a word")
        return text

    def encode_all(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> "list[Encoded]":
        return (
            [self._around_masks(text) for text in texts] if self.tokenizer.plain else super().encode_all(texts, pairs)
        )

    def _around_masks(self, text: str) -> "Encoded":
        """For a tokenizer that reads a mask token in a text as plain characters: what is between, and masks between."""
        whole = self.tokenizer.encode(text)
        body = [n for n, side in enumerate(whole.sequence) if side == 0]
        if not body:
            return whole
        first, *rest = text.split(self.mask)
        ids = self._ids(first.rstrip(" ") if rest else first)
        for n, part in enumerate(rest, 1):
            ids += [self.tokenizer.mask, *self._behind(part.rstrip(" ") if n < len(rest) else part)]
        front, back = whole.ids[: body[0]], whole.ids[body[-1] + 1 :]
        sequence = [None] * len(front) + [0] * len(ids) + [None] * len(back)
        ids = front + ids + back
        special = [side is None for side in sequence]
        return type(whole)(ids, [0] * len(ids), [(0, 0)] * len(ids), special, sequence)

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, special=False).ids)

    def _behind(self, text: str) -> list[int]:
        """What goes on behind a mask: the tokenizer puts a space before the beginning of a text, which this is not. A
        digit is always a token of its own."""
        if not text or not self._ids("0"):
            return self._ids(text)
        digit, whole = self._ids("0"), self._ids("0" + text)
        return whole[len(digit) :] if whole[: len(digit)] == digit else self._ids(text)

    def _probabilities(self, batch: Batch) -> list[Tensor]:
        """The distribution at every mask, a text at a time; at other tokens none is worked out."""
        states, places = self.states(batch)
        masked = batch.ids == self.tokenizer.mask
        every = self.model.head(states[masked][None], places)[0].softmax(-1)
        return list(every.split(masked.sum(1).tolist()))

    def _filled(self, text: str, read: Read, rows: Tensor, top: int) -> Filled:
        best = rows.topk(min(top, rows.size(-1)))
        masks = tuple(
            tuple(Candidate(self._shown(id), probability, id) for probability, id in zip(*pair, strict=True))
            for pair in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        )
        return Filled(self._text(text, [each[0].id for each in masks], read.encoded), masks)

    def _shown(self, id: int) -> str:
        return self.tokenizer.decode([id], special=True).strip() or self.tokenizer.pieces([id])[0]

    def _text(self, text: str, chosen: list[int], encoded: "Encoded") -> str:
        """The text with tokens where the masks were."""
        ids = list(encoded.ids)
        places = [n for n, id in enumerate(ids) if id == self.tokenizer.mask]
        made, *parts = text.split(self.mask)
        for place, id, part in zip(places, chosen, parts, strict=True):
            ids[place] = id
            before = ids[place - 1] if place and encoded.sequence[place - 1] == 0 else None
            made = self._append(made, before, id) + part
        return made

    def _append(self, text: str, before: int | None, id: int) -> str:
        """A token behind a text whose last token is `before`: a piece that continues a word loses the space."""
        if before is None or not text.strip():
            return text + self._shown(id)
        start, both = self.tokenizer.decode([before]), self.tokenizer.decode([before, id])
        added = both.removeprefix(start)
        if added != both and added.strip() and not added[0].isspace():
            return text.rstrip() + added
        spaced = self.tokenizer.pieces([id])[0].startswith(SPACED)
        return text + (" " if spaced and not text[-1].isspace() else "") + self._shown(id)
