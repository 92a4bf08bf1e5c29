"""A run tried without being begun: everything resolved, the data counted, a few steps measured."""

import resource
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from clearformer.assemble import count_parameters
from clearformer.training.distributed import Group
from clearformer.training.goals.base import Say
from clearformer.training.machine import choose
from clearformer.training.prepare import prepare
from clearformer.training.run import Tried, check_free, seconds_of_a_step
from clearformer.training.settings import Settings, known, to_toml


@dataclass(frozen=True)
class Estimate:
    """What a run would be: its settings, and measured on a few of its steps, its time and its memory."""

    settings: Settings
    parameters: int
    steps: int
    seconds: float
    memory: int  # bytes of the process at its largest

    def __str__(self) -> str:
        hours, minutes = divmod(round(self.seconds / 60), 60)
        return (
            f"{to_toml(self.settings)}\n{self.parameters:,} parameters; {self.steps:,} steps,"
            f" about {hours} h {minutes} min and {self.memory / 2**20:,.0f} MiB of memory on this machine"
        )


def dry_run(asked: Settings, say: Say) -> Estimate:
    """Nothing is written where the run would be."""
    check_free(asked.out)
    if asked.machine.threads:
        torch.set_num_threads(asked.machine.threads)
    with tempfile.TemporaryDirectory() as scratch:
        alone = Group.join(asked.machine.device, False)
        chosen, _ = choose(asked.machine, alone.device)
        there = asked.replace(out=Path(scratch) / "run")
        made = prepare(there, say, Tried(alone), chosen)
        usual = replace(made, train=made.goal.batches(made.settings.replace({"length.steps": None})))
        seconds = seconds_of_a_step(usual, alone)
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        steps = known(made.settings.length.steps)
        return Estimate(
            made.settings.replace(out=asked.out), count_parameters(made.spec), steps, seconds * steps, largest
        )
