"""`clearformer complete`: prompts from the command line, files or stdin; a single one is told as it comes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.progress import progress
from clearformer.cli.texts import check_files, check_out, chunks, output
from clearformer.cli.values import Ignore, Precision

if TYPE_CHECKING:
    from clearformer.tasks.complete import Completer, Completion


def register(app: typer.Typer) -> None:
    app.command()(complete)


def complete(
    model: Annotated[str, typer.Option(help="A model folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Prompts; without any, stdin, one a line.")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="Files of prompts, one a line; repeatable.")] = None,
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
    json: Annotated[bool, typer.Option("--json", help="One JSON object a prompt, with everything.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Go on with texts. A single prompt is told as it comes; of several, each is one line (--json keeps line breaks).

    What is not said is as the checkpoint says, else greedy.
    """
    from clearformer.errors import DataError

    if texts and file:
        raise DataError("give texts or files, not both")
    if system is not None and not chat:
        raise DataError("--system is part of a conversation; give --chat too")
    check_out(out)
    check_files(file or [])

    from clearformer.tasks.generation import Asked
    from clearformer.tasks.load import load

    asked = Asked(
        new=max_new_tokens, least=min_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        seed=seed, stop=stop or None, repetition=repetition, no_repeat=no_repeat, beams=beams,
    )  # fmt: skip
    work = _Work(load(model, precision=precision, ignore=ignore), asked, system, chat, scores)
    shows = not (no_prompt or chat)
    if texts and len(texts) == 1 and not json and out is None:
        _tell(work, texts[0], shows)
        return
    with output(out) as stream:
        number = 0
        for chunk in chunks(texts, file or []):
            with progress(len(chunk), number) as done:
                found = work(chunk, number=number, done=done)
            stream.writelines(_json(one) if json else _plain(one, shows) for one in found)
            stream.flush()
            number += len(chunk)


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


def _json(one: "Completion") -> str:
    from json import dumps

    return dumps(one.to_dict(), ensure_ascii=False) + "\n"


def _plain(one: "Completion", shows: bool) -> str:
    return " ".join((one.prompt + one.text if shows else one.text).splitlines()) + "\n"
