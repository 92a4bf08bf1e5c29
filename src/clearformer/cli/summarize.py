"""`clearformer summarize`: a summary for each article."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.output import json_line, one_line, write
from clearformer.cli.texts import SLOW, Given
from clearformer.cli.values import Files, Ignore, Json, Out, Precision, Texts, Whole

if TYPE_CHECKING:
    from clearformer.tasks.translate import Translation


def register(app: typer.Typer) -> None:
    app.command()(summarize)


def summarize(
    model: Annotated[str, typer.Option(help="A model folder.")],
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
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
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
) -> None:
    """Summarise articles with a text-to-text model, such as T5 or FLAN-T5; one line for each.

    An article is a TEXT, a line of a file or of stdin, or with --whole a file: --file article.txt --whole.
    """
    from clearformer.errors import DataError

    for name, value in (("--min-new-tokens", min_new_tokens), ("--max-new-tokens", max_new_tokens)):
        if value is not None and value < 1:
            raise DataError(f"{name} must be at least 1, given {value}")
    given = Given(texts, file, whole=whole, out=out, most=SLOW)

    from dataclasses import replace

    from clearformer.tasks.load import load
    from clearformer.tasks.translate import Way

    task: Any = load(model, precision=precision, ignore=ignore)
    summarize = task.summarize  # or the error that says what this model can do
    rules = {"no_repeat": no_repeat, "shortest": None if min_new_tokens is None else min_new_tokens + 1}
    asked = {name: value for name, value in rules.items() if value is not None}
    way = Way(
        beam=beam,
        length_penalty=length_penalty,
        new=max_new_tokens,
        controls=replace(task.controls(), **asked) if asked else None,
    )

    def work(chunk: list[str], **rest: Any) -> "list[Translation]":
        return summarize(chunk, way=way, on_long=on_long, **rest)

    def shown(number: int, text: str, one: "Translation") -> str:
        return json_line(one.to_dict()) if json else one_line(one.text) + "\n"

    write(given, work, shown, out)
