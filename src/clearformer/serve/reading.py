"""What all endpoints of encoders do: texts of many requests run together, long ones refused or cut with a word."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from clearformer.errors import DataError
from clearformer.serve.endpoint import LARGE, Call, Reply, as_json
from clearformer.serve.errors import ApiError
from clearformer.serve.fields import tokens_of
from clearformer.serve.registry import ServedModel
from clearformer.serve.runs import Part
from clearformer.serve.work import Job

NAMED = 100  # texts that were cut which are named; of more, the first
Compute = Callable[[list[Any]], Sequence[Any]]


async def read(
    call: Call, model: ServedModel, key: Hashable, items: Sequence[Any], tokens: int, compute: Compute
) -> list[Any]:
    """What `compute` gives for each item; they have so many tokens, about. Items of requests with the same key are
    computed together."""
    call.told |= {"model": model.name, "prompt_tokens": tokens}
    try:
        with call.server.admission.enter(tokens, model.name):
            return await call.server.work.read(model.name, Job(key, items, compute, call.scope))
    except DataError as error:
        if error.param != "on_long":
            raise
        long = error.message.rpartition(";")[0]
        raise ApiError(413, f"{long}; say truncate: true to have it cut, or send a shorter one", param="truncate",
                       code="too_long") from None  # fmt: skip


def numbered(texts: Sequence[Any]) -> list[tuple[int, Any]]:
    """Texts with their numbers, so that errors name them by those whatever they are run with."""
    return list(enumerate(texts, 1))


def on_long(truncate: bool) -> str:
    return "truncate" if truncate else "error"


def cut(finish: Iterable[str]) -> dict[str, str]:
    """A header that names the texts that were cut, where some were."""
    rows = [str(row) for row, how in enumerate(finish) if how == "truncated"]
    return {"x-truncated": ",".join(rows[:NAMED])} if rows else {}


def told(content: Any, finish: Iterable[str]) -> Reply:
    return Reply(as_json(content), headers=cut(finish))


async def vectors(call: Call, rows: Sequence[Any], finish: Sequence[str]) -> Reply:
    """Vectors as JSON; many are written beside the event loop."""
    if len(rows) * len(rows[0]) < LARGE:
        return Reply(written(rows), headers=cut(finish))
    return Reply(await call.server.work.aside(lambda: written(rows)), headers=cut(finish))


def written(rows: Sequence[Any]) -> bytes:
    """Vectors as JSON, one after the other: between two of them other threads can run."""
    return b"[" + b",".join(as_json(row.tolist()) for row in rows) + b"]"


def windows(task: Any, texts: Sequence[str], pairs: Sequence[str] | None = None, how: str = "error") -> list[Part]:
    """The ids that a reader reads of texts: a part for each window."""
    reads = (read for some in task.read(texts, pairs, on_long=how) for read in some)
    return [Part(tuple(each.ids), segments=tuple(each.segments)) for read in reads for each in read.windows]


async def embedded(
    call: Call, model: ServedModel, texts: Sequence[str], truncate: bool, normalise: bool = False
) -> tuple[list[Any], list[str]]:
    """A vector for each text, and what became of the text."""
    how = on_long(truncate)

    def compute(items: list[Any]) -> list[Any]:
        numbers, some = zip(*items, strict=True)
        made = model.task.embedded(some, normalise=normalise, on_long=how, number=numbers)
        return list(zip(made.vectors, made.finish, strict=True))

    found = await read(call, model, ("embed", how, normalise), numbered(texts), tokens_of(texts), compute)
    prompt = model.task.metadata.prompt or ""
    call.server.record(call, model, "embed", size=sum(map(len, texts)),
                       parts=lambda: windows(model.task, [prompt + text for text in texts], how=how))  # fmt: skip
    return [vector for vector, _ in found], [finish for _, finish in found]
