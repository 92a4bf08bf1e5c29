"""`clearformer search`: an index of documents, and the ones nearest to a question."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from clearformer.cli.progress import progress
from clearformer.cli.texts import check_files, check_out, chunks, output
from clearformer.cli.values import Ignore, Precision


def register(app: typer.Typer) -> None:
    search = typer.Typer(no_args_is_help=True, help="Find documents by meaning: index them once, then ask.")
    search.command()(index)
    search.command()(query)
    app.add_typer(search, name="search")


def index(
    model: Annotated[str, typer.Option(help="A model folder that embeds texts.")],
    out: Annotated[Path, typer.Option(help="The folder to write the index to; a new one.")],
    files: Annotated[list[Path] | None, typer.Argument(help="A document a line; without any, stdin.")] = None,
    pool: Annotated[
        Literal["mean", "first", "last"] | None, typer.Option(help="Which states make a vector; else the model's way.")
    ] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a document too long for the model.")
    ] = "split",
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Add a graph for large sets; needs clearformer[search].")
    ] = False,
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Index documents, one a line; blank lines are skipped."""
    check_out(out)
    check_files(files or [])

    from clearformer.tasks.index import Index
    from clearformer.tasks.load import load

    embedder = load(model, precision=precision, ignore=ignore)
    with progress(None) as done:
        made = Index.build(
            embedder,
            (line for chunk in chunks(None, files or []) for line in chunk),
            model=model,
            pool=pool,
            on_long=on_long,
            approximate=approximate,
            done=done,
        )
    made.save(out)
    skipped = f"; {made.about.skipped:,} blank lines were skipped" if made.about.skipped else ""
    typer.echo(f"clearformer: {len(made):,} documents in {out}{skipped}", err=True)


def query(
    index: Annotated[Path, typer.Argument(help="An index folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Questions; without any, stdin.")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="Files of questions, line by line; repeatable.")] = None,
    model: Annotated[str | None, typer.Option(help="The model folder, if it is not where it was.")] = None,
    top: Annotated[int, typer.Option(help="So many documents for each question, nearest first.")] = 5,
    exact: Annotated[bool, typer.Option("--exact", help="Compare with all, though there is a graph.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a question.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Find the documents nearest to each question.

    Columns are separated by tabs: the number of the question (if there are several), the cosine, the document's line
    number, the document.
    """
    from clearformer.errors import DataError

    if texts and file:
        raise DataError("give texts or files, not both")
    check_out(out)
    check_files(file or [])

    from clearformer.tasks.index import Index
    from clearformer.tasks.load import load

    found = Index.load(index, load(model, precision=precision, ignore=ignore) if model else None)
    numbered = texts is None or len(texts) != 1
    with output(out) as stream:
        number = 0
        for chunk in chunks(texts, file or []):
            for text, hits in zip(chunk, found.query(chunk, top=top, exact=exact, number=number), strict=True):
                number += 1
                if json:
                    stream.write(_json(text, [hit.to_dict() for hit in hits]))
                else:
                    before = f"{number}\t" if numbered else ""
                    stream.writelines(f"{before}{hit.score:.4f}\t{hit.number}\t{hit.text}\n" for hit in hits)
            stream.flush()


def _json(text: str, hits: list[dict[str, object]]) -> str:
    from json import dumps

    return dumps({"query": text, "hits": hits}, ensure_ascii=False) + "\n"
