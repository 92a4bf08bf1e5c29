"""Texts that an engine writes, as the event loop sees them: asked for, told as they come, whole at the end.

What all protocols that write share. Prompts are encoded in a thread, no thread waits for a text, and the text that is
streamed is the one that is not: the same tokens become text in the same way.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from clearformer.errors import DataError
from clearformer.generate.options import GenerationOptions, merge
from clearformer.generate.requests import Alternative, Handle, Request, Written
from clearformer.serve.bell import Bell, bell
from clearformer.serve.endpoint import Call
from clearformer.serve.errors import ApiError
from clearformer.serve.grammar import Grammar
from clearformer.serve.registry import ServedModel
from clearformer.tasks.text_stream import Telling

Shaped = TypeVar("Shaped")
USUAL = 1_024  # tokens of an answer where nobody says how many: the queue holds so many for it


class Told(NamedTuple):
    """A token of a text: its log-probability, the likeliest in its place where asked for, and where its text starts."""

    id: int
    logprob: float
    top: tuple[Alternative, ...]
    start: int


class Piece(NamedTuple):
    """What is new of a text, and why it ends, if it does: `end`, `stop` or `limit`."""

    text: str
    tokens: list[Told]
    finish: str | None


class Text:
    """One text while it is written."""

    def __init__(self, handle: Handle, number: int, telling: Telling, detailed: bool):
        self.handle, self.number, self.telling, self.detailed = handle, number, telling, detailed
        self.read = self.told = 0  # tokens, characters
        self.held: list[Told] = []  # tokens whose text is not told yet
        self.finish: str | None = None

    def more(self) -> Piece | None:
        """What can be told that was not told before."""
        search, n = self.handle.search, self.number
        if search is None or self.finish is not None:
            return None
        count = min(search.steps, len(search.texts[n]))
        if count == self.read:
            return None
        finish = search.finish[n] if count == len(search.texts[n]) else None
        parts = []
        for k in range(self.read, count):
            last = finish is not None and k + 1 == count
            token, start = search.texts[n][k], self.telling.length
            ends = last and finish == "end"  # such a token says nothing
            parts.append(self.telling.add(None if ends else token, last=last))
            if self.detailed and not ends:
                top = search.top[n][k] if search.plan.logprobs else ()
                self.held.append(Told(token, search.logprobs[n][k], top, start))
        self.read, self.finish = count, finish
        text = "".join(parts)
        self.told += len(text)
        return Piece(text, self._tokens(), finish)

    def _tokens(self) -> list[Told]:
        """Those whose text is told, where tokens are asked for; a text to stop at, and what is behind it, is not."""
        if self.finish is not None and self.finish != "stop":
            ready, self.held = self.held, []
            return ready
        ready = [token for token in self.held if token.start < self.told]
        self.held = self.held[len(ready) :]
        return ready

    def all(self) -> Piece:
        """All of a text that is done; quicker where its tokens are not asked for."""
        if self.detailed:
            piece = self.more()
            assert piece is not None
            return piece
        tokens, finish = self.written.tokens, self.written.finish
        return Piece(self.telling.whole(tokens[:-1] if finish == "end" else tokens)[0], [], finish)

    @property
    def written(self) -> Written:
        assert self.handle.results is not None
        return self.handle.results[self.number]


@dataclass(eq=False)
class Writing:
    """Texts of one call: `each` of every prompt. Drawn ones differ; others are the same text, written once."""

    call: Call
    model: ServedModel
    prompts: list[list[int]]
    requests: list[Request]
    each: int
    tellings: list[list[Telling]]  # of every prompt, one a text
    detailed: bool = False  # whether tokens are told too
    name: str = ""  # the id of the answer
    event: asyncio.Event = field(default_factory=asyncio.Event)
    handles: list[Handle] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)  # of the first prompt, then of the second, ...

    @property
    def tokens(self) -> int:
        """All that it may come to, which is what the queue holds for it."""
        return sum(len(one.prompt) + one.plan.rows * one.plan.limit for one in self.requests)

    @contextmanager
    def _begun(self, *, told: bool) -> Iterator[None]:
        """Submitted, while its tokens are held. The event is set when all of a prompt's texts are done and, where they
        are told as they come, at every step."""
        with self.call.server.admission.enter(self.tokens, self.model.name):
            done, step = partial(_done, bell(), self.event), partial(_step, bell(), self.event)
            for request, tellings in zip(self.requests, self.tellings, strict=True):
                with self.call.scope:
                    handle = self.model.task.engine.submit(request, done, step if told else None)
                self.handles.append(handle)
                rows = request.plan.sequences
                self.texts += [Text(handle, n % rows, telling, self.detailed) for n, telling in enumerate(tellings)]
            yield
            self._ended()

    async def _news(self) -> None:
        await self.event.wait()
        self.event.clear()

    @property
    def _done(self) -> bool:
        """Whether all texts are; one that failed is an error for all."""
        for handle in self.handles:
            if handle.error is not None:
                raise handle.error
        return all(handle.done for handle in self.handles)

    async def whole(self, shape: Callable[[int, Piece], Shaped]) -> list[Shaped]:
        """All texts, when all are done: what `shape` makes of the number of each and of its one piece, in a thread."""
        with self._begun(told=False):
            while not self._done:
                await self._news()

        def made() -> list[Shaped]:
            return [shape(n, text.all()) for n, text in enumerate(self.texts)]

        return await self.call.server.work.run(self.call.scope, made, self.model.name)

    async def pieces(self) -> AsyncIterator[list[tuple[int, Piece]]]:
        """What is new, again and again: pieces with the numbers of their texts; none at first, when it is begun."""
        with self._begun(told=True):
            yield []
            while True:
                done = self._done  # before looking, for more may come meanwhile
                new = [(n, piece) for n, text in enumerate(self.texts) if (piece := text.more()) is not None]
                if new:
                    yield new
                if done:
                    return
                await self._news()

    # --- what it came to ----------------------------------------------------------------------------------------

    @property
    def usage(self) -> tuple[int, int, int]:
        """Tokens of prompts, those written (ends included), and those of prompts that were read before."""
        prompts, cached = sum(len(ids) for ids in self.prompts), sum(handle.cached for handle in self.handles)
        return prompts, sum(len(text.written.tokens) for text in self.texts), cached

    def _ended(self) -> None:
        """Told to the log and the metrics, and kept for those who want to look into it."""
        prompt, written, cached = self.usage
        first = min((handle.first for handle in self.handles if handle.first is not None), default=None)
        taken = min((handle.taken for handle in self.handles if handle.taken is not None), default=None)
        told: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": written, "cached_tokens": cached}
        if taken is not None and first is not None:
            told |= {"queue_seconds": round(taken - self.call.started, 4)}
            told |= {"first_token_seconds": round(first - self.call.started, 4)}
        self.call.told |= told
        read = [list(text.handle.request.prompt) for text in self.texts]
        target = [text.written.tokens for text in self.texts]
        also = (self.name,) if self.name else ()
        self.call.server.record(self.call, self.model, "complete", source=read, target=target, also=also)


def _done(bell: Bell, event: asyncio.Event, handle: Handle) -> None:
    bell.ring(event)


def _step(bell: Bell, event: asyncio.Event, handle: Handle) -> None:
    """The first token is told at once; those that follow together with others."""
    bell.ring(event, urgent=handle.search.steps < 2)


async def prepare(
    call: Call,
    model: ServedModel,
    prompts: Callable[[], list[list[int]]],
    asked: GenerationOptions,
    *,
    each: int = 1,
    default: int = USUAL,
    detailed: bool = False,
    name: str = "",
    grammar: Callable[[], Grammar | None] = lambda: None,
) -> Writing:
    """Encode prompts, compile a grammar, and make requests of them, in a thread."""
    call.told["model"] = model.name
    settings = call.server.settings
    if (asked.max_new_tokens or 0) > settings.max_new_tokens:
        raise ApiError(
            400, f"this server writes {settings.max_new_tokens:,} tokens at most, and {asked.max_new_tokens:,} are"
            " asked for; lower max_tokens", param="max_tokens",
        )  # fmt: skip
    if len(asked.stop or ()) > settings.max_stops:
        raise ApiError(
            400, f"this server takes {settings.max_stops} texts to stop at, given {len(asked.stop or ())}", param="stop"
        )

    _check_rows(1, each, settings.max_rows)

    def make() -> Writing:
        task = model.task
        if task.tokenizer is None:
            raise ApiError(
                400, f"the folder of {model.name!r} has no tokenizer, so it cannot read texts", param="model"
            )
        options = replace(merge(task.own, asked), num_beams=None, num_return_sequences=None)  # no beams over HTTP
        if options.draws and each > 1:
            options = replace(options, num_return_sequences=each)
        encoded = prompts()
        for ids in encoded:
            if len(ids) > settings.max_prompt_tokens:
                raise ApiError(
                    400, f"a prompt has {len(ids):,} tokens, and this server takes {settings.max_prompt_tokens:,}",
                    code="context_length_exceeded",
                )  # fmt: skip
        _check_rows(len(encoded), each, settings.max_rows)
        rules = grammar()
        requests = []
        for ids in encoded:
            hooks = {} if rules is None else rules.hooks()
            requests.append(task.request(ids, options, default=min(default, settings.max_new_tokens), **hooks))
        tellings = [[Telling(task.tokenizer, ids, options.stop or ()) for _ in range(each)] for ids in encoded]
        _ = task.engine  # made here, where nobody waits for it
        return Writing(call, model, encoded, requests, each, tellings, detailed, name)

    # about what it will come to, so that a queue that is full is told before anything is encoded
    tokens = len(call.raw) // 4 + each * (asked.max_new_tokens or 1)
    try:
        return await call.run(tokens, make)
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except DataError as error:
        if error.param != "longest":
            raise
        raise ApiError(400, error.message, code="context_length_exceeded") from None


def _check_rows(prompts: int, each: int, most: int) -> None:
    if prompts * each > most:
        raise ApiError(
            400, f"{prompts} × {each} texts are asked for, and a request may have {most}; lower n", param="n"
        )


def now() -> int:
    return int(time.time())
