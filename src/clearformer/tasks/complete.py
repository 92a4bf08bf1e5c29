"""Completing: texts that a decoder-only model goes on with, all at once or as they come.

A prompt's result is the same alone and in any batch, and with the same seed. Nothing is cut: a prompt that leaves the
model no room is an error, and `finish` says why each text stopped.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from clearformer import spec
from clearformer.core.model import Transformer
from clearformer.data.batches import pad
from clearformer.errors import CheckpointError, DataError
from clearformer.generate.options import DEFAULT_NEW_TOKENS, GenerationOptions, merge, plan
from clearformer.generate.requests import Handle, Request, Token, Written
from clearformer.tasks.base import Given, Task, by_length, own_options
from clearformer.tasks.encoder_task import spans
from clearformer.tasks.text_stream import Telling

if TYPE_CHECKING:
    from clearformer.text.tokenizer import PublicTokenizer

SCORED = 2_048  # tokens whose logits are kept at once
WINDOW = 1_024
Messages = Sequence[Mapping[str, str]]
OnToken = Callable[[int, str], None]  # the number of the prompt, from 0, and the text that has become certain


@dataclass(frozen=True)
class Completion:
    """What became of one prompt."""

    text: str  # without the prompt
    prompt: str
    tokens: tuple[str, ...]
    score: float  # the sum of the log-probabilities of its tokens, an end included
    finish: str  # "end", "stop" (a text to stop at), "limit", or "full" (the model has no more positions)
    probabilities: tuple[float, ...] | None = None  # of `tokens`, where asked for
    others: tuple["Completion", ...] = ()  # the next best, or drawn too, where asked for

    def to_dict(self) -> dict[str, Any]:
        """For JSON: only what was asked for."""
        found = {key: value for key, value in asdict(self).items() if value is not None and key != "others"}
        return found | ({"others": [other.to_dict() for other in self.others]} if self.others else {})


@dataclass(frozen=True)
class Scored:
    """How likely a text is: the log-probability of its tokens, and exp(−score / tokens)."""

    text: str
    score: float
    tokens: int  # those that something stands before
    perplexity: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Completer(Task):
    """A decoder-only model, such as GPT-2 or Llama."""

    can = ("complete", "answer")

    def __init__(self, model: Transformer, tokenizer: "PublicTokenizer", metadata: Given = None):
        super().__init__(model, tokenizer, metadata)
        if not isinstance(model, Transformer) or not isinstance(model.spec.head, spec.NextToken):
            raise CheckpointError("to complete texts, a model needs one stack with the head 'next_token'")
        self.own = own_options(self.metadata)
        if not self.own.eos_token_id and tokenizer is not None and tokenizer.end is not None:
            self.own = merge(self.own, GenerationOptions(eos_token_id=(tokenizer.end,)))
        limits = [self.metadata.longest, getattr(model.spec.stack.embed.positions, "length", None)]
        self.longest: int | None = min((limit for limit in limits if limit is not None), default=None)

    def complete(
        self,
        prompts: str | Sequence[str] | Sequence[Sequence[int]],
        *,
        options: GenerationOptions | None = None,
        scores: bool = False,
        on_token: OnToken | None = None,
        done: Callable[[int], None] | None = None,
        number: int = 0,
        **fields: Any,
    ) -> list[Completion]:
        """One completion for each prompt, in order. `fields` are those of `GenerationOptions`: max_new_tokens=,
        temperature=, top_k=, top_p=, seed=, stop=, num_beams=, ... `scores` adds each token's probability.
        `number` prompts came before these, for errors that name one. A prompt may be a list of ids."""
        several: list[Any] = [prompts] if isinstance(prompts, str) else list(prompts)
        encoded = [self.prompt_ids(each, n) for n, each in enumerate(several, number + 1)]
        texts = [self.tokenizer.decode(each, special=True) if _are_ids(each) else each for each in several]
        return self._complete(texts, encoded, GenerationOptions.of(options, **fields), scores, on_token, done)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        *,
        options: GenerationOptions | None = None,
        number: int = 0,
        **fields: Any,
    ) -> list[Completion]:
        """The model's next turn in one conversation, or in each of several: `{"role": "user", "content": ...}`, ...;
        `number` came before these, for errors that name one."""
        several = messages if messages and not isinstance(messages[0], Mapping) else [messages]
        prompts = [self.tokenizer.chat(each) for each in several]
        encoded = [self.chat_ids(text, n) for n, text in enumerate(prompts, number + 1)]
        rest = {
            name: fields.pop(name, default) for name, default in (("scores", False), ("on_token", None), ("done", None))
        }
        return self._complete(prompts, encoded, GenerationOptions.of(options, **fields), **rest)

    def answer(self, questions: str | Sequence[str], contexts: str | Sequence[str], **fields: Any) -> list[Completion]:
        """One answer for each question, in a line; a single context serves all questions."""
        questions = [questions] if isinstance(questions, str) else list(questions)
        contexts = [contexts] * len(questions) if isinstance(contexts, str) else list(contexts)
        if len(contexts) != len(questions):
            raise DataError(
                f"{len(questions)} questions and {len(contexts)} contexts; give each question one, or one for all"
            )
        prompts = [f"{c.strip()}\n\nQuestion: {q.strip()}\nAnswer:" for q, c in zip(questions, contexts, strict=True)]
        found = self.complete(prompts, **{"stop": ("\n",), **fields})
        return [_stripped(one) for one in found]

    def submit(self, prompt: str | Sequence[int], *, options: GenerationOptions | None = None, **fields: Any) -> Handle:
        """Ask for a completion and go on: the handle gives its tokens as they come, its result, and can be cancelled.
        Safe from any thread."""
        ids = self.prompt_ids(prompt, 1)
        asked = merge(self.own, GenerationOptions.of(options, **fields))
        return self.engine.submit(self.request(ids, asked, told=True))

    def stream(
        self, prompt: str | Sequence[int], *, options: GenerationOptions | None = None, **fields: Any
    ) -> Iterator[str]:
        """The completion's text, piece by piece, as it becomes certain; a beam search gives it in one. Who stops
        reading stops the engine too. The prompt may be a list of ids."""
        handle = self.submit(prompt, options=options, **fields)
        try:
            for token in handle:
                if token.text:
                    yield token.text
        finally:
            handle.cancel()

    def score(self, texts: str | Sequence[str], *, window: int = WINDOW, stride: int | None = None) -> list[Scored]:
        """How likely texts are. One longer than a window is read through windows that move on by `stride` tokens, half
        a window if not said, and every token is scored once, with all that its window has before it."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        wide = min(window, self.longest or window)
        step = stride if stride is not None else max(1, wide // 2)
        if wide < 2 or not 1 <= step < wide:
            raise DataError(f"windows of {wide} tokens cannot move on by {step}; give a stride below the window")
        rows: list[list[int]] = []
        kept: list[tuple[int, int]] = []  # the text, and the first token of the window that is scored in it
        for n, text in enumerate(texts):
            ids = self._ids(text)
            if len(ids) < 2:
                raise DataError(
                    f"text {n + 1} has {len(ids)} tokens; to be scored, one must stand before another: {text!r:.60}"
                )
            behind = 1
            for start, stop in spans(len(ids), wide, wide - step):
                rows.append(ids[start:stop])
                kept.append((n, behind - start))
                behind = stop
        gains: list[list[float]] = [[] for _ in texts]
        for (n, first), found in zip(kept, self._gains(rows), strict=True):
            gains[n] += found[first - 1 :]
        return [
            Scored(text, sum(each), len(each), math.exp(min(700.0, -sum(each) / len(each))))
            for text, each in zip(texts, gains, strict=True)
        ]

    # --- how ------------------------------------------------------------------------------------------------

    def _ids(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise DataError(f"a prompt is of type {type(text).__name__}, not text: {text!r:.60}; give strings")
        return self.tokenizer.encode(text).ids

    def prompt_ids(self, text: Any, number: int) -> list[int]:
        """The ids that the model goes on from, of prompt number `number`; one that leaves no room is an error."""
        if _are_ids(text):
            return self._fitting(self._known(text, number), number)
        ids = self._ids(text)
        if len(ids) > 1 and ids[-1] == self.tokenizer.end and self.tokenizer.encode(text).special[-1]:
            ids = ids[:-1]  # a template's end would end what is to go on
        if not ids:
            start = self.own.start if self.own.start is not None else self.tokenizer.start
            if start is None:
                raise DataError(
                    f"prompt {number} is empty, and this model has no start token to go on from; give a text"
                )
            ids = [start]
        return self._fitting(ids, number)

    def chat_ids(self, text: str, number: int) -> list[int]:
        """The same for a conversation that a template has made one text of: it holds its special tokens already."""
        return self._fitting(self.tokenizer.encode(text, special=False).ids, number)

    def _known(self, ids: Sequence[int], number: int) -> list[int]:
        rows = self.model.spec.stack.embed.vocabulary
        if odd := [i for i in ids if not 0 <= i < rows]:
            raise DataError(f"prompt {number} has the id {odd[0]}; this model has ids from 0 to {rows - 1:,}")
        return list(ids)

    def _fitting(self, ids: list[int], number: int) -> list[int]:
        if self.longest is not None and len(ids) >= self.longest:
            raise DataError(
                f"prompt {number} has {len(ids):,} tokens and this model has {self.longest:,} positions, so there is no"
                " room to go on; give a shorter one",
                param="longest",
            )
        return ids

    def request(
        self,
        ids: list[int],
        options: GenerationOptions,
        *,
        told: bool = False,
        default: int = DEFAULT_NEW_TOKENS,
        **more: Any,
    ) -> Request:
        """What the engine is asked, with hooks in `more`; `options` are all there are, those of the model included.
        The text is followed while it is written where it is `told`, or may stop it."""
        stops, room = options.stop or (), None if self.longest is None else self.longest - len(ids)
        text = (lambda: Telling(self.tokenizer, ids, stops)) if stops or told else None
        return Request(ids, plan(options, len(ids), default, room), text=text, **more)

    def _complete(
        self,
        prompts: Sequence[str],
        encoded: list[list[int]],
        asked: GenerationOptions,
        scores: bool = False,
        on_token: OnToken | None = None,
        done: Callable[[int], None] | None = None,
    ) -> list[Completion]:
        options = merge(self.own, asked)
        tellings = [Telling(self.tokenizer, ids, options.stop or ()) for ids in encoded]

        def listener(row: int) -> Callable[[Token], None]:
            def listen(token: Token) -> None:
                if on_token is not None and (piece := tellings[row].add(token.id, last=token.finish is not None)):
                    on_token(row, piece)

            return listen

        tells = [None if on_token is None else listener(row) for row in range(len(encoded))]
        requests = (self.request(ids, options, on_token=tell) for ids, tell in zip(encoded, tells, strict=True))
        found = self.engine.run(requests, None if done is None else lambda number, best: done(1))
        made = []
        for prompt, ids, best, told in zip(prompts, encoded, found, tellings, strict=True):
            first, *others = [self._result(prompt, ids, one, told, options, scores) for one in best]
            made.append(replace(first, others=tuple(others)))
        return made

    def _result(
        self, prompt: str, ids: list[int], one: Written, told: Telling, options: GenerationOptions, scores: bool
    ) -> Completion:
        tokens = one.tokens[:-1] if one.finish == "end" else one.tokens
        text, stopped = told.whole(tokens)
        full = one.finish == "limit" and len(one.tokens) < plan(options, len(ids)).limit
        chances = None
        if scores:
            gains = one.logprobs[: len(tokens)] or self._gains([[*ids, *tokens]])[0][len(ids) - 1 :]
            chances = tuple(math.exp(gain) for gain in gains)
        finish = "stop" if stopped else "full" if full else one.finish
        return Completion(text, prompt, tuple(self.tokenizer.pieces(tokens)), one.score, finish, chances)

    @torch.inference_mode()
    def _gains(self, rows: list[list[int]]) -> list[list[float]]:
        """The log-probability of every token but the first, given those before it in its row."""
        device = next(self.model.parameters()).device
        made: list[list[float]] = [[] for _ in rows]
        for batch in by_length([len(row) for row in rows], SCORED):
            ids, mask = (part.to(device) for part in pad([rows[n] for n in batch], 0))
            logits = self.model(ids, None if bool(mask.all()) else mask)[:, :-1]
            found = logits.gather(-1, ids[:, 1:, None])[..., 0] - logits.logsumexp(-1)
            for n, gains in zip(batch, found.tolist(), strict=True):
                made[n] = gains[: len(rows[n]) - 1]
        return made


def _are_ids(given: Any) -> bool:
    """Whether a prompt is given as ids: whole numbers, at least one."""
    return isinstance(given, list | tuple) and bool(given) and all(type(i) is int for i in given)


def _stripped(one: Completion) -> Completion:
    return replace(one, text=one.text.strip(), others=tuple(_stripped(other) for other in one.others))
