"""What an engine is asked, and what it gives back: a request, the tokens as they come, the result, the handle."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from clearformer.errors import CancelledError, ClearformerError, DataError
from clearformer.generate.logits_rules import Allowed
from clearformer.generate.options import Plan

Finish = Literal["end", "stop", "limit"]
Alternative = tuple[int, float]  # a token and its log-probability
Watcher = Callable[[list[int], float, bool], None]  # a hypothesis that survives or ends: tokens, score, whether ended


class Token(NamedTuple):
    """A token that was written, what it adds to the text that is certain, and why the text ends here, if it does."""

    id: int
    text: str
    logprob: float
    finish: Finish | None
    top: tuple[Alternative, ...] = ()


class Written(NamedTuple):
    """One text: its tokens (an end token included), the sum of their log-probabilities, and why it stopped."""

    tokens: list[int]
    score: float
    finish: Finish
    logprobs: list[float] = []  # noqa: RUF012  of every token; a beam keeps the sum alone
    top: list[tuple[Alternative, ...]] = []  # noqa: RUF012  the likeliest at every step, where asked for


class TextStream(Protocol):
    """Tokens → text while they come, up to a text to stop at."""

    def add(self, token: int, *, last: bool) -> str: ...
    def stops(self, tokens: list[int]) -> bool: ...


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt to go on from (for an encoder–decoder, the start of the target) and how, with the source to write from.

    `stop` may end a text by answering True to its tokens; `text` makes the stream that tokens become text by;
    `allowed` says which tokens may come next; `watch` is told of every hypothesis of a beam.
    """

    prompt: Sequence[int]
    plan: Plan
    source: Any = None  # token ids, or for an encoder of images a tensor c h w
    trees: Sequence[int] | None = None  # of the source, where its positions read trees
    text: Callable[[], TextStream] | None = None
    stop: Callable[[list[int]], bool | None] | None = None
    allowed: Allowed | None = None
    watch: Watcher | None = None
    on_token: Callable[[Token], None] | None = None  # told of every token of the first text, as it comes


@dataclass(eq=False)
class Handle:
    """A request under way. Safe to use from any thread: iterate it for tokens, ask for the result, or cancel it."""

    request: Request
    number: int = 0
    error: BaseException | None = None
    results: list[Written] | None = None
    cancelled: bool = False
    search: Any = None  # once it is under way
    cached: int = 0  # tokens of the prompt that the prefix cache had
    taken: float | None = None  # when it left the queue, by time.perf_counter()
    first: float | None = None  # when its prompt was read, which is when its first token came
    _changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.Lock()))
    watched: int = 0  # how many wait
    on_done: Callable[["Handle"], None] | None = None
    on_step: Callable[["Handle"], None] | None = None  # told of new tokens, by the thread that wrote them
    wake: Callable[[], None] | None = None  # lets the engine see that this was cancelled

    @property
    def done(self) -> bool:
        return self.results is not None or self.error is not None

    def cancel(self) -> None:
        """Leave the batch at the next step; the result is then an error. One that is done stays as it is."""
        self.cancelled = True
        if self.wake is not None:
            self.wake()

    def result(self, timeout: float | None = None) -> list[Written]:
        """The texts, best first; waits for them, and raises what went wrong."""
        with self._changed:
            self.watched += 1
            try:
                if not self._changed.wait_for(lambda: self.done, timeout):
                    raise DataError(f"the request was not done after {timeout} s; ask again, or cancel it")
            finally:
                self.watched -= 1
        return self._outcome()

    def _written(self) -> int:
        """How many tokens there are, of the first text."""
        return 0 if self.search is None else self.search.shown

    def __iter__(self) -> Iterator[Token]:
        """Tokens as they come, with the text that each makes certain. A beam gives all of them at its end."""
        stream = self.request.text() if self.request.text is not None else None
        sent = 0
        while True:
            with self._changed:
                self.watched += 1
                while not self.done and self._written() <= sent:
                    self._changed.wait()
                self.watched -= 1
                done = self.done
            for n in range(sent, self._written()):
                token = self.search.token(n)
                text = "" if stream is None else stream.add(token.id, last=token.finish is not None)
                yield token._replace(text=text)
                sent = n + 1
            if done and sent == self._written():
                self._outcome()
                return

    def _outcome(self) -> list[Written]:
        if self.error is not None:
            raise self.error
        assert self.results is not None
        return self.results

    # --- for the engine ---------------------------------------------------------------------------------------

    def told(self) -> None:
        """New tokens are there."""
        with self._changed:
            self._changed.notify_all()
        if self.on_step is not None:
            self.on_step(self)

    def finish(self, results: list[Written] | None, error: BaseException | None = None) -> None:
        if error is None and results is None:
            error = CancelledError("this request was cancelled, so it has no result")
        with self._changed:
            self.results, self.error = results, error
            self._changed.notify_all()
        if self.on_done is not None:
            self.on_done(self)


def failed(error: BaseException) -> BaseException:
    """An error as the caller of one request sees it: errors of ours as they are, others said to be of a step."""
    if isinstance(error, ClearformerError):
        return error
    wrapped = DataError(f"writing failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
