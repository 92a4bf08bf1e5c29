"""What was measured, as plain values, as one table and as a chart."""

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearformer.bench.run import OURS, Measured, Row, version
from clearformer.bench.workloads import FIRST, Column
from clearformer.errors import DataError
from clearformer.kernels.native.processor import cores

if TYPE_CHECKING:
    from rich.console import Console

BYTES = {"float32": 4.0, "int8": 1.0, "Q8_0": 34 / 32}  # a weight; Q8_0 has a scale of two bytes every 32
NAMES = {
    OURS: "Clearformer",
    "ctranslate2": "CTranslate2",
    "transformers": "transformers",
    "llama.cpp": "llama.cpp",
    "sentence-transformers": "sentence-transformers",
}


def report(found: Measured) -> dict[str, Any]:
    """Everything, for JSON."""
    contenders = [_contender(row, found) for row in found.rows]
    return {
        "work": found.work,
        "model": found.model,
        "parameters": found.parameters,
        "machine": {
            "cpu": cpu(),
            "cores": cores(),
            "threads": found.threads,
            "system": platform.platform(terse=True),
            "python": platform.python_version(),
            "torch": version("torch"),
            "products_gflops": found.limits["gflops"],
            "memory_gigabytes_per_second": found.limits["gigabytes"],
        },
        "rounds": found.rounds,
        "columns": [{"name": column.name, "unit": column.unit} for column in found.columns],
        "contenders": contenders,
        "ratios": _ratios(contenders),
    }


def _contender(row: Row, found: Measured) -> dict[str, Any]:
    told: dict[str, Any] = {"name": row.name, "precision": row.precision, "version": row.version}
    if row.why is not None:
        return {**told, "why": row.why}
    figures, seconds = row.figures, row.figures["seconds"]
    shares = {column.name: _share(column, row.precision, seconds[column.name], found) for column in found.columns}
    return {
        **told,
        "speeds": {column.name: column.amount / seconds[column.name] for column in found.columns},
        "shares": shares,
        "first_token_seconds": seconds.get(FIRST),
        "import_seconds": figures["import"],
        "load_seconds": figures["load"],
        "load_and_answer_seconds": figures.get("answer"),
        "peak_bytes": figures["peak"],
        "grown_bytes": figures["grown"],
        "same": _same(row, found.rows),
    }


def _share(column: Column, precision: str, seconds: float, found: Measured) -> dict[str, float]:
    """How near a run is to what the machine allows: reading the weights, and multiplying in single precision."""
    return {
        "memory": column.reads * BYTES[precision] / seconds / 1e9 / found.limits["gigabytes"],
        "products": column.operations / seconds / 1e9 / found.limits["gflops"],
    }


def _same(row: Row, rows: list[Row]) -> float | None:
    """How alike the answers are to our first ones: the share of equal tokens, or the mean cosine of the vectors."""
    ours = next((each.figures.get("said") for each in rows if each.name == OURS and each.why is None), None)
    theirs = row.figures.get("said")
    if not ours or not theirs:
        return None
    pairs = [pair for one, other in zip(ours, theirs, strict=True) for pair in zip(one, other, strict=False)]
    if isinstance(ours[0][0], int):
        return sum(one == other for one, other in pairs) / len(pairs)
    cosines = []
    for one, other in zip(ours, theirs, strict=True):
        lengths = sum(a * a for a in one) ** 0.5 * sum(b * b for b in other) ** 0.5
        cosines.append(sum(a * b for a, b in zip(one, other, strict=True)) / lengths)
    return sum(cosines) / len(cosines)


def _ratios(contenders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times as fast each of ours is as each of the others."""
    able = [each for each in contenders if "speeds" in each]
    found = []
    for one in (each for each in able if each["name"] == OURS):
        for other in (each for each in able if each["name"] != OURS):
            times = {name: speed / other["speeds"][name] for name, speed in one["speeds"].items()}
            found.append({"of": title(one), "to": title(other), "times": times})
    return found


def title(contender: dict[str, Any]) -> str:
    return f"{NAMES[contender['name']]} {contender['precision']}"


def cpu() -> str:
    """The processor's own name, where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


# --- the table --------------------------------------------------------------------------------------------


def show(told: dict[str, Any], console: "Console") -> None:
    """One table: speeds, what share of the machine's limits they reach, and how many times as fast we are."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    machine = told["machine"]
    console.print(
        f"{told['work']}: {told['model']}, {told['parameters']:,} parameters; best of {_rounds(told['rounds'])}"
    )
    console.print(
        f"{machine['cpu']}, {machine['threads']} of {machine['cores']} cores: products at"
        f" {machine['products_gflops']:.0f} GFLOP/s, memory read at {machine['memory_gigabytes_per_second']:.1f} GB/s"
    )
    versions = {f"{NAMES[each['name']]} {each['version']}": None for each in told["contenders"] if each["version"]}
    console.print(", ".join([f"torch {machine['torch']}", *versions]))
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("")
    names = [column["name"] for column in told["columns"]]
    units = [column["unit"] for column in told["columns"]]
    for name, unit in zip(names, units, strict=True):
        table.add_column(f"{name}\n{unit}", justify="right")
    for name in ("first token\nms", "load\ns", "memory\nMB", "without imports\nMB", "same\nanswers"):
        table.add_column(name if told["work"] != "embed" else name.replace("token", "text"), justify="right")
    able = [each for each in told["contenders"] if "speeds" in each]
    for each in able:
        table.add_row(title(each), *(f"{each['speeds'][name]:,.0f}" for name in names), *_rest(each))
    table.add_section()
    for each in able:
        table.add_row(f"{title(each)}, of the limit", *(_nearest_limit(each["shares"][name]) for name in names))
    for ours in dict.fromkeys(ratio["of"] for ratio in told["ratios"]):
        table.add_section()
        for ratio in (each for each in told["ratios"] if each["of"] == ours):
            table.add_row(f"{ours} : {ratio['to']}", *(f"{ratio['times'][name]:.2f} ×" for name in names))
    console.print(table)
    for each in told["contenders"]:
        if "why" in each:
            console.print(Text(f"{title(each)}: {each['why']}"), soft_wrap=True)
    console.print("of the limit: m, of reading the weights from memory; p, of matrix products in float32")


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _rest(each: dict[str, Any]) -> list[str]:
    first, same = each["first_token_seconds"], each["same"]
    return [
        "–" if first is None else f"{first * 1e3:,.1f}",
        f"{each['load_seconds']:.2f}",
        f"{each['peak_bytes'] / 1e6:,.0f}",
        f"{each['grown_bytes'] / 1e6:,.0f}",
        "–" if same is None else f"{same:.1%}",
    ]


def _nearest_limit(share: dict[str, float]) -> str:
    return max((f"{share[name]:.0%} {name[0]}" for name in share), key=lambda text: float(text.split("%")[0]))


# --- the chart --------------------------------------------------------------------------------------------


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
        bars = axes.barh(titles, [each["speeds"][column["name"]] for each in able], color=colours)
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
