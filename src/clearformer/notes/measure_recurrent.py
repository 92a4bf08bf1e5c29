"""What the notes claim of recurrence, measured beside a Transformer of the same number of parameters.

"The number of unparallelisable operations does not increase with sequence length": `sequential_steps` runs a model
and finds the longest chain of operations that wait for one another. "It starts missing initial words for long
sentences (30 words)": `recalls` trains models to copy or reverse random words and asks which words come out right.
Both are run by `python -m clearformer.notes.measure_recurrent`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer import presets
from clearformer.assemble import build
from clearformer.core.block import Block
from clearformer.notes.recurrent import Recurrent

if TYPE_CHECKING:
    from rich.table import Table

START, WORDS = 0, 16  # token 0 starts a target; the words are 1 to 16
WIDTH = 37  # gives `Recurrent` as many parameters as the tiny Transformer
SHORTEST, LONGEST = 5, 30
TASKS: dict[str, Callable[[Tensor], Tensor]] = {"copy": lambda words: words, "reverse": lambda words: words.flip(1)}
MODELS: dict[str, Callable[[int], nn.Module]] = {
    "Transformer": lambda seed: build(
        presets.original("tiny", vocabulary=WORDS + 1, norm="before", dropout=0.0), seed=seed
    ),
    "GRU + attention": lambda seed: Recurrent(WORDS + 1, WIDTH, seed=seed),
    "GRU, last state": lambda seed: Recurrent(WORDS + 1, WIDTH, attention=False, seed=seed),
}
TIMED = ("Transformer", "GRU + attention")


@dataclass(frozen=True)
class Chain:
    """How long a run must take however many processors there are: its longest chain of dependent work."""

    steps: int  # GRU cells or Transformer blocks in a row
    calls: int  # the same, all of them: those beyond `steps` can run side by side
    operations: int  # any tensor operations in a row


@dataclass(frozen=True)
class Cost:
    model: str
    length: int
    chain: Chain
    seconds: float  # of one training step, the fastest of several: other work on the machine only adds


@dataclass(frozen=True)
class Recall:
    model: str
    task: str
    length: int
    words: tuple[float, ...]  # the share of right answers for the first, second, ... word of the source

    def first(self, count: int) -> float:
        return fmean(self.words[:count])

    def last(self, count: int) -> float:
        return fmean(self.words[-count:])


def sequential_steps(model: nn.Module, source: int, target: int) -> Chain:
    """Run the model on that many tokens, and find the longest path in the graph of what was computed from what.

    The graph is the one autograd keeps for the backward pass, so nothing is assumed about the model but its units.
    """
    units: set[Any] = set()

    def mark(module: nn.Module, given: object, made: Tensor) -> None:
        units.add(made.grad_fn)

    hooks = [m.register_forward_hook(mark) for m in model.modules() if isinstance(m, nn.GRUCell | Block)]
    try:
        logits = model(torch.zeros(1, source, dtype=torch.long), torch.zeros(1, target, dtype=torch.long))
    finally:
        for hook in hooks:
            hook.remove()
    steps = _longest_path(logits.grad_fn, lambda node: node in units)
    return Chain(steps, len(units), _longest_path(logits.grad_fn, lambda node: bool(node.next_functions)))


def _longest_path(root: Any, counts: Callable[[Any], bool]) -> int:
    """The most nodes that count on any path from the inputs to the root."""
    longest: dict[Any, int] = {}
    waiting = [root]
    while waiting:  # not recursion: the path through a recurrent model is deeper than Python's stack
        node = waiting[-1]
        before = [function for function, _ in node.next_functions if function is not None]
        missing = [function for function in before if function not in longest]
        if missing:
            waiting += missing
        else:
            longest[waiting.pop()] = counts(node) + max((longest[function] for function in before), default=0)
    return longest[root]


def costs(lengths: Sequence[int], *, batch: int = 16, repeats: int = 5, seed: int = 0) -> list[Cost]:
    """Sequential steps, and seconds of a training step, of the Transformer and the recurrent model with attention."""
    found = []
    for length in lengths:
        for name in TIMED:
            model = MODELS[name](seed)
            chain = sequential_steps(model, length, length)
            train = Training(model, "copy", seed)
            seconds = [train.step(length, batch) for _ in range(repeats + 1)][1:]  # the first one warms up
            found.append(Cost(name, length, chain, min(seconds)))
    return found


class Training:
    """A plain loop, the same for every model: Adam, a linear warm-up and decline, one length a batch."""

    def __init__(self, model: nn.Module, task: str, seed: int, rate: float = 3e-3):
        self.model, self.task, self.rate = model, TASKS[task], rate
        self.optimiser = torch.optim.Adam(model.parameters(), lr=rate)
        self.generator = torch.Generator().manual_seed(seed)

    def run(self, steps: int, batch: int) -> None:
        self.model.train()
        for done in range(steps):
            self.optimiser.param_groups[0]["lr"] = self.rate * min(1, (done + 1) / 100, 2 * (1 - done / steps))
            self.step(int(torch.randint(SHORTEST, LONGEST + 1, (), generator=self.generator)), batch)
        self.model.eval()

    def step(self, length: int, batch: int) -> float:
        """One update; the seconds it took."""
        source, target = _examples(self.task, batch, length, self.generator)
        began = time.perf_counter()
        loss = F.cross_entropy(self.model(source, _shifted(target)).flatten(0, 1), target.flatten())
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return time.perf_counter() - began


@torch.no_grad()
def recall(
    model: nn.Module, task: str, lengths: Sequence[int], *, name: str = "", sentences: int = 256, seed: int = 1
) -> list[Recall]:
    """Which words of the source come out right, by place in the source, given the right words before them."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for length in lengths:
        source, target = _examples(TASKS[task], sentences, length, generator)
        right = model(source, _shifted(target)).argmax(2) == target  # b t
        by_source = TASKS[task](right)  # both tasks are their own inverse, so this is the source's order
        found.append(Recall(name, task, length, tuple(by_source.double().mean(0).tolist())))
    return found


def recalls(
    lengths: Sequence[int],
    models: Mapping[str, Callable[[int], nn.Module]] = MODELS,
    *,
    steps: int = 500,
    batch: int = 32,
    seed: int = 0,
) -> list[Recall]:
    """Train each model on each task, on sentences of 5 to 30 random words, and see what it recalls."""
    found = []
    for task in TASKS:
        for name, make in models.items():
            model = make(seed)
            Training(model, task, seed).run(steps, batch)
            found += recall(model, task, lengths, name=name)
    return found


def _examples(
    task: Callable[[Tensor], Tensor], batch: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    source = torch.randint(1, WORDS + 1, (batch, length), generator=generator)
    return source, task(source)


def _shifted(target: Tensor) -> Tensor:
    return torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], 1)


def main(argv: Sequence[str] | None = None) -> None:
    from argparse import ArgumentParser

    from rich.console import Console

    parser = ArgumentParser(prog="python -m clearformer.notes.measure_recurrent", description=__doc__)
    parser.add_argument("--steps", type=int, default=500, help="training steps of each model on each task")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)  # operations this small lose more by sharing than they gain
    console = Console()

    sizes = (f"{name} {sum(p.numel() for p in make(0).parameters()):,}" for name, make in MODELS.items())
    console.print(f"Parameters: {'; '.join(sizes)}. One thread.\n")
    with console.status("timing"):
        console.print(_cost_table(costs((5, 10, 20, 40, 80, 160), seed=given.seed)))
    console.print("The Transformer's chain is shorter where the sentences are long enough for fused attention.\n")
    with console.status("training"):
        console.print(_recall_table(recalls((5, 10, 15, 20, 25, 30), steps=given.steps, seed=given.seed), given.steps))
    console.print(f"Guessing gives {100 / WORDS:.0f} %.")


def _cost_table(found: Sequence[Cost]) -> "Table":
    table = _table("The longest chain of a run, and one training step of 16 sentences")
    for heading in ("words", *(f"{name.split()[0]}\n{of}" for of in ("steps", "operations", "ms") for name in TIMED)):
        table.add_column(heading, justify="right")
    for length in sorted({cost.length for cost in found}):
        row = [cost for cost in found if cost.length == length]
        chains = [cost.chain.steps for cost in row] + [cost.chain.operations for cost in row]
        table.add_row(str(length), *(f"{n:,}" for n in chains), *(f"{1000 * cost.seconds:.0f}" for cost in row))
    return table


def _recall_table(found: Sequence[Recall], steps: int) -> "Table":
    lengths = sorted({each.length for each in found})
    table = _table(f"Right after {steps} training steps, %: first three / last three words of so many")
    for heading in ("task", "model", *map(str, lengths)):
        table.add_column(heading, justify="right" if heading.isdigit() else "left")
    for task, model in dict.fromkeys((each.task, each.model) for each in found):
        row = [each for each in found if (each.task, each.model) == (task, model)]
        table.add_row(task, model, *(f"{100 * each.first(3):.0f}/{100 * each.last(3):.0f}" for each in row))
    return table


def _table(title: str) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)


if __name__ == "__main__":
    main()
