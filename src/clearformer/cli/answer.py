"""`clearformer answer`: questions about a text; the answer is a part of it, or written, by what the model is."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.progress import passes
from clearformer.cli.texts import check_files, check_out, chunks, output
from clearformer.cli.values import Ignore, Precision

if TYPE_CHECKING:
    from clearformer.tasks.answer import Answer

LARGEST = 2**24  # bytes of a context
SHOWN = 160  # characters of a sentence that are shown on either side of an answer
LINES = re.compile(r"\n")


def register(app: typer.Typer) -> None:
    app.command()(answer)


def answer(
    model: Annotated[str, typer.Option(help="A model folder.")],
    questions: Annotated[list[str] | None, typer.Argument(help="What to ask of the text.")] = None,
    context: Annotated[Path, typer.Option(help="The text to look for answers in; - is stdin.")] = Path("-"),
    file: Annotated[list[Path] | None, typer.Option(help="Files of questions, one a line; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout; a new file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a question.")] = False,
    top: Annotated[int, typer.Option(help="So many answers to each question, likeliest first.")] = 1,
    longest_answer: Annotated[int, typer.Option(help="The most tokens of an answer found in the text.")] = 30,
    impossible: Annotated[
        bool, typer.Option("--impossible", help="That the text has no answer is an answer too, as in SQuAD 2.")
    ] = False,
    stride: Annotated[int, typer.Option(help="Tokens that two windows over a long text share.")] = 128,
    precision: Precision = None,
    ignore: Ignore = None,
) -> None:
    """Answer questions about a text.

    A model with a span head finds the answer in the text and shows the sentence around it; one that writes, writes it.
    """
    from clearformer.errors import DataError

    if bool(questions) == bool(file):
        raise DataError("give questions or a file of questions, and not both")
    check_out(out)
    check_files([*(file or []), context])
    if str(context) == "-" and Path("-") in (file or []):
        raise DataError("questions and context cannot both come from stdin")
    asked = [question for chunk in chunks(questions, file or []) for question in chunk]
    text = read_text(context)

    from clearformer.tasks.answer import Answerer
    from clearformer.tasks.load import load

    loaded = load(model, precision=precision, ignore=ignore)
    if isinstance(loaded, Answerer):
        with passes("reading") as done:
            found = loaded.answer(
                asked, text, top=top, longest_answer=longest_answer, impossible=impossible, stride=stride, done=done
            )
    elif (top, longest_answer, impossible, stride) != (1, 30, False, 128):
        raise DataError("--top, --longest-answer, --impossible and --stride are for models that have a span head")
    else:
        found = loaded.answer(asked, [text] * len(asked))
    with output(out) as stream:
        for question, one in zip(asked, found, strict=True):
            stream.write(_json(question, one) if json else _shown(question if len(asked) > 1 else None, one, text))


def read_text(path: Path) -> str:
    """A whole text from a file or stdin."""
    from clearformer.data.lines import decode, open_bytes
    from clearformer.errors import DataError

    if str(path) == "-":
        path, raw = Path("stdin"), sys.stdin.buffer.read(LARGEST + 1)
    else:
        with open_bytes(path) if path.is_file() else path.open("rb") as handle:  # pipes can be read only once
            raw = handle.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise DataError(f"{path} has more than {LARGEST:,} bytes; give the part that the questions are about")
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        for number, line in enumerate(raw.split(b"\n"), 1):
            decode(line, path, number)  # says which line it is, and what to do
        raise


def _json(question: str, one: Any) -> str:
    from json import dumps

    return dumps({"question": question, **one.to_dict()}, ensure_ascii=False) + "\n"


def _shown(question: str | None, one: Any, context: str) -> str:
    lines = [] if question is None else [" ".join(question.split())]
    if not hasattr(one, "start"):  # written, not found
        return "".join(line + "\n" for line in (*lines, one.text))
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
