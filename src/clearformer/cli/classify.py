"""`clearformer classify`: texts from the command line, files or stdin; a label for each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.progress import progress
from clearformer.cli.texts import check_files, check_out, chunks, output
from clearformer.cli.values import Ignore, Precision

if TYPE_CHECKING:
    from clearformer.tasks.classify import Classification


def register(app: typer.Typer) -> None:
    app.command()(classify)


def classify(
    model: Annotated[str, typer.Option(help="A model folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to classify; without any, stdin.")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="Files to classify, line by line; repeatable.")] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Each text is two, with a tab between them.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a text, with every label.")] = False,
    top: Annotated[int, typer.Option(help="So many labels for each text, likeliest first.")] = 1,
    several: Annotated[
        bool | None,
        typer.Option("--several/--one", help="Labels stand each for itself, or exclude each other; else as trained."),
    ] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text too long for the model.")
    ] = "error",
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Classify texts.

    Columns are separated by tabs: the label, its probability, the text.
    """
    from clearformer.errors import DataError

    if texts and file:
        raise DataError("give texts or files, not both")
    if top < 1:
        raise DataError(f"--top must be at least 1, given {top}")
    check_out(out)
    check_files(file or [])

    from clearformer.tasks.load import load

    classifier = load(model, precision=precision, ignore=ignore)
    options: dict[str, Any] = {"several": several, "on_long": on_long}
    work = classifier.classify
    with output(out) as stream:
        number = cut = 0
        for chunk in chunks(texts, file or []):
            given = _pairs(chunk, number) if pairs else (chunk,)
            with progress(len(chunk), number) as done:
                found = work(*given, **options, number=number, done=done)
            for text, one in zip(chunk, found, strict=True):
                stream.write("".join(line + "\n" for line in _lines(one, text, json, top)))
            stream.flush()
            number += len(chunk)
            cut += sum(one.finish == "truncated" for one in found)
    if cut:
        typer.echo(f"clearformer: {cut:,} of {number:,} texts were too long and were cut", err=True)


def _pairs(chunk: list[str], before: int) -> tuple[list[str], list[str]]:
    from clearformer.errors import DataError

    for number, line in enumerate(chunk, before + 1):
        if line.count("\t") != 1:
            raise DataError(f"text {number} has {line.count(chr(9))} tabs; with --pairs it is two texts and one tab")
    first, second = zip(*(line.split("\t") for line in chunk), strict=True)
    return list(first), list(second)


def _lines(one: "Classification", text: str, json: bool, top: int) -> list[str]:
    if json:
        from json import dumps

        return [dumps({"text": text, **one.to_dict()}, ensure_ascii=False)]
    shown = " ".join(text.splitlines())
    return [f"{label}\t{probability:.4f}\t{shown}" for label, probability in one.best(top)]
