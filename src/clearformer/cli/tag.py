"""`clearformer tag`: a label for every word."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clearformer.cli.progress import progress
from clearformer.cli.texts import check_files, check_out, chunks, output
from clearformer.cli.values import Ignore, Precision

if TYPE_CHECKING:
    from clearformer.tasks.tag import Tagged


def register(app: typer.Typer) -> None:
    app.command()(tag)


def tag(
    model: Annotated[str, typer.Option(help="A model folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to tag; without any, stdin.")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="Files to tag, line by line; repeatable.")] = None,
    entities: Annotated[bool, typer.Option("--entities", help="Only what B- and I- labels mark.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a text, with probabilities.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text too long for the model.")
    ] = "split",
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Label the words of texts: a line for each word, or entity, and its label, with a tab between; a blank line
    after each text."""
    from clearformer.errors import DataError

    if texts and file:
        raise DataError("give texts or files, not both")
    check_out(out)
    check_files(file or [])

    from clearformer.tasks.load import load

    work = load(model, precision=precision, ignore=ignore).tag
    with output(out) as stream:
        number = cut = 0
        for chunk in chunks(texts, file or []):
            with progress(len(chunk), number) as done:
                found = work(chunk, on_long=on_long, number=number, done=done)
            stream.writelines(
                _json(text, one) if json else _plain(one, entities) for text, one in zip(chunk, found, strict=True)
            )
            stream.flush()
            number += len(chunk)
            cut += sum(one.finish == "truncated" for one in found)
    if cut:
        typer.echo(f"clearformer: {cut:,} of {number:,} texts were too long and were cut", err=True)


def _json(text: str, one: "Tagged") -> str:
    from json import dumps

    return dumps({"text": text, **one.to_dict()}, ensure_ascii=False) + "\n"


def _plain(one: "Tagged", entities: bool) -> str:
    rows = one.entities if entities else one.words
    return "".join(f"{' '.join(row.text.split())}\t{row.label}\n" for row in rows) + "\n"
