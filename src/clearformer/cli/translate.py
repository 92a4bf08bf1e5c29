"""`clearformer translate`: texts from the command line, files or stdin; one line in, one line out."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

if TYPE_CHECKING:
    from clearformer.tasks.translate import Translation, Translator

AT_ONCE = 2_000  # lines read before they are sorted by length and translated


def register(app: typer.Typer) -> None:
    app.command()(translate)


def translate(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to translate; without any, stdin.")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="Files to translate, line by line; repeatable.")] = None,
    model: Annotated[str | None, typer.Option(help="A model folder, or the name of a bundled model.")] = None,
    to: Annotated[str | None, typer.Option(help="The language to translate to, such as de or hi.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with everything.")] = False,
    n_best: Annotated[int, typer.Option(help="So many translations of each text, best first.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="The log-probability in front.")] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Source–target word links behind: 0-0 1-2.")] = False,
    beam: Annotated[int, typer.Option(help="How many hypotheses to keep; 1 is greedy.")] = 4,
    length_penalty: Annotated[
        float | None, typer.Option(help="Scores are divided by length to this power; the model's own without one.")
    ] = None,
    on_long: Annotated[
        Literal["error", "split", "truncate"], typer.Option(help="What to do with a text longer than any trained on.")
    ] = "error",
    prefix: Annotated[str, typer.Option(help="What every translation must begin with.")] = "",
    repetition: Annotated[float, typer.Option(help="Above 1: tokens used before become less likely.")] = 1.0,
    no_repeat: Annotated[int, typer.Option(help="No so many tokens in a row twice; 0 allows all.")] = 0,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of search.")] = False,
    temperature: Annotated[float, typer.Option(help="Of --sample: lower is safer.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Of --sample: only the k likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Of --sample: only the likeliest that reach p.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Of --sample: none below p times the likeliest.")] = None,
    seed: Annotated[int, typer.Option(help="Of --sample: the same seed draws the same.")] = 0,
) -> None:
    """Translate texts with the bundled model or your own.

    Columns are separated by tabs: the number of the text (with --n-best), the score, the translation, the alignment.
    """
    from clearformer.errors import DataError

    if texts and file:
        raise DataError("give texts or files, not both")
    if out is not None and out.exists():
        raise DataError(f"{out} exists already; give a new name")
    if out is not None and not out.parent.is_dir():
        raise DataError(f"there is no folder {out.parent} to write {out.name} in; make it first")
    paths = file or []
    for path in paths:
        if str(path) != "-" and (not path.exists() or path.is_dir()):
            raise DataError(f"{path} is a folder; give a file" if path.is_dir() else f"there is no file {path}")

    from clearformer.tasks.load import bundled_for, load

    translator = load(model or (bundled_for(to) if to else "en-de"))
    from clearformer.decode.controls import Controls
    from clearformer.tasks.translate import Sampling, Way

    way = Way(
        beam=max(beam, n_best) if beam > 0 else beam,
        length_penalty=length_penalty,
        n_best=n_best,
        sampling=Sampling(seed, temperature, top_k, top_p, min_p) if sample else None,
        prefix=prefix,
        controls=Controls(repetition=repetition, no_repeat=no_repeat),
    )
    options: dict[str, Any] = {"to": to, "way": way, "on_long": on_long, "alignments": alignments}
    translator.language(to)
    shown = (lambda one, number: _json(one)) if json else (lambda one, number: _plain(one, number, n_best, scores))
    with _output(out) as stream:
        number = cut = 0
        for chunk in _chunks(texts, paths):
            for one in _translated(translator, chunk, number, options):
                number += 1
                cut += one.finish == "truncated"
                stream.write("".join(line + "\n" for line in shown(one, number)))
            stream.flush()
    if cut:
        typer.echo(f"clearformer: {cut:,} of {number:,} texts were too long and were cut", err=True)


def _translated(
    translator: "Translator", chunk: list[str], before: int, options: dict[str, Any]
) -> "list[Translation]":
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if len(chunk) < 100 or not console.is_terminal:
        return translator.translate(chunk, number=before, **options)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"from line {before + 1:,}", total=len(chunk))
        return translator.translate(chunk, number=before, **options, done=lambda n: progress.advance(task, n))


def _chunks(texts: list[str] | None, files: list[Path]) -> Iterator[list[str]]:
    if texts:
        yield list(texts)
        return
    waiting = _lines(files)
    size = 1 if not files and sys.stdin.isatty() else AT_ONCE  # at a terminal every line is answered at once
    while chunk := list(islice(waiting, size)):
        yield chunk


def _lines(files: list[Path]) -> Iterator[str]:
    from clearformer.data.lines import decode, lines, raw_lines

    for path in files or [Path("-")]:
        if str(path) == "-":
            stdin = Path("stdin")
            for number, raw in enumerate(raw_lines(sys.stdin.buffer, stdin), 1):
                yield decode(raw, stdin, number)
        elif path.is_file():
            yield from lines(path)
        else:  # a pipe, as from <(zcat ...), which can be read only once
            with path.open("rb") as handle:
                for number, raw in enumerate(raw_lines(handle, path), 1):
                    yield decode(raw, path, number)


def _json(one: "Translation") -> list[str]:
    from json import dumps

    return [dumps(one.to_dict(), ensure_ascii=False)]


def _plain(one: "Translation", number: int, n_best: int, scores: bool) -> list[str]:
    rows = []
    for each in (one, *one.others):
        columns = [str(number)] if n_best > 1 else []
        columns += [f"{each.score:.4f}"] if scores else []
        columns.append(" ".join(each.text.splitlines()) if "\n" in each.text or "\r" in each.text else each.text)
        if each.alignment is not None:
            columns.append(" ".join(f"{link.source}-{link.target}" for link in each.alignment))
        rows.append("\t".join(columns))
    return rows


class _output:  # noqa: N801 used like open()
    """stdout, or a file that appears under its name when it is complete."""

    def __init__(self, path: Path | None):
        self.path = path

    def __enter__(self) -> TextIO:
        if self.path is None:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(encoding="utf-8")
            return sys.stdout
        self.waiting = self.path.with_name(f".{self.path.name}.partial")
        self.stream = self.waiting.open("w", encoding="utf-8", newline="\n")
        return self.stream

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if self.path is None:
            return
        self.stream.close()
        if kind is None:
            self.waiting.replace(self.path)
        else:
            self.waiting.unlink(missing_ok=True)
