"""`clearformer fill`: what could stand where a text has a mask."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.output import json_line, one_line, write
from clearformer.cli.texts import Given
from clearformer.cli.values import Files, Ignore, Json, Model, Out, Precision, Texts, Whole, chosen

if TYPE_CHECKING:
    from clearformer.tasks.fill import Filled


def register(app: typer.Typer) -> None:
    app.command()(fill)


def fill(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Model = None,
    top: Annotated[int, typer.Option(help="So many candidates for each mask, likeliest first.")] = 5,
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
) -> None:
    """Say what could stand where a text has a mask, [MASK] or <mask>. Several masks are filled each by itself.

    For each text: the text with the likeliest words, then, for every mask, a line for each candidate: its probability
    and the word, with the number of the mask in front where there are several.
    """
    given = Given(texts, file, whole=whole, out=out)

    from clearformer.tasks.load import load

    fill = load(chosen(model, "fill"), precision=precision, ignore=ignore).fill

    def work(chunk: list[str], **rest: Any) -> "list[Filled]":
        return fill(chunk, top=top, **rest)

    def shown(number: int, text: str, one: "Filled") -> str:
        return json_line(one.to_dict()) if json else _plain(one)

    write(given, work, shown, out)


def _plain(one: "Filled") -> str:
    lines = [one_line(one.text)]
    for number, candidates in enumerate(one.masks, 1):
        before = f"{number}\t" if len(one.masks) > 1 else ""
        lines += [f"  {before}{each.probability:.4f}\t{each.token}" for each in candidates]
    return "\n".join(lines) + "\n"
