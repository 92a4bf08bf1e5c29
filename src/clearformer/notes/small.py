"""A small encoder–decoder with words of its own, untrained: for what holds of any Transformer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearformer import presets
from clearformer.assemble import build
from clearformer.core.model import EncoderDecoder
from clearformer.notes.layers import Steps, kernel_steps

START, END = "<start>", "<end>"


class Translator:
    """`presets.original("tiny")` over the words of some sentences; seed 0."""

    def __init__(self, *sentences: str):
        words = [word for sentence in sentences for word in sentence.split()]
        self.words = list(dict.fromkeys([START, END, *words]))
        model = build(presets.original("tiny", vocabulary=len(self.words), dropout=0.0), kernel="reference", seed=0)
        assert isinstance(model, EncoderDecoder)
        self.model = model

    def ids(self, words: str | Sequence[str]) -> Tensor:
        """1 t"""
        return torch.tensor([[self.words.index(w) for w in (words.split() if isinstance(words, str) else words)]])

    def logits(self, source: str, target: str) -> Tensor:
        """t v: teacher forcing, in one pass."""
        with torch.no_grad():
            return self.model(self.ids(source), self.ids(target))[0]

    def cross(self, source: str, target: str) -> Steps:
        """Cross-attention in the last block of the decoder."""
        last = len(self.model.decoder.blocks) - 1
        path = f"decoder.blocks.{last}.branches.cross.layer"
        return kernel_steps(self.model, path, lambda: self.model(self.ids(source), self.ids(target)))
