"""`clearformer train words`: from plain text to a vector for each word, and `--resume` over any interruption."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.progress import progress
from clearformer.errors import DataError

if TYPE_CHECKING:
    from clearformer.static.run import Run

SAVED, TOLD = 60.0, 10.0  # seconds between two saves, and between two lines where there is no bar


def command() -> Any:
    """With the options below, for `train` to hand over to."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command("words")(train_words)
    return typer.main.get_command(app)


def train_words(
    train: Annotated[
        list[Path] | None, typer.Option(help="Plain text, a sentence or more a line; plain or gzip. Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the vectors.")] = None,
    width: Annotated[int | None, typer.Option(help="Numbers a word; 100 if nothing is said.")] = None,
    window: Annotated[int | None, typer.Option(help="How far a word looks to either side at most; 5.")] = None,
    min_count: Annotated[int | None, typer.Option(help="Words that occur less often are left out; 5.")] = None,
    negatives: Annotated[int | None, typer.Option(help="Words drawn against each that is there; 5.")] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Passes over the text; else 5 to 50, so that 20 million words are seen.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Or as many passes, 50 at most, as take this long.")] = None,
    rate: Annotated[float | None, typer.Option(help="Of the first step; it falls to nothing; 0.025.")] = None,
    subsample: Annotated[
        float | None, typer.Option(help="Words more frequent than this share are seen less often; 0.001. 1: none is.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed and text give the same vectors; 0.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the vectors in this folder; give the same --train.")
    ] = None,
) -> None:
    """Train word vectors: skip-gram with negative sampling (Word2Vec).

    clearformer train words --train text.txt --out words;
    then clearformer neighbours king --model words, analogy, embed and search index --by words.
    Ctrl-C or SIGTERM saves and stops; a second one stops at once.
    """
    given = {
        "width": width,
        "window": window,
        "min_count": min_count,
        "negatives": negatives,
        "epochs": epochs,
        "rate": rate,
        "subsample": subsample,
        "seed": seed,
    }
    told: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not train:
        raise DataError("no text: give --train text.txt")
    if resume is not None and (told or out is not None or minutes is not None):
        raise DataError("a resumed run goes on as it began; give nothing but --train and --resume")
    if resume is None and out is None:
        raise DataError("no out: give --out, a new folder for the vectors")
    if out is not None and out.exists():
        raise DataError(f"{out} exists already; give a new folder, or go on with it by --resume {out}")

    from clearformer.static.run import Run
    from clearformer.static.settings import Settings

    settings = Settings(**told)
    with progress(lambda: None) as bar:
        seen = 0

        def read(count: int) -> None:
            nonlocal seen
            bar.advance(count - seen if count > seen else count)  # the second pass begins anew
            seen = count

        if resume is not None:
            run = Run.resume(resume, list(train), read)
        else:
            run = Run.begin(list(train), settings, read, minutes=minutes)
    folder = resume or out
    assert folder is not None
    _learn(run, folder)


def _learn(run: "Run", folder: Path) -> None:
    from clearformer.training.session import Signals

    began = saved = told = time.perf_counter()
    before, last = int(run.done * run.tokens.words / run.tokens.chunks), 0.0
    total = int(run.chunks * run.tokens.words / run.tokens.chunks)
    with Signals() as signals, progress(lambda: total) as bar:
        _say(f"{run.tokens.words:,} words, {len(run.vectors):,} different ones; {run.settings.epochs:g} passes")
        bar.advance(before)
        seen = before
        for now in run.go():
            bar.advance(now.words - seen)
            seen, last, moment = now.words, now.loss, time.perf_counter()
            if not sys.stderr.isatty() and moment - told > TOLD:
                told = moment
                speed = (seen - before) / (moment - began)
                _say(f"{now.words / now.total:.0%}, loss {now.loss:.3f}, {speed:,.0f} words a second")
            if moment - saved > SAVED or signals.caught:
                run.save(folder)
                saved = moment
            if signals.caught and run.done < run.chunks:
                which = signal.Signals(signals.caught).name
                _say(f"stopped by {which}; go on with the same --train and: clearformer train words --resume {folder}")
                raise typer.Exit(128 + signals.caught)
        run.save(folder)
    seconds = time.perf_counter() - began
    told_last = f", {(total - before) / seconds:,.0f} words a second, loss {last:.3f}" if total > before else ""
    _say(f"{len(run.vectors):,} words in {folder}; {seconds:.0f} s{told_last}")


def _say(text: str) -> None:
    typer.echo(f"clearformer: {text}", err=True)
