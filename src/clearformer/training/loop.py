"""The training loop: one step after another, from any state to the end, whatever the goal.

A step is `accumulate` batches whose losses are summed and divided by the number of what they are losses of (target
tokens, texts, images), so that gradient accumulation equals one large batch. Everything random in a step is drawn from
(seed, step, batch, process), and the order of batches from (seed, epoch): a state therefore holds weights, moments,
averages and counters, and nothing else.
"""

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from clearformer.data.batches import ahead
from clearformer.errors import TrainingError
from clearformer.kernels.linear import use_onednn
from clearformer.training.average import Average, average
from clearformer.training.distributed import Group, fill, whole
from clearformer.training.lora import adapt
from clearformer.training.muon import Muon, matrices
from clearformer.training.prepare import Prepared
from clearformer.training.schedule import lengthened, rate_at, stable_until
from clearformer.training.settings import Settings, known
from clearformer.training.state import Saved

BAD_IN_A_ROW = 5  # steps whose loss or gradient is not finite, before the run is stopped


@dataclass
class Progress:
    """Where a run is; written with every state."""

    step: int = 0  # steps finished
    part: int = 0  # batches of the next step that are already in the gradients
    epoch: int = 0
    batch: int = 0  # batches of this epoch that were used
    tokens: int = 0  # target tokens seen
    seconds: float = 0.0
    skipped: int = 0
    bad: int = 0  # skipped in a row
    part_loss: float = 0.0
    part_tokens: float = 0.0
    part_sets: list[list[float]] = field(default_factory=list)  # loss and tokens of each set, where there are several
    planned: int = 0  # steps in all, when this was written
    best: float = math.inf  # lower is better
    best_step: int = 0
    without_better: int = 0
    finished: bool = False
    scores: dict[str, float] = field(default_factory=dict)  # of the last validation


@dataclass(frozen=True)
class Step:
    """What one step came to."""

    number: int
    loss: float  # a target token
    tokens: int
    rate: float
    norm: float
    skipped: bool
    sets: tuple[tuple[float, float], ...] = ()  # loss and tokens of each set, where there are several


class NotFiniteError(TrainingError):
    """Steps without a finite loss and gradient, one after the other."""


class Trainer:
    """One run in memory: `parts()` trains, `state()` and `restore()` carry it over any interruption."""

    def __init__(self, run: Prepared, group: Group):
        self.run, self.group, self.settings = run, group, run.settings
        machine, optimizer = run.settings.machine, run.settings.optimizer
        self.model = run.goal.model(run.spec)
        if run.settings.model.lora is not None:
            adapt(self.model, run.settings.model.lora, run.settings.seed)
        self.model = self.model.to(group.device).train()
        blocks = [block for name in self.model.spec.stacks for block in getattr(self.model, name).blocks]
        self.told = run.goal.objective(self.model, known(optimizer.smoothing))  # as it is inside any wrapper
        self.objective = group.wrap(self.told, blocks)
        self.sets = run.goal.train_sets
        if machine.compile:
            self.objective = torch.compile(self.objective, dynamic=True)  # type: ignore[assignment]
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(machine.precision)
        turned = matrices(self.model) if optimizer.kind == "muon" else {}
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                [p for name, p in self.parameters.items() if name not in turned],
                lr=0.0,
                betas=optimizer.betas,
                eps=optimizer.eps,
                weight_decay=optimizer.weight_decay,
                fused=not group.shard,
            )
        ]
        if turned:
            if group.shard:
                raise TrainingError(
                    "optimizer.kind = muon needs whole matrices; leave machine.shard out, or take adamw"
                )
            self.optimizers.append(Muon(turned.values(), optimizer.weight_decay, half or torch.float32))
        self.average: Average = average(self.parameters, run.settings.average)  # type: ignore[arg-type]
        self.progress = Progress()
        self.half: AbstractContextManager[Any] = torch.autocast(group.device.type, half) if half else nullcontext()
        self.scaler = torch.amp.GradScaler(group.device.type, enabled=machine.precision == "float16")

    @property
    def total_steps(self) -> int:
        return known(self.settings.length.steps)

    @property
    def stable_until(self) -> int | None:
        """The last step before the rate falls, where the schedule has one: its state can be gone back to."""
        return stable(self.settings, self.total_steps)

    def parts(self) -> Iterator[Step | None]:
        """Train to the end, one batch at a time: None after a batch of an unfinished step, else the step."""
        progress = self.progress
        batches = ahead(self._batches(progress.epoch, progress.batch))
        use_onednn(
            self.settings.machine.gemm == "onednn"
        )  # a run of before, which knows no such setting, stays as it is
        try:
            while progress.step < self.total_steps:
                started = time.perf_counter()
                epoch, number, batch = next(batches)
                self._accumulate(batch)
                progress.epoch, progress.batch = epoch, number + 1
                progress.part += 1
                step = self._step() if progress.part == self.settings.batch.accumulate else None
                progress.seconds += time.perf_counter() - started
                yield step
        finally:
            use_onednn(False)
            batches.close()  # type: ignore[attr-defined]

    def _batches(self, epoch: int, first: int) -> Iterator[tuple[int, int, Any]]:
        while True:
            plan = self.run.train.plan(epoch)
            for number in range(first, len(plan)):
                yield epoch, number, self.group.share(self.run.train.make(plan[number]))
            epoch, first = epoch + 1, 0

    def _accumulate(self, batch: Any) -> None:
        progress = self.progress
        self._seed(progress.step, progress.part)
        batch = type(batch)(*(part.to(self.group.device) for part in batch))
        last = progress.part + 1 == self.settings.batch.accumulate
        with self.group.sums(self.objective, last):
            with self.half:
                loss = self.objective(batch)
            self.scaler.scale(loss / known(self.settings.batch.tokens)).backward()  # near 1, whatever the batch holds
        progress.part_loss += float(loss.detach())
        progress.part_tokens += batch.tokens
        if self.sets:
            before = progress.part_sets or [[0.0, 0.0]] * len(self.sets)
            told = self.told.by_set.tolist()  # type: ignore[operator]
            progress.part_sets = [[a + c, b + d] for (a, b), (c, d) in zip(before, told, strict=False)]

    def _seed(self, step: int, part: int) -> None:
        text = f"{self.settings.seed} {step} {part} {self.group.rank}"
        torch.manual_seed(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1)

    def _step(self) -> Step:
        progress, optimizer = self.progress, self.settings.optimizer
        flat = [number for each in progress.part_sets for number in each]
        loss, tokens, *flat = self.group.total(progress.part_loss, progress.part_tokens, *flat)
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        for each in self.optimizers:
            self.scaler.unscale_(each)
        scale = known(self.settings.batch.tokens) * self.group.size / max(tokens, 1.0)
        norm = float(_whole_norm(gradients)) * scale
        rate = rate_at(
            progress.step + 1,
            kind=optimizer.schedule,
            top=known(optimizer.rate),
            warmup=known(optimizer.warmup),
            steps=self.total_steps,
            decay=optimizer.decay,
        )
        good = math.isfinite(loss) and math.isfinite(norm)
        # float16 looks for its scale by going too far: that is no fault until there is nothing left to halve
        seeking = self.scaler.is_enabled() and math.isfinite(loss) and self.scaler.get_scale() > 1
        if good:
            if optimizer.clip and norm > optimizer.clip:
                scale *= optimizer.clip / norm
            torch._foreach_mul_(gradients, scale)
            for each in self.optimizers:
                for part in each.param_groups:
                    part["lr"] = rate
                self.scaler.step(each)
        self.scaler.update()
        for each in self.optimizers:
            each.zero_grad(set_to_none=True)
        progress.step, progress.part, progress.part_loss, progress.part_tokens = progress.step + 1, 0, 0.0, 0.0
        progress.part_sets = []
        progress.tokens += int(tokens)
        progress.skipped += not good
        progress.bad = 0 if good or seeking else progress.bad + 1
        self.average.after_step(progress.step)
        if progress.bad >= BAD_IN_A_ROW:
            raise NotFiniteError(
                f"step {progress.step}: loss or gradient was not finite {BAD_IN_A_ROW} times in a row."
                " Try a lower optimizer.rate, a longer optimizer.warmup, or look at the data"
            )
        sets = tuple(zip(flat[::2], flat[1::2], strict=True))
        return Step(progress.step, loss / max(tokens, 1.0), int(tokens), rate, norm, not good, sets)

    # --- over interruptions ---------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """All tensors and counters; every process of a sharded run must ask."""
        moments = {
            f"{key}/{name}": whole(value)
            for name, parameter in self.parameters.items()
            for each in self.optimizers
            for key, value in each.state.get(parameter, {}).items()
        }
        gradients = {name: whole(p.grad) for name, p in self.parameters.items() if p.grad is not None}
        tensors = {
            "weights": {name: whole(parameter) for name, parameter in self.parameters.items()},
            "optimizer": moments,
            "average": {name: whole(weight) for name, weight in self.average.state().items()},
            "gradients": gradients if self.progress.part else {},
        }
        progress = {**asdict(self.progress), "planned": self.total_steps}
        return tensors, {**progress, "scaler": self.scaler.state_dict()}

    def restore(self, saved: Saved) -> None:
        tensors, facts = saved.tensors, dict(saved.facts)
        try:
            self.scaler.load_state_dict(facts.pop("scaler"))
            self.progress = Progress(**facts)
            if not self.group.first:  # what one process had added up is counted once
                self.progress.part_loss = self.progress.part_tokens = 0.0
                self.progress.part_sets = [[0.0, 0.0] for _ in self.progress.part_sets]
            moments = tensors.get("optimizer", {})
            for name, parameter in self.parameters.items():
                fill(parameter, tensors["weights"][name])
                for each, keys in zip(
                    self.optimizers, (("step", "exp_avg", "exp_avg_sq"), ("momentum",)), strict=False
                ):
                    if f"{keys[-1]}/{name}" in moments:
                        each.state[parameter] = {
                            key: self._moment(parameter, key, moments[f"{key}/{name}"]) for key in keys
                        }
                if name in tensors.get("gradients", {}):
                    parameter.grad = torch.zeros_like(parameter)
                    fill(parameter.grad, tensors["gradients"][name] / self.group.size)
            self.average.load(tensors.get("average", {}))
        except (KeyError, RuntimeError, TypeError) as error:
            raise TrainingError(f"{saved.folder} does not fit this run: {error}; start a new one") from None

    def resumed(self) -> tuple[dict[str, Any], str]:
        """What is to be said of a run that goes on: for the log, and in words; a change of its length is plain."""
        progress, optimizer = self.progress, self.settings.optimizer
        facts: dict[str, Any] = {"steps": self.total_steps}
        said = f"resumed at step {progress.step:,} of {self.total_steps:,}"
        if progress.planned and progress.planned != self.total_steps:
            words, was, now = lengthened(
                progress.step,
                progress.planned,
                self.total_steps,
                kind=optimizer.schedule,
                top=known(optimizer.rate),
                warmup=known(optimizer.warmup),
                decay=optimizer.decay,
            )
            facts |= {"steps_before": progress.planned, "rate_before": was, "rate": now}
            said += f"; {words}"
        return facts, said

    def _moment(self, parameter: Tensor, key: str, content: Tensor) -> Tensor:
        if key == "step":  # a number, where the optimizer wants it
            return content.to(parameter.device) if self.optimizers[0].defaults["fused"] else content.clone()
        made = torch.zeros_like(parameter, requires_grad=False)
        fill(made, content)
        return made


def stable(settings: Settings, steps: int) -> int | None:
    """The last step before the rate falls in a `wsd` run of so many steps; None of any other."""
    optimizer = settings.optimizer
    return stable_until(steps, known(optimizer.warmup), optimizer.decay) if optimizer.schedule == "wsd" else None


def _whole_norm(gradients: list[Tensor]) -> Tensor:
    norm = torch.nn.utils.get_total_norm(gradients)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
