"""Texts and what a model says of them: labels, words behind masks, tags of words, answers to questions."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, RootModel

from clearformer.serve.endpoint import Body, Call, Endpoint, Reply
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.fields import Texts, check, several, tokens_of
from clearformer.serve.reading import numbered, on_long, read, told, windows
from clearformer.serve.registry import ServedModel
from clearformer.serve.runs import Part
from clearformer.tasks.answer import Answerer
from clearformer.tasks.fill import SPELLINGS

Top = Annotated[int, Field(ge=1, le=1_000)]
One = Annotated[list[str], Field(min_length=1, max_length=2)]  # a text, or a text and a second one


class PredictBody(Body):
    """`inputs` is a text, or a list of it and a second one; of several, each is such a list."""

    inputs: str | list[str] | list[One]
    raw_scores: Literal[False] = False
    truncate: bool = False
    truncation_direction: Literal["right", "Right"] = "right"
    model: str | None = None


class Prediction(BaseModel):
    label: str
    score: float


class Predictions(RootModel[list[Prediction] | list[list[Prediction]]]):
    """Labels with their probabilities, best first: of the one text, or of each of several."""


class FillBody(Body):
    inputs: Texts
    top: Top = 5
    model: str | None = None


class Candidate(BaseModel):
    token: str
    probability: float
    id: int


class Filled(BaseModel):
    text: str
    masks: list[list[Candidate]]


class Fills(RootModel[list[Filled]]):
    """Each text with its masks filled, and the candidates of every mask, best first."""


class TagBody(Body):
    inputs: Texts
    model: str | None = None


class Word(BaseModel):
    text: str
    label: str
    probability: float
    start: int
    end: int


class Tagged(BaseModel):
    words: list[Word]
    entities: list[Word]
    finish: str


class Tags(RootModel[list[Tagged]]):
    """The words of each text with their labels, and the entities that labels such as B-PER mark."""


class AnswerBody(Body):
    """One question and one context, or lists of them; a single one serves all of the others."""

    question: Texts
    context: Texts
    top: Top | None = None
    model: str | None = None


class Answer(BaseModel):
    """From the context where the model finds answers; in its own words where it writes them."""

    text: str
    start: int | None = None
    end: int | None = None
    probability: float | None = None
    window: int | None = None
    score: float | None = None
    finish: str | None = None
    others: list["Answer"] | None = None


class Answers(RootModel[Answer | list[Answer]]):
    """One, or one for each."""


async def predict(call: Call, body: PredictBody) -> Reply:
    model = call.server.registry.get(body.model, "classify")
    given = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    one = bool(given) and isinstance(given[0], str)
    rows: Any = [given] if one else given
    if one and len(given) > 2:
        raise ApiError(400, "inputs: a list of texts is one text and a second one; of several texts each is a list of"
                       ' its own, as in [["a"], ["b"]]', param="inputs")  # fmt: skip
    if len({len(row) for row in rows}) > 1:
        raise ApiError(400, "inputs: give every text a second one, or none", param="inputs")
    check(call, [text for row in rows for text in row], "inputs")
    how, paired = on_long(body.truncate), len(rows[0]) == 2

    def compute(items: list[Any]) -> Any:
        numbers, some = zip(*items, strict=True)
        columns = [[row[side] for row in some] for side in range(2 if paired else 1)]
        return model.task.classify(*columns, on_long=how, number=numbers)

    texts = [" ".join(row) for row in rows]
    found = await read(call, model, ("classify", how, paired), numbered(rows), tokens_of(texts), compute)
    columns = [[row[side] for row in rows] for side in range(2 if paired else 1)]
    call.server.record(call, model, "classify", size=sum(map(len, texts)),
                       parts=lambda: windows(model.task, columns[0], columns[1] if paired else None, how))  # fmt: skip
    said = [[{"label": name, "score": chance} for name, chance in each.best(len(each.probabilities))] for each in found]
    return told(said[0] if one else said, [each.finish for each in found])


async def fill(call: Call, body: FillBody) -> list[Any]:
    texts, model = several(body.inputs), call.server.registry.get(body.model, "fill")
    check(call, texts, "inputs")
    spelled = [_spelled(model, text, number) for number, text in enumerate(texts, 1)]

    def compute(some: list[Any]) -> Any:
        return model.task.fill(some, top=body.top)

    found = await read(call, model, ("fill", body.top), spelled, tokens_of(texts), compute)
    call.server.record(call, model, "fill", parts=lambda: windows(model.task, spelled), size=sum(map(len, texts)))
    return [one.to_dict() for one in found]


def _spelled(model: ServedModel, text: str, number: int) -> str:
    mask = model.task.mask
    for spelling in SPELLINGS:
        text = text.replace(spelling, mask)
    if mask not in text:
        raise ApiError(400, f"text {number} has no {mask} to fill; write it where the model is to say a word",
                       param="inputs")  # fmt: skip
    return text


async def tag(call: Call, body: TagBody) -> list[Any]:
    texts, model = several(body.inputs), call.server.registry.get(body.model, "tag")
    check(call, texts, "inputs")

    def compute(items: list[Any]) -> Any:
        numbers, some = zip(*items, strict=True)
        return model.task.tag(some, number=numbers)

    found = await read(call, model, "tag", numbered(texts), tokens_of(texts), compute)
    call.server.record(call, model, "tag", size=sum(map(len, texts)),
                       parts=lambda: windows(model.task, texts, how="split"))  # fmt: skip
    return [one.to_dict() for one in found]


async def answer(call: Call, body: AnswerBody) -> Any:
    model = call.server.registry.get(body.model, "answer")
    questions, contexts = several(body.question), several(body.context)
    check(call, questions, "question")
    check(call, contexts, "context")
    if len(questions) != len(contexts) and 1 not in (len(questions), len(contexts)):
        raise ApiError(400, f"{len(questions)} questions and {len(contexts)} contexts; give each its own, or one for"
                       " all", param="context")  # fmt: skip
    count = max(len(questions), len(contexts))
    asked = list(zip(questions * (count // len(questions)), contexts * (count // len(contexts)), strict=True))
    if isinstance(model.task, Answerer):
        found = await _found(call, model, asked, body.top or 1)
    else:
        found = await _written(call, model, asked, body.top)
    one = isinstance(body.question, str) and isinstance(body.context, str)
    return found[0] if one else found


async def _found(call: Call, model: ServedModel, asked: list[tuple[str, str]], top: int) -> list[Any]:
    """Answers that are stretches of the context."""
    texts = [f"{question} {context}" for question, context in asked]

    def compute(items: list[Any]) -> Any:
        return model.task.answer(*map(list, zip(*items, strict=True)), top=top)

    found = await read(call, model, ("answer", top), asked, tokens_of(texts), compute)
    call.server.record(call, model, "answer", parts=lambda: _windows(model, asked), size=sum(map(len, texts)))
    return [one.to_dict() for one in found]


def _windows(model: ServedModel, asked: Sequence[tuple[str, str]]) -> list[Part]:
    reads = model.task.encode_questions(asked)
    return [Part(tuple(each.ids), segments=tuple(each.segments)) for read in reads for each in read.windows]


async def _written(call: Call, model: ServedModel, asked: list[tuple[str, str]], top: int | None) -> list[Any]:
    """Answers in a model's own words."""
    if top is not None:
        raise ApiError(400, "top is for models that find answers in the context; this one writes its own", param="top")
    call.told["model"] = model.name
    questions, contexts = map(list, zip(*asked, strict=True))
    made = await call.run(2 * tokens_of([*questions, *contexts]), lambda: model.task.answer(questions, contexts))
    call.server.record(call, model, "answer")
    return [{"text": one.text, "score": one.score, "finish": one.finish} for one in made]


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("POST", "/predict", predict, PredictBody, plain_shape, answer=Predictions,
                 summary="Labels of texts, or of pairs of texts, with their probabilities."),
        Endpoint("POST", "/fill", fill, FillBody, plain_shape, answer=Fills,
                 summary="What could stand where a text has a mask."),
        Endpoint("POST", "/tag", tag, TagBody, plain_shape, answer=Tags, summary="A label for every word of a text."),
        Endpoint("POST", "/answer", answer, AnswerBody, plain_shape, answer=Answers,
                 summary="The answer to a question from a text."),
    ]  # fmt: skip
