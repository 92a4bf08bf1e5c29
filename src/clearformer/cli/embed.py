"""`clearformer embed`: lines of files or stdin; a vector for each, in a .npy file or as JSON lines."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.progress import progress
from clearformer.cli.texts import check_files, check_out, chunks, output, writing
from clearformer.cli.values import Ignore, Precision

if TYPE_CHECKING:
    from clearformer.tasks.embed import Vectors


def register(app: typer.Typer) -> None:
    app.command()(embed)


def embed(
    model: Annotated[str, typer.Option(help="A model folder.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Files, line by line; without any, stdin.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new .npy file; without one, JSON lines to stdout.")] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines in --out, too: text and vector.")] = False,
    pool: Annotated[
        Literal["mean", "first", "last"] | None,
        typer.Option(help="Which states make the vector; else the model's way."),
    ] = None,
    normalise: Annotated[
        bool | None, typer.Option("--normalise/--as-is", help="Vectors of length one, or not; else the model's way.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Put this before each text, or nothing with ''; else the model's own.")
    ] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text too long for the model.")
    ] = "error",
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Turn every line into a vector: rows of a NumPy file, in the order of the lines."""
    from clearformer.errors import DataError

    if out is not None and not json and out.suffix != ".npy":
        raise DataError(f"--out {out} must end in .npy; for JSON lines, add --json")
    check_out(out)
    check_files(files or [])

    from clearformer.tasks.load import load

    embedder = load(model, precision=precision, ignore=ignore)
    embedder.embed([])  # a model that cannot says so before anything is read
    options: dict[str, Any] = {"pool": pool, "normalise": normalise, "prompt": prompt, "on_long": on_long}
    with npy(out) if out is not None and not json else lines(out) as write:
        number = cut = 0
        for chunk in chunks(None, files or []):
            with progress(len(chunk), number) as done:
                found = embedder.embedded(chunk, **options, number=number, done=done)
            write(chunk, found.vectors)
            number += len(chunk)
            cut += found.finish.count("truncated")
        if not number:
            raise DataError("there is nothing to embed: no lines were given")
    if cut:
        typer.echo(f"clearformer: {cut:,} of {number:,} texts were too long and were cut", err=True)


Write = Callable[[list[str], "Vectors"], None]


@contextmanager
def lines(path: Path | None) -> Iterator[Write]:
    """A JSON object for each text."""
    from json import dumps

    with output(path) as stream:

        def write(texts: list[str], vectors: "Vectors") -> None:
            for text, vector in zip(texts, vectors, strict=True):
                numbers = [float(f"{number:.8g}") for number in vector]  # what a float32 can tell apart
                stream.write(dumps({"text": text, "vector": numbers}, ensure_ascii=False) + "\n")
            stream.flush()

        yield write


@contextmanager
def npy(path: Path) -> Iterator[Write]:
    """A NumPy file that grows, and appears under its name when it is complete."""
    import numpy as np

    waiting = path.with_name(f".{path.name}.partial")
    shape = (0, 0)

    def header() -> None:
        """Written first and once more at the end: NumPy leaves room in it for the count of rows."""
        stream.seek(0)
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})

    def write(texts: list[str], vectors: "Vectors") -> None:
        nonlocal shape
        shape = (shape[0], vectors.shape[1])
        if not shape[0]:
            header()
        stream.write(vectors.tobytes())
        shape = (shape[0] + len(vectors), shape[1])

    try:
        with writing(path), waiting.open("wb") as stream:
            yield write
            header()
        with writing(path):
            waiting.replace(path)
    except BaseException:
        waiting.unlink(missing_ok=True)
        raise
