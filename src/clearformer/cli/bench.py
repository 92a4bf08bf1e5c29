"""`clearformer bench`: how fast a model runs here, beside other libraries and what the machine allows."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    work: Annotated[Literal["translate", "complete", "embed", "train"], typer.Argument(help="What is timed.")],
    model: Annotated[
        str | None,
        typer.Option(help="A model folder or bundled model. Without one: for translate en-de, else random weights."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="Random weights of a shape: for translate base (6 + 6 layers, width 512), for complete llama or gpt2;"
            " tiny for a trial."
        ),
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
        int | None, typer.Option(min=1, help="Threads of ours, and the most of every peer; all cores without it.")
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Keep all of it to so many cores, as a CPU quota does.")
    ] = None,
    busy: Annotated[
        int, typer.Option(min=0, help="Measure a second time beside so many processes that do nothing but count.")
    ] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="How often every contender has its turn.")] = 3,
    texts: Annotated[
        Path | None, typer.Option(help="A file of texts, one a line, instead of the sentences that come with it.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="All figures as JSON instead of a table.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the speeds as bars: a .png or .svg file.")] = None,
) -> None:
    """Time a verb as people call it, text in and text out, in one run: ours, other libraries with the same weights in
    the best of their configurations, each in a process of its own and in turns, and the machine's own limits.

    translate: many texts, and one at a time, greedy and with a beam of 4. complete: 64 tokens, greedy and sampled, a
    prompt of 400, eight texts. embed: texts of mixed length. train: one step of 64 texts of 20 tokens.
    """
    from clearformer.bench.chart import chart, check_chart
    from clearformer.bench.report import report
    from clearformer.bench.run import run
    from clearformer.bench.table import show
    from clearformer.cli.output import check_out, output
    from clearformer.cli.texts import check_files, chunks
    from clearformer.errors import DataError

    check_out(out)
    if plot is not None:
        if not plot.parent.is_dir():
            raise DataError(f"cannot write {plot}: there is no folder {plot.parent}")
        check_chart(plot)
    lines = None
    if texts is not None:
        check_files([texts])
        lines = [line for chunk in chunks(None, [texts]) for line in chunk]
    from rich.console import Console

    stderr = Console(stderr=True)
    with stderr.status("") as status:
        tell = status.update if stderr.is_terminal else lambda words: typer.echo(words, err=True)
        found = run(
            work,
            model=model,
            shape=shape,
            precision=precision,
            against=None if against is None else [name.strip() for name in against.split(",") if name.strip()],
            threads=threads,
            cores=cores,
            busy=busy,
            rounds=rounds,
            texts=lines,
            tell=tell,
        )
    told = report(found)
    with output(out) as stream:
        if json:
            from json import dumps

            stream.write(dumps(told, indent=1, ensure_ascii=False) + "\n")
        else:
            console = Console(highlight=False, file=stream)
            show(told, console if console.is_terminal else Console(highlight=False, file=stream, width=220))
    if plot is not None:
        typer.echo(chart(told, plot), err=True)
