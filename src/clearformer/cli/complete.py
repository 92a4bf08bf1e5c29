"""`clearformer complete`: texts are gone on with; a single one is told as it comes."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.output import json_line, one_line, output, write
from clearformer.cli.texts import SLOW, Given
from clearformer.cli.values import Files, Ignore, Json, Out, Precision, Texts, Whole

if TYPE_CHECKING:
    from clearformer.tasks.complete import Completer, Completion


def register(app: typer.Typer) -> None:
    app.command()(complete)


def complete(
    model: Annotated[str, typer.Option(help="A model folder.")],
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    max_new_tokens: Annotated[int | None, typer.Option(help="The most tokens to add; 100 if nobody says.")] = None,
    min_new_tokens: Annotated[int | None, typer.Option(help="No end before so many tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 takes the likeliest token; above, draws.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest only; 0 from all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that reach p.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Draw none below p times the likeliest.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same.")] = 0,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; repeatable.")] = None,
    beams: Annotated[int | None, typer.Option(help="Search with so many hypotheses.")] = None,
    repetition: Annotated[float | None, typer.Option(help="Above 1: tokens used before become less likely.")] = None,
    no_repeat: Annotated[int | None, typer.Option(help="No so many tokens in a row twice; 0 allows all.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Each text is a message to the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="Of --chat: what to tell the model first.")] = None,
    no_prompt: Annotated[bool, typer.Option("--no-prompt", help="Show only what was added.")] = False,
    scores: Annotated[bool, typer.Option("--scores", help="Of --json: each token's probability.")] = False,
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
) -> None:
    """Go on with texts. A single prompt is told as it comes; of several, each is one line (--json keeps line breaks).

    What is not said is as the checkpoint says, else greedy.
    """
    from clearformer.errors import DataError

    if system is not None and not chat:
        raise DataError("--system is part of a conversation; give --chat too")
    given = Given(texts, file, whole=whole, out=out, most=SLOW)

    from clearformer.tasks.generation import Asked
    from clearformer.tasks.load import load

    asked = Asked(
        new=max_new_tokens, least=min_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        seed=seed, stop=stop or None, repetition=repetition, no_repeat=no_repeat, beams=beams,
    )  # fmt: skip
    task: Any = load(model, precision=precision, ignore=ignore)
    work = _Work(task, asked, system, chat, scores)
    shows = not (no_prompt or chat)
    if given.one is not None and not json and out is None:
        _tell(work, given.one, shows)
        return

    def shown(number: int, text: str, one: "Completion") -> str:
        return json_line(one.to_dict()) if json else one_line(one.prompt + one.text if shows else one.text) + "\n"

    write(given, work, shown, out)


class _Work:
    """Completing prompts, or answering them as messages."""

    def __init__(self, task: "Completer", asked: Any, system: str | None, chat: bool, scores: bool):
        self.complete, self.chat = task.complete, task.chat if chat else None
        self.asked, self.scores = asked, scores
        self.first = [] if system is None else [{"role": "system", "content": system}]

    def __call__(self, texts: list[str], number: int = 0, **rest: Any) -> "list[Completion]":
        rest |= {"asked": self.asked, "scores": self.scores}
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
        tell(0, "\n")
    if found.finish == "full":
        typer.echo("clearformer: the model's positions are used up", err=True)
