"""Small fronts of the engine for tensors of ids: `generate`, `greedy`, `sample`, `beam` and `stream`.

A prompt has the shape batch × length (for an encoder–decoder it is the start of the target, with `source=`), padded on
either side if `mask` says where tokens are. All else are the fields of `GenerationOptions`. Rows draw from seeds of
their own: `seeds`, one for each, or `seed`, `seed` + 1, ...
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from clearformer.core.model import EncoderDecoder, Transformer, Trees
from clearformer.errors import DataError
from clearformer.generate.engine import Engine
from clearformer.generate.options import GenerationOptions, plan
from clearformer.generate.requests import Finish, Request, Written

__all__ = ["Finish", "Step", "Written", "beam", "generate", "greedy", "sample", "stream"]

Model = Transformer | EncoderDecoder
Stop = Callable[[int, list[int]], bool | None]  # told a row and its tokens; a row that it answers True for stops
Watch = Callable[[int, list[int], float, bool], None]  # a row, a hypothesis, its score, whether it has ended


class Step(NamedTuple):
    """A token added to a row, its log-probability, and why the row stops here, if it does."""

    row: int
    token: int
    score: float
    finish: Finish | None


def generate(
    model: Model,
    prompt: Tensor,
    *,
    options: GenerationOptions | None = None,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_trees: Trees | None = None,
    seeds: Sequence[int] | None = None,
    max_new_tokens: int | Sequence[int] | None = None,
    stop_at: Stop | None = None,
    watch: Watch | None = None,
    **fields: Any,
) -> list[list[Written]]:
    """The texts that were written for every row, best first."""
    requests = _requests(
        model, prompt, options, mask, source, source_mask, source_trees, seeds, max_new_tokens, stop_at, watch, fields
    )
    with _engine(model, requests) as engine:
        return engine.run(requests)


def greedy(model: Model, prompt: Tensor, **given: Any) -> list[Written]:
    """The likeliest token at every step."""
    return [row[0] for row in generate(model, prompt, **{"temperature": 0, **given})]


def sample(model: Model, prompt: Tensor, *, seed: int | Sequence[int], **given: Any) -> list[Written]:
    """A random token at every step, by probability."""
    seeds: dict[str, Any] = {"seed": seed} if isinstance(seed, int) else {"seeds": list(seed)}
    return [row[0] for row in generate(model, prompt, **{"temperature": 1.0, **given}, **seeds)]


def beam(
    model: Model, prompt: Tensor, *, num_beams: int = 4, num_return_sequences: int | None = None, **given: Any
) -> list[list[Written]]:
    """The best `num_beams` texts of every row, best first by score / length^length_penalty."""
    count = num_beams if num_return_sequences is None else num_return_sequences
    ways = {"early_stopping": True, **given, "num_beams": num_beams, "num_return_sequences": count}
    return generate(model, prompt, **ways)


def stream(model: Model, prompt: Tensor, **given: Any) -> Iterator[Step]:
    """Tokens as they come, of all rows; drawn if the options say so, else the likeliest."""
    names = ("options", "mask", "source", "source_mask", "source_trees", "seeds", "max_new_tokens", "stop_at", "watch")
    parts: dict[str, Any] = {name: given.pop(name, None) for name in names}
    requests = _requests(model, prompt, **parts, fields=given)
    with _engine(model, requests) as engine:
        handles = [iter(engine.submit(request)) for request in requests]
        going = list(enumerate(handles))
        while going:
            rest = []
            for row, handle in going:
                token = next(handle, None)
                if token is not None:
                    yield Step(row, token.id, token.logprob, token.finish)
                    rest.append((row, handle))
            going = rest


def _engine(model: Model, requests: list[Request]) -> Engine:
    cells = sum(len(each.prompt) + each.plan.rows * each.plan.limit for each in requests)
    cells = max(cells, sum(_size(model, each) for each in requests))
    rows = max((each.plan.rows for each in requests), default=1)
    return Engine(model, kv_cache_tokens=max(1, min(cells, 1 << 16)), max_rows=max(128, rows))


def _size(model: Model, request: Request) -> int:
    """The tokens, or squares, of a source."""
    if request.source is None:
        return 0
    images = isinstance(request.source, Tensor) and request.source.is_floating_point()
    return int(getattr(model.encoder.embed, "count", 0)) if images else len(request.source)  # type: ignore[union-attr]


def _requests(
    model: Model,
    prompt: Tensor,
    options: GenerationOptions | None,
    mask: Tensor | None,
    source: Tensor | None,
    source_mask: Tensor | None,
    source_trees: Trees | None,
    seeds: Sequence[int] | None,
    max_new_tokens: int | Sequence[int] | None,
    stop_at: Stop | None,
    watch: Watch | None,
    fields: dict[str, Any],
) -> list[Request]:
    rows = _rows(prompt, mask)
    for name, given in (("max_new_tokens", max_new_tokens), ("seeds", seeds)):
        if given is not None and not isinstance(given, int) and len(given) != len(rows):
            raise DataError(f"{len(given)} {name} given for {len(rows)} rows; give one for each, or one for all")
    for number, row in enumerate(rows):
        if not row:
            raise DataError(f"row {number} of the prompt has no token to go on from; give at least one")
    images = source is not None and source.is_floating_point()
    sources: list[Any] = [None] * len(rows)
    if source is not None:
        sources = list(source) if images else _rows(source, source_mask)
    if len(sources) != len(rows):
        raise DataError(f"{len(rows)} rows given for a source of {len(sources)}; give one row for each text")
    made = []
    for n, row in enumerate(rows):
        most = max_new_tokens
        most = most if most is None or isinstance(most, int) else most[n]
        said = fields if most is None else {**fields, "max_new_tokens": most}
        made_of = GenerationOptions.of(options, **said)
        seed = (made_of.seed or 0) + n if seeds is None else seeds[n]
        made_of = replace(made_of, seed=seed)
        made.append(
            Request(
                row,
                plan(made_of, len(row)),
                source=sources[n],
                trees=None if source_trees is None else source_trees[n],
                stop=None if stop_at is None else lambda tokens, n=n: stop_at(n, tokens),  # type: ignore[misc]
                watch=None if watch is None else lambda tokens, score, ended, n=n: watch(n, tokens, score, ended),  # type: ignore[misc]
            )
        )
    return made


def _rows(ids: Tensor, mask: Tensor | None) -> list[list[int]]:
    """The tokens, row by row, without padding."""
    if ids.dim() != 2 or ids.is_floating_point():
        raise DataError(f"token ids must be integers of shape batch × length, given {tuple(ids.shape)}")
    if mask is not None and (mask.shape != ids.shape or mask.dtype.is_floating_point):
        raise DataError(f"mask must be bool and of the ids' shape {tuple(ids.shape)}, given {tuple(mask.shape)}")
    return [row.tolist() if mask is None else row[mask[n]].tolist() for n, row in enumerate(ids)]
