"""`clearformer notes`: the worked examples of the lecture notes, computed live."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli.output import check_out, output
from clearformer.errors import DataError

KINDS = (".svg", ".png", ".html")


def register(app: typer.Typer) -> None:
    app.command("notes")(notes)


def notes(
    example: Annotated[str | None, typer.Argument(help="Number or name; without one, the list of all.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all examples.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No colour.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The pictures to a new .svg or .png file, or all of it to a new .html file."),
    ] = None,
) -> None:
    """The worked examples of the lecture notes, computed live, with the notes' slips pointed out."""
    from rich.console import Console

    from clearformer.notes import EXAMPLES, get
    from clearformer.notes.render import listing, show

    if out is not None:
        _write(example, every, out)
        return
    console = Console(no_color=True, color_system=None, highlight=False) if plain else Console(highlight=False)
    if example is None and not every:
        console.print(listing(EXAMPLES))
        return
    for each in EXAMPLES if every else [get(example or "")]:
        show(each, console)


def _write(example: str | None, every: bool, out: Path) -> None:
    from clearformer.notes import EXAMPLES, get

    kind = out.suffix.lower()
    if kind not in KINDS:
        raise DataError(f"{out} ends in none of {', '.join(KINDS)}; call it {out.with_suffix('.html').name}, say")
    check_out(out)
    if every and kind == ".html":
        chosen = list(EXAMPLES)
    elif every or example is None:
        raise DataError("say which example to write, as in clearformer notes positions --out positions.svg"
                        "; all of them go into one .html file with --all")  # fmt: skip
    else:
        chosen = [get(example)]
    if kind == ".html":
        from clearformer.notes.html import page

        made = page(chosen).encode()
    else:
        from clearformer.notes.picture import draw

        made = draw(chosen[0], kind[1:])
    with output(out, "wb") as stream:
        stream.write(made)
