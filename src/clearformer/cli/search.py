"""`clearformer search`: an index of documents, and the ones nearest to a question."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.output import json_line, one_line, write
from clearformer.cli.progress import progress
from clearformer.cli.texts import Given
from clearformer.cli.values import Files, Ignore, Json, Model, Out, Precision, Texts, Whole, chosen
from clearformer.errors import DataError

if TYPE_CHECKING:
    from clearformer.tasks.index import Hit, Index
    from clearformer.tasks.tfidf_index import TfIdfIndex


def register(app: typer.Typer) -> None:
    search = typer.Typer(
        no_args_is_help=True, help="Find documents by meaning, or by words: index them once, then ask."
    )
    search.command()(index)
    search.command()(query)
    app.add_typer(search, name="search")


def index(
    out: Annotated[Path, typer.Option(metavar="PATH", help="The folder to write the index to; a new one.")],
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    by: Annotated[
        Literal["model", "words", "tfidf"],
        typer.Option(
            help="Vectors of a model; means of word vectors (--model FOLDER, by train words); or common words."
        ),
    ] = "model",
    model: Model = None,
    pool: Annotated[
        Literal["mean", "first", "last"] | None, typer.Option(help="Which states make a vector; else the model's way.")
    ] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a document too long for the model.")
    ] = "split",
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Add a graph for large sets; needs clearformer[search].")
    ] = False,
    precision: Precision = "auto",
    ignore: Ignore = None,
) -> None:
    """Index documents: each TEXT, or line of a file, is one; blank lines are skipped."""
    given = Given(texts, file, whole=whole, out=out)

    if by == "tfidf":
        if model is not None or pool is not None or approximate:
            raise DataError("--by tfidf compares words: there is no model, no pool, and nothing to approximate")
        from clearformer.tasks.tfidf_index import TfIdfIndex

        with progress(given.count) as bar:
            _told(TfIdfIndex.build(given, out, done=bar.advance), out)
        return
    if by == "words" and model is None:
        raise DataError("--by words needs --model FOLDER; clearformer train words makes one from plain text")

    from clearformer.tasks.index import Index
    from clearformer.tasks.load import load
    from clearformer.tasks.word_vectors import WordVectors

    model = chosen(model, "search")
    embedder: Any = (
        WordVectors.open(model, precision) if by == "words" else load(model, precision=precision, ignore=ignore)
    )
    with progress(given.count) as bar:
        made = Index.build(
            embedder,
            given,
            model=model,
            pool=pool,
            on_long=on_long,
            approximate=approximate,
            done=bar.advance,
        )
    made.save(out)
    _told(made, out)


def _told(made: "Index | TfIdfIndex", out: Path) -> None:
    skipped = f"; {made.about.skipped:,} blank lines were skipped" if made.about.skipped else ""
    typer.echo(f"clearformer: {len(made):,} documents in {out}{skipped}", err=True)


def query(
    index: Annotated[Path, typer.Argument(help="An index folder.")],
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Annotated[str | None, typer.Option(help="The model folder, if it is not where it was.")] = None,
    top: Annotated[int, typer.Option(help="So many documents for each question, nearest first.")] = 5,
    exact: Annotated[bool, typer.Option("--exact", help="Compare with all, though there is a graph.")] = False,
    json: Json = False,
    out: Out = None,
    precision: Annotated[
        Literal["float32", "int8", "auto"] | None,
        typer.Option(help="What to compute with; else what the index was made with. Another is refused."),
    ] = None,
    ignore: Ignore = None,
) -> None:
    """Find the documents nearest to each question, a TEXT or a line of a file.

    Columns are separated by tabs: the number of the question (if there are several), the cosine, the document's line
    number, the document.
    """
    given = Given(texts, file, whole=whole, out=out)

    from clearformer.tasks.index import Index
    from clearformer.tasks.tfidf_index import open_index

    found = open_index(index)
    if model or precision or ignore:
        if not isinstance(found, Index):
            raise DataError(f"{index} was made by TF-IDF and has no model; leave --model, --precision and --ignore out")
        found.use(found.embedder(model, precision, ignore))
    numbered = given.one is None

    def work(chunk: list[str], number: int, done: Any) -> "list[list[Hit]]":
        hits = found.query(chunk, top=top, exact=exact, number=number)
        for text in chunk:
            if unseen := found.unseen(text):
                typer.echo(f"clearformer: never seen: {', '.join(unseen)}", err=True)
        done(len(chunk))
        return hits

    def shown(number: int, text: str, hits: "list[Hit]") -> str:
        if json:
            return json_line({"query": text, "hits": [hit.to_dict() for hit in hits]})
        before = f"{number}\t" if numbered else ""
        return "".join(f"{before}{hit.score:.4f}\t{hit.number}\t{one_line(hit.text)}\n" for hit in hits)

    write(given, work, shown, out)
