"""What was measured as a chart: bars, the longer the faster."""

from pathlib import Path
from typing import Any

from clearformer.bench.report import title
from clearformer.bench.run import OURS
from clearformer.errors import DataError


def check_chart(out: Path) -> None:
    """Before a long run: can it be drawn at its end?"""
    if out.suffix not in (".png", ".svg"):
        raise DataError(f"{out}: give a name that ends in .png or .svg")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise DataError("charts need matplotlib; pip install 'clearformer[plot]'") from None


def chart(told: dict[str, Any], out: Path) -> Path:
    """Bars, one group a column, the longer the faster."""
    check_chart(out)
    from matplotlib.figure import Figure

    able = [each for each in told["contenders"] if "speeds" in each]
    titles, columns = [title(each) for each in able], told["columns"]
    colours = ["tab:blue" if each["name"] == OURS else "0.7" for each in able]
    figure = Figure(figsize=(2 + 3 * len(columns), 1.5 + 0.4 * len(able)), layout="constrained")
    for column, axes in zip(columns, figure.subplots(1, len(columns), sharey=True, squeeze=False)[0], strict=True):
        bars = axes.barh(titles, [each["speeds"].get(column["name"], 0) for each in able], color=colours)
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.set_title(column["name"])
        axes.set_xlabel(column["unit"])
        axes.margins(x=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    axes.invert_yaxis()
    machine = told["machine"]
    figure.suptitle(f"{told['work']}: {told['model']}; {machine['cpu']}, {machine['threads']} threads")
    try:
        figure.savefig(out, dpi=120)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from None
    return out
