"""One sitting of a run: steps, logs, validations and saves until the end or until it is told to stop."""

import math
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from torch import Tensor

from clearformer.training.distributed import Group, whole
from clearformer.training.export import export
from clearformer.training.goals.base import Scores
from clearformer.training.logging import Watch, clock
from clearformer.training.loop import NotFiniteError, Step, Trainer
from clearformer.training.lora import merged
from clearformer.training.prepare import Prepared
from clearformer.training.settings import known
from clearformer.training.state import States, state_name
from clearformer.training.validate import validate


class Stopped(Exception):  # noqa: N818 it is no error
    """The run was told to stop, has saved its state, and can be resumed."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@dataclass(frozen=True)
class Trained:
    """A run that ended: where its model is, how far it came, and its last validation."""

    folder: Path
    steps: int
    finish: str  # "steps" or "patience"
    scores: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.__dict__, "folder": str(self.folder), "scores": dict(self.scores)}


class Signals:
    """SIGTERM and Ctrl-C ask the run to save and stop; a second one ends the process at once."""

    def __init__(self) -> None:
        self.caught = 0

    def __enter__(self) -> Self:
        self.before = {each: signal.signal(each, self._catch) for each in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for each, handler in self.before.items():
            signal.signal(each, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught:
            os._exit(128 + number)
        self.caught = number


@dataclass
class Session:
    """One sitting of a run."""

    run: Prepared
    group: Group
    trainer: Trainer
    states: States
    watch: Watch
    signals: Signals

    def go(self) -> Trained:
        progress, total = self.trainer.progress, self.trainer.total_steps
        patience = self.run.settings.validation.patience
        over = progress.step >= total or (patience and progress.without_better >= patience)
        if not (progress.finished and over):
            try:
                self._go()
            except NotFiniteError as error:
                newest = self.states.newest()
                kept = f"the state in {self.states.folder / newest} is kept" if newest else "no state was saved yet"
                raise NotFiniteError(f"{error}; {kept}") from None
        self.watch.say(f"done: {progress.step:,} steps in {clock(progress.seconds)}; the model is {self.run.folder}")
        finish = "steps" if progress.step >= total else "patience"
        return Trained(self.run.folder, progress.step, finish, dict(progress.scores))

    def _go(self) -> None:
        trainer, progress, settings = self.trainer, self.trainer.progress, self.run.settings
        recent: list[Step] = []
        last_save = last_log = time.perf_counter()
        if progress.step >= trainer.total_steps:  # its length was cut to less than it has done
            self._validate()
            progress.finished = True
            self._save()
        for step in trainer.parts():
            stop = self._stop_asked(step)
            if step is None:
                if stop:
                    self._save_and_stop(stop)
                continue
            recent.append(step)
            self.watch.moved(step.number)
            ended = step.number == trainer.total_steps
            if step.number % settings.log_every == 0 or ended:
                now = time.perf_counter()
                self._log(recent, now - last_log)
                recent, last_log = [], now
            if step.number % known(settings.validation.every) == 0 or ended:
                began = time.perf_counter()
                ended = self._validate() or ended
                last_log += time.perf_counter() - began
            progress.finished = ended
            late = time.perf_counter() - last_save > 60 * settings.save.minutes
            due = step.number % known(settings.save.every) == 0 or step.number == self.states.spared
            if due or self.group.tell(late) or ended or stop:
                began = time.perf_counter()
                self._save()
                last_save = time.perf_counter()
                last_log += last_save - began
            if ended:
                break
            if stop:
                raise Stopped(stop)

    def _stop_asked(self, step: Step | None) -> int:
        """The signal that was caught; many processes agree on it after whole steps."""
        if self.group.size == 1:
            return self.signals.caught
        return 0 if step is None else int(self.group.largest(self.signals.caught))

    def _save_and_stop(self, number: int) -> None:
        self._save()
        raise Stopped(number)

    def _save(self) -> None:
        tensors, facts = self.trainer.state()
        progress = self.trainer.progress
        if self.group.first:
            self.states.save(str(state_name(progress.step, progress.part)), tensors, facts)
            self.watch.note("save", progress.step, {"part": progress.part})
        self.group.wait()

    def _log(self, steps: list[Step], seconds: float) -> None:
        progress = self.trainer.progress
        tokens = sum(step.tokens for step in steps)
        good = [step for step in steps if not step.skipped]
        loss = sum(step.loss * step.tokens for step in good) / sum(step.tokens for step in good) if good else math.nan
        speed = tokens / max(seconds, 1e-9)
        left = (self.trainer.total_steps - progress.step) * seconds / len(steps)
        facts: dict[str, Any] = {
            "loss": round(loss, 4),
            "rate": steps[-1].rate,
            "norm": round(steps[-1].norm, 4),
            "tokens_per_second": round(speed, 1),
            "epoch": progress.epoch,
            "tokens": progress.tokens,
            "skipped": progress.skipped,
        }
        sets = self._sets(good)
        if sets:
            facts["sets"] = sets
        share = progress.epoch + progress.batch / max(1, self.run.steps_an_epoch * self.run.settings.batch.accumulate)
        text = (
            f"step {progress.step:,}/{self.trainer.total_steps:,}  epoch {share:.2f}  loss {loss:.3f}"
            f"  {speed:,.0f} {self.run.goal.unit}/s  rate {steps[-1].rate:.1e}  left {clock(left)}"
        )
        text += f"  skipped {progress.skipped}" if progress.skipped else ""
        text += "".join(f"  {name} {told['loss']:.3f} ({told['share']:.0%})" for name, told in sets.items())
        self.watch.note("step", progress.step, facts, text)

    def _sets(self, steps: list[Step]) -> dict[str, dict[str, float]]:
        """The loss of each set in these steps, and its share of their tokens."""
        found = {}
        for number, name in enumerate(self.trainer.sets):
            told = [step.sets[number] for step in steps if step.sets]
            loss, tokens = sum(each[0] for each in told), sum(each[1] for each in told)
            if tokens and math.isfinite(loss):
                share = tokens / sum(step.tokens for step in steps)
                found[name] = {"loss": round(loss / tokens, 4), "share": round(share, 4)}
        return found

    def _validate(self) -> bool:
        """Score the averaged weights; keep them if they are the best so far. True if it is time to stop."""
        trainer, progress, settings = self.trainer, self.trainer.progress, self.run.settings.validation
        trainer.average.at_validation()
        weights: dict[str, Tensor] = {name: whole(weight) for name, weight in trainer.average.weights().items()}
        better = stop = False
        if self.group.first:
            weights = self._plain(weights)
            scores = validate(self.run, weights)
            measure = self.run.goal.measure if settings.best != "loss" else None
            measured = -scores.measures[measure] if measure in scores.measures else scores.loss
            better = measured < progress.best
            if better:
                progress.best, progress.best_step = measured, progress.step
            progress.without_better = 0 if better else progress.without_better + 1
            stop = bool(settings.patience) and progress.without_better >= settings.patience
            progress.scores = {name: round(n, 4) for name, n in {"loss": scores.loss, **scores.measures}.items()}
            if better:
                export(self.run, weights, progress)
            samples = [dict(zip(("given", "right", "made"), s, strict=True)) for s in scores.samples]
            facts: dict[str, Any] = {**progress.scores, "best": better, "samples": samples}
            if scores.sets:
                facts["sets"] = {name: {"loss": round(loss, 4)} for name, loss in scores.sets.items()}
            self.watch.note(
                "validation", progress.step, facts, _told(progress.step, scores, better, self.run.goal.unit)
            )
        return bool(self.group.tell(stop))

    def _plain(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights of all parameters, those of LoRA merged in."""
        lora = self.run.settings.model.lora
        if lora is None:
            return weights
        frozen = {name: whole(weight) for name, weight in self.trainer.model.named_parameters()}
        return merged(weights, frozen, lora)


SHOWN = {"bleu": "BLEU", "chrf": "chrF"}


def _shown(name: str, value: float) -> str:
    measure, _, of = name.partition(" ")  # of one set, where there are several
    return f"  {SHOWN[measure]}{' ' * bool(of)}{of} {value:.1f}" if measure in SHOWN else f"  {name} {value:.4f}"


def _told(step: int, scores: Scores, better: bool, unit: str) -> str:
    text = f"validation at step {step:,}: loss {scores.loss:.3f}"
    text += f" (perplexity {math.exp(min(scores.loss, 50)):.2f})" if unit == "tokens" else ""
    text += "".join(_shown(name, value) for name, value in scores.measures.items())
    text += "".join(f"  loss {name} {loss:.3f}" for name, loss in scores.sets.items())
    text += f"  in {scores.seconds:.0f} s" + ("  best so far" if better else "")
    return text + "".join(f"\n  {source}\n    → {made}" for source, _, made in scores.samples)
