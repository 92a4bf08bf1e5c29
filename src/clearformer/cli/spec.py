"""`clearformer spec`: what a preset is, how many parameters it has, and what it would run on."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("spec")(show)


def show(
    family: Annotated[str | None, typer.Argument(help="A family, such as bert; without one, all are listed.")] = None,
    size: Annotated[str | None, typer.Argument(help="A size, such as base.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=JSON", help="Change a part: stack.blocks.*.self.heads=8; may be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, as `Spec.from_json` reads it.")] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Also print the kernel of every attention, and why.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the JSON to this file.")] = None,
) -> None:
    """Print the specification of a preset and its size in parameters."""
    from clearformer import presets
    from clearformer.cli.values import assignments
    from clearformer.errors import SpecError, nearest

    if family is None:
        for name, make in presets.FAMILIES.items():
            sizes = ", ".join(presets.SIZES[name])
            typer.echo(f"{name:11} {sizes}\n            {(make.__doc__ or '').splitlines()[0]}")
        return
    if family not in presets.FAMILIES:
        raise SpecError(f"unknown family {family!r}{nearest(family, presets.FAMILIES)}")
    what = presets.FAMILIES[family](*([size] if size else []))
    what = what.replace(assignments(change))
    if out is not None:
        if out.exists():
            raise SpecError(f"{out} exists already; give a new name")
        try:
            out.write_text(what.to_json() + "\n", encoding="utf-8")
        except OSError as error:
            raise SpecError(f"cannot write {out}: {error.strerror}") from None
    if json:
        typer.echo(what.to_json())
        return
    from clearformer.assemble import assemble, count_parameters, kernels_of

    typer.echo(str(what))
    typer.echo(f"{count_parameters(what):,} parameters")
    if kernels:
        import torch

        with torch.device("meta"):
            model = assemble(what)
        for choice in kernels_of(model):
            typer.echo(str(choice))
