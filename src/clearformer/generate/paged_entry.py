"""What a batch on the paged KV cache keeps of a request, and what a request will need of it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from clearformer.core.model import EncoderDecoder
from clearformer.errors import DataError
from clearformer.generate.batch import Entry, Model
from clearformer.generate.prefix_cache import Node
from clearformer.generate.requests import Request

Array = np.ndarray[Any, Any]
ENCODE_TOKENS = 512  # of sources that are read together


class PagedEntry:
    """What a batch keeps of an entry: the cells of its prompt, how far it is read, and what was promised to it."""

    def __init__(self, entry: Entry, number: int, promised: int, known: Array, node: Node | None):
        prompt = entry.request.prompt
        self.entry, self.number, self.promised, self.node = entry, number, promised, node
        self.ids = np.asarray(prompt, dtype=np.int64)
        self.cells = np.zeros(len(prompt), dtype=np.int32)
        self.cells[: len(known)] = known
        self.read = len(known)
        self.kept = 0  # cells that the prefix cache took over
        self.memory = np.zeros(1, dtype=np.int32)  # the cells of its source
        self.sources = 0


def address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def cells_needed(request: Request) -> int:
    """Cells that a request may use: its prompt's, and one for every token of every row but the last."""
    return len(request.prompt) + request.plan.rows * request.plan.limit


def portions(model: Model, joining: list[PagedEntry]) -> Iterator[list[PagedEntry]]:
    """So many sources at a time that what an encoder makes of them stays in the nearer caches."""
    some: list[PagedEntry] = []
    tokens = 0
    for one in joining:
        tokens += (count := source_tokens(model, one.entry.request))
        if some and tokens > ENCODE_TOKENS:
            yield some
            some, tokens = [], count
        some.append(one)
    if some:
        yield some


def source_tokens(model: Model, request: Request) -> int:
    if isinstance(request.source, torch.Tensor) and request.source.is_floating_point():
        assert isinstance(model, EncoderDecoder)
        if (count := getattr(model.encoder.embed, "count", None)) is None:
            raise DataError("the encoder of this model reads token ids, given an image")
        return int(count)
    return len(request.source)
