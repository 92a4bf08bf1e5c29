"""`clearformer train`: from files to a model, and `--resume` over any interruption."""

from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    app.command()(train)


def train(
    run: Annotated[Path | None, typer.Argument(help="A TOML file with settings; options go before it.")] = None,
    source: Annotated[Path | None, typer.Option(help="Source texts, one a line; plain or gzip.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations, line for line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="One file with both sides: .tsv, .jsonl, .tmx or .po.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Source texts to validate on.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    valid_pairs: Annotated[Path | None, typer.Option(help="One file with both sides to validate on.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run and its model.")] = None,
    to: Annotated[str | None, typer.Option(help="The language of the translations, such as de.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Fit the run to this much time.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Or to so many passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option(help="Or to so many steps.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, as PATH=VALUE: model.width=256. Repeatable.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder, exactly where it was.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print the resolved run, the data and an estimate; write nothing.")
    ] = False,
) -> None:
    """Train a model on pairs of texts.

    Size, schedule and vocabulary follow from the data; every setting can be given in a TOML file or with --set.
    Ctrl-C or SIGTERM saves and stops; a second one stops at once.
    """
    from clearformer.cli.values import assignments
    from clearformer.errors import DataError

    changes = assignments(change)
    given: dict[str, Any] = {}
    if data := _data(source, target, pairs, valid_source, valid_target, valid_pairs, to):
        given["data"] = data
    if out is not None:
        given["out"] = out
    if length := {k: v for k, v in (("minutes", minutes), ("epochs", epochs), ("steps", steps)) if v is not None}:
        given["length"] = length
    if resume is None and run is None and "data" not in given:
        raise DataError("give --source and --target, or --pairs, or a TOML file, or --resume a run")
    if resume is None and run is None and out is None:
        raise DataError("give --out, a new folder for the run and its model")
    if resume is not None and data:
        raise DataError("--resume goes on with the data the run began with; leave the other files out")

    from rich.console import Console

    from clearformer.training.dry import dry_run as try_out
    from clearformer.training.run import resume as go_on
    from clearformer.training.run import start
    from clearformer.training.session import Stopped
    from clearformer.training.settings import read

    asked = read(run, given, changes) if run is not None or "data" in given else None
    try:
        if resume is not None:
            more = {f"length.{name}": value for name, value in length.items()} | changes
            go_on(resume, asked, more if asked is None else None)
        elif dry_run:
            assert asked is not None
            console = Console(stderr=True, highlight=False)
            typer.echo(str(try_out(asked, lambda text: console.print(text, markup=False, soft_wrap=True))))
        else:
            assert asked is not None
            start(asked)
    except Stopped as stop:
        typer.echo(
            f"clearformer: {stop}; go on with: clearformer train --resume {resume or (asked and asked.out)}", err=True
        )
        raise typer.Exit(128 + stop.number) from None


def _data(
    source: Path | None,
    target: Path | None,
    pairs: Path | None,
    valid_source: Path | None,
    valid_target: Path | None,
    valid_pairs: Path | None,
    to: str | None,
) -> dict[str, Any]:
    """The `data` section that the options come to."""
    found: dict[str, Any] = {}
    train = {k: v for k, v in (("source", source), ("target", target), ("file", pairs)) if v is not None}
    valid = {
        k: v for k, v in (("source", valid_source), ("target", valid_target), ("file", valid_pairs)) if v is not None
    }
    for name, part in (("train", train), ("valid", valid)):
        if part:
            found[name] = [part | ({"to": to} if to else {})]
    return found
