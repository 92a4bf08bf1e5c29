"""What options of several verbs share: PATH=VALUE, and the precision to compute with."""

from collections.abc import Iterable
from json import loads
from typing import Annotated, Literal

import typer

from clearformer.errors import SpecError

Precision = Annotated[
    Literal["float32", "int8", "auto"] | None,
    typer.Option(help="What to compute with; auto is the fastest that loses nothing to speak of. As the folder says."),
]

Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="KEY", help="Go on without this unknown key of config.json. Repeatable."),
]


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
