"""Subwords at random, so that a model learns to read a word in any of its pieces: BPE-dropout (Provilkov et al. 2020)
and unigram sampling (Kudo 2018).

The tokenizers library draws from a generator that cannot be seeded, so words are cut here. A word has `VARIANTS` ways
to be cut, each a function of the seed, the word and the variant's number; which one a text takes, word by word, is a
function of its bits.
"""

import json
import math
from itertools import pairwise
from random import Random

from clearformer.errors import DataError
from clearformer.text.learn import LearnedTokenizer

VARIANTS, SHIFT = 16, 60  # 64 bits shifted by 60 are below 16
SMOOTHING = 0.2  # α of unigram sampling: P(cut) ∝ P(pieces)^α
KEPT = 2**18  # words whose variants are remembered
MASK = 2**64 - 1


class Subwords:
    """Cuts texts for a learned tokenizer. `share` is the probability that a merge is left out (bpe), or that a word's
    pieces are sampled (unigram); 0 gives the tokenizer's own ids."""

    def __init__(self, tokenizer: LearnedTokenizer, share: float, seed: int = 0):
        content = json.loads(tokenizer.engine.to_str())["model"]
        self.share, self.seed, self.engine, self.end = share, seed, tokenizer.engine, tokenizer.end
        if content["type"] == "BPE" and content["merges"]:
            self._cut, self.ids = self._dropout, dict(content["vocab"])
            pairs = (tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in content["merges"])
            self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        elif content["type"] == "Unigram":
            self._cut, self.ids = self._sample, {token: n for n, (token, _) in enumerate(content["vocab"])}
            lowest = min(score for _, score in content["vocab"])  # of special tokens and bytes: never in a text
            self.scores = {token: score for token, score in content["vocab"] if score > lowest}
            self.longest = max(map(len, self.scores), default=1)
        else:
            raise DataError("subwords can be sampled from a bpe or unigram vocabulary only; this one has whole units")
        self.known: dict[str, list[tuple[int, ...] | None]] = {}
        self.last: tuple[str, list[str]] = ("", [])

    def encode(self, text: str, bits: int) -> list[int]:
        """The ids of a text with its end, cut as 64 random bits say."""
        found: list[int] = []
        for word in self._words(text):
            bits = bits * 6364136223846793005 + 1442695040888963407 & MASK  # the next of a sequence; its top bits count
            variants = self.known.get(word) or self._new(word)
            cut = variants[bits >> SHIFT]
            if cut is None:
                cut = variants[bits >> SHIFT] = self.cut(word, bits >> SHIFT)
            found += cut
        return [*found, self.end]

    def _words(self, text: str) -> list[str]:
        if text != self.last[0]:  # versions of one text come one after the other
            normal = self.engine.normalizer.normalize_str(text)
            self.last = text, [word for word, _ in self.engine.pre_tokenizer.pre_tokenize_str(normal)]
        return self.last[1]

    def _new(self, word: str) -> list[tuple[int, ...] | None]:
        if len(self.known) >= KEPT:
            self.known.clear()
        made: list[tuple[int, ...] | None] = [None] * VARIANTS
        self.known[word] = made
        return made

    def cut(self, word: str, variant: int) -> tuple[int, ...]:
        """The ids of one way to cut a word."""
        pieces = self._cut(word, Random(f"{self.seed} {variant} {word}"))
        return tuple(i for piece in pieces for i in self._spelt(piece))

    def _spelt(self, piece: str) -> list[int]:
        """The id of a piece, or of its bytes."""
        return [self.ids[piece]] if piece in self.ids else [self.ids[f"<0x{byte:02X}>"] for byte in piece.encode()]

    def _dropout(self, word: str, draw: Random) -> list[str]:
        """Of all merges that are possible, those drawn are left out, the first of the others is made; until none is."""
        pieces = list(word)
        while True:
            possible = [
                (rank, place)
                for place, pair in enumerate(pairwise(pieces))
                if (rank := self.ranks.get(pair)) is not None and not (self.share and draw.random() < self.share)
            ]
            if not possible:
                return pieces
            _, place = min(possible)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]

    def _sample(self, word: str, draw: Random) -> list[str]:
        """Forward, the weight of all ways to a place; backward, a way drawn by these weights."""
        if not draw.random() < self.share:
            return [token.value for token in self.engine.model.tokenize(word)]
        sums = [0.0] + [-math.inf] * len(word)  # logarithms
        arcs: list[list[tuple[float, int]]] = [[] for _ in range(len(word) + 1)]  # by where they end: weight, start
        unknown = min(self.scores.values()) - 10
        for end in range(1, len(word) + 1):
            for start in range(max(0, end - self.longest), end):
                score = self.scores.get(word[start:end], unknown if end - start == 1 else None)
                if score is not None:
                    arcs[end].append((sums[start] + SMOOTHING * score, start))
            sums[end] = _log_sum([weight for weight, _ in arcs[end]])
        pieces, end = list[str](), len(word)
        while end:
            weights = [math.exp(weight - sums[end]) for weight, _ in arcs[end]]
            _, start = draw.choices(arcs[end], weights)[0]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]


def _log_sum(weights: list[float]) -> float:
    top = max(weights)
    return top + math.log(sum(math.exp(weight - top) for weight in weights))
