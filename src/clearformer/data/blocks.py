"""Running text as one long row of ids on disk, cut into blocks anew in every epoch.

A block is `length` + 1 ids: each is to be said from all before it. Blocks come in random order, and where they begin
shifts from epoch to epoch, so that no two have the same ones. Ends of files are marked by the end token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor

from clearformer.data.lines import open_bytes
from clearformer.errors import DataError
from clearformer.text.tokenizer import PublicTokenizer

AT_ONCE = 2**20  # characters encoded in one call, cut at the end of a line


class Block(NamedTuple):
    """Ids, and which of them, but the first, count."""

    ids: Tensor  # b t
    counts: Tensor  # b t

    @property
    def tokens(self) -> int:
        return int(self.counts[:, 1:].sum())

    def nothing(self) -> "Block":
        return Block(self.ids[:1], torch.zeros_like(self.counts[:1]))


def write_stream(folder: Path, name: str, files: Sequence[Path], words: PublicTokenizer, by_line: bool = False) -> int:
    """Encode the text of files into NAME.tokens; how many ids there are. `by_line`: every line is a text of its own,
    with the special tokens that it has when a person gives it."""
    kind = np.dtype("<u2" if len(words) <= 2**16 else "<u4")
    total = 0
    with (folder / f"{name}.tokens").open("wb") as out:
        for path in files:
            for piece in _pieces(path):
                ids = _ids_of_lines(piece, words) if by_line else words.encode(piece, special=False).ids
                total += len(ids)
                out.write(np.asarray(ids, kind).tobytes())
            if words.end is not None and not by_line:
                total += 1
                out.write(np.asarray([words.end], kind).tobytes())
    save_file({"bytes": np.asarray([kind.itemsize])}, folder / f"{name}.safetensors")
    return total


def _ids_of_lines(piece: str, words: PublicTokenizer) -> list[int]:
    texts = [line for line in piece.split("\n") if line.strip()]
    return [number for encoded in words.encode_all(texts) for number in encoded.ids]


def _pieces(path: Path) -> Any:
    """The text of a file in pieces that end where lines do; it may be larger than memory."""
    number, waiting = 1, b""
    with open_bytes(path) as handle:
        while chunk := handle.read(AT_ONCE):
            whole, cut, rest = (waiting + chunk).rpartition(b"\n")
            waiting = rest
            if cut:
                yield _text(whole + cut, path, number)
                number += whole.count(b"\n") + 1
    if waiting:
        yield _text(waiting, path, number)


def _text(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = number + raw[: error.start].count(b"\n")
        raise DataError(f"{path}, line {line}: not UTF-8; convert the file, or give another") from None


@dataclass(frozen=True)
class Blocks:
    """The blocks of a stream, or of its part from `first` up to `last`; `tokens` of them make a batch."""

    folder: Path
    name: str
    length: int
    tokens: int
    seed: int | None = None  # None: to validate on, in the order of the text
    first: int = 0
    last: int | None = None

    @cached_property
    def stream(self) -> np.ndarray[Any, Any]:
        try:
            size = load_file(self.folder / f"{self.name}.safetensors")["bytes"].item()
            found = np.memmap(self.folder / f"{self.name}.tokens", np.dtype({2: "<u2", 4: "<u4"}[size]), "r")
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise DataError(f"{self.folder / self.name}.tokens cannot be read ({error})") from None
        return found[self.first : self.last]

    def plan(self, epoch: int) -> list[np.ndarray[Any, Any]]:
        """Where the blocks of every batch begin."""
        size = len(self.stream)
        length = min(self.length, size - 1)
        if length < 1:
            raise DataError("there is too little text to make a block of")
        rows = max(1, self.tokens // length)
        if self.seed is None:  # every token, the last block over a part of the one before
            starts = np.minimum(np.arange(0, size - 1, length), size - 1 - length)
        else:
            random = np.random.default_rng((self.seed, epoch))
            shift = int(random.integers(0, min(length, size - length)))
            starts = np.arange(shift, size - length, length)
            starts = random.permutation(starts)
        return [starts[at : at + rows] for at in range(0, len(starts), rows)]

    def make(self, rows: np.ndarray[Any, Any]) -> Block:
        stream = self.stream
        length = min(self.length, len(stream) - 1)
        ids = np.stack([stream[start : start + length + 1] for start in rows]).astype(np.int64)
        return Block(torch.from_numpy(ids), torch.ones(ids.shape, dtype=torch.bool))

    def padding(self, epoch: int = 0) -> float:
        return 0.0
