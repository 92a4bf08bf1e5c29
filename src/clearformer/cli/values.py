"""What options of several verbs share: the texts, where the answers go, the precision; and PATH=VALUE."""

from collections.abc import Iterable
from json import loads
from pathlib import Path
from typing import Annotated, Literal

import typer

from clearformer.errors import SpecError

# One way in and one way out for every verb that reads texts; `cli.texts` says what they mean.
Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT", help="Texts; - is stdin, one text a line, and so is none at all.", show_default=False
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option("--file", metavar="PATH", help="A file with one text a line, plain or gzip; repeatable. - is stdin."),
]
Whole = Annotated[bool, typer.Option("--whole", help="Each file, or stdin, is one text, with its line breaks.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", help="A model folder, or the name of a bundled model; without it, the bundled one for this verb."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines: one object a text, with everything.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A new file to write to instead of stdout; it appears when it is complete."),
]
Precision = Annotated[
    Literal["float32", "int8", "auto"],
    typer.Option(help="What to compute with; auto is int8 where it is faster here and loses nothing to speak of."),
]
Kept = Annotated[
    Literal["float32", "int8", "auto"] | None,
    typer.Option(help="What to compute with; else what the weights are kept as, so that figures can be compared."),
]

Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="KEY", help="Go on without this unknown key of config.json. Repeatable."),
]


def chosen(model: str | None, verb: str, to: str | None = None) -> str:
    """The model that was named, or the bundled one, which is said: nobody should wonder whose answer it was."""
    if model is not None:
        return model
    from clearformer.tasks.bundled import bundled_for, model_for

    found = model_for(verb) if to is None else bundled_for(to)
    typer.echo(f"clearformer: with the bundled model {found}; clearformer models {found} tells about it", err=True)
    return found


def assignments(texts: Iterable[str] | None) -> dict[str, object]:
    """What `--set` options say; a value that is no JSON is a word."""
    found: dict[str, object] = {}
    for text in texts or ():
        path, sign, value = text.partition("=")
        if not sign or not path.strip():
            raise SpecError(f"--set {text!r}: write PATH=VALUE, such as model.width=256")
        try:
            found[path.strip()] = loads(value)
        except (ValueError, RecursionError):  # no JSON, or a number of thousands of digits
            found[path.strip()] = value
    return found
