"""`clearformer classify`: a label for each text."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.output import json_line, one_line, write
from clearformer.cli.texts import Given
from clearformer.cli.values import Files, Ignore, Json, Model, Out, Precision, Texts, Whole, chosen

if TYPE_CHECKING:
    from clearformer.tasks.classify import Classification


def register(app: typer.Typer) -> None:
    app.command()(classify)


def classify(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Model = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Each text is two, with a tab between them.")] = False,
    top: Annotated[int, typer.Option(help="So many labels for each text, likeliest first.")] = 1,
    several: Annotated[
        bool | None,
        typer.Option("--several/--one", help="Labels stand each for itself, or exclude each other; else as trained."),
    ] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text too long for the model.")
    ] = "error",
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
) -> None:
    """Classify texts.

    Columns are separated by tabs: the label, its probability, the text.
    """
    from clearformer.errors import DataError

    if top < 1:
        raise DataError(f"--top must be at least 1, given {top}")
    given = Given(texts, file, whole=whole, out=out)

    from clearformer.tasks.load import load

    classify = load(chosen(model, "classify"), precision=precision, ignore=ignore).classify
    options: dict[str, Any] = {"several": several, "on_long": on_long}

    def work(chunk: list[str], number: int, **rest: Any) -> "list[Classification]":
        return classify(*_pairs(chunk, number) if pairs else (chunk,), number=number, **options, **rest)

    def shown(number: int, text: str, one: "Classification") -> str:
        return json_line({"text": text, **one.to_dict()}) if json else _plain(text, one, top)

    write(given, work, shown, out)


def _pairs(chunk: list[str], before: int) -> tuple[list[str], list[str]]:
    from clearformer.errors import DataError

    for number, line in enumerate(chunk, before + 1):
        if line.count("\t") != 1:
            raise DataError(f"text {number} has {line.count(chr(9))} tabs; with --pairs it is two texts and one tab")
    first, second = zip(*(line.split("\t") for line in chunk), strict=True)
    return list(first), list(second)


def _plain(text: str, one: "Classification", top: int) -> str:
    return "".join(f"{label}\t{probability:.4f}\t{one_line(text)}\n" for label, probability in one.best(top))
