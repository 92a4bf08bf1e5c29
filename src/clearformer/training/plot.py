"""The curves of a run, drawn from its log."""

import json
from pathlib import Path
from typing import Any

from clearformer.errors import DataError, TrainingError

BESIDE = ("event", "step", "time", "loss", "best", "samples")  # in the log of a validation, beside its scores


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
    """Losses, scores, rate and speed against steps, as PNG or SVG by the name of `out`."""
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
    _line(loss, steps, "loss", "training (smoothed labels, dropout)")
    _line(loss, valid, "loss", "validation", marker="o")
    loss.set_ylabel("loss, nats")
    measures = [key for key in (valid[-1] if valid else {}) if key not in BESIDE]
    for key, marker in zip(measures, "os^vD", strict=False):
        _line(quality, valid, key, {"bleu": "BLEU", "chrf": "chrF"}.get(key, key), marker=marker)
    quality.set_ylabel("validation score")
    _line(rate, steps, "rate", None)
    rate.set_ylabel("learning rate")
    _line(speed, steps, "tokens_per_second", None)
    speed.set_ylabel("tokens (or texts, images) a second")
    speed.set_ylim(bottom=0)
    for each in axes.flat:
        each.set_xlabel("step")
        each.grid(alpha=0.3)
        if each.get_legend_handles_labels()[0]:
            each.legend()
    figure.suptitle(run.stem or str(run))
    try:
        figure.savefig(out, dpi=120)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from None
    return out


def _line(axes: Any, rows: list[dict[str, Any]], key: str, label: str | None, marker: str | None = None) -> None:
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker=marker, markersize=4)
