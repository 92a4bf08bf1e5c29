"""`clearformer convert`: a model folder in the other layout, and the proof that both hold the same model."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from clearformer.cli.values import Ignore


def register(app: typer.Typer) -> None:
    app.command()(convert)


def convert(
    folder: Annotated[Path, typer.Argument(help="A model folder of either layout.")],
    out: Annotated[Path, typer.Argument(help="A new folder; with --verify alone, the one to compare with.")],
    to: Annotated[Literal["huggingface", "clearformer"] | None, typer.Option(help="The layout to write.")] = None,
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"], typer.Option(help="What to save weights as.")
    ] = "float32",
    precision: Annotated[
        Literal["float32", "int8"], typer.Option(help="int8: a quarter of the size, ready to run as it lies there.")
    ] = "float32",
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Load both folders and compare weights, logits and what they say (by transformers, where it is"
            " installed); exit code 1 if apart.",
        ),
    ] = False,
    text: Annotated[list[str] | None, typer.Option(help="A text to compare on; repeatable.")] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="How far answers may be apart, as a share of the largest; by the type of the weights."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was compared as JSON.")] = False,
    ignore: Ignore = None,
) -> None:
    """Write a model in Hugging Face's layout or in ours, or prove that two folders hold the same model."""
    from clearformer.errors import CheckpointError

    if to is None and precision == "int8":
        to = "clearformer"
    if to is None and not verify:
        raise CheckpointError("say --to huggingface or --to clearformer, or --verify to compare two folders")
    from clearformer.tasks.load import find

    source = find(str(folder))
    from clearformer.checkpoints import convert as work

    if to is not None:
        if out.exists():
            raise CheckpointError(f"{out} exists already; give a new folder, or move that one away")
        work.convert(source, out, to, dtype, precision, ignore or ())
        typer.echo(f"wrote {out}", err=json)
    if not verify:
        return
    from clearformer.tasks.verify import verify as compare

    found = compare(source, find(str(out)), tuple(text) if text else work.TEXTS, tolerance, ignore or ())
    if json:
        from json import dumps

        typer.echo(dumps(found.to_dict()))
    else:
        typer.echo(f"weights  {found.tensors} tensors, at most {found.weights:.3g} apart")
        allowed = f"{found.tolerance:g} of the largest, {found.largest:.4g}, is allowed"
        typer.echo(f"answers  to {found.texts} inputs, at most {found.answers:.3g} apart; {allowed}")
        if found.said:
            typer.echo(f"replies  {found.alike} of {found.said} the same, the second folder read by {found.by}")
        if found.odd is not None:
            typer.echo(f"         {found.odd}")
        typer.echo("the same" if found.same else "not the same")
    if not found.same:
        raise typer.Exit(1)
