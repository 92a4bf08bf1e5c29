"""`clearformer answer`: questions about a text; the answer is a part of it, or written, by what the model is."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.generation import generation, said
from clearformer.cli.output import json_line, write
from clearformer.cli.texts import SLOW, STDIN, Given, check_files, read_text
from clearformer.cli.values import Files, Ignore, Json, Model, Out, Precision, Texts, Whole, chosen
from clearformer.generate.options import GenerationOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from clearformer.tasks.answer import Answer

SHOWN = 160  # characters of a sentence that are shown on either side of an answer
LINES = re.compile(r"\n")


def register(app: typer.Typer) -> None:
    app.command()(answer)


@generation(stop=True)
def answer(
    texts: Texts = None,
    file: Files = None,
    whole: Whole = False,
    model: Model = None,
    context: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The file to look for answers in, whole; - or none is stdin."),
    ] = None,
    top: Annotated[int, typer.Option(help="So many answers to each question, likeliest first.")] = 1,
    longest_answer: Annotated[int, typer.Option(help="The most tokens of an answer found in the text.")] = 30,
    impossible: Annotated[
        bool, typer.Option("--impossible", help="That the text has no answer is an answer too, as in SQuAD 2.")
    ] = False,
    stride: Annotated[int, typer.Option(help="Tokens that two windows over a long text share.")] = 128,
    json: Json = False,
    out: Out = None,
    precision: Precision = "auto",
    ignore: Ignore = None,
    *,
    options: GenerationOptions,
) -> None:
    """Answer questions about a text: each TEXT is a question, and the text is --context, or stdin.

    A model with a span head finds the answer in the text and shows the sentence around it; one that writes, writes it.
    """
    from clearformer.errors import DataError

    given = Given(texts, file, whole=whole, out=out, most=SLOW)
    if context in (None, STDIN) and given.stdin:
        if not (texts or file or context):
            raise DataError("give questions, or a file of questions with --file; the context is --context, or stdin")
        raise DataError("questions and context cannot both come from stdin; give one of them another way")
    model = chosen(model, "answer")  # said before a context is waited for
    check_files([context] if context is not None else [])
    text = read_text(context or STDIN)

    from clearformer.tasks.answer import Answerer
    from clearformer.tasks.load import load

    loaded = load(model, precision=precision, ignore=ignore)
    answer = loaded.answer  # or the error that says what this model can do
    found: dict[str, Any] = {"top": top, "longest_answer": longest_answer, "impossible": impossible, "stride": stride}
    if not isinstance(loaded, Answerer):
        if (top, longest_answer, impossible, stride) != (1, 30, False, 128):
            raise DataError("--top, --longest-answer, --impossible and --stride are for models that have a span head")
        found = {}
    elif options.to_dict():
        raise DataError(f"{said(options)}: for models that write, and this one finds answers in the text")
    numbered = given.count() != 1

    def work(chunk: list[str], number: int, done: "Callable[[float], None]") -> "list[Any]":
        if not found:
            return answer(chunk, [text] * len(chunk), options=options, number=number, done=done)
        return answer(chunk, text, **found, number=number, done=_share(len(chunk), done))

    def shown(number: int, question: str, one: Any) -> str:
        if json:
            return json_line({"question": question, **one.to_dict()})
        return _shown(question if numbered else None, one, text)

    write(given, work, shown, out, least=1)


def _share(count: int, done: "Callable[[float], None]") -> "Callable[[int, int], None]":
    """Of characters read so far and in all, how many of so many questions that comes to."""
    before = 0.0

    def watch(now: int, total: int) -> None:
        nonlocal before
        done(count * now / total - before)
        before = count * now / total

    return watch


def _shown(question: str | None, one: Any, context: str) -> str:
    lines = [] if question is None else [" ".join(question.split())]
    if not hasattr(one, "start"):  # written, not found
        return "".join(line + "\n" for line in (*lines, *(each.text for each in (one, *one.others))))
    for each in (one, *one.others):
        text = " ".join(each.text.split()) or "(no answer in the text)"
        lines.append(f"{text}  {100 * each.probability:.1f} %")
        if each.text:
            lines.append(f"    {sentence(context, each)}")
    return "".join(line + "\n" for line in lines)


def sentence(context: str, one: "Answer") -> str:
    """The sentence around an answer, on one line, with the answer in brackets."""
    from clearformer.tasks.split import SENTENCES

    start, end = max(0, one.start - SHOWN), min(len(context), one.end + SHOWN)
    ends = (SENTENCES, LINES)
    before = [found.end() for kind in ends for found in kind.finditer(context, start, one.start)]
    after = [found.start() for kind in ends for found in kind.finditer(context, one.end, end)]
    left = context[max(before) : one.start] if before else "…" * (start > 0) + context[start : one.start]
    right = context[one.end : min(after)] if after else context[one.end : end] + "…" * (end < len(context))
    return " ".join(f"{left}[{one.text}]{right}".split())
