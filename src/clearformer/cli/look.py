"""`clearformer look`: the see-through page on this machine, open at a text."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from clearformer.cli.values import Precision
from clearformer.errors import ClearformerError, DataError
from clearformer.notes.data import known

LESSONS = "index"


def register(app: typer.Typer) -> None:
    app.command()(look)


def look(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT", help="A text to begin with; else one that suits the model. With --lesson, the name of one."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model folder of any family, or the name of a bundled model; again for more, the first is shown."
            " [default: all bundled models]",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Say where the page is and open nothing.")] = False,
    lesson: Annotated[
        bool, typer.Option("--lesson", help="Begin with the lecture notes, as pages to play with.")
    ] = False,
    precision: Precision = "auto",
) -> None:
    """Look inside a model in the browser: type a text and follow any number down to one multiplication.

    The page is served to this machine alone and asks nobody else; nothing leaves it. Ctrl-C ends it.
    """
    if text is not None and not text.strip():
        raise DataError("the text is empty; give one, or leave it out")
    try:
        from clearformer.serve.run import serve
        from clearformer.serve.settings import ServerSettings
    except ModuleNotFoundError as error:
        hint = "pip install 'clearformer[serve]'"
        raise ClearformerError(f"the page is served by {error.name}, which is missing: {hint}", hint=hint) from None
    where = fragment(text, lesson)
    settings = ServerSettings(model=tuple(model or ()), port=port, precision=precision, access_log=False, page=True)

    def opened(address: str) -> None:
        typer.echo(f"clearformer: look at {address}{where}  (Ctrl-C ends it)")
        if not no_browser:
            _browse(address + where)

    serve(settings, opened)


def fragment(text: str | None, lesson: bool) -> str:
    """What the page is told behind the #: a text, or which lesson to begin with."""
    told: dict[str, Any] = {"text": text} if text else {}
    if lesson:
        told = {"lesson": known(text) if text else LESSONS}
    return "/#" + "&".join(f"{name}={quote(str(value), safe='')}" for name, value in told.items()) if told else "/"


def _browse(where: str) -> None:
    import webbrowser

    if not webbrowser.open(where):
        typer.echo("clearformer: no browser could be opened; open the address yourself", err=True)
