"""`clearformer translate`: one line in, one line out."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.output import json_line, one_line, write
from clearformer.cli.texts import Given
from clearformer.cli.values import Files, Ignore, Json, Out, Precision, Texts, Whole

if TYPE_CHECKING:
    from clearformer.tasks.translate import Translation


def register(app: typer.Typer) -> None:
    app.command()(translate)


def translate(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Annotated[str | None, typer.Option(help="A model folder, or the name of a bundled model.")] = None,
    to: Annotated[str | None, typer.Option(help="The language to translate to, such as de or hi.")] = None,
    n_best: Annotated[int, typer.Option(help="So many translations of each text, best first.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="The log-probability in front.")] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Source–target word links behind: 0-0 1-2.")] = False,
    beam: Annotated[
        int | None, typer.Option(help="How many hypotheses to keep; 1 is greedy. 4, or what a public model says.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Scores are divided by length to this power; the model's own without one.")
    ] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text longer than any trained on.")
    ] = "error",
    prefix: Annotated[str, typer.Option(help="What every translation must begin with.")] = "",
    repetition: Annotated[float | None, typer.Option(help="Above 1: tokens used before become less likely.")] = None,
    no_repeat: Annotated[int | None, typer.Option(help="No so many tokens in a row twice; 0 allows all.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of search.")] = False,
    temperature: Annotated[float, typer.Option(help="Of --sample: lower is safer.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Of --sample: only the k likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Of --sample: only the likeliest that reach p.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Of --sample: none below p times the likeliest.")] = None,
    seed: Annotated[int, typer.Option(help="Of --sample: the same seed draws the same.")] = 0,
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
) -> None:
    """Translate texts with the bundled model or your own.

    Columns are separated by tabs: the number of the text (with --n-best), the score, the translation, the alignment.
    """
    given = Given(texts, file, whole=whole, out=out)

    from clearformer.tasks.load import bundled_for, load

    translator: Any = load(model or (bundled_for(to) if to else "en-de"), precision=precision, ignore=ignore)
    work = translator.translate  # or the error that says what this model can do
    from dataclasses import replace

    from clearformer.tasks.translate import Sampling, Way

    rules = {"repetition": repetition, "no_repeat": no_repeat}
    asked = {name: value for name, value in rules.items() if value is not None}
    way = Way(
        beam=max(beam, n_best) if beam is not None and beam > 0 else beam,
        length_penalty=length_penalty,
        n_best=n_best,
        sampling=Sampling(seed, temperature, top_k, top_p, min_p) if sample else None,
        prefix=prefix,
        controls=replace(translator.controls(), **asked) if asked else None,
    )
    options: dict[str, Any] = {"to": to, "way": way, "on_long": on_long, "alignments": alignments}
    translator.language(to)

    def shown(number: int, text: str, one: "Translation") -> str:
        return json_line(one.to_dict()) if json else _plain(one, number, n_best, scores)

    write(given, lambda chunk, **rest: work(chunk, **options, **rest), shown, out)


def _plain(one: "Translation", number: int, n_best: int, scores: bool) -> str:
    rows = []
    for each in (one, *one.others):
        columns = [str(number)] if n_best > 1 else []
        columns += [f"{each.score:.4f}"] if scores else []
        columns.append(one_line(each.text))
        if each.alignment is not None:
            columns.append(" ".join(f"{link.source}-{link.target}" for link in each.alignment))
        rows.append("\t".join(columns) + "\n")
    return "".join(rows)
