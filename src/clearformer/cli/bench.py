"""`clearformer bench`: how fast a model runs here, beside other libraries and what the machine allows."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    work: Annotated[Literal["translate", "complete", "embed", "train"], typer.Argument(help="What is timed.")],
    model: Annotated[
        str | None, typer.Option(help="A model folder or bundled model; without one, random weights of a usual shape.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Another shape of random weights: for complete llama or gpt2; tiny for a trial.")
    ] = None,
    precision: Annotated[
        Literal["float32", "int8", "both"], typer.Option(help="Of ours; others run all theirs.")
    ] = "both",
    against: Annotated[
        str | None,
        typer.Option(
            help="Peers, separated by commas: transformers, ctranslate2, llama.cpp, sentence-transformers; an empty"
            " text for none. Without this, all that are installed."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of every contender; all cores without it.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often every contender has its turn; the best counts.")] = 3,
    texts: Annotated[Path | None, typer.Option(help="Of embed: a file of texts, one a line.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the speeds as bars: a .png or .svg file.")] = None,
) -> None:
    """Time a work in one run: ours, other libraries with the same weights, each in a process of its own and in turns,
    and the machine's own limits.

    translate: 32 tokens from a source of 20. complete: 64 tokens after 16, and a prompt of 400. embed: texts of mixed
    length. train: one step of 64 texts of 20 tokens.
    """
    from clearformer.bench.report import chart, check_chart, report, show
    from clearformer.bench.run import run
    from clearformer.errors import DataError

    for out in (json, plot):
        if out is not None and not out.parent.is_dir():
            raise DataError(f"cannot write {out}: there is no folder {out.parent}")
    if plot is not None:
        check_chart(plot)
    if texts is not None and work != "embed":
        raise DataError(f"--texts is for embed; {work} makes its own")
    from rich.console import Console

    console, stderr = Console(highlight=False), Console(stderr=True)
    with stderr.status("") as status:
        tell = status.update if stderr.is_terminal else lambda words: typer.echo(words, err=True)
        found = run(
            work,
            model=model,
            shape=shape,
            precision=precision,
            against=None if against is None else [name.strip() for name in against.split(",") if name.strip()],
            threads=threads,
            rounds=rounds,
            texts=None if texts is None else _lines(texts),
            tell=tell,
        )
    told = report(found)
    show(told, console if console.is_terminal else Console(highlight=False, width=160))
    if json is not None:
        from json import dumps

        from clearformer.cli.output import naming

        with naming("write", json):
            json.write_text(dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if plot is not None:
        typer.echo(chart(told, plot))


def _lines(path: Path) -> list[str]:
    from clearformer.cli.texts import check_files, chunks

    check_files([path])
    return [line for chunk in chunks(None, [path]) for line in chunk]
