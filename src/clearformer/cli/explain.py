"""`clearformer explain`: what a model did with one text, or image, in the terminal, with every number in reach."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.generation import generation
from clearformer.cli.output import check_out, json_line, output
from clearformer.cli.texts import first_text
from clearformer.cli.values import Ignore, Model, Precision, chosen
from clearformer.errors import DataError
from clearformer.generate.options import GenerationOptions

if TYPE_CHECKING:
    from rich.console import Console

    from clearformer.explain.trace import Trace

IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
PICTURES = (".png", ".svg")
PAGES = (".html", ".htm")


def register(app: typer.Typer) -> None:
    app.command()(explain)


@generation()
def explain(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="A text to look into, or an image for a model that sees; - or none is stdin's first line.",
        ),
    ] = "-",
    model: Model = None,
    pair: Annotated[str | None, typer.Option(help="The second text of a pair, or the context of a question.")] = None,
    to: Annotated[str | None, typer.Option(help="The language to translate to.")] = None,
    target: Annotated[
        str | None, typer.Option(help="What the model would have to write, instead of what it writes itself.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Show so many of the likeliest tokens at each step.")] = 5,
    layer: Annotated[int | None, typer.Option(help="Attention of this layer; else the last.")] = None,
    head: Annotated[int | None, typer.Option(help="Of this head; the mean of all without one.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Explain one cell: decoder.2.cross.h3.weights[1,2]. Prints its arithmetic.")
    ] = None,
    addresses: Annotated[bool, typer.Option("--addresses", help="List every address there is.")] = False,
    lens: Annotated[bool, typer.Option("--lens", help="What each layer would say if it were the last.")] = False,
    attribution: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Who wrote this logit: head.logits[7, ' Paris'].")
    ] = None,
    ablations: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="What this logit becomes without each head.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object with everything that was asked for.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Draw the attention, or --address, to a new .svg or .png file; .html is all of it as one page.",
        ),
    ] = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
    *,
    options: GenerationOptions,
) -> None:
    """Show what a model did: tokens, attention, probabilities, the beam, its answer; or one cell's arithmetic."""
    from rich.console import Console

    from clearformer.tasks.load import load

    check_out(out)
    if out is not None and out.suffix.lower() not in (*PICTURES, *PAGES):
        raise DataError(
            f"{out} has no ending of a picture or page that can be made; call it {out.with_suffix('.svg').name}, or"
            f" {out.with_suffix('.html').name}"
        )
    given = text if text.lower().endswith(IMAGES) and Path(text).is_file() else first_text(text)
    task = load(chosen(model, "translate", to), precision=precision, ignore=ignore)
    told: dict[str, Any] = {"to": to, "target": target, "top": top, "options": options}
    if not hasattr(task.model, "encoder") and to is None:
        del told["to"]
    found = task.trace(given, pair, **told)
    if out is not None and out.suffix.lower() in PAGES:
        _page(found, str(model or ""), given, out)
        return
    if out is not None:
        _draw(found, address, layer, head, out)
        return
    asked = _asked(found, address, lens, attribution, ablations)
    if json:
        with output(None) as stream:
            stream.write(json_line(found.to_dict() if asked is None else asked.to_dict()))
        return
    console = Console(highlight=False, soft_wrap=True)
    if addresses:
        for name in found:
            console.print(repr(found[name]), markup=False)
    elif asked is not None:
        _print(console, asked)
    else:
        _report(console, found, layer, head)


def _asked(found: "Trace", address: str | None, lens: bool, attribution: str | None, ablations: str | None) -> Any:
    """What one question is answered with; None is the report of everything."""
    given = [name for name, said in (("--address", address), ("--lens", lens), ("--attribution", attribution),
                                     ("--ablations", ablations)) if said]  # fmt: skip
    if len(given) > 1:
        raise DataError(f"{' and '.join(given)} are two questions; ask one")
    if address is not None:
        view = found[address]
        return found.explain(address) if view.values.dim() == 0 else view
    if lens:
        return found.lens()
    if attribution is not None:
        return found.attribution(attribution)
    return None if ablations is None else found.ablations(ablations)


def _print(console: "Console", asked: Any) -> None:
    from clearformer.explain.show import table
    from clearformer.explain.view import View

    if isinstance(asked, View):
        console.print(table(asked, console.width))
    else:
        text = asked.lines(console.width) if hasattr(asked, "lines") else str(asked)
        console.print(text, markup=False)


def _page(found: "Trace", model: str, given: str, out: Path) -> None:
    import shlex

    from clearformer.page.export import to_html

    named = f" --model {shlex.quote(model)}" if model else ""
    command = f"clearformer look{named} {shlex.quote(given)}"
    made = to_html(found, title=given[:80], model=Path(model).name, command=command)
    with output(out, "wb") as stream:
        stream.write(made.encode())


def _draw(found: "Trace", address: str | None, layer: int | None, head: int | None, out: Path) -> None:
    from clearformer.explain.heads import attended

    view = attended(found, layer, head) if address is None else found[address]
    made = view.to_png() if out.suffix.lower() == ".png" else view.to_svg().encode()
    with output(out, "wb") as stream:
        stream.write(made)


def _report(console: "Console", found: "Trace", layer: int | None, head: int | None) -> None:
    from clearformer.cli import explain_report as report
    from clearformer.explain.heads import attended
    from clearformer.explain.show import table
    from clearformer.tasks.wrote import Wrote

    run = found.run
    writes = isinstance(run, Wrote)
    for line in report.wrote(run) if writes else report.answered(run):
        console.print(line, markup=False)
    view = attended(found, layer, head)
    console.print(
        f"\nattention{f', {view.note}' if view.note else ''}: row, the position that looks, by the token read there"
    )
    console.print(table(view, console.width, short=True))
    if writes:
        console.print("\nwhat might come next: the likeliest tokens at each step, after the token read there")
        console.print(report.choices(run, console.width))
        beams = int(run.options.get("num_beams", 1))
        if len(run.best) > 1:
            console.print("\n".join(report.found(run)), markup=False)
        kept = f"beam of {beams}: every hypothesis that was kept" if beams > 1 else "the text as it grew"
        console.print(f"\n{kept}, with its log-probability{report.RANKED if beams > 1 else ''}")
        console.print(report.tree(run, console.width))
