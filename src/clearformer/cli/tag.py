"""`clearformer tag`: a label for every word."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.output import json_line, write
from clearformer.cli.texts import Given
from clearformer.cli.values import Files, Ignore, Json, Model, Out, Precision, Texts, Whole, chosen

if TYPE_CHECKING:
    from clearformer.tasks.tag import Tagged


def register(app: typer.Typer) -> None:
    app.command()(tag)


def tag(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Model = None,
    entities: Annotated[bool, typer.Option("--entities", help="Only what B- and I- labels mark.")] = False,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text too long for the model.")
    ] = "split",
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
) -> None:
    """Label the words of texts: a line for each word, or entity, and its label, with a tab between; a blank line
    after each text."""
    given = Given(texts, file, whole=whole, out=out)

    from clearformer.tasks.load import load

    tag = load(chosen(model, "tag"), precision=precision, ignore=ignore).tag

    def work(chunk: list[str], **rest: Any) -> "list[Tagged]":
        return tag(chunk, on_long=on_long, **rest)

    def shown(number: int, text: str, one: "Tagged") -> str:
        return json_line({"text": text, **one.to_dict()}) if json else _plain(one, entities)

    write(given, work, shown, out)


def _plain(one: "Tagged", entities: bool) -> str:
    rows = one.entities if entities else one.words
    return "".join(f"{' '.join(row.text.split())}\t{row.label}\n" for row in rows) + "\n"
