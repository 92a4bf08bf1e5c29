"""`clearformer data`: the data that recipes are trained on, by name."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearformer.cli.output import json_line

if TYPE_CHECKING:
    from clearformer.data.fetch import Watch
    from clearformer.data.sets import DataSet


def register(app: typer.Typer) -> None:
    app.command()(data)


def data(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The set to fetch; without one, all are listed.")
    ] = None,
    into: Annotated[Path, typer.Option(metavar="PATH", help="The folder to put the folder NAME into.")] = Path("data"),
    mirror: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="A folder, or its address (file://, https://), with NAME/FILE to fetch from."
        ),
    ] = None,
    any_data: Annotated[
        bool, typer.Option("--any-data", help="Keep a file that is not the pinned one; its source.json says so.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Only say where it is, what it is and its licence.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON lines: one object a set.")] = False,
) -> None:
    """Fetch the data of a recipe into data/NAME, checked by SHA-256; go on where it was interrupted. Without a name,
    list the sets. Nothing is fetched but what is named here."""
    from clearformer.data.sets import data_set, data_sets

    if name is None or show:
        found = data_sets() if name is None else {name: data_set(name)}
        for each, what in found.items():
            typer.echo(_json(each, what) if json else _said(each, what, show), nl=False)
        if name is None and not json:
            typer.echo("\nclearformer data NAME fetches one into data/NAME")
        return
    from clearformer.data.fetch import fetch

    typer.echo(_said(name, data_set(name), True), nl=False, err=True)
    with _bar() as watch:
        done = fetch(name, into, mirror=mirror, any_data=any_data, watch=watch, say=_say)
    if json:
        told = {"folder": str(done.folder), "files": list(done.files), "not_pinned": list(done.other)}
        typer.echo(json_line(told), nl=False)
        return
    typer.echo(f"{done.folder}: {', '.join(done.files)}")


def _say(text: str) -> None:
    typer.echo(f"clearformer: {text}", err=True)


def _said(name: str, data: "DataSet", files: bool) -> str:
    size = "size not known" if data.bytes is None else f"{data.bytes / 1e6:.1f} MB"
    lines = [f"{name}: {data.title}", f"    {size} · {data.licence} · {data.home}"]
    if files:
        for file in data.files:
            pin = f"sha256 {file.sha256}" if file.sha256 else "no pinned checksum"
            lines.append(f"    {file.urls[0]} ({pin})")
    return "".join(line + "\n" for line in lines)


def _json(name: str, data: "DataSet") -> str:
    return json_line({"name": name, **data.model_dump(mode="json"), "bytes": data.bytes})


class _bar:  # noqa: N801 used like open()
    """How much has arrived, on stderr where that is a terminal."""

    def __enter__(self) -> "Watch":
        if sys.stderr is None or not sys.stderr.isatty():
            self.shown = None
            return lambda *_: None
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = [TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()]
        self.shown = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self.shown.start()
        tasks: dict[str, int] = {}

        def watch(name: str, now: int, total: int | None) -> None:
            assert self.shown is not None
            if name not in tasks:
                tasks[name] = self.shown.add_task(name, total=total)
            self.shown.update(tasks[name], completed=now, total=total)  # type: ignore[arg-type]

        return watch

    def __exit__(self, *_: object) -> None:
        if self.shown is not None:
            self.shown.stop()
