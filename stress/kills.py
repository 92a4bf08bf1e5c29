"""Kill a run with SIGKILL, again and again, and see that it never loses more than what came after its last save.

    python stress/kills.py [--kills 100]

A third of the kills fall into a save, the others at any time. After each, the states must be readable, the newest at
most one interval behind the last step that was told; at the end the run must be bit for bit the one that was never
killed. The run is tiny, so that its saves take a good part of its time. Children are forked: torch is imported once.
"""

import argparse
import json
import os
import random
import signal
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch._dynamo  # the optimizer would import it in every child

from clearformer.training import state
from clearformer.training.loop import Step, Trainer
from clearformer.training.prepare import ASKED, STATES
from clearformer.training.run import resume, start
from clearformer.training.settings import Settings
from clearformer.training.state import Saved, States

EVERY = 3  # steps between saves
TOLD = struct.Struct("<cq")  # what happened, and at which step


def asking(folder: Path, out: str, steps: int) -> Settings:
    draw = random.Random(1)
    rows = [[draw.choice("abcdefghijkl") for _ in range(draw.randint(1, 6))] for _ in range(200)]
    file = folder / "pairs.tsv"
    if not file.exists():
        file.write_text("".join(f"{' '.join(row)}\t{' '.join(reversed(row))}\n" for row in rows), encoding="utf-8")
    return Settings(
        out=folder / out,
        data={"train": [{"file": file}], "held_out": 10},
        tokenizer={"kind": "word", "vocabulary": 40},
        model={"width": 16, "layers": 1, "heads": 2, "inner": 32, "dropout": 0.2},
        batch={"tokens": 60, "accumulate": 2},
        optimizer={"rate": 0.01, "warmup": 10},
        length={"steps": steps},
        validation={"every": 4 * EVERY, "sentences": 0},
        save={"every": EVERY},
        machine={"device": "cpu", "precision": "float32"},
    )


def forked(work: Callable[[int], Any]) -> tuple[int, int]:
    """A child that does the work and tells it through a pipe; its number and the pipe's end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        os.close(reader)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        work(writer)
        code = 0
    except BaseException as error:
        print(f"child: {type(error).__name__}: {error}", flush=True)
        code = 1
    os._exit(code)


def train(asked: Settings, writer: int) -> None:
    """Begin or go on, telling of every step that ends and every save that begins."""
    true_step, true_save = Trainer._step, States.save

    def step(self: Trainer) -> Step:
        made = true_step(self)
        os.write(writer, TOLD.pack(b"t", made.number))
        return made

    def save(self: States, name: str, tensors: Any, facts: Any) -> Path:
        os.write(writer, TOLD.pack(b"s", facts["step"]))
        path = true_save(self, name, tensors, facts)
        os.write(writer, TOLD.pack(b"d", facts["step"]))
        return path

    Trainer._step, States.save = step, save  # type: ignore[method-assign]
    if (asked.out / ASKED).is_file():
        resume(asked.out)
    else:
        start(asked)
    os.write(writer, TOLD.pack(b"e", 0))


def messages(reader: int) -> list[tuple[bytes, int]]:
    """All that is left in the pipe of a child that is gone."""
    content = b""
    while part := os.read(reader, 65536):
        content += part
    os.close(reader)
    return [*TOLD.iter_unpack(content[: len(content) // TOLD.size * TOLD.size])]


def read(out: Path) -> Saved | None:
    """The newest state; damage of any kind is a failure here."""
    found = States(out / STATES).load()
    assert found is None or not found.damaged, found.damaged
    return found


class Kill(NamedTuple):
    """How far a killed child had come, how far the newest state is, whether it was saving, and left one half done."""

    reached: int
    kept: int
    saving: bool
    half_done: bool


def kill_one(asked: Settings, in_a_save: bool, draw: random.Random, save_seconds: float) -> Kill:
    child, reader = forked(lambda writer: train(asked, writer))
    told: list[tuple[bytes, int]] = []
    if in_a_save:
        for _ in range(draw.randint(1, 3)):  # the first to the third save of this sitting
            while (told[-1:] or [(b"", 0)])[0][0] not in (b"s", b"e"):
                told.append(TOLD.unpack(os.read(reader, TOLD.size)))
            told.append((b"", 0))
        time.sleep(draw.random() * save_seconds)
    else:
        told.append(TOLD.unpack(os.read(reader, TOLD.size)))
        time.sleep(draw.random() * 0.5)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told += messages(reader)
    assert (b"e", 0) not in told, "the run ended before it was killed; give it more steps"
    reached = max((step for kind, step in told if kind == b"t"), default=0)
    saving = [kind for kind, _ in told if kind in (b"s", b"d")][-1:] == [b"s"]
    half_done = any((asked.out / STATES).glob(".*.partial"))
    found = read(asked.out)
    return Kill(reached, 0 if found is None else found.facts["step"], saving, half_done)


def done(asked: Settings) -> Saved:
    child, reader = forked(lambda writer: train(asked, writer))
    messages(reader)
    assert os.waitpid(child, 0)[1] == 0
    found = read(asked.out)
    assert found is not None
    return found


def seconds_of_a_save(folder: Path, asked: Settings) -> float:
    """Of the very tensors that the run saves."""
    found = done(asked.replace({"out": folder / "trial", "length.steps": EVERY}))
    began = time.perf_counter()
    States(folder / "saves").save("1", found.tensors, found.facts)
    return time.perf_counter() - began


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--kills", type=int, default=100)
    words.add_argument("--seed", type=int, default=1)
    kills, seed = (getattr(words.parse_args(), name) for name in ("kills", "seed"))
    torch.set_num_threads(1)
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        asked = asking(folder, "killed", 100_000)
        save_seconds = seconds_of_a_save(folder, asked)
        found: list[Kill] = []
        for number in range(kills):
            found.append(kill_one(asked, number % 3 == 1, draw, save_seconds))
            assert found[-1].reached - found[-1].kept <= EVERY, f"kill {number}: {found[-1]}"
        killed = read(asked.out)
        last = 0 if killed is None else killed.facts["step"]
        steps = last + 2 * EVERY
        end = done_at(asked, steps)
        whole = done_at(asking(folder, "whole", 100_000), steps)
        same = all(
            torch.equal(tensor, whole.tensors[group][name])
            for group, named in end.tensors.items()
            for name, tensor in named.items()
        )
        facts = {**end.facts, "seconds": 0} == {**whole.facts, "seconds": 0}
        assert same, "the killed run is not the one that was never killed"
        assert facts, (end.facts, whole.facts)
        print(
            json.dumps(
                {
                    "kills": kills,
                    "in a save": sum(kill.saving for kill in found),
                    "saves left half done": sum(kill.half_done for kill in found),
                    "unreadable": 0,
                    "interval": EVERY,
                    "most steps lost": max((kill.reached - kill.kept for kill in found), default=0),
                    "steps": steps,
                    "bit-identical": same,
                }
            )
        )


def done_at(asked: Settings, steps: int) -> Saved:
    """The run let go until it has saved that step, of a schedule that is longer."""
    child, reader = forked(lambda writer: train(asked, writer))
    while TOLD.unpack(os.read(reader, TOLD.size)) != (b"d", steps):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    folder = asked.out / STATES / next(n for n in States(asked.out / STATES).names() if n.startswith(f"{steps:08d}-"))
    assert state._fault(folder) is None
    return States(asked.out / STATES)._read(folder, [])


if __name__ == "__main__":
    main()
