"""`clearformer summarize`: whole files, or stdin; a summary for each."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clearformer.cli.progress import progress
from clearformer.cli.texts import check_files, check_out, chunks, output
from clearformer.cli.values import Ignore, Precision

if TYPE_CHECKING:
    from clearformer.tasks.translate import Translation


def register(app: typer.Typer) -> None:
    app.command()(summarize)


def summarize(
    model: Annotated[str, typer.Option(help="A model folder.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Articles, a file each; without any, stdin.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Every line is an article.")] = False,
    beam: Annotated[
        int | None, typer.Option(help="How many hypotheses to keep; 1 is greedy. The model's own without one.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Scores are divided by length to this power; the model's own without one.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="The most tokens of a summary; 200 if nobody says.")
    ] = None,
    min_new_tokens: Annotated[int | None, typer.Option(help="No end before so many tokens.")] = None,
    no_repeat: Annotated[int | None, typer.Option(help="No so many tokens in a row twice; 0 allows all.")] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"],
        typer.Option(help="What to do with an article that is too long: split summarises its parts one by one."),
    ] = "error",
    json: Annotated[bool, typer.Option("--json", help="One JSON object an article, with everything.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Summarise articles with a text-to-text model, such as T5 or FLAN-T5; one line for each."""
    from clearformer.errors import DataError

    for name, value in (("--min-new-tokens", min_new_tokens), ("--max-new-tokens", max_new_tokens)):
        if value is not None and value < 1:
            raise DataError(f"{name} must be at least 1, given {value}")
    check_out(out)
    check_files(files or [])

    from dataclasses import replace

    from clearformer.tasks.load import load
    from clearformer.tasks.translate import Way

    task = load(model, precision=precision, ignore=ignore)
    work = task.summarize  # or the error that says what this model can do
    rules = {"no_repeat": no_repeat, "shortest": None if min_new_tokens is None else min_new_tokens + 1}
    asked = {name: value for name, value in rules.items() if value is not None}
    way = Way(
        beam=beam,
        length_penalty=length_penalty,
        new=max_new_tokens,
        controls=replace(task.controls(), **asked) if asked else None,
    )
    with output(out) as stream:
        number = cut = 0
        for chunk in chunks(None, files or []) if lines else _whole(files or []):
            with progress(len(chunk), number) as done:
                found = work(chunk, way=way, on_long=on_long, number=number, done=done)
            stream.writelines(_json(one) if json else " ".join(one.text.splitlines()) + "\n" for one in found)
            stream.flush()
            number, cut = number + len(chunk), cut + sum(one.finish == "truncated" for one in found)
    if cut:
        typer.echo(f"clearformer: {cut:,} of {number:,} articles were too long and were cut", err=True)


def _whole(files: list[Path]) -> Iterator[list[str]]:
    """The content of every file, or of stdin, one at a time."""
    from clearformer.errors import DataError

    for path in files or [Path("-")]:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is not UTF-8 text: byte {error.start:,} cannot be read; convert it first"
            ) from None
        if not text.strip():
            raise DataError(f"{'stdin' if str(path) == '-' else path} is empty; give an article to summarise")
        yield [text]


def _json(one: "Translation") -> str:
    from json import dumps

    return dumps(one.to_dict(), ensure_ascii=False) + "\n"
