"""Tiny data for every goal: texts whose labels, tags and answers follow from their words."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.training.settings import Settings

WORDS = ["red", "green", "blue", "one", "two", "three", "cat", "dog", "runs", "eats", "big", "small"]
NUMBERS = ("one", "two", "three")


def text(draw: random.Random, least: int = 2, most: int = 8) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most)))


def write(folder: Path) -> None:
    draw = random.Random(0)
    texts = [text(draw) for _ in range(240)]
    rows = [f"{each}\t{'animal' if 'cat' in each or 'dog' in each else 'none'}\n" for each in texts]
    (folder / "labels.tsv").write_text("".join(rows))
    alike = [(text(draw), draw.choice([0.0, 5.0])) for _ in range(120)]
    couples = [f"{one}\t{one if score else text(draw)}\t{score}\n" for one, score in alike]
    (folder / "couples.tsv").write_text("".join(couples))
    (folder / "text.txt").write_text(" ".join(WORDS[n % 3] for n in range(1500)) + "\n")
    for name in ("trees", "more_trees"):
        (folder / f"{name}.conllu").write_text("".join(tree(text(draw).split(), draw) for _ in range(120)))
    with (folder / "questions.jsonl").open("w") as file:
        for _ in range(120):
            before, number, after = text(draw), draw.choice(NUMBERS), "cat dog runs"
            context = " ".join(w for w in before.split() if w not in NUMBERS) + f" {number} {after}"
            file.write(json.dumps({"question": "how many", "context": context, "answer": number}) + "\n")
    images = np.random.default_rng(0).integers(0, 40, (120, 8, 8)).astype(np.uint8)
    labels = np.arange(120) % 3
    for number, label in enumerate(labels):
        images[number, :, 2 * label : 2 * label + 2] += 180
    np.savez(folder / "images.npz", x=images, y=labels)


def tree(words: list[str], draw: random.Random) -> str:
    """A chain, or all under the first word; the tag tells a word's head, which only the tree knows."""
    chain = draw.random() < 0.5
    lines = []
    for number, word in enumerate(words, 1):
        head = number - 1 if chain or number == 1 else 1
        tag = "CHAIN" if chain else "FAN"
        lines.append(f"{number}\t{word}\t{word}\tX\tX\t_\t{head}\t{tag}\t_\t_\n")
    return "".join(lines) + "\n"


TINY: dict[str, Any] = {
    "model": {"width": 16, "layers": 1, "heads": 2, "inner": 32, "dropout": 0.1},
    "batch": {"tokens": 120},
    "length": {"steps": 10},
    "optimizer": {"rate": 0.01, "warmup": 3},
    "validation": {"every": 5, "samples": 1},
    "save": {"every": 4},
    "machine": {"device": "cpu", "precision": "float32", "gemm": "mkl"},  # measured, it may differ from run to run
}
GOALS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # name: task, its data, changes
    "classify": ("classify", {"file": "labels.tsv"}, {}),
    "tag": ("tag", {"file": "trees.conllu", "fields": ("form", "deprel")}, {}),
    "tag by tree": ("tag", {"file": "trees.conllu", "fields": ("form", "deprel")}, {"model.positions": "tree"}),
    "embed by score": ("embed", {"file": "couples.tsv", "fields": ("1", "2", "3")}, {}),
    "embed by contrast": ("embed", {"file": "couples.tsv", "rows": (0, 120)}, {}),
    "answer": ("answer", {"file": "questions.jsonl"}, {}),
    "complete": ("complete", {"file": "text.txt"}, {"model.context": 24, "tokenizer.kind": "char"}),
    "complete prompts": ("complete", {"file": "labels.tsv"}, {}),
    "fill": ("fill", {"file": "text.txt"}, {"model.context": 24}),
    "see": ("see", {"file": "images.npz"}, {"data.shift": 1, "model.patch": 2}),
}


def asking(folder: Path, name: str, changes: dict[str, Any] | None = None, out: str = "run") -> Settings:
    """The settings of a tiny run of a goal on the data in `folder`."""
    task, part, own = GOALS[name]
    kind = {} if task == "see" else {"tokenizer": {"kind": "word", "vocabulary": 400}}
    part = {**part, "file": folder / part["file"]}
    made = Settings(task=task, out=folder / out, data={"train": [part]}, **TINY, **kind)  # type: ignore[arg-type]
    return made.replace({**own, **(changes or {})})
