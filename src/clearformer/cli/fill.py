"""`clearformer fill`: what could stand where a text has a mask."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearformer.cli.progress import progress
from clearformer.cli.texts import check_files, check_out, chunks, output
from clearformer.cli.values import Ignore, Precision

if TYPE_CHECKING:
    from clearformer.tasks.fill import Filled


def register(app: typer.Typer) -> None:
    app.command()(fill)


def fill(
    model: Annotated[str, typer.Option(help="A model folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts with [MASK] or <mask>; without any, stdin.")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="Files of such texts, line by line; repeatable.")] = None,
    top: Annotated[int, typer.Option(help="So many candidates for each mask, likeliest first.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a text.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Say what could stand where a text has a mask. Several masks are filled each by itself.

    For each text: the text with the likeliest words, then, for every mask, a line for each candidate: its probability
    and the word, with the number of the mask in front where there are several.
    """
    from clearformer.errors import DataError

    if texts and file:
        raise DataError("give texts or files, not both")
    check_out(out)
    check_files(file or [])

    from clearformer.tasks.load import load

    work = load(model, precision=precision, ignore=ignore).fill
    with output(out) as stream:
        number = 0
        for chunk in chunks(texts, file or []):
            with progress(len(chunk), number) as done:
                found = work(chunk, top=top, number=number, done=done)
            stream.writelines(_json(one) if json else _plain(one) for one in found)
            stream.flush()
            number += len(chunk)


def _json(one: "Filled") -> str:
    from json import dumps

    return dumps(one.to_dict(), ensure_ascii=False) + "\n"


def _plain(one: "Filled") -> str:
    lines = [" ".join(one.text.splitlines())]
    for number, candidates in enumerate(one.masks, 1):
        before = f"{number}\t" if len(one.masks) > 1 else ""
        lines += [f"  {before}{each.probability:.4f}\t{each.token}" for each in candidates]
    return "\n".join(lines) + "\n"
