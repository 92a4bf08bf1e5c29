"""Rows that are written side by side: what an engine asks of a batch, and a plain one for models of any kind.

A `Batch` takes requests in, runs one step of all its rows, and is told which rows go on. The paged one (`paged_batch`)
lets requests join at any step; `StaticBatch` reads all prompts at once and takes new requests when it is empty.
"""

import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from clearformer.core.model import EncoderDecoder, Transformer
from clearformer.data.batches import pad
from clearformer.generate.requests import Handle, Request
from clearformer.generate.searches import ALL, BeamSearch, Best, Step, TokenSearch, search_for

Model = Transformer | EncoderDecoder
Array = np.ndarray[Any, Any]


class Entry:
    """A request in a batch: its search, and how many rows it has."""

    def __init__(self, handle: Handle, vocabulary: int):
        self.handle, self.request = handle, handle.request
        self.search: TokenSearch | BeamSearch = search_for(handle.request, vocabulary)
        self.rows = 1


Moves = Sequence[tuple[Entry, Step | None]]  # for each entry of a step what goes on; None where it leaves


class Batch(Protocol):
    entries: list[Entry]  # those whose rows are written, in the order of their rows

    threads: int  # that a step may have

    @property
    def appetite(self) -> int:
        """Requests that there is use for at once."""

    def too_large(self, request: Request) -> str | None:
        """Why a request can never be served here, or None."""

    def admit(self, waiting: list[Entry]) -> int:
        """Take in as many of those that wait, from the first on, as there is room for."""

    def step(self) -> tuple[list[Entry], Best | None]:
        """Run a step: the entries whose next tokens can be chosen, and the best logits of their rows, in order."""

    def advance(self, moves: Moves) -> None:
        """Go on with these rows, or let entries go."""

    def drop(self, entries: list[Entry]) -> None:
        """Let entries go at once, wherever they are."""

    def forget(self) -> None:
        """Let go of all that is kept for requests to come."""

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""


class StaticBatch:
    """All prompts read at once, padded; no one joins. For models that are no programs: trees, block-sparse, CUDA."""

    def __init__(self, model: Model, most: int = 64):
        self.model, self.most, self.appetite, self.threads = model, most, most, 1
        self.entries: list[Entry] = []
        self.context: Any = None
        self.new: tuple[Tensor, Tensor | None] | None = None

    @property
    def busy(self) -> bool:
        return bool(self.entries)

    def too_large(self, request: Request) -> str | None:
        return None

    def forget(self) -> None:
        pass

    def admit(self, waiting: list[Entry]) -> int:
        if self.entries or not waiting:
            return 0
        count, rows = 0, 0
        for entry in waiting:
            rows += entry.request.plan.rows
            if count and rows > self.most:
                break
            count += 1
        requests = [entry.request for entry in waiting[:count]]
        device = next(self.model.parameters()).device
        if isinstance(self.model, EncoderDecoder):
            self.context = self.model.context(encoded_sources(self.model, requests, device))
        else:
            self.context = self.model.context()
        ids, mask = (part.to(device) for part in pad([list(request.prompt) for request in requests], 0))
        self.new = ids, None if bool(mask.all()) else mask
        self.entries = waiting[:count]
        return count

    def step(self) -> tuple[list[Entry], Best | None]:
        if self.new is None:
            return [], None
        tokens, mask = self.new
        logits = self.model.step(tokens, self.context, mask).float().cpu()
        for entry in self.entries:
            entry.search.asked = entry.search.wanted()
            entry.handle.first = entry.handle.first or time.perf_counter()
        asked = [max(entry.search.asked % ALL, entry.search.best, 1) for entry in self.entries]
        keep = min(max(asked), logits.size(1))
        heat = [t for entry in self.entries for t in [entry.search.temperature] * entry.rows]
        scores, which = logits.topk(keep)
        shifted = logits - scores[:, :1]
        best = Best(
            scores.numpy(),
            which.numpy(),
            scores[:, 0].numpy(),
            shifted.exp().sum(1).numpy(),
            (shifted / torch.tensor(heat)[:, None]).exp().sum(1).numpy(),
            lambda row: logits[row].numpy(),
        )
        return list(self.entries), best

    def advance(self, moves: Moves) -> None:
        first, rows, tokens = 0, [], []
        kept = []
        for entry, step in moves:
            if step is not None and step[0]:
                rows += [first + row for row in step[0]]
                tokens += step[1]
                kept.append(entry)
            first += entry.rows
            if step is not None:
                entry.rows = len(step[0])
        self.entries, self.new = kept, None
        if kept:
            device = next(self.model.parameters()).device
            if rows != list(range(first)):
                self.context.select(torch.tensor(rows, device=device))
            self.new = torch.tensor(tokens, device=device)[:, None], None
        else:
            self.context = None

    def drop(self, entries: list[Entry]) -> None:
        if not any(entry in entries for entry in self.entries):
            return
        if self.new is None or self.context is None or self.new[1] is not None or self.new[0].size(1) > 1:
            gone = [entry for entry in self.entries if entry in entries]
            rest = [entry for entry in self.entries if entry not in gone]
            self.entries, self.context, self.new = [], None, None
            if rest:  # nothing was read yet: begin again with the others
                self.admit(rest)
            return
        first, rows = 0, []
        for entry in self.entries:
            rows += [] if entry in entries else list(range(first, first + entry.rows))
            first += entry.rows
        self.entries = [entry for entry in self.entries if entry not in entries]
        if rows:
            index = torch.tensor(rows, device=self.new[0].device)
            self.context.select(index)
            self.new = self.new[0][index], None
        else:
            self.context = self.new = None


def encoded_sources(model: EncoderDecoder, requests: Sequence[Any], device: torch.device) -> Any:
    """What the encoder makes of the sources: texts, with trees or without, or images."""
    if isinstance(requests[0].source, Tensor) and requests[0].source.is_floating_point():
        weight = next(model.parameters())
        return model.encode(torch.stack([request.source for request in requests]).to(device, weight.dtype))
    source, mask = (part.to(device) for part in pad([list(request.source) for request in requests], 0))
    trees = None if requests[0].trees is None else [request.trees for request in requests]
    return model.encode(source, None if bool(mask.all()) else mask, trees=trees)
