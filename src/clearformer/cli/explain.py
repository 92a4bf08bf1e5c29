"""`clearformer explain`: one translation in the terminal, with every number in reach."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.generation import beams_of, generation
from clearformer.cli.texts import first_text
from clearformer.cli.values import Ignore, Model, Precision, chosen
from clearformer.generate.options import GenerationOptions

if TYPE_CHECKING:
    from clearformer.tasks.explain import Explanation, Node

SHADES = ((0.5, "black on bright_cyan"), (0.2, "black on cyan"), (0.1, "white on blue"), (0.05, "cyan"), (0.0, "dim"))


def register(app: typer.Typer) -> None:
    app.command()(explain)


@generation()
def explain(
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="A text to translate and look into; - or none is stdin, its first line."),
    ] = "-",
    model: Model = None,
    to: Annotated[str | None, typer.Option(help="The language to translate to.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Show so many of the likeliest tokens at each step.")] = 5,
    layer: Annotated[int | None, typer.Option(help="Cross-attention of this decoder layer; else the last.")] = None,
    head: Annotated[int | None, typer.Option(help="Of this head; the mean of all without one.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Explain one cell: decoder.2.cross.h3.weights[1,2]. Prints its arithmetic.")
    ] = None,
    addresses: Annotated[bool, typer.Option("--addresses", help="List every address there is.")] = False,
    precision: Precision = "auto",
    ignore: Ignore = None,
    *,
    options: GenerationOptions,
) -> None:
    """Show where a translation comes from: tokens, attention, probabilities, the beam; or one cell's arithmetic."""
    from rich.console import Console

    from clearformer.tasks.explain import explain as look
    from clearformer.tasks.load import load

    text = first_text(text)
    translator: Any = load(chosen(model, "translate", to), precision=precision, ignore=ignore)
    found = look(translator, text, to=to, top=top, options=options)
    console = Console(highlight=False, soft_wrap=True)
    if addresses:
        for name in found.trace:
            console.print(repr(found.trace[name]), markup=False)
        return
    if address is not None:
        _cell(console, found, address)
        return
    console.print(f"source  {' '.join(found.source)}", markup=False)
    console.print(f"target  {' '.join(found.target[1:])}", markup=False)
    console.print(f"text    {found.text}   (log-probability {found.score:.3f})\n", markup=False)
    layers = len(translator.model.decoder.blocks)
    _attention(console, found, layers - 1 if layer is None else layer, head)
    _choices(console, found)
    beams = beams_of(translator, options)
    kept = f"beam of {beams}: every hypothesis that was kept" if beams > 1 else "the text as it grew"
    console.print(f"\n{kept}, with its log-probability")
    console.print(_tree(found.tree))


def _cell(console: Any, found: "Explanation", address: str) -> None:
    view = found.trace[address]
    if view.values.dim() == 0:
        console.print(str(found.trace.explain(address)), markup=False)
    else:
        console.print(view)


def _attention(console: Any, found: "Explanation", layer: int, head: int | None) -> None:
    from rich.table import Table
    from rich.text import Text

    name = f"decoder.{layer}.cross" + (f".h{head}" if head is not None else "") + ".weights"
    values = found.trace[name].values.float()
    weights = values.reshape(-1, len(found.target), len(found.source)).mean(0)
    what = f"{name}, " + ("one head" if head is not None else "the mean of all heads")
    table = Table(
        title=f"{what}: row, what is about to be said ↓; column, the source it looks at →", title_justify="left"
    )
    table.add_column("")
    for word in found.source:
        table.add_column(Text(word), justify="right")
    for row, choice in enumerate(found.choices[: len(weights)]):
        cells = [Text(f"{w:.2f}", style=next(s for least, s in SHADES if w >= least)) for w in weights[row].tolist()]
        table.add_row(Text(choice.chosen), *cells)
    console.print(table)


def _choices(console: Any, found: "Explanation") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title="what might come next: the likeliest tokens at each step, the one taken in bold", title_justify="left"
    )
    table.add_column("after")
    for rank in range(max((len(choice.likeliest) for choice in found.choices), default=0)):
        table.add_column(str(rank + 1))
    table.add_column("taken")
    for before, choice in zip(found.target, found.choices, strict=False):
        cells = [
            Text(f"{token} {chance:.3f}", style="bold" if token == choice.chosen else "")
            for token, chance in choice.likeliest
        ]
        table.add_row(Text(before), *cells, Text(f"{choice.chosen} {choice.probability:.3f}"))
    console.print(table)


def _tree(root: "Node") -> Any:
    from rich.text import Text
    from rich.tree import Tree

    def label(node: "Node") -> Text:
        return Text(
            f"{node.token} {node.score:.2f}", style="bold green" if node.chosen else "" if node.ended else "dim"
        )

    def grow(branch: Any, node: "Node") -> None:
        for child in sorted(node.children.values(), key=lambda each: -each.score):
            line, end = Text.assemble(label(child)), child
            while len(end.children) == 1:  # an unbranched run goes on one line
                (end,) = end.children.values()
                line = Text.assemble(line, "  ", label(end))
            grow(branch.add(line), end)

    tree = Tree(Text(root.token))
    grow(tree, root)
    return tree
