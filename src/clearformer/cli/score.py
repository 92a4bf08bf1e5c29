"""`clearformer score`: how good a model's translations are, how fast, and which are worst."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from clearformer.cli.generation import beams_of, generation, said
from clearformer.cli.output import check_out, json_line, one_line, output
from clearformer.cli.progress import progress
from clearformer.cli.values import Ignore, Kept
from clearformer.generate.options import GenerationOptions


def register(app: typer.Typer) -> None:
    app.command()(score)


@generation()
def score(
    model: Annotated[str | None, typer.Option(help="A model folder, or the name of a bundled model.")] = None,
    source: Annotated[Path | None, typer.Option(help="Source texts, one a line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Reference translations, line for line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="One file with both: .tsv, .csv, .jsonl, .tmx or .po.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="For other tasks: labelled texts, sentence pairs, plain text, trees or images.")
    ] = None,
    fields: Annotated[
        str | None, typer.Option(help="Columns or keys of --pairs or --data, as en,de or text,label or 1,2,3.")
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Only these examples of --data, as FROM:UP_TO, from 0.")] = None,
    to: Annotated[str | None, typer.Option(help="The language, for models that have several.")] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text longer than any trained on.")
    ] = "split",
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer: 13a, none, intl, char, ...")] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare without case.")] = False,
    worst: Annotated[int, typer.Option(min=0, help="Show so many of the worst sentences.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, with everything.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write the translations to this new file, one a line.")
    ] = None,
    precision: Kept = None,
    ignore: Ignore = None,
    *,
    options: GenerationOptions,
) -> None:
    """Score a model on a test set: translations by BLEU and chrF (sacreBLEU) with their signatures, labels by accuracy,
    sentence vectors by rank correlation, running text by perplexity."""
    from time import perf_counter

    from clearformer.data.pairs import Pairs, columns_of
    from clearformer.errors import DataError

    began = perf_counter()
    if data is not None:
        if out is not None:
            raise DataError("--out keeps translations, and --data is for models that make none")
        if options.to_dict():
            raise DataError(f"{said(options)}: for models that translate, and --data is for others")
        return _evaluate(model, data, fields, rows, precision, ignore, json)
    check_out(out)  # said before the work, not after it
    if pairs is None and (source is None or target is None):
        raise DataError("give --source and --target, or --pairs")
    if fields is not None and pairs is None:
        raise DataError("--fields are columns or keys of --pairs or --data; --source and --target have none")
    found = list(Pairs(source=source, target=target, file=pairs, **columns_of(fields)).read())
    if not found:
        raise DataError(f"{source or pairs} has no pairs")
    sources, references = [pair.source for pair in found], [pair.target for pair in found]

    from clearformer.data.overlap import Seen
    from clearformer.tasks.load import bundled_for, find, load
    from clearformer.tasks.score import check_tokenizer
    from clearformer.tasks.score import score as compare

    check_tokenizer(tokenize)
    model = model or (bundled_for(to) if to else "en-de")
    translator = load(model, precision=precision, ignore=ignore)
    beams = beams_of(translator, options)
    search = f"beam {beams}" if beams else "drawn"
    start = perf_counter()
    with progress(lambda: len(sources)) as bar:
        made = translator.translate(sources, to=to, options=options, on_long=on_long, done=bar.advance)
    seconds = perf_counter() - start
    texts = [one.text for one in made]
    result = compare(texts, references, sources, tokenize=tokenize, lowercase=lowercase, worst=worst)
    if out is not None:
        with output(out) as stream:
            stream.writelines(one_line(text) + "\n" for text in texts)
    seen = Seen.load(find(model))
    overlap = seen.overlap(sources, references) if seen is not None else None
    unfinished = sum(one.finish == "limit" for one in made)
    tokens = sum(len(one.tokens) for one in made)
    if json:
        told = result.to_dict() | {
            "overlap": overlap._asdict() if overlap is not None else None,
            "sentences": len(texts),
            "seconds": seconds,
            "unfinished": unfinished,
            "precision": translator.precision,
        }
        typer.echo(json_line(told), nl=False)
        return
    typer.echo(f"BLEU {result.bleu:.2f}   {result.signatures[0]}")
    typer.echo(f"chrF {result.chrf:.2f}   {result.signatures[1]}")
    typer.echo(f"exact {result.exact:.2%}   length {result.length_ratio:.3f} of the references'")
    typer.echo(
        f"overlap: {overlap if overlap is not None else 'unknown, the model does not tell what it was trained on'}"
    )
    typer.echo(
        f"{len(texts):,} sentences in {seconds:.1f} s: {len(texts) / seconds:.0f} sentences/s, {tokens / seconds:,.0f}"
        f" tokens/s, {search}, {translator.precision}; {perf_counter() - began:.1f} s with start-up"
    )
    if unfinished:
        typer.echo(f"{unfinished} translations did not end by themselves")
    for each in result.worst:
        typer.echo(
            f"\nline {each.line}, chrF {each.chrf:.1f}\n  source     {each.source}\n  reference  {each.reference}"
            f"\n  translated {each.translation}"
        )


def _evaluate(
    model: str | None, data: Path, fields: str | None, rows: str | None, precision: Any, ignore: Any, json: bool
) -> None:
    from time import perf_counter

    from clearformer.data.pairs import Pairs, columns_of
    from clearformer.errors import DataError
    from clearformer.training.evaluate import evaluate

    if model is None:
        raise DataError("say which model with --model")
    given: dict[str, Any] = {"file": data}
    given |= columns_of(fields)
    if rows is not None:
        first, _, last = rows.partition(":")
        if not (first.isdecimal() and last.isdecimal() and int(first) < int(last)):
            raise DataError(f"--rows is FROM:UP_TO, such as 60000:70000, given {rows!r}")
        given["rows"] = (int(first), int(last))
    began = perf_counter()
    found = evaluate(model, Pairs(**given), precision=precision, ignore=ignore)
    if json:
        typer.echo(json_line({"loss": found.loss, **found.measures, "precision": found.precision}), nl=False)
        return
    for name, value in found.measures.items():
        typer.echo(f"{name} {value:.4f}")
    typer.echo(f"loss {found.loss:.4f}   in {perf_counter() - began:.1f} s with {found.precision}")
