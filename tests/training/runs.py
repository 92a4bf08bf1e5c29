"""Tiny runs for the tests: a few hundred pairs of letters and the same letters backwards."""

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.training.distributed import Group
from clearformer.training.loop import Trainer
from clearformer.training.prepare import STATES, Prepared, prepare
from clearformer.training.settings import Settings
from clearformer.training.state import Saved, States

ALONE = Group(0, 1, torch.device("cpu"), False)
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "CUDA_VISIBLE_DEVICES": ""}


def write_pairs(folder: Path, count: int = 200, longest: int = 6) -> tuple[Path, Path]:
    draw = random.Random(count)
    rows = [[draw.choice("abcdefghijkl") for _ in range(draw.randint(1, longest))] for _ in range(count)]
    source, target = folder / "source.txt", folder / "target.txt"
    source.write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
    target.write_text("".join(" ".join(reversed(row)) + "\n" for row in rows), encoding="utf-8")
    return source, target


def asking(folder: Path, changes: Mapping[str, Any] | None = None, **pairs: int) -> Settings:
    """Settings of a run in `folder/run` that takes a second: 12 steps of 2 batches, with dropout, states every 4."""
    source, target = write_pairs(folder, **pairs)
    asked = Settings(
        out=folder / "run",
        data={"train": [{"source": source, "target": target}], "held_out": 10},
        tokenizer={"kind": "word", "vocabulary": 40},
        model={"width": 16, "layers": 1, "heads": 2, "inner": 32, "dropout": 0.2},
        batch={"tokens": 60, "accumulate": 2},
        optimizer={"rate": 0.01, "warmup": 3},
        length={"steps": 12},
        validation={"every": 6, "sentences": 0},
        save={"every": 4},
        machine={"device": "cpu", "precision": "float32", "gemm": "mkl"},  # measured, it may differ from run to run
    )
    return asked.replace(changes or {})


def prepared(folder: Path, changes: Mapping[str, Any] | None = None, **pairs: int) -> Prepared:
    return prepare(asking(folder, changes, **pairs), lambda text: None)


def saved(out: Path) -> Saved:
    found = States(out / STATES).load()
    assert found is not None
    return found


def flat(state: Saved) -> dict[str, Tensor]:
    return {f"{group}/{name}": tensor for group, named in state.tensors.items() for name, tensor in named.items()}


def assert_same(a: Saved, b: Saved) -> None:
    """Every bit of two states, but for the seconds they took."""
    assert {**a.facts, "seconds": 0} == {**b.facts, "seconds": 0}
    one, other = flat(a), flat(b)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.parameters.items()}
