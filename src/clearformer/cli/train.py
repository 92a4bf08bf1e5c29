"""`clearformer train`: from files to a model, and `--resume` over any interruption."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from clearformer.training.session import Stopped
    from clearformer.training.settings import Settings


class Tasks(TyperCommand):
    """`train words` has options of its own and is no run of the trainer, so it is a command of its own."""

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args[:1] == ["words"]:
            from clearformer.cli.train_words import command

            return command().make_context(f"{info_name} words", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def register(app: typer.Typer) -> None:
    app.command(cls=Tasks)(train)


def train(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK|FILE.toml]",
            help="translate (if nothing is said), classify, tag, embed, answer, complete, fill, see; or a TOML file."
            " words, for word vectors, has options of its own: train words --help.",
        ),
    ] = None,
    train: Annotated[
        list[Path] | None,
        typer.Option(help="Data of a task: labelled texts, prompts, sentences, plain text, images. Repeatable."),
    ] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="The same, to validate on.")] = None,
    fields: Annotated[
        str | None, typer.Option(help="Columns or keys of --pairs, --train and --valid, as en,de or 2,5 or text,label.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Source texts, one a line; plain or gzip.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations, line for line.")] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="One file with both sides: .tsv, .csv, .jsonl, .tmx or .po.")
    ] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Source texts to validate on.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    valid_pairs: Annotated[Path | None, typer.Option(help="One file with both sides to validate on.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run and its model.")] = None,
    to: Annotated[str | None, typer.Option(help="The language of the translations, such as de.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Fit the run to this much time.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Or to so many passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option(help="Or to so many steps.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, as PATH=VALUE: model.width=256. Repeatable.")
    ] = None,
    any_data: Annotated[
        bool,
        typer.Option("--any-data", help="Use files that are not those a recipe's checksums name; the card says so."),
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder, exactly where it was.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print the resolved run, the data and an estimate; write nothing.")
    ] = False,
) -> None:
    """Train a model on pairs of texts, or for another task.

    clearformer train --source a.en --target a.de --out models/mine;
    clearformer train classify --train reviews.tsv --out models/mine.
    Size, schedule and vocabulary follow from the data; every setting can be given in a TOML file or with --set.
    Ctrl-C or SIGTERM saves and stops; a second one stops at once.
    """
    from clearformer.cli.values import assignments
    from clearformer.errors import DataError
    from clearformer.training.api import asked, settle, task_or_file
    from clearformer.training.session import Stopped

    if resume is not None and dry_run:
        raise DataError("--dry-run is for a run that has not begun; leave it out, or leave out --resume")
    changes = assignments(change) | ({"data.any_data": True} if any_data else {})
    task, file = task_or_file(run)
    given = asked(
        {"source": source, "target": target, "file": pairs},
        {"source": valid_source, "target": valid_target, "file": valid_pairs},
        out=out,
        to=to,
        length={"minutes": minutes, "epochs": epochs, "steps": steps},
        task=task,
        more=(train or [], valid or []),
        fields=fields,
    )
    try:
        if resume is not None:
            from clearformer.training.run import resume as go_on

            if "data" in given or out is not None:
                raise DataError("a resumed run goes on with the data and in the folder it began with; leave them out")
            settings = settle(file, {**given, "out": resume}, changes) if file is not None else None
            length = {f"length.{name}": value for name, value in given.get("length", {}).items()}
            go_on(resume, settings, length | changes if settings is None else None)
            return
    except Stopped as stop:
        _stopped(stop, resume)
    carried_out(settle(file, given, changes), dry_run)


def carried_out(settings: "Settings", dry_run: bool) -> None:
    """Begin a run, or only estimate it."""
    if dry_run:
        return _dry(settings)
    from clearformer.training.run import start
    from clearformer.training.session import Stopped

    try:
        start(settings)
    except Stopped as stop:
        _stopped(stop, settings.out)


def _stopped(stop: "Stopped", folder: Path | None) -> NoReturn:
    typer.echo(f"clearformer: {stop}; go on with: clearformer train --resume {folder}", err=True)
    raise typer.Exit(128 + stop.number) from None


def _dry(settings: "Settings") -> None:
    from rich.console import Console

    from clearformer.training.dry import dry_run

    console = Console(stderr=True, highlight=False)
    typer.echo(str(dry_run(settings, lambda text: console.print(text, markup=False, soft_wrap=True))))
