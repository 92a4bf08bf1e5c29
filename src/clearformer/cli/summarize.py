"""`clearformer summarize`: a summary for each article."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.generation import generation
from clearformer.cli.output import json_line, one_line, write
from clearformer.cli.texts import SLOW, Given
from clearformer.cli.values import Files, Ignore, Json, Model, Out, Precision, Texts, Whole, chosen
from clearformer.generate.options import GenerationOptions

if TYPE_CHECKING:
    from clearformer.tasks.translate import Translation


def register(app: typer.Typer) -> None:
    app.command()(summarize)


@generation()
def summarize(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Model = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"],
        typer.Option(help="What to do with an article that is too long: split summarises its parts one by one."),
    ] = "error",
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
    *,
    options: GenerationOptions,
) -> None:
    """Summarise articles with a text-to-text model, such as T5 or FLAN-T5; one line for each.

    An article is a TEXT, a line of a file or of stdin, or with --whole a file: --file article.txt --whole.
    """
    given = Given(texts, file, whole=whole, out=out, most=SLOW)

    from clearformer.tasks.load import load

    task: Any = load(chosen(model, "summarize"), precision=precision, ignore=ignore)
    summarize = task.summarize  # or the error that says what this model can do

    def work(chunk: list[str], **rest: Any) -> "list[Translation]":
        return summarize(chunk, options=options, on_long=on_long, **rest)

    def shown(number: int, text: str, one: "Translation") -> str:
        return json_line(one.to_dict()) if json else "".join(one_line(each.text) + "\n" for each in (one, *one.others))

    write(given, work, shown, out)
