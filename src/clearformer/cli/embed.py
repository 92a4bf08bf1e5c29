"""`clearformer embed`: a vector for each text, in a .npy file or as JSON lines."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearformer.cli.output import answers, json_line, output, tell_cut
from clearformer.cli.texts import Given
from clearformer.cli.values import Files, Ignore, Model, Precision, Texts, Whole, chosen

if TYPE_CHECKING:
    from clearformer.tasks.embed import Vectors


def register(app: typer.Typer) -> None:
    app.command()(embed)


def embed(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Model = None,
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
    json: Annotated[bool, typer.Option("--json", help="JSON lines in --out, as on stdout: text and vector.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A new .npy file, float32; it appears when it is complete."),
    ] = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
) -> None:
    """Turn every text into a vector: a row of a NumPy file (--out), in the order of the texts, or a JSON line."""
    from clearformer.errors import DataError

    if out is not None and not json and out.suffix != ".npy":
        raise DataError(f"--out {out} must end in .npy; for JSON lines, add --json")
    given = Given(texts, file, whole=whole, out=out)

    from clearformer.tasks.load import load

    embedder = load(chosen(model, "embed"), precision=precision, ignore=ignore)
    embedder.embed([])  # a model that cannot says so before anything is read
    options: dict[str, Any] = {"pool": pool, "normalise": normalise, "prompt": prompt, "on_long": on_long}

    def work(chunk: list[str], **rest: Any) -> "list[Row]":
        found = embedder.embedded(chunk, **options, **rest)
        return list(zip(found.vectors, found.finish, strict=True))

    with npy(out) if out is not None and not json else lines(out) as write:
        total = cut = 0
        for _, chunk, found in answers(given, work):
            write(chunk, [vector for vector, _ in found])
            total += len(chunk)
            cut += sum(finish == "truncated" for _, finish in found)
        if not total:
            raise DataError("there is nothing to embed: no lines were given")
    tell_cut(cut, total)


Row = tuple["Vectors", str]  # a vector, and what became of its text
Write = Callable[[list[str], "list[Vectors]"], None]


@contextmanager
def lines(path: Path | None) -> Iterator[Write]:
    """A JSON object for each text."""
    with output(path) as stream:

        def write(texts: list[str], vectors: "list[Vectors]") -> None:
            for text, vector in zip(texts, vectors, strict=True):
                numbers = [float(f"{number:.8g}") for number in vector]  # what a float32 can tell apart
                stream.write(json_line({"text": text, "vector": numbers}))
            stream.flush()

        yield write


@contextmanager
def npy(path: Path) -> Iterator[Write]:
    """A NumPy file that grows."""
    import numpy as np

    shape = (0, 0)

    def header() -> None:
        """Written first and once more at the end: NumPy leaves room in it for the count of rows."""
        stream.seek(0)
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})

    def write(texts: list[str], vectors: "list[Vectors]") -> None:
        nonlocal shape
        if not shape[0]:
            shape = (0, len(vectors[0]))
            header()
        for vector in vectors:
            stream.write(vector.tobytes())
        shape = (shape[0] + len(vectors), shape[1])

    with output(path, "wb") as stream:
        yield write
        header()
