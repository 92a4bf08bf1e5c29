"""What was measured as a table: speeds, what share of the machine's limits they reach, and how many times as fast we
are as the best peer."""

from typing import TYPE_CHECKING, Any

from clearformer.bench.report import NAMES, title

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EMPTY = "–"


def show(told: dict[str, Any], console: "Console") -> None:
    from rich.text import Text

    machine = told["machine"]
    texts = f", {told['texts']:,} texts" if told["texts"] else ""
    console.print(f"{told['work']}: {told['model']}, {told['parameters']:,} parameters{texts}")
    console.print(f"measured: {told['measured']}; {_rounds(told['rounds'])} in turns, best · median of all runs")
    kept = ", all on these cores alone" if machine["confined"] else ""
    console.print(
        f"{machine['cpu']}, {_count(machine['threads'], 'thread')} on {_count(machine['cores'], 'core')}{kept};"
        f" GEMM at {machine['products_gflops']:.0f} GFLOP/s, int8 at {machine['products_int8_gops']:.0f} GOP/s,"
        f" memory read at {machine['memory_gigabytes_per_second']:.1f} GB/s"
    )
    versions = {f"{NAMES[each['name']]} {each['version']}": None for each in told["contenders"] if each["version"]}
    console.print(", ".join([f"torch {machine['torch']}", *versions]))
    console.print(_table(told, told, shares=True))
    if "busy" in told:
        console.print(f"The same beside {_count(told['busy']['processes'], 'busy process', 'es')}:")
        console.print(_table(told, told["busy"]))
    parts = {"": told["contenders"], "busy: ": told.get("busy", {}).get("contenders", [])}
    for where, contenders in parts.items():
        for each in contenders:
            if "why" in each:
                console.print(Text(f"{where}{title(each)}: {each['why']}"), soft_wrap=True)
            elif each["ways"]:
                best = "; ".join(f"{name} {each['ways'][name]}" for name in each["speeds"])
                console.print(Text(f"{where}{title(each)}, best of its configurations: {best}"), soft_wrap=True)
    if any("speeds" in each for each in told["contenders"]):
        console.print(
            "of the limit: m, of reading the weights from memory; p, of GEMM in float32 or, for int8, in int8"
        )


def _table(told: dict[str, Any], part: dict[str, Any], shares: bool = False) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("", no_wrap=True)
    names = [column["name"] for column in told["columns"]]
    for column in told["columns"]:
        table.add_column(f"{column['name']}\n{column['unit']}", justify="right")
    for name in ("first token\nms", "load\ns", "memory\nMB", "without imports\nMB", "same\nanswers"):
        table.add_column(name if told["work"] != "embed" else name.replace("token", "text"), justify="right")
    able = [each for each in part["contenders"] if "speeds" in each]
    for each in able:
        table.add_row(title(each), *(_both(each["speeds"], each["medians"], name) for name in names), *_rest(each))
    if shares:
        table.add_section()
        for each in able:
            table.add_row(f"{title(each)}, of the limit", *(_nearest_limit(each["shares"].get(name)) for name in names))
    for ratio in part["best_peer"]:
        table.add_section()
        times = (_both(ratio["times"], ratio["medians"], name, ratio=True) for name in names)
        table.add_row(f"{ratio['of']} : the best peer", *times)
        table.add_row("which is", *(ratio["to"].get(name, EMPTY).replace(" (", "\n(") for name in names))
    table.add_section()
    for ratio in part.get("of_quiet", ()):
        times = (_both(ratio["times"], ratio["medians"], name, ratio=True) for name in names)
        table.add_row(f"{ratio['of']} : its own quiet speed", *times)
    return table


def _both(best: dict[str, float], middle: dict[str, float], name: str, ratio: bool = False) -> str:
    if name not in best:
        return EMPTY
    if ratio:
        return f"{best[name]:.2f} · {middle[name]:.2f} ×"
    digits = 0 if best[name] >= 100 else 1
    return f"{best[name]:,.{digits}f} · {middle[name]:,.{digits}f}"


def _count(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{'' if count == 1 else plural}"


def _rounds(count: int) -> str:
    return _count(count, "round")


def _rest(each: dict[str, Any]) -> list[str]:
    first, same = each["first_token_seconds"], each["same"]
    return [
        EMPTY if first is None else f"{first * 1e3:,.1f}",
        f"{each['load_seconds']:.2f}",
        f"{each['peak_bytes'] / 1e6:,.0f}",
        f"{each['grown_bytes'] / 1e6:,.0f}",
        EMPTY if same is None else f"{same:.1%}",
    ]


def _nearest_limit(share: dict[str, float] | None) -> str:
    if share is None:
        return EMPTY
    name = max(share, key=lambda each: share[each])
    return f"{share[name]:.0%} {name[0]}"
