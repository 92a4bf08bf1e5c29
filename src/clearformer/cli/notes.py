"""`clearformer notes`: the worked examples of the lecture notes, computed live."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("notes")(notes)


def notes(
    example: Annotated[str | None, typer.Argument(help="Number or name; without one, the list of all.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all examples.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No colour.")] = False,
) -> None:
    """The worked examples of the lecture notes, computed live, with the notes' slips pointed out."""
    from rich.console import Console

    from clearformer.notes import EXAMPLES, get
    from clearformer.notes.render import listing, show

    console = Console(no_color=True, color_system=None, highlight=False) if plain else Console(highlight=False)
    if example is None and not every:
        console.print(listing(EXAMPLES))
        return
    for each in EXAMPLES if every else [get(example or "")]:
        show(each, console)
