"""`clearformer download`: a model of the Hugging Face hub into a local folder."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(download)


def download(
    repository: Annotated[str, typer.Argument(metavar="ORG/NAME", help="A model of the hub, as its page names it.")],
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit; without one, the newest of its main branch.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder; without one, NAME in the current folder.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="The address of another hub than huggingface.co.")] = None,
) -> None:
    """Fetch a model from the Hugging Face hub: safetensors, JSON and tokenizer files, nothing that could run code.

    The folder appears when it is complete; its source.json notes the exact commit and the sha256 of every file.
    """
    import sys

    from clearformer.checkpoints.hub import download

    done = download(repository, out, revision=revision, endpoint=endpoint, bars=sys.stderr.isatty())
    typer.echo(f"{done.folder}: {len(done.files)} files, {done.size / 1e6:,.1f} MB, of commit {done.revision}")
    typer.echo(f"Next: clearformer inspect {done.folder}", err=True)
