"""`clearformer models`: what comes with the package, and the card of each model."""

from typing import TYPE_CHECKING, Annotated

import typer

from clearformer.cli.output import json_line

if TYPE_CHECKING:
    from clearformer.tasks.bundled import Bundled


def register(app: typer.Typer) -> None:
    app.command()(models)


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print the card of this model, or of the one for this verb.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines: one object a model.")] = False,
) -> None:
    """List the models that come with the package: name, verbs, size, licence, scores. With a name, print its card."""
    from clearformer.tasks.bundled import VERBS, bundled, bundled_model, bundled_models, model_for

    if name is None:
        if json:
            for each in bundled_models():
                typer.echo(json_line(each.to_dict()), nl=False)
            return
        _list(bundled_models())
        return
    found = bundled_model(model_for(name) if name in VERBS and name not in bundled() else name)
    if json:
        typer.echo(json_line({**found.to_dict(), "card": found.card}), nl=False)
        return
    typer.echo(found.card.rstrip("\n"))
    typer.echo(f"\n{_facts(found)}\n{found.folder}")


def _list(found: "list[Bundled]") -> None:
    from clearformer.tasks.bundled import PUBLIC, VERBS, serving

    for each in found:
        typer.echo(f"{each.name}: {each.title}\n    {_facts(each)}")
    total = sum(each.bytes for each in found)
    typer.echo(f"\n{len(found)} models, {total / 1e6:.1f} MB; clearformer models NAME prints the card of one")
    for verb in VERBS:
        if serving(verb) is None:
            typer.echo(f"{verb}: none; a public one is fetched by clearformer download {PUBLIC[verb]}")


def _facts(each: "Bundled") -> str:
    facts = [", ".join(each.verbs), f"{each.bytes / 1e6:.1f} MB", each.licence or "see its card for the licence"]
    facts += [f"{name} {value:g}" for name, value in each.scores.items()]
    return " · ".join(facts)
