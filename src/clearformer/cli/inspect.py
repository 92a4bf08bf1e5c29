"""`clearformer inspect`: what a model folder holds, what was read from its configuration, and what it can do."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.values import Kept

if TYPE_CHECKING:
    from rich.console import Console

    from clearformer.checkpoints.metadata import Metadata


def register(app: typer.Typer) -> None:
    app.command()(inspect)


def inspect(
    folder: Annotated[str, typer.Argument(help="A model folder, public or ours, or the name of a bundled model.")],
    json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    program: Annotated[
        bool, typer.Option("--program", help="Show the compiled program of each stack, operation by operation.")
    ] = False,
    precision: Kept = None,
) -> None:
    """Show what a model is: family, sizes, parameters, what was read from config.json and why the rest was left,
    kernels, tasks, and a diagram of the stack. No weights are read, unless its program is asked for."""
    from clearformer.errors import DataError
    from clearformer.tasks.load import find

    if precision and not program:
        raise DataError("--precision is that of the program: give --program too")
    found = report(find(folder))
    if program:
        found["programs"] = programs(find(folder), precision)
    if json:
        from json import dumps

        typer.echo(dumps(found, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    if program:
        for name, lines in found["programs"].items():
            console.print(f"{name}\n{lines}\n", markup=False, soft_wrap=True)
        return
    _print(found, console)


def programs(folder: Path, precision: str | None) -> dict[str, str]:
    """Of each stack the program that it runs as, or why it runs as none."""
    from clearformer.kernels.native.disassemble import listings
    from clearformer.tasks.load import open_packed

    return listings(open_packed(folder, precision=precision).model)


def report(folder: Path) -> dict[str, Any]:
    """Everything there is to say, as plain values."""
    from clearformer.assemble import count_parameters, kernels_of
    from clearformer.checkpoints.huggingface import is_public
    from clearformer.cli.diagram import diagram
    from clearformer.kernels.pack import choice

    public = is_public(folder)
    model, tensors, metadata, remarks = _public(folder) if public else _ours(folder)
    kinds = sorted({tensors.kind(name) for name in tensors})
    return {
        "folder": str(folder),
        "layout": "huggingface" if public else "clearformer",
        "family": metadata.family,
        "task": metadata.task,
        "can": _verbs(metadata) if metadata.task else [],
        "longest": metadata.longest,
        "tokenizer": _tokenizer(folder, model),
        "parameters": count_parameters(model.spec),
        "bytes": tensors.size,
        "types": kinds,
        "config": [remark.to_dict() for remark in remarks],
        "kernels": [{"address": c.address, "kernel": c.kernel, "instead_of": c.instead_of} for c in kernels_of(model)],
        "precision": choice(model)._asdict(),
        "diagram": diagram(model.spec),
        "spec": model.spec.model_dump(mode="json", exclude_none=True),
        "metadata": metadata.to_dict(),
    }


def _public(folder: Path) -> tuple[Any, Any, "Metadata", list[Any]]:
    """The model on the meta device, after its tensors were seen to fit."""
    from clearformer.checkpoints.families import FAMILIES
    from clearformer.checkpoints.huggingface import describe
    from clearformer.checkpoints.model_folder import empty
    from clearformer.checkpoints.safe import open_tensors
    from clearformer.checkpoints.weights import match

    public, tensors = describe(folder), open_tensors(folder)
    model = empty(public.spec, "auto", folder / "config.json", tensors)
    _, left = match(model, FAMILIES[public.family].rules(public.spec), tensors, folder)
    return model, tensors, public.metadata, [*public.remarks, *left]


def _ours(folder: Path) -> tuple[Any, Any, "Metadata", list[Any]]:
    from clearformer.checkpoints.metadata import read_metadata
    from clearformer.checkpoints.model_folder import load_model
    from clearformer.checkpoints.safe import open_tensors

    return load_model(folder), open_tensors(folder, "weights"), read_metadata(folder), []


def _tokenizer(folder: Path, model: Any) -> dict[str, Any] | None:
    """How many tokens the tokenizer has and how many the model has rows for; what is wrong where it cannot be read."""
    from clearformer.checkpoints.convert import words_of
    from clearformer.errors import CheckpointError

    stacks = model.spec.stacks.values()
    vocabulary = next((stack.embed.vocabulary for stack in stacks if hasattr(stack.embed, "vocabulary")), None)
    try:
        words = words_of(folder)
    except CheckpointError as error:
        return {"wrong": str(error)}
    return None if words is None or vocabulary is None else {"tokens": len(words), "vocabulary": vocabulary}


def _verbs(metadata: "Metadata") -> list[str]:
    """What can be asked of a model with this metadata."""
    from importlib import import_module

    from clearformer.tasks.load import HOMES

    module, name = {"translate": "translate.Translator", **HOMES}[str(metadata.task)].split(".")
    return list(getattr(import_module(f"clearformer.tasks.{module}"), name).verbs(metadata))


def _print(found: dict[str, Any], console: "Console") -> None:
    from rich.panel import Panel

    size = f"{found['parameters']:,} parameters, {found['bytes'] / 2**20:,.1f} MiB of {', '.join(found['types'])}"
    console.print(f"{found['folder']}: {found['family'] or 'a model of ours'}, {size}", markup=False, soft_wrap=True)
    longest = f"; texts of up to {found['longest']:,} tokens" if found["longest"] else ""
    can = f"can {' and '.join(found['can']) or 'nothing by itself'}{longest}{_prompt(found['metadata'])}"
    console.print(can, markup=False, soft_wrap=True)
    said = found["tokenizer"]
    if said and ("wrong" in said or said["tokens"] != said["vocabulary"]):
        console.print(_tokens(said), markup=False, soft_wrap=True)
    console.print()
    drawing = "\n".join(found["diagram"])
    if console.is_terminal:
        from rich.text import Text

        console.print(Panel.fit(Text(drawing), title="the stack"))
    else:
        console.print(drawing, markup=False, soft_wrap=True)
    console.print("\nkernels")
    for line in _kernels(found["kernels"]):
        console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print(f"\nprecision\n  {_precision(found['precision'])}", markup=False, soft_wrap=True)
    if found["config"]:
        console.print()
        _print_config(found["config"], console)


def _tokens(found: dict[str, Any]) -> str:
    if "wrong" in found:
        return f"its tokenizer cannot be used: {found['wrong']}"
    return f"its tokenizer has {found['tokens']:,} tokens, and the model rows for {found['vocabulary']:,}"


def _prompt(metadata: dict[str, Any]) -> str:
    """What a sentence encoder puts before each text, if anything."""
    if not metadata.get("prompt"):
        return ""
    left = ", and left out of its vector" if metadata.get("skips_prompt") else ""
    return f"; {metadata['prompt']!r} is put before each text{left}"


def _precision(found: dict[str, Any]) -> str:
    """What the weights are kept as, what is computed with where nobody says, and by which path."""
    paths = [f"{stack} module by module ({why})" if why else f"{stack} as one program" for stack, why in found["paths"]]
    return f"kept as {found['kept']}; run as {found['auto']} (auto): {found['why']}; {', '.join(paths)}"


def _print_config(remarks: list[dict[str, Any]], console: "Console") -> None:
    """A table that fits the terminal; elsewhere lines as long as they are, for other programs to cut."""
    rows = [(each["key"], _short(each["value"]), each["use"], each["why"]) for each in remarks]
    if console.is_terminal:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table("config.json", "value", "", "why", box=box.SIMPLE, pad_edge=False)
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in [("config.json", "value", "", "why"), *rows]:
        line = "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True))
        console.print(line.rstrip(), markup=False, soft_wrap=True)


def _kernels(choices: list[dict[str, Any]]) -> list[str]:
    """One line for all layers that are alike."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for choice in choices:
        stack, number, branch = choice["address"].split(".")
        reasons = "".join(f"; not {name}: {why}" for name, why in choice["instead_of"].items())
        alike.setdefault((f"{stack}.*.{branch}", choice["kernel"], reasons), []).append(number)
    return [f"{where} ({len(numbers)}): {kernel}{reasons}" for (where, kernel, reasons), numbers in alike.items()]


def _short(value: Any) -> str:
    from clearformer.checkpoints.config import shown

    text = value if isinstance(value, str) else shown(value)
    return text if len(text) <= 40 else text[:39] + "…"
