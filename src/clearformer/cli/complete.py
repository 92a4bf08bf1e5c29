"""`clearformer complete`: texts are gone on with; a single one is told as it comes."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.generation import generation
from clearformer.cli.output import json_line, one_line, output, write
from clearformer.cli.texts import SLOW, Given
from clearformer.cli.values import Files, Ignore, Json, Model, Out, Precision, Texts, Whole, chosen
from clearformer.errors import DataError
from clearformer.generate.options import GenerationOptions

if TYPE_CHECKING:
    from clearformer.tasks.complete import Completer, Completion


def register(app: typer.Typer) -> None:
    app.command()(complete)


@generation(stop=True)
def complete(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Model = None,
    chat: Annotated[bool, typer.Option("--chat", help="Each text is a message to the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="Of --chat: what to tell the model first.")] = None,
    no_prompt: Annotated[bool, typer.Option("--no-prompt", help="Show only what was added.")] = False,
    scores: Annotated[bool, typer.Option("--scores", help="Of --json: each token's probability.")] = False,
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
    *,
    options: GenerationOptions,
) -> None:
    """Go on with texts. A single prompt is told as it comes; of several, each is one line (--json keeps line breaks).

    What is not said is as the checkpoint says, else greedy.
    """
    if system is not None and not chat:
        raise DataError("--system is part of a conversation; give --chat too")
    given = Given(texts, file, whole=whole, out=out, most=SLOW)

    from clearformer.tasks.load import load

    task: Any = load(chosen(model, "complete"), precision=precision, ignore=ignore)
    work = _Work(task, options, system, chat, scores)
    shows = not (no_prompt or chat)
    if given.one is not None and not json and out is None and (options.num_return_sequences or 1) == 1:
        _tell(work, given.one, shows)
        return

    def shown(number: int, text: str, one: "Completion") -> str:
        if json:
            return json_line(one.to_dict())
        return "".join(one_line(each.prompt + each.text if shows else each.text) + "\n" for each in (one, *one.others))

    write(given, work, shown, out)


class _Work:
    """Completing prompts, or answering them as messages."""

    def __init__(self, task: "Completer", options: GenerationOptions, system: str | None, chat: bool, scores: bool):
        self.complete, self.chat = task.complete, task.chat if chat else None
        self.options, self.scores = options, scores
        self.first = [] if system is None else [{"role": "system", "content": system}]

    def __call__(self, texts: list[str], number: int = 0, **rest: Any) -> "list[Completion]":
        rest |= {"options": self.options, "scores": self.scores}
        if self.chat is None:
            return self.complete(texts, number=number, **rest)
        return self.chat([[*self.first, {"role": "user", "content": text}] for text in texts], number=number, **rest)


def _tell(work: _Work, text: str, shows: bool) -> None:
    """One prompt, to the terminal, as it comes; Ctrl-C leaves what has been told."""
    front = text if shows else ""  # told with the first piece: what cannot be gone on with is only an error

    def tell(number: int, piece: str) -> None:
        nonlocal front
        stream.write(front + piece)
        stream.flush()
        front = ""

    with output(None) as stream:
        try:
            found = work([text], on_token=tell)[0]
        except KeyboardInterrupt:
            tell(0, "\n")
            sys.exit(130)
        except DataError as error:
            if isinstance(error.__cause__, OSError):  # of telling, not of writing: a closed pipe, say
                raise error.__cause__ from None
            raise
        tell(0, "\n")
    if found.finish == "full":
        typer.echo("clearformer: the model's positions are used up", err=True)
