"""`clearformer score`: how good a model's translations are, how fast, and which are worst."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    app.command()(score)


def score(
    model: Annotated[str | None, typer.Option(help="A model folder, or the name of a bundled model.")] = None,
    source: Annotated[Path | None, typer.Option(help="Source texts, one a line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Reference translations, line for line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="One file with both: .tsv, .jsonl, .tmx or .po.")] = None,
    to: Annotated[str | None, typer.Option(help="The language, for models that have several.")] = None,
    beam: Annotated[int, typer.Option(help="How many hypotheses to keep; 1 is greedy.")] = 4,
    length_penalty: Annotated[
        float | None, typer.Option(help="Scores are divided by length to this power; the model's own without one.")
    ] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text longer than any trained on.")
    ] = "split",
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer: 13a, none, intl, char, ...")] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare without case.")] = False,
    worst: Annotated[int, typer.Option(min=0, help="Show so many of the worst sentences.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Also write the translations to this new file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Translate a test set and score it with BLEU and chrF (sacreBLEU), with their signatures."""
    from time import perf_counter

    from clearformer.data.pairs import Pairs
    from clearformer.errors import DataError

    began = perf_counter()
    if out is not None and out.exists():
        raise DataError(f"{out} exists already; give a new name")
    if out is not None and not out.parent.is_dir():  # said before the work, not after it
        raise DataError(f"there is no folder {out.parent} to write {out.name} in; make it first")
    if pairs is None and (source is None or target is None):
        raise DataError("give --source and --target, or --pairs")
    found = list(Pairs(source=source, target=target, file=pairs).read())
    if not found:
        raise DataError(f"{source or pairs} has no pairs")
    sources, references = [pair.source for pair in found], [pair.target for pair in found]

    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import Progress

    from clearformer.data.overlap import Seen
    from clearformer.tasks.load import bundled_for, find, load
    from clearformer.tasks.score import check_tokenizer
    from clearformer.tasks.score import score as compare
    from clearformer.tasks.translate import Way

    check_tokenizer(tokenize)
    model = model or (bundled_for(to) if to else "en-de")
    translator = load(model)
    way = Way(beam=beam, length_penalty=length_penalty)
    console = Console(stderr=True)
    start = perf_counter()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("translating", total=len(sources))
        made = translator.translate(
            sources,
            to=to,
            way=way,
            on_long=on_long,
            done=lambda n: progress.advance(task, n),
        )
    seconds = perf_counter() - start
    texts = [one.text for one in made]
    result = compare(texts, references, sources, tokenize=tokenize, lowercase=lowercase, worst=worst)
    if out is not None:
        out.write_text("".join(" ".join(text.split("\n")) + "\n" for text in texts), encoding="utf-8")
    seen = Seen.load(find(model))
    overlap = seen.overlap(sources, references) if seen is not None else None
    unfinished = sum(one.finish == "limit" for one in made)
    tokens = sum(len(one.tokens) for one in made)
    if json:
        from json import dumps

        facts = asdict(result) | {
            "overlap": overlap._asdict() if overlap is not None else None,
            "sentences": len(texts),
            "seconds": seconds,
            "unfinished": unfinished,
        }
        typer.echo(dumps(facts, ensure_ascii=False, indent=1))
        return
    typer.echo(f"BLEU {result.bleu:.2f}   {result.signatures[0]}")
    typer.echo(f"chrF {result.chrf:.2f}   {result.signatures[1]}")
    typer.echo(f"exact {result.exact:.2%}   length {result.length_ratio:.3f} of the references'")
    typer.echo(
        f"overlap: {overlap if overlap is not None else 'unknown, the model does not tell what it was trained on'}"
    )
    typer.echo(
        f"{len(texts):,} sentences in {seconds:.1f} s: {len(texts) / seconds:.0f} sentences/s, {tokens / seconds:,.0f}"
        f" tokens/s, beam {beam}; {perf_counter() - began:.1f} s with start-up"
    )
    if unfinished:
        typer.echo(f"{unfinished} translations did not end by themselves")
    for each in result.worst:
        typer.echo(
            f"\nline {each.line}, chrF {each.chrf:.1f}\n  source     {each.source}\n  reference  {each.reference}"
            f"\n  translated {each.translation}"
        )
