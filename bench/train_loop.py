"""What the loop, the data, averaging and logging cost: steps of `clearformer train` against the bare training step.

    python bench/train_loop.py [--steps 40] [--rounds 3]

The shapes are those of bench/train_step.py: every sentence has 19 words and an end, so every batch is 64 × 20 tokens,
vocabulary 8,000, width 256, 3 + 3 layers, two threads. Both run in turns in one process; medians are compared.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from clearformer.training.distributed import Group
from clearformer.training.logging import Watch
from clearformer.training.loop import Trainer
from clearformer.training.prepare import prepare
from clearformer.training.session import Session, Signals
from clearformer.training.settings import Settings
from clearformer.training.state import States
from train_step import BATCH, LENGTH, WORDS, ours


def corpus(folder: Path) -> None:
    generator = random.Random(0)
    words = [f"w{n}" for n in range(WORDS - 4)]
    for name in ("source", "target"):
        lines = [" ".join(generator.choices(words, k=LENGTH - 1)) for _ in range(4000)]
        (folder / name).write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="steps a round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(2)
    bare = ours()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        corpus(folder)
        total = options.steps * options.rounds + 5
        settings = Settings(
            out=folder / "run",
            data={"train": [{"source": folder / "source", "target": folder / "target"}]},
            tokenizer={"kind": "word", "vocabulary": WORDS},
            model={"width": 256, "layers": 3, "heads": 4, "inner": 1024, "dropout": 0.1, "norm": "after"},
            batch={"tokens": BATCH * LENGTH},
            length={"steps": total},
            validation={"every": 10**6},
            log_every=10,
        )
        run = prepare(settings, print)
        trainer = Trainer(run, Group.join("cpu", False))
        states, watch = States(folder / "run" / "states"), Watch(folder / "run", total)
        times: dict[str, list[float]] = {"loop": [], "bare": []}
        session = Session(run, trainer.group, trainer, states, watch, Signals())
        recent = []
        began = time.perf_counter()
        for step in trainer.parts():
            assert step is not None
            recent.append(step)
            if step.number % 10 == 0:
                session._log(recent, 1.0)
                recent = []
            times["loop"].append(time.perf_counter() - began)
            if step.number % options.steps == 0:
                for _ in range(options.steps):
                    began = time.perf_counter()
                    bare()
                    times["bare"].append(time.perf_counter() - began)
            began = time.perf_counter()
    loop, step_alone = (statistics.median(times[name][3:]) for name in ("loop", "bare"))
    tokens = BATCH * LENGTH
    print(f"bare step  {step_alone * 1e3:6.1f} ms  {tokens / step_alone:6.0f} target tokens/s")
    print(f"in a run   {loop * 1e3:6.1f} ms  {tokens / loop:6.0f} target tokens/s: {loop / step_alone - 1:+.1%}")


if __name__ == "__main__":
    main()
