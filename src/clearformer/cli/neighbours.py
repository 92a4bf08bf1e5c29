"""`clearformer neighbours` and `clearformer analogy`: what word vectors know."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearformer.cli.output import json_line
from clearformer.cli.values import Json

if TYPE_CHECKING:
    from clearformer.static.word2vec import Neighbour

Words = Annotated[Path, typer.Option(metavar="FOLDER", help="Word vectors, as clearformer train words makes them.")]
Top = Annotated[int, typer.Option(help="So many words, nearest first.")]


def register(app: typer.Typer) -> None:
    app.command()(neighbours)
    app.command()(analogy)


def neighbours(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="In any case.", show_default=False)],
    model: Words,
    top: Top = 10,
    json: Json = False,
) -> None:
    """The words whose vectors are nearest to that of each WORD.

    Columns are separated by tabs: the word asked for (if there are several), the cosine, the neighbour.
    """
    from clearformer.static import Word2Vec

    opened = Word2Vec.load(model)
    found = [opened.neighbours(word, top) for word in words]  # a word that is not known is said before any answer
    for word, near in zip(words, found, strict=True):
        if json:
            typer.echo(json_line({"word": word, "neighbours": [each._asdict() for each in near]}), nl=False)
        else:
            _show(near, f"{word}\t" if len(words) > 1 else "")


def analogy(
    a: Annotated[str, typer.Argument(show_default=False)],
    b: Annotated[str, typer.Argument(show_default=False)],
    c: Annotated[str, typer.Argument(show_default=False)],
    model: Words,
    top: Top = 5,
    json: Json = False,
) -> None:
    """The words nearest to A - B + C: king man woman asks for what is to woman as king is to man.

    Columns are separated by tabs: the cosine, the word.
    """
    from clearformer.static import Word2Vec

    found = Word2Vec.load(model).analogy(a, b, c, top)
    if json:
        typer.echo(json_line({"a": a, "b": b, "c": c, "words": [each._asdict() for each in found]}), nl=False)
    else:
        _show(found)


def _show(near: "list[Neighbour]", before: str = "") -> None:
    for each in near:
        typer.echo(f"{before}{each.cosine:.4f}\t{each.word}")
