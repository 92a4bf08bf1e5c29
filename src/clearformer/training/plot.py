"""The curves of a run, drawn from its log."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.errors import DataError, TrainingError

BESIDE = ("event", "step", "time", "loss", "best", "samples", "sets")  # in the log of a validation, beside its scores


def read_log(run: Path) -> list[dict[str, Any]]:
    """The events of a run, of its folder or its log, in order; what a resumed run did over again counts once, as it
    went in the end."""
    path = run if run.is_file() else run / "log.jsonl"
    if not path.is_file():
        raise TrainingError(f"{run} has no log.jsonl; give the folder of a run, or its log")
    found: list[dict[str, Any]] = []
    for line in path.read_bytes().split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the last line of a run that was killed
        if not isinstance(row, dict) or "event" not in row or "step" not in row:
            continue
        if row["event"] == "resume":
            found = [each for each in found if each["step"] <= row["step"]]
        found.append(row)
    return found


def plot(run: Path, out: Path) -> Path:
    """Losses, scores, rate and speed against steps, as PNG or SVG by the name of `out`.

    Where a run was interrupted the curves are, too: a dotted line says where it was resumed, a dashed one where its
    length was changed then.
    """
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise DataError(f"{out}: give a name that ends in .png, .svg or .pdf")
    rows = read_log(run)
    steps = [row for row in rows if row["event"] == "step"]
    valid = [row for row in rows if row["event"] == "validation"]
    if not steps and not valid:
        raise TrainingError(f"{run}: its log has no steps yet")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DataError("plots need matplotlib; pip install 'clearformer[plot]'") from None
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots(2, 2)
    loss, quality, rate, speed = axes.flat
    marks = resumes(rows)
    breaks = [mark.step for mark in marks]
    draw = partial(_line, breaks=breaks)
    draw(loss, steps, "loss", "training (smoothed labels, dropout)")
    draw(loss, valid, "loss", "validation", marker="o")
    for name in {name: None for row in steps for name in row.get("sets", ())}:
        draw(
            loss, [{"step": row["step"], **row.get("sets", {}).get(name, {})} for row in steps], "loss", name, thin=True
        )
    loss.set_ylabel("loss, nats")
    measures = [key for key in (valid[-1] if valid else {}) if key not in BESIDE]
    for key, marker in zip(measures, "os^vD", strict=False):
        draw(quality, valid, key, key.replace("bleu", "BLEU").replace("chrf", "chrF"), marker=marker)
    quality.set_ylabel("validation score")
    draw(rate, steps, "rate", None)
    rate.set_ylabel("learning rate")
    draw(speed, steps, "tokens_per_second", None)
    speed.set_ylabel("tokens (or texts, images) a second")
    speed.set_ylim(bottom=0)
    for each in axes.flat:
        _mark(each, marks, told=each is rate)
        each.set_xlabel("step")
        each.grid(alpha=0.3)
        if each.get_legend_handles_labels()[0]:
            each.legend(fontsize="small")
    figure.suptitle(run.stem or str(run))
    try:
        figure.savefig(out, dpi=120)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from None
    return out


class Mark(NamedTuple):
    """Where a run was resumed, and its length before and after, if that was changed then."""

    step: int
    before: int | None
    after: int | None

    @property
    def lengthened(self) -> bool:
        return self.before is not None


def resumes(rows: list[dict[str, Any]]) -> list[Mark]:
    """The interruptions that a run went on after; several at one step are one."""
    last = max((row["step"] for row in rows if row["event"] in ("step", "validation")), default=0)
    found: dict[int, Mark] = {}
    for row in rows:
        if row["event"] == "resume" and row["step"] < last:
            before = found.get(row["step"])
            start = before.before if before is not None and before.lengthened else row.get("steps_before")
            changed = start is not None and start != row.get("steps")
            found[row["step"]] = Mark(row["step"], start if changed else None, row.get("steps") if changed else None)
    return list(found.values())


def _line(
    axes: Any,
    rows: list[dict[str, Any]],
    key: str,
    label: str | None,
    marker: str | None = None,
    *,
    breaks: list[int],
    thin: bool = False,
) -> None:
    """A curve, in as many pieces as the run had sittings."""
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    if not points:
        return
    joined: list[tuple[float, float]] = []
    for number, (step, value) in enumerate(points):
        if number and any(points[number - 1][0] <= at < step for at in breaks):
            joined.append((step, math.nan))
        joined.append((step, value))
    alone = marker or ("." if len(joined) > len(points) or len(points) == 1 else None)  # a piece of one point shows
    style = {"linewidth": 0.9, "alpha": 0.8} if thin else {}
    size = 4 if marker else 1.5
    axes.plot(*zip(*joined, strict=True), label=label, marker=alone, markersize=size, **style)


def _mark(axes: Any, marks: list[Mark], told: bool) -> None:
    """Vertical lines where the run was interrupted; `told`, with what they mean, and the lengths that were changed."""
    for kind, changed in (("resumed", False), ("resumed, length changed", True)):
        style: dict[str, Any] = {"linestyle": "--" if changed else ":", "color": "black" if changed else "gray"}
        for number, mark in enumerate(each for each in marks if each.lengthened == changed):
            axes.axvline(mark.step, linewidth=1.0, label=kind if told and not number else None, **style)
            if told and mark.lengthened:
                text = f"{mark.before:,} → {mark.after:,} steps"
                where: dict[str, Any] = {"rotation": 90, "va": "center", "ha": "right", "size": 7}
                axes.text(mark.step, 0.5, text, transform=axes.get_xaxis_transform(), **where)
