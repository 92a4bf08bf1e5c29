"""What was measured, as plain values."""

import platform
from pathlib import Path
from statistics import median
from typing import Any

from clearformer.bench.run import OURS, Measured, Row, version
from clearformer.bench.workloads import FIRST, Column

BYTES = {"float32": 4.0, "int8": 1.0, "Q8_0": 34 / 32}  # a weight; Q8_0 has a scale of two bytes every 32
NAMES = {
    OURS: "Clearformer",
    "ctranslate2": "CTranslate2",
    "transformers": "transformers",
    "llama.cpp": "llama.cpp",
    "sentence-transformers": "sentence-transformers",
}
VERBS = {
    "translate": "cf.load(...).translate(texts), text to text",
    "complete": "cf.load(...).complete(prompts), text to text",
    "embed": "cf.load(...).embed(texts), text to vectors",
    "train": "one step of training",
}


def report(found: Measured) -> dict[str, Any]:
    """Everything, for JSON. Speeds are those of the best run, medians those of all."""
    contenders = [_contender(row, found.rows, found) for row in found.rows]
    told = {
        "work": found.work,
        "measured": VERBS[found.work],
        "model": found.model,
        "parameters": found.parameters,
        "texts": found.texts,
        "machine": {
            "cpu": cpu(),
            "cores": found.cores,
            "confined": found.confined,
            "threads": found.threads,
            "system": platform.platform(terse=True),
            "python": platform.python_version(),
            "torch": version("torch"),
            "products_gflops": found.limits["gflops"],
            "products_int8_gops": found.limits["int8_gops"],
            "memory_gigabytes_per_second": found.limits["gigabytes"],
        },
        "rounds": found.rounds,
        "columns": [{"name": column.name, "unit": column.unit} for column in _columns(found)],
        "contenders": contenders,
        "ratios": _ratios(contenders),
        "best_peer": _best_peers(contenders),
    }
    if found.busy:
        beside = [_contender(row, found.busy_rows, found) for row in found.busy_rows]
        told["busy"] = {
            "processes": found.busy,
            "contenders": beside,
            "ratios": _ratios(beside),
            "best_peer": _best_peers(beside),
            "of_quiet": _of_quiet(beside, contenders),
        }
    return told


def _columns(found: Measured) -> list[Column]:
    """Those that anyone has a figure for."""
    timed = {name for row in (*found.rows, *found.busy_rows) for name in row.figures.get("seconds", ())}
    return [column for column in found.columns if column.name in timed]


def _contender(row: Row, rows: list[Row], found: Measured) -> dict[str, Any]:
    told: dict[str, Any] = {"name": row.name, "precision": row.precision, "version": row.version}
    if row.why is not None:
        return {**told, "why": row.why}
    figures, seconds = row.figures, row.figures["seconds"]
    columns = [column for column in found.columns if column.name in seconds]
    amounts = {
        column.name: figures["tokens"].get(column.name, column.amount) if column.counted else column.amount
        for column in columns
    }
    speeds = {name: amount / min(seconds[name]) for name, amount in amounts.items()}
    return {
        **told,
        "speeds": speeds,
        "medians": {name: amount / median(seconds[name]) for name, amount in amounts.items()},
        "runs": {name: len(seconds[name]) for name in amounts},
        "ways": row.ways,
        "tried_seconds": row.tried,
        "shares": {column.name: _share(column, row.precision, speeds[column.name], found) for column in columns},
        "first_token_seconds": min(seconds[FIRST]) if FIRST in seconds else None,
        "import_seconds": figures["import"],
        "load_seconds": figures["load"],
        "load_and_answer_seconds": figures.get("answer"),
        "peak_bytes": figures["peak"],
        "grown_bytes": figures["grown"],
        "same": _same(row, rows),
    }


def _share(column: Column, precision: str, speed: float, found: Measured) -> dict[str, float]:
    """How near a run is to what the machine allows: reading the weights, and multiplying in its precision."""
    runs, limits = speed / column.amount, found.limits
    peak = limits["gflops"] if precision == "float32" else limits["int8_gops"]
    return {
        "memory": column.reads * BYTES[precision] * runs / 1e9 / limits["gigabytes"],
        "products": column.operations * runs / 1e9 / peak,
    }


def _same(row: Row, rows: list[Row]) -> float | None:
    """How alike the answers are to our first ones: the share of equal words, each in its place, or the mean cosine of
    the vectors."""
    ours = next((each.figures.get("said") for each in rows if each.name == OURS and each.why is None), None)
    theirs = row.figures.get("said")
    if not ours or not theirs:
        return None
    pairs = list(zip(ours, theirs, strict=True))
    if isinstance(ours[0], str):
        words = [(one.split(), other.split()) for one, other in pairs]
        all_of_them = sum(max(len(one), len(other)) for one, other in words)
        equal = sum(a == b for one, other in words for a, b in zip(one, other, strict=False))
        return equal / all_of_them if all_of_them else 1.0
    cosines = []
    for one, other in pairs:
        lengths = sum(a * a for a in one) ** 0.5 * sum(b * b for b in other) ** 0.5
        cosines.append(sum(a * b for a, b in zip(one, other, strict=True)) / lengths)
    return sum(cosines) / len(cosines)


# --- ratios -----------------------------------------------------------------------------------------------


def _ratios(contenders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times as fast each of ours is as each of the others."""
    able = [each for each in contenders if "speeds" in each]
    return [
        {"of": title(one), "to": title(other), **_times(one, other)}
        for one in able
        for other in able
        if one["name"] == OURS and other["name"] != OURS
    ]


def _times(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Of the best runs, and of the medians; in the columns that both have."""
    return {
        word: {name: speed / other[key][name] for name, speed in one[key].items() if name in other[key]}
        for word, key in (("times", "speeds"), ("medians", "medians"))
    }


def _best_peers(contenders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each of ours against the peer that is fastest in a column: float32 against float32, int8 against all."""
    able = [each for each in contenders if "speeds" in each]
    found = []
    for one in (each for each in able if each["name"] == OURS):
        others = [
            each
            for each in able
            if each["name"] != OURS and (one["precision"] != "float32" or each["precision"] == "float32")
        ]
        told: dict[str, Any] = {"of": title(one), "to": {}, "times": {}, "medians": {}}
        for name in one["speeds"]:
            having = [each for each in others if name in each["speeds"]]
            if having:
                best = max(having, key=lambda each: each["speeds"][name])
                way = best["ways"].get(name)
                told["to"][name] = title(best) + (f" ({way})" if way else "")
                for word, key in (("times", "speeds"), ("medians", "medians")):
                    told[word][name] = one[key][name] / best[key][name]
        if told["to"]:
            found.append(told)
    return found


def _of_quiet(beside: list[dict[str, Any]], quiet: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every contender's speed beside other work, as a share of its own on the quiet machine."""
    both = zip(beside, quiet, strict=True)
    return [{"of": title(one), **_times(one, own)} for one, own in both if "speeds" in one and "speeds" in own]


def title(contender: dict[str, Any]) -> str:
    return f"{NAMES[contender['name']]} {contender['precision']}"


def cpu() -> str:
    """The processor's own name, where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
