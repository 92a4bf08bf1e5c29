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
from clearformer.generate import search
from clearformer.generate.search import Continuation
from clearformer.tasks.base import Task, by_length
from clearformer.tasks.encoder_task import spans
from clearformer.tasks.generation import Asked, Generation
from clearformer.tasks.text_stream import Telling

if TYPE_CHECKING:
    from clearformer.text.tokenizer import Words

BUDGET = 8_000  # tokens × beams that are kept at once
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

    def to_dict(self) -> dict[str, Any]:
        """For JSON: only what was asked for."""
        return {key: value for key, value in asdict(self).items() if value is not None}


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

    def __init__(self, model: Transformer, tokenizer: "Words", facts: dict[str, Any] | None = None):
        super().__init__(model, tokenizer, facts)
        if not isinstance(model, Transformer) or not isinstance(model.spec.head, spec.NextToken):
            raise CheckpointError("to complete texts, a model needs one stack with the head 'next_token'")
        self.own = Generation.of(self.facts)
        self.ends = self.own.ends or ((tokenizer.end,) if tokenizer.end is not None else ())
        limits = [self.facts.get("longest"), getattr(model.spec.stack.embed.positions, "length", None)]
        self.longest: int | None = min((limit for limit in limits if limit is not None), default=None)

    def complete(
        self,
        prompts: str | Sequence[str] | Sequence[Sequence[int]],
        *,
        asked: Asked | None = None,
        scores: bool = False,
        on_token: OnToken | None = None,
        done: Callable[[int], None] | None = None,
        number: int = 0,
        **ways: Any,
    ) -> list[Completion]:
        """One completion for each prompt, in order. `ways` are the fields of `Asked`: new=, temperature=, top_k=,
        top_p=, min_p=, seed=, stop=, repetition=, no_repeat=, beams=, ... `scores` adds each token's probability.
        `number` prompts came before these, for errors that name one. A prompt may be a list of ids."""
        several: list[Any] = [prompts] if isinstance(prompts, str) else list(prompts)
        encoded = [self._encode(text, n) for n, text in enumerate(several, number + 1)]
        texts = [self.tokenizer.decode(each, special=True) if _are_ids(each) else each for each in several]
        return self._complete(texts, encoded, replace(asked or Asked(), **ways), scores, on_token, done)

    def chat(
        self, messages: Messages | Sequence[Messages], *, asked: Asked | None = None, number: int = 0, **ways: Any
    ) -> list[Completion]:
        """The model's next turn in one conversation, or in each of several: `{"role": "user", "content": ...}`, ...;
        `number` came before these, for errors that name one."""
        several = messages if messages and not isinstance(messages[0], Mapping) else [messages]
        prompts = [self.tokenizer.chat(each) for each in several]
        own = (self.tokenizer.encode(text, special=False).ids for text in prompts)
        encoded = [self._fitting(ids, n) for n, ids in enumerate(own, number + 1)]
        rest = {
            name: ways.pop(name, default) for name, default in (("scores", False), ("on_token", None), ("done", None))
        }
        return self._complete(prompts, encoded, replace(asked or Asked(), **ways), **rest)

    def answer(self, questions: str | Sequence[str], contexts: str | Sequence[str], **ways: Any) -> list[Completion]:
        """One answer for each question, in a line; a single context serves all questions."""
        questions = [questions] if isinstance(questions, str) else list(questions)
        contexts = [contexts] * len(questions) if isinstance(contexts, str) else list(contexts)
        if len(contexts) != len(questions):
            raise DataError(
                f"{len(questions)} questions and {len(contexts)} contexts; give each question one, or one for all"
            )
        prompts = [f"{c.strip()}\n\nQuestion: {q.strip()}\nAnswer:" for q, c in zip(questions, contexts, strict=True)]
        found = self.complete(prompts, **{"stop": ("\n",), **ways})
        return [replace(one, text=one.text.strip()) for one in found]

    def stream(self, prompt: str, *, asked: Asked | None = None, **ways: Any) -> Iterator[str]:
        """The completion's text, piece by piece, as it becomes certain; a beam search gives it in one."""
        ask = replace(asked or Asked(), **ways)
        ids = self._encode(prompt, 1)
        if ask.size(self.own) > 1:
            yield self._complete([prompt], [ids], ask)[0].text
            return
        told = Telling(self.tokenizer, ids, ask.stops(self.own))
        for step in search.stream(self.model, **self._inputs([ids], ask), stop=lambda row, tokens: told.stops(tokens)):
            if piece := told.add(step.token, last=step.finish is not None):
                yield piece

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

    def _encode(self, text: str | Sequence[int], number: int) -> list[int]:
        if _are_ids(text):
            return self._fitting(self._known(text, number), number)
        ids = self._ids(text)  # type: ignore[arg-type]
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

    def _known(self, ids: Any, number: int) -> list[int]:
        rows = self.model.spec.stack.embed.vocabulary
        given = [int(i) for i in ids]
        if odd := [i for i in given if not 0 <= i < rows]:
            raise DataError(f"prompt {number} has the id {odd[0]}; this model has ids from 0 to {rows - 1:,}")
        return given

    def _fitting(self, ids: list[int], number: int) -> list[int]:
        if self.longest is not None and len(ids) >= self.longest:
            raise DataError(
                f"prompt {number} has {len(ids):,} tokens and this model has {self.longest:,} positions, so there is no"
                " room to go on; give a shorter one"
            )
        return ids

    def _limit(self, ids: list[int], ask: Asked) -> int:
        wanted = ask.new if ask.new is not None else self.own.limit(len(ids))
        return wanted if self.longest is None else min(wanted, self.longest - len(ids))

    def _complete(
        self,
        prompts: Sequence[str],
        encoded: list[list[int]],
        ask: Asked,
        scores: bool = False,
        on_token: OnToken | None = None,
        done: Callable[[int], None] | None = None,
    ) -> list[Completion]:
        made: list[Completion | None] = [None] * len(prompts)
        size = ask.size(self.own)
        for rows in self._batches(encoded, ask, size):
            tellings = [Telling(self.tokenizer, encoded[row], ask.stops(self.own)) for row in rows]
            found = self._search([encoded[row] for row in rows], rows, ask, size, tellings, on_token)
            for row, one, told in zip(rows, found, tellings, strict=True):
                made[row] = self._result(prompts[row], encoded[row], one, told, ask, scores)
                if done is not None:
                    done(1)
        return [one for one in made if one is not None]

    def _batches(self, encoded: list[list[int]], ask: Asked, size: int) -> Iterator[list[int]]:
        """Prompts of like length; of the same one where the checkpoint has a least length, which counts the prompt."""
        costs = [(len(ids) + self._limit(ids, ask)) * size for ids in encoded]
        for rows in by_length(costs, BUDGET):
            alike: dict[int, list[int]] = {}
            for row in rows:
                alike.setdefault(len(encoded[row]) if self.own.shortest else 0, []).append(row)
            yield from alike.values()

    def _inputs(self, encoded: list[list[int]], ask: Asked) -> dict[str, Any]:
        device = next(self.model.parameters()).device
        ids, mask = (part.to(device) for part in pad(encoded, 0))  # behind the mask, any id does
        given: dict[str, Any] = {
            "prompt": ids,
            "mask": None if bool(mask.all()) else mask,
            "limit": [self._limit(each, ask) for each in encoded],
            "end": self.ends,
            "controls": ask.controls(self.own.controls(len(encoded[0]))),
        }
        drawing = ask.sampling(self.own)
        # every text from the same seed, so that it draws the same whatever it is batched with
        return given if drawing is None else given | drawing | {"seed": [ask.seed] * len(encoded)}

    def _search(
        self,
        encoded: list[list[int]],
        numbers: list[int],
        ask: Asked,
        size: int,
        tellings: list[Telling],
        on_token: OnToken | None,
    ) -> list[Continuation]:
        given = self._inputs(encoded, ask)
        if size > 1:
            penalty = self.own.length_penalty if ask.length_penalty is None else ask.length_penalty
            found = search.beam(self.model, size=size, length_penalty=penalty, early=self.own.early, **given)
            best = [each[0] for each in found]
            for number, one, told in zip(numbers, best, tellings, strict=True):
                pieces = [told.add(token, last=n == len(one.tokens)) for n, token in enumerate(one.tokens, 1)]
                if on_token is not None:
                    on_token(number, "".join(pieces))
            return best
        made = [Continuation([], 0.0, "limit") for _ in encoded]
        steps = search.stream(self.model, **given, stop=lambda row, tokens: tellings[row].stops(tokens))
        for row, token, gain, finish in steps:
            made[row] = Continuation([*made[row].tokens, token], made[row].score + gain, finish or "limit")
            piece = tellings[row].add(token, last=finish is not None) if on_token is not None else ""
            if piece and on_token is not None:
                on_token(numbers[row], piece)
        return made

    def _result(
        self, prompt: str, ids: list[int], one: Continuation, told: Telling, ask: Asked, scores: bool
    ) -> Completion:
        tokens = one.tokens[:-1] if one.finish == "end" else one.tokens
        text, stopped = told.whole(tokens)
        full = one.finish == "limit" and len(one.tokens) < (ask.new or self.own.limit(len(ids)))
        chances = None
        if scores:
            gains = self._gains([[*ids, *tokens]])[0][len(ids) - 1 :]
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
