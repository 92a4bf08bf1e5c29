"""What the tasks that read texts share: texts are checked, encoded, cut into windows where they are too long for the
model, and run in batches of like length.

A window is a stretch of a text's tokens with the special tokens around it, as if it were a text of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from clearformer import spec
from clearformer.checkpoints.metadata import numbered
from clearformer.core.model import Transformer
from clearformer.core.places import Places
from clearformer.data.batches import pad
from clearformer.errors import CheckpointError, DataError
from clearformer.generate.cancel import check_cancelled
from clearformer.kernels.native.stack import NativeStack
from clearformer.tasks.base import Given, Task, by_length

if TYPE_CHECKING:
    from clearformer.text.protocol import Encoded
    from clearformer.text.tokenizer import PublicTokenizer

OnLong = Literal["error", "split", "truncate"]
Finish = Literal["whole", "split", "truncated"]
Done = Callable[[int], None]
Compute = Callable[["Batch"], "Sequence[Tensor] | Tensor"]
BUDGET = 2_000  # tokens run at once: what they become stays in the caches
AT_ONCE = 2_000  # texts encoded before they are run
MOST = 16_384  # tokens in a window of a model that has no limit of its own: memory has one
PEEK = 64  # characters a token: a text beyond this many is first looked at from its start


class Window(NamedTuple):
    ids: list[int]
    segments: list[int]
    start: int  # which of the text's own tokens are in it
    stop: int


class Read(NamedTuple):
    """A text as the model reads it."""

    encoded: "Encoded"
    windows: list[Window]
    finish: Finish


class Batch:
    """Windows that are run together. Padded only for those who ask for `ids`, `mask` or `segments`, all b t."""

    def __init__(self, windows: Sequence[Window], filler: int, segments: bool, device: torch.device):
        self.windows, self.filler, self.device = windows, filler, device
        self.has_segments = segments and any(any(window.segments) for window in windows)

    def lengths(self) -> list[int]:
        return [len(window.ids) for window in self.windows]

    @cached_property
    def _padded(self) -> tuple[Tensor, Tensor]:
        ids, mask = pad([window.ids for window in self.windows], self.filler)
        return ids.to(self.device), mask.to(self.device)

    @property
    def ids(self) -> Tensor:
        return self._padded[0]

    @property
    def mask(self) -> Tensor | None:
        """Where tokens are; None where they are everywhere."""
        return None if len(set(self.lengths())) == 1 else self._padded[1]

    @cached_property
    def segments(self) -> Tensor | None:
        if not self.has_segments:
            return None
        return pad([window.segments for window in self.windows], 0)[0].to(self.device)


class Reader(Task):
    """A task whose model is one stack that reads whole texts."""

    heads: tuple[type[spec.Part], ...] = ()  # those that the task can use; none: any
    overlap = 0.0  # the share of a window that it has in common with the next one

    def __init__(self, model: Transformer, tokenizer: "PublicTokenizer", metadata: Given = None):
        super().__init__(model, tokenizer, metadata)
        head = getattr(model.spec, "head", None)
        if not isinstance(model, Transformer) or (self.heads and not isinstance(head, self.heads)):
            wanted = " or ".join(repr(kind.model_fields["kind"].default) for kind in self.heads) or "one stack"
            found = f"its head is {head.kind!r}" if isinstance(model, Transformer) and head else "it is another"
            raise CheckpointError(f"to {self.can[0]}, a model needs {wanted}; {found}")

    @property
    def longest(self) -> int:
        """The most tokens, special ones included, that the model takes at once."""
        positions = self.model.spec.stack.embed.positions
        limits = [self.metadata.longest, getattr(positions, "length", None)]
        return min((limit for limit in limits if limit is not None), default=MOST)

    def read(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        on_long: OnLong = "error",
        number: int | Sequence[int] = 0,
    ) -> Iterator[list[Read]]:
        """The texts, a part at a time. Errors name a text by its number: `number` texts came before these, or they
        are the numbers themselves."""
        if on_long not in ("error", "split", "truncate"):
            raise DataError(f"on_long must be error, split or truncate, given {on_long!r}", param="on_long")
        texts = [texts] if isinstance(texts, str) else list(texts)
        seconds = [pairs] if isinstance(pairs, str) else None if pairs is None else list(pairs)
        if seconds is not None and len(seconds) != len(texts):
            raise DataError(f"{len(texts)} texts and {len(seconds)} second texts; each text needs one")
        numbers = range(number + 1, number + 1 + len(texts)) if isinstance(number, int) else number
        for given in (texts, seconds or []):
            for n, text in zip(numbers, given, strict=True) if given else ():
                _check(text, n)
        for first in range(0, len(texts), AT_ONCE):
            here = slice(first, first + AT_ONCE)
            part, other = texts[here], None if seconds is None else seconds[here]
            if on_long != "split":
                part = [self._start(text) for text in part]
                other = None if other is None else [self._start(text) for text in other]
            found = zip(self.encode_all(part, other), numbers[here], strict=True)
            yield [self._read(one, 1 if other is None else 2, f"text {n}", on_long) for one, n in found]

    def encode_all(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> "list[Encoded]":
        return self.tokenizer.encode_all(texts, pairs)

    def _start(self, text: str) -> str:
        """Of a very long text, its start, where that alone is too long: to read on would only take time."""
        if len(text) <= PEEK * self.longest:
            return text
        start = text[: PEEK * self.longest]
        start = start.rsplit(None, 1)[0] or start
        return start if len(self.tokenizer.encode(start).ids) > self.longest else text

    def _read(self, encoded: "Encoded", sides: int, name: str, on_long: OnLong) -> Read:
        own = [encoded.sequence.count(0), encoded.sequence.count(1)]
        if not all(own[:sides]):
            raise DataError(f"{name} has no tokens: it holds nothing that this model's tokenizer knows")
        count = len(encoded.ids)
        if count <= self.longest:
            return Read(encoded, [Window(encoded.ids, encoded.segments, 0, own[0])], "whole")
        room = self.longest - (count - sum(own))  # for the texts' own tokens
        if room < 1:
            raise DataError(f"this model takes {self.longest} tokens, and the special ones alone are that many")
        if on_long == "truncate":
            return Read(encoded, [_cut(encoded, own, room)], "truncated")
        if on_long == "split":
            return Read(encoded, self._split(encoded, own, room, name), "split")
        raise DataError(
            f"{name} is too long: this model takes {self.longest:,} tokens, and it has {count:,} or more; split or"
            " truncate it with on_long",
            param="on_long",
        )

    def _split(self, encoded: "Encoded", own: list[int], room: int, name: str) -> list[Window]:
        """Windows over the longer text, each with all that is before and behind it: special tokens, and the other text
        of a pair."""
        side = int(own[1] > own[0])
        room -= own[1 - side]
        if room < 1:
            raise DataError(
                f"both parts of {name} are too long to split: the shorter has {min(own):,} tokens of the"
                f" {self.longest:,} that this model takes"
            )
        first = encoded.sequence.index(side)
        last = first + own[side]
        found = []
        for start, stop in spans(own[side], room, int(room * self.overlap)):
            ids, segments = (
                row[:first] + row[first + start : first + stop] + row[last:] for row in (encoded.ids, encoded.segments)
            )
            found.append(Window(ids, segments, start, stop))
        return found

    def run(self, reads: Sequence[Read], compute: Compute, done: Done | None = None) -> list[list[Tensor]]:
        """For each text, what `compute` makes of each of its windows; it gets batches, and gives one tensor a row. Of
        windows that are alike it gets one."""
        alike: dict[tuple[tuple[int, ...], ...], list[tuple[int, int]]] = {}  # who has this window, and which it is
        for n, read in enumerate(reads):
            for place, window in enumerate(read.windows):
                alike.setdefault((tuple(window.ids), tuple(window.segments)), []).append((n, place))
        owners = list(alike.values())
        windows = [reads[n].windows[place] for (n, place), *_ in owners]
        each: list[list[Tensor]] = [[torch.empty(0)] * len(read.windows) for read in reads]
        waiting = [len(read.windows) for read in reads]
        with torch.inference_mode(), _evaluating(self.model):
            for rows in by_length([len(window.ids) for window in windows], BUDGET):
                check_cancelled()
                for row, one in zip(rows, compute(self._batch([windows[row] for row in rows])), strict=True):
                    for n, place in owners[row]:
                        each[n][place] = one
                        waiting[n] -= 1
                        if done is not None and not waiting[n]:
                            done(1)
        return each

    def _batch(self, windows: list[Window]) -> Batch:
        filler = self.tokenizer.pad if self.tokenizer.pad is not None else 0  # behind the mask, any id does
        return Batch(windows, filler, bool(self.model.spec.stack.embed.segments), next(self.model.parameters()).device)

    def packed(self, batch: Batch) -> tuple[Tensor, list[int]] | None:
        """The last states of all windows, one after the other without padding, and how many each has; None where the
        model is no program, or reads segments."""
        stack = self.model.stack
        if batch.has_segments or not isinstance(stack, NativeStack):
            return None
        found = stack.read([window.ids for window in batch.windows])
        return None if found is None else (found[0][:, : stack.width], batch.lengths())

    def states(self, batch: Batch) -> tuple[Tensor, Places]:
        """The last states, b t m, before any head, and where they are."""
        stack = self.model.stack
        places = stack.places(batch.ids, batch.mask)
        return stack(batch.ids, places, None, batch.segments), places

    def labels(self, count: int) -> list[str]:
        """The names of the model's classes, or LABEL_0 and so on where it has none."""
        given = self.metadata.labels
        names = numbered(count) if given is None else list(given)
        if len(names) != count:
            raise CheckpointError(f"the model has {count} classes and names for {len(names)}")
        return [name if name not in names[:n] else f"{name} ({n})" for n, name in enumerate(names)]


def spans(count: int, room: int, overlap: int) -> list[tuple[int, int]]:
    """Where windows of at most `room` begin and end over `count` tokens, when each repeats the last `overlap` tokens
    of the one before."""
    found = [(0, min(room, count))]
    while found[-1][1] < count:
        start = found[-1][1] - overlap
        found.append((start, min(start + room, count)))
    return found


def _check(text: Any, number: int) -> None:
    if not isinstance(text, str):
        raise DataError(f"text {number} is of type {type(text).__name__}, not text: {text!r:.60}; give strings")
    if not text.strip():
        raise DataError(f"text {number} is empty; give every line a text, or leave it out")


def _cut(encoded: "Encoded", own: list[int], room: int) -> Window:
    """The start of a text; of a pair, the longer one loses tokens until both are as long, then both do."""
    short = min(min(own), room // 2)
    sizes = [short, room - short] if own[0] <= own[1] else [room - short, short]
    left = dict(enumerate(sizes))
    kept = []
    for n, which in enumerate(encoded.sequence):
        if which is not None:
            left[which] -= 1
        if which is None or left[which] >= 0:
            kept.append(n)
    return Window([encoded.ids[n] for n in kept], [encoded.segments[n] for n in kept], 0, sizes[0])


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Without dropout, whatever the model was doing before."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
