"""`clearformer finetune`: go on from a model that is there, ours or a public one, with one's own data."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli.values import Ignore


def register(app: typer.Typer) -> None:
    app.command()(finetune)


def finetune(
    task: Annotated[
        str, typer.Argument(help="translate, classify, tag, embed, answer, complete, fill or see.", show_default=False)
    ],
    model: Annotated[str, typer.Option(help="The folder of the model to begin with, ours or a public one.")],
    out: Annotated[Path, typer.Option(help="A new folder for the run and its model.")],
    train: Annotated[
        list[Path] | None, typer.Option(help="Labelled texts, prompts, sentences, plain text, images. Repeatable.")
    ] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="The same, to validate on.")] = None,
    fields: Annotated[
        str | None, typer.Option(help="Columns or keys of --pairs, --train and --valid, as en,de or 2,5 or text,label.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="translate: source texts, one a line; plain or gzip.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations, line for line.")] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="One file with both sides: .tsv, .csv, .jsonl, .tmx or .po.")
    ] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Source texts to validate on.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    valid_pairs: Annotated[Path | None, typer.Option(help="One file with both sides to validate on.")] = None,
    to: Annotated[
        str | None, typer.Option(help="translate: the language of the targets, for models that must be told.")
    ] = None,
    lora: Annotated[
        bool, typer.Option("--lora", help="Train narrow layers beside the attention's projections, and nothing else.")
    ] = False,
    rank: Annotated[int, typer.Option(help="Of --lora: how narrow.")] = 8,
    minutes: Annotated[float | None, typer.Option(help="Fit the run to this much time.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Or to so many passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option(help="Or to so many steps.")] = None,
    ignore: Ignore = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, as PATH=VALUE: optimizer.rate=1e-4. Repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print the resolved run, the data and an estimate; write nothing.")
    ] = False,
) -> None:
    """Fine-tune a model on your own data, whole or by LoRA.

    It is a run like that of `clearformer train`: it logs, saves and validates, and goes on after any interruption
    with `clearformer train --resume OUT`.
    """
    from clearformer.cli.train import carried_out
    from clearformer.cli.values import assignments
    from clearformer.errors import DataError
    from clearformer.training.api import asked, settle, task_or_file

    name, file = task_or_file(task)
    if file is not None:
        raise DataError(f"{file} is a file of settings; give it to clearformer train, with model.start in it")
    length: dict[str, Any] = {"minutes": minutes, "epochs": epochs, "steps": steps}
    more = (train or [], valid or [])
    files = {"source": source, "target": target, "file": pairs}
    validation = {"source": valid_source, "target": valid_target, "file": valid_pairs}
    given = asked(files, validation, out=out, to=to, length=length, task=name, more=more, fields=fields, start=model)
    if ignore:
        given["model"]["ignore"] = ignore
    if lora:
        given["model"]["lora"] = {"rank": rank, "alpha": 2.0 * rank}
    carried_out(settle(None, given, assignments(change)), dry_run)
