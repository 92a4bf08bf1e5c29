"""`clearformer plot`: the curves of a run as a picture."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(plot)


def plot(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or its log.jsonl.")],
    out: Annotated[
        Path | None, typer.Option(help="PNG, SVG or PDF by its name; curves.png beside the log without one.")
    ] = None,
) -> None:
    """Draw the losses, scores, rate and speed of a run."""
    from clearformer.training.plot import plot as draw

    typer.echo(draw(run, out or (run if run.is_dir() else run.parent) / "curves.png"))
