"""/v1/completions: texts that go on from prompts, given as texts or as token ids of the model itself."""

import math
from collections.abc import AsyncIterator
from typing import Any

import torch

from clearformer.serve.chat import DONE, FINGERPRINT, REASONS, failed, usage
from clearformer.serve.endpoint import Answer, Call, Stream, event
from clearformer.serve.errors import ApiError
from clearformer.serve.logprobs import Names, in_completion, names_of
from clearformer.serve.openai_bodies import CompletionBody
from clearformer.serve.writing import Piece, Told, Writing, now, prepare

USUAL = 16  # tokens where nobody says how many: OpenAI's own number


def prompts_of(body: CompletionBody) -> list[Any]:
    given = body.prompt
    if isinstance(given, str):
        return [given]
    if not given:
        raise ApiError(400, "prompt is an empty list; give at least one", param="prompt")
    return [given] if isinstance(given[0], int) else list(given)


def check(call: Call, body: CompletionBody) -> None:
    if body.suffix:
        raise ApiError(400, "suffix: the models here go on from a prompt and cannot fill in before a suffix",
                       param="suffix")  # fmt: skip
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise ApiError(400, "best_of must be n: all texts that are written are given back", param="best_of")
    if body.max_tokens == 0 and not body.echo:
        raise ApiError(400, "max_tokens is 0, so there is nothing to give back but an echo; say echo, or more tokens",
                       param="max_tokens")  # fmt: skip
    if (body.logprobs or 0) > call.server.settings.max_logprobs:
        raise ApiError(400, f"this server tells {call.server.settings.max_logprobs} of the likeliest tokens at most",
                       param="logprobs")  # fmt: skip


async def completions(call: Call, body: CompletionBody) -> Answer:
    model = call.server.registry.get(body.model, "complete")
    check(call, body)
    prompts, task = prompts_of(body), model.task
    writing = await prepare(
        call,
        model,
        lambda: [task.prompt_ids(each or "", n) for n, each in enumerate(prompts, 1)],
        body.options(body.logprobs, body.max_tokens or (1 if body.max_tokens == 0 else None)),
        each=body.n or 1,
        default=USUAL,
        detailed=body.logprobs is not None,
        name=f"cmpl-{call.id}",
    )
    head = {"id": writing.name, "object": "text_completion", "created": now(), "model": model.name}
    head |= {"system_fingerprint": FINGERPRINT}
    echoes = [Echo("", [])] * len(prompts)
    if body.echo:
        pairs = list(zip(prompts, writing.prompts, strict=True))
        count = None if body.logprobs is None else body.logprobs
        tokens = sum(len(ids) for ids in writing.prompts)
        echoes = await call.run(tokens, lambda: [_echo(task, prompt, ids, count) for prompt, ids in pairs])
    choices = _Choices(body, echoes, names_of(task.tokenizer) if body.logprobs is not None else None)
    if body.max_tokens == 0:
        return _only_echoes(writing, choices, head, len(prompts))
    if body.stream:
        return Stream(_streamed(writing, choices, body, head), failed=failed)
    found = await writing.whole(choices.first)
    return {**head, "choices": found, "usage": usage(writing)}


def _only_echoes(writing: Writing, choices: "_Choices", head: dict[str, Any], count: int) -> dict[str, Any]:
    """Prompts as they are, with what the model makes of them: how texts are scored through this protocol."""
    read = sum(len(ids) for ids in writing.prompts)
    found = [choices.first(n, Piece("", [], "limit")) for n in range(count * choices.each)]
    told = {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}
    writing.call.told |= {"prompt_tokens": read, "completion_tokens": 0}
    return {**head, "choices": found, "usage": told}


async def _streamed(
    writing: Writing, choices: "_Choices", body: CompletionBody, head: dict[str, Any]
) -> AsyncIterator[bytes]:
    if body.with_usage:
        head["usage"] = None
    begun: set[int] = set()
    async for new in writing.pieces():
        parts = []
        for n, piece in new:
            choice = choices.more(n, piece) if n in begun else choices.first(n, piece)
            begun.add(n)
            if choice["text"] or choice["finish_reason"] or choice["logprobs"]:
                parts.append(event({**head, "choices": [choice]}))
        if parts:
            yield b"".join(parts)
    if body.with_usage:
        yield event({**head, "choices": [], "usage": usage(writing)})
    yield DONE


class Echo:
    """A prompt as it is given back."""

    def __init__(self, text: str, tokens: list[Told]):
        self.text, self.tokens = text, tokens


class _Choices:
    """Pieces of texts as choices."""

    def __init__(self, body: CompletionBody, echoes: list[Echo], names: Names | None):
        self.each, self.count, self.echoes, self.names = body.n or 1, body.logprobs or 0, echoes, names

    def first(self, n: int, piece: Piece) -> dict[str, Any]:
        """With the echo of its prompt, where that is asked for."""
        echo = self.echoes[n // self.each]
        behind = [each._replace(start=each.start + len(echo.text)) for each in piece.tokens]
        return self._choice(n, Piece(echo.text + piece.text, [*echo.tokens, *behind], piece.finish))

    def more(self, n: int, piece: Piece) -> dict[str, Any]:
        before = len(self.echoes[n // self.each].text)
        return self._choice(
            n, piece._replace(tokens=[each._replace(start=each.start + before) for each in piece.tokens])
        )

    def _choice(self, n: int, piece: Piece) -> dict[str, Any]:
        told = None
        if self.names is not None and (piece.tokens or piece.finish):
            told = in_completion(self.names, piece.tokens, count=self.count)
        reason = None if piece.finish is None else REASONS[piece.finish]
        return {"index": n, "text": piece.text, "logprobs": told, "finish_reason": reason}


def _echo(task: Any, prompt: Any, ids: list[int], count: int | None) -> Echo:
    """The prompt's text and, where they are asked for, its tokens with so many of the likeliest in their places."""
    words = task.tokenizer
    text = prompt if isinstance(prompt, str) else words.decode(ids)
    if count is None:
        return Echo(text, [])
    if isinstance(prompt, str) and prompt:
        starts = [start for start, _ in words.encode(prompt).offsets][: len(ids)]
    else:
        starts = [len(words.decode(ids[:n])) for n in range(len(ids))]
    with torch.inference_mode():
        chances = task.model(torch.tensor([ids]))[0, :-1].float().log_softmax(-1)
        best = chances.topk(min(count, chances.size(-1))) if count else None
    tokens = [Told(ids[0], math.nan, (), starts[0])]
    for n, token in enumerate(ids[1:], 1):
        top = () if best is None else tuple(zip(best.indices[n - 1].tolist(), best.values[n - 1].tolist(), strict=True))
        tokens.append(Told(token, float(chances[n - 1, token]), top, starts[n]))
    return Echo(text, tokens)
