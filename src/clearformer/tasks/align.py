"""Which word of the source each word of a translation looked at: cross-attention, averaged over heads and layers.

Tokens are joined to the words they spell: a word of the translation takes the mean of its tokens' rows, a word of
the source the sum of its tokens' columns. Row t of the decoder is where token t + 1 is chosen.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from clearformer.core.model import EncoderDecoder


class Link(NamedTuple):
    """A word of the source, a word of the translation, counted from 0, and the share of its attention."""

    source: int
    target: int
    weight: float


def weights(model: EncoderDecoder, source: list[int], target: list[int]) -> Tensor:
    """t s: what every row of the target saw of the source; `target` begins with the start token."""
    from clearformer.explain.trace import trace  # only those who ask for alignments wait for it

    run = trace(model, torch.tensor([source]), torch.tensor([target]))
    layers = [n for n, _ in enumerate(model.decoder.blocks)]
    seen = [run[f"decoder.{n}.cross.weights"].values.reshape(-1, len(target), len(source)) for n in layers]
    return torch.stack([layer.mean(0) for layer in seen]).mean(0)


def words(pieces: list[str]) -> list[int]:
    """The number of the word that each token belongs to: `▁` begins one, and where there is none, each is one."""
    if not any(piece.startswith("▁") for piece in pieces):
        return list(range(len(pieces)))
    found, number = [], -1
    for piece in pieces:
        number += piece.startswith("▁") or number < 0
        found.append(number)
    return found


def links(seen: Tensor, source: list[str], target: list[str]) -> list[Link]:
    """For each word of the target, the word of the source it saw most; the columns beyond `source` are left out."""
    if not source or not target:
        return []
    rows, columns = words(target), words(source)
    joined = torch.zeros(rows[-1] + 1, columns[-1] + 1)
    for t, row in enumerate(rows):
        share = 1 / rows.count(row)
        for s, column in enumerate(columns):
            joined[row, column] += float(seen[t, s]) * share
    best = joined.max(1)
    return [Link(int(s), t, round(float(w), 4)) for t, (s, w) in enumerate(zip(best.indices, best.values, strict=True))]
