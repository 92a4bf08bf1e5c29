"""How alike are two sentences? TF-IDF, means of word vectors, and a small encoder, by one score.

    python bench/static_search.py --pairs test.csv.gz --text train.en.gz [--text more.en.gz] [--epochs 5]

`--pairs` is a CSV of sentence, sentence, score from 0 to 5, as STS-B's; the figure is the Spearman correlation of the
scores with the cosines. `--text` is what TF-IDF counts and Word2Vec learns from, one sentence a line, plain or gzip.
One thread. Speeds are of this run; the machine may have had other work.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import clearformer as cf
from clearformer.data.lines import open_bytes
from clearformer.static import TfIdf, Word2Vec
from clearformer.training.goals.embed import spearman

Array = np.ndarray[Any, np.dtype[Any]]
Cosines = Callable[[list[str], list[str]], Array]


def by_tfidf(model: TfIdf) -> Cosines:
    def cosines(a: list[str], b: list[str]) -> Array:
        return (model.matrix(a) * model.matrix(b)).sum(1).to_dense().numpy()

    return cosines


def by_common_words(a: list[str], b: list[str]) -> Array:
    """The share of words in common (Jaccard): what needs no model at all."""
    sets = [(set(cf.static.words(x)), set(cf.static.words(y))) for x, y in zip(a, b, strict=True)]
    return np.array([len(x & y) / max(len(x | y), 1) for x, y in sets])


def by_plain_mean(model: Word2Vec) -> Cosines:
    def vectors(texts: list[str]) -> torch.Tensor:
        ids = (model.vocabulary.ids(text) for text in texts)
        return torch.stack([model.vectors[each].mean(0) if each else torch.zeros(model.settings.width) for each in ids])

    return lambda a, b: torch.cosine_similarity(vectors(a), vectors(b)).numpy()


def by_weighted_mean(model: Word2Vec) -> Cosines:
    return lambda a, b: torch.cosine_similarity(model.text_vectors(a), model.text_vectors(b)).numpy()


def by_model(name: str) -> Cosines:
    model = cf.load(name)

    def cosines(a: list[str], b: list[str]) -> Array:
        return (model.embed(a, normalise=True) * model.embed(b, normalise=True)).sum(1)

    cosines(["warm"], ["up"])
    return cosines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--text", type=Path, action="append", required=True)
    parser.add_argument("--epochs", type=float, default=None)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--model", default="sentences")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with open_bytes(asked.pairs) as file:
        rows = list(csv.reader(file.read().decode().splitlines()))
    a, b, wanted = [row[0] for row in rows], [row[1] for row in rows], np.array([float(row[2]) for row in rows])

    began = time.perf_counter()
    tfidf = TfIdf.fit(asked.text)
    counted = time.perf_counter() - began
    seen: list[cf.static.Progress] = []
    run = cf.static.Run.begin(asked.text, cf.static.Settings(width=asked.width, epochs=asked.epochs))
    began = time.perf_counter()
    seen = list(run.go())
    learned = time.perf_counter() - began
    words = run.model()
    unknown = sum(len(words.unseen(text)) for text in a + b)
    print(f"{len(rows):,} pairs; {run.tokens.words:,} words of text, {len(words):,} different ones")
    print(f"Word2Vec: {words.settings.epochs:g} passes, {seen[-1].words / learned:,.0f} words a second")
    print(f"words of the pairs without a vector: {unknown:,}\n")
    print("| cosines of | Spearman | made in, s | sentences/s |\n|---|---|---|---|")
    ways: list[tuple[str, float | None, Cosines]] = [
        ("words in common", None, by_common_words),
        ("TF-IDF", counted, by_tfidf(tfidf)),
        ("Word2Vec, plain mean", learned, by_plain_mean(words)),
        ("Word2Vec, rare words count more", learned, by_weighted_mean(words)),
        (f"bundled `{asked.model}`", None, by_model(asked.model)),
    ]
    for name, seconds, cosines in ways:
        began = time.perf_counter()
        found = cosines(a, b)
        speed = 2 * len(a) / (time.perf_counter() - began)
        made = "" if seconds is None else f"{seconds:.0f}"
        print(f"| {name} | {spearman(found, wanted):.3f} | {made} | {speed:,.0f} |")


if __name__ == "__main__":
    main()
