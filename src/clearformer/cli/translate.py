"""`clearformer translate`: one line in, one line out."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.generation import generation
from clearformer.cli.output import json_line, one_line, write
from clearformer.cli.texts import Given
from clearformer.cli.values import Files, Ignore, Json, Model, Out, Precision, Texts, Whole, chosen
from clearformer.generate.options import GenerationOptions

if TYPE_CHECKING:
    from clearformer.tasks.translate import Translation


GLANCE = 100  # texts whose language is looked at; with --json, all


def register(app: typer.Typer) -> None:
    app.command()(translate)


@generation()
def translate(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Model = None,
    to: Annotated[str | None, typer.Option(help="The language to translate to, such as de or hi.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="The log-probability in front.")] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Source–target word links behind: 0-0 1-2.")] = False,
    on_long: Annotated[
        Literal["error", "split", "truncate"],
        typer.Option(help="What to do with a sentence longer than any trained on; split at commas, else at spaces."),
    ] = "split",
    by_sentence: Annotated[
        bool | None,
        typer.Option(
            "--by-sentence/--as-one",
            help="Translate each sentence by itself, or each text as one; else what the model was trained on.",
            show_default=False,
        ),
    ] = None,
    prefix: Annotated[str, typer.Option(help="What every translation must begin with.")] = "",
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
    *,
    options: GenerationOptions,
) -> None:
    """Translate texts with the bundled model or your own.

    Columns are separated by tabs: the number of the text (with --num-return-sequences), the score, the translation, the
    alignment.
    """
    given = Given(texts, file, whole=whole, out=out)

    from clearformer.tasks.language import other_languages
    from clearformer.tasks.load import load

    translator: Any = load(chosen(model, "translate", to), precision=precision, ignore=ignore)
    work = translator.translate  # or the error that says what this model can do
    ways: dict[str, Any] = {
        "to": to,
        "options": options,
        "prefix": prefix,
        "on_long": on_long,
        "by_sentence": by_sentence,
        "alignments": alignments,
    }
    translator.language(to)

    several, expected = (options.num_return_sequences or 1) > 1, translator.metadata.source
    odd: dict[int, str] = {}  # number of a text → the other language that it is in

    def answered(chunk: list[str], number: int, **rest: Any) -> Any:
        looked_at = chunk if json else chunk[: max(0, GLANCE - number)]
        odd.update({number + n + 1: label for n, label in other_languages(looked_at, expected).items()})
        return work(chunk, number=number, **ways, **rest)

    def shown(number: int, text: str, one: "Translation") -> str:
        if whole and not (json or several or scores or alignments):
            return one.text + "\n"  # with its line breaks
        if not json:
            return _plain(one, number, several, scores)
        note = {"note": f"the text looks like {odd[number]}, not {expected}"} if number in odd else {}
        return json_line({**one.to_dict(), **note})

    write(given, answered, shown, out)
    if odd:
        first, *rest = odd.items()
        more = f" and {len(rest):,} more" if rest else ""
        typer.echo(
            f"clearformer: text {first[0]}{more} looks like {first[1]}; this model translates from {expected}", err=True
        )


def _plain(one: "Translation", number: int, several: bool, scores: bool) -> str:
    rows = []
    for each in (one, *one.others):
        columns = [str(number)] if several else []
        columns += [f"{each.score:.4f}"] if scores else []
        columns.append(one_line(each.text))
        if each.alignment is not None:
            columns.append(" ".join(f"{link.source}-{link.target}" for link in each.alignment))
        rows.append("\t".join(columns) + "\n")
    return "".join(rows)
