"""The command line: one file a verb, torch imported inside the verb, errors without tracebacks."""

import errno
import gc
import sys

import typer

from clearformer.cli import (
    answer,
    bench,
    classify,
    complete,
    convert,
    data,
    download,
    embed,
    explain,
    fill,
    finetune,
    inspect,
    look,
    models,
    neighbours,
    notes,
    plot,
    score,
    search,
    see,
    serve,
    spec,
    summarize,
    tag,
    train,
    translate,
)
from clearformer.cli.streams import settle
from clearformer.errors import ClearformerError

app = typer.Typer(
    name="clearformer",
    help="The Transformer, whole and see-through: train it, run it, and look at every number on the way.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
WORK = (translate, summarize, answer, complete, classify, embed, search, fill, tag, see, neighbours, serve)
MAKE = (train, finetune, score, plot, convert, download, data)
LOOK = (look, explain, models, inspect, bench, notes, spec)
for verb in (*WORK, *MAKE, *LOOK):
    verb.register(app)


def _version(asked: bool) -> None:
    if asked:
        from clearformer import __version__

        typer.echo(f"clearformer {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line; an error that is the user's to act on is one message and exit code 2."""
    settle()
    try:
        app()
    except ClearformerError as error:
        typer.echo(f"clearformer: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of our output has gone, as `| head` does
            if sys.stderr is not None:
                sys.stderr.close()
            sys.exit(0)
        what = "cannot write" if error.filename is None else error.filename
        typer.echo(f"clearformer: {what}: {error.strerror or error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # or the end of the process looks through all of PyTorch for cycles, for a third of a second
