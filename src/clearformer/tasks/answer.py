"""Answering from a text: the span of the context that a model with a span head finds most likely.

Question and context are encoded as a pair. A context longer than the model takes is read through windows that overlap,
so every token is seen, and the best span of all windows is the answer. Spans are ranked by the logit of their first
token as a start plus that of their last token as an end (Devlin et al. 2019). A span seen in several windows counts
once, with its best score; probabilities are the softmax over all spans that are allowed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from clearformer import spec
from clearformer.errors import DataError
from clearformer.tasks.encoder_task import Batch, Read, Reader, Window
from clearformer.tasks.encoder_task import spans as cover

if TYPE_CHECKING:
    from clearformer.text.protocol import Encoded

Asked = tuple[str, str]  # a question and its context
Progress = Callable[[int, int], None]  # characters of contexts read so far, and in all
LONGEST_ANSWER, STRIDE = 30, 128  # tokens, if nobody says otherwise
AT_ONCE = 1_000_000  # characters of contexts that are encoded at once: tokens take far more memory than text


@dataclass(frozen=True)
class Answer:
    """A slice of the context, `context[start:end]`; empty, from 0 to 0, where there is no answer."""

    text: str
    start: int
    end: int
    probability: float
    window: int  # which part of a long context it was found in, from 0
    impossible: float | None = None  # the probability that the context has no answer, where asked for
    others: tuple["Answer", ...] = ()  # the next best, where asked for

    def to_dict(self) -> dict[str, Any]:
        """For JSON: only what was asked for."""
        found = {key: value for key, value in asdict(self).items() if value is not None and key != "others"}
        if self.others:
            found["others"] = [other.to_dict() for other in self.others]
        return found


class Scores(NamedTuple):
    """All spans of a context: row, the first token; column, how many more follow."""

    spans: Tensor  # t × longest answer; −∞ where not allowed
    window: Tensor  # the one that each score is from
    nothing: float  # of no answer: the least of all windows, for one that has the answer speaks for all


class Answerer(Reader):
    """An encoder with a span head, such as BERT fine-tuned on SQuAD."""

    can = ("answer",)
    heads = (spec.Spans,)

    def answer(
        self,
        questions: str | Sequence[str],
        contexts: str | Sequence[str],
        *,
        top: int = 1,
        longest_answer: int = LONGEST_ANSWER,
        impossible: bool = False,
        stride: int = STRIDE,
        done: Progress | None = None,
        number: int = 0,
    ) -> list[Answer]:
        """One answer for each question; a single context serves all questions, a single question all contexts.

        `top` answers each, of at most `longest_answer` tokens. `impossible`: "no answer" competes with the spans, as in
        SQuAD 2. Windows share `stride` tokens, or half a window where that is less. `number` questions came before
        these, for errors that name one.
        """
        for name, value, least in (("top", top, 1), ("longest_answer", longest_answer, 1), ("stride", stride, 0)):
            if value < least:
                raise DataError(f"{name} must be at least {least}, given {value}", param=name)
        asked = _matched(questions, contexts, number)
        total, before = sum(len(context) for _, context in asked), 0
        found: list[Answer] = []
        for group in _groups(asked):
            size = sum(len(context) for _, context in group)

            def watch(share: float, before: int = before, size: int = size) -> None:
                if done is not None:
                    done(before + round(share * size), total)

            reads = self.encode_questions(group, number + len(found), longest_answer, stride)
            for (_, context), read, logits in zip(group, reads, self._logits(reads, watch), strict=True):
                found.append(_answer(context, read, _scores(read, logits, longest_answer), impossible, top))
            before += size
        return found

    def encode_questions(
        self, group: Sequence[Asked], before: int = 0, longest_answer: int = LONGEST_ANSWER, stride: int = STRIDE
    ) -> list[Read]:
        """Questions with their contexts as the model reads them; `before` came before these, for errors."""
        questions, contexts = ([each[side] for each in group] for side in (0, 1))
        encoded = self.tokenizer.encode_all(questions, contexts)
        return [
            self._windows(one, question, number, longest_answer, stride)
            for number, (one, question) in enumerate(zip(encoded, questions, strict=True), before + 1)
        ]

    def _windows(self, encoded: "Encoded", question: str, number: int, longest_answer: int, stride: int) -> Read:
        """The question with one stretch of the context after the other."""
        count = encoded.sequence.count(1)
        if not count:
            raise DataError(f"the context of question {number} has no tokens that this model's tokenizer knows")
        first = encoded.sequence.index(1)
        last = first + count
        room = self.longest - (len(encoded.ids) - count)
        if room < min(count, longest_answer):
            raise DataError(
                f"question {number} has {encoded.sequence.count(0):,} tokens and leaves room for {max(room, 0)} of the"
                f" context in a model that takes {self.longest:,}, where an answer may have {longest_answer}:"
                f" {question[:60]!r}; ask a shorter question, or lower longest_answer"
            )
        windows = []
        for start, stop in cover(count, room, min(stride, room // 2)):
            ids, segments = (
                row[:first] + row[first + start : first + stop] + row[last:] for row in (encoded.ids, encoded.segments)
            )
            windows.append(Window(ids, segments, start, stop))
        return Read(encoded, windows, "whole" if len(windows) == 1 else "split")

    def _logits(self, reads: list[Read], watch: Callable[[float], None]) -> list[list[Tensor]]:
        """For every window of every question the two logits of its tokens, t 2, with padding behind."""
        so_far = 0

        def compute(batch: Batch) -> list[Tensor]:
            return list(self.model(batch.ids, batch.mask, segments=batch.segments).float().cpu())

        def done(count: int) -> None:
            nonlocal so_far
            so_far += count
            watch(so_far / len(reads))

        return self.run(reads, compute, done)


def _groups(asked: list[Asked]) -> Iterator[list[Asked]]:
    """As many at a time as have no more than `AT_ONCE` characters, or one."""
    group: list[Asked] = []
    for each in asked:
        if group and sum(len(context) for _, context in (*group, each)) > AT_ONCE:
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _matched(questions: str | Sequence[str], contexts: str | Sequence[str], before: int = 0) -> list[Asked]:
    asked = [questions] if isinstance(questions, str) else list(questions)
    given = [contexts] if isinstance(contexts, str) else list(contexts)
    for name, texts, first, advice in (
        ("question", asked, before + 1, "ask something"),
        ("context", given, 1, "give the text to look for the answer in"),
    ):
        for number, text in enumerate(texts, first):
            if not isinstance(text, str):
                raise DataError(f"{name} {number} is of type {type(text).__name__}, not text: {text!r:.60}")
            if not text.strip():
                raise DataError(f"{name} {number} is empty; {advice}")
    if len(given) == 1:
        given *= len(asked)
    elif len(asked) == 1:
        asked *= len(given)
    if len(asked) != len(given):
        raise DataError(
            f"{len(asked)} questions given with {len(given)} contexts; give one context for all, or one for each"
        )
    return list(zip(asked, given, strict=True))


def _scores(read: Read, logits: list[Tensor], longest: int) -> Scores:
    """The best score of every span over all windows."""
    first, count = read.encoded.sequence.index(1), read.encoded.sequence.count(1)
    longest = min(longest, count)
    scores = torch.full((count, longest), -torch.inf)
    where = torch.zeros(count, longest, dtype=torch.int32)
    beyond = torch.full((longest - 1,), -torch.inf)
    for number, (window, both) in enumerate(zip(read.windows, logits, strict=True)):
        starts, ends = both[first : first + window.stop - window.start].unbind(1)
        found = starts[:, None] + torch.cat([ends, beyond]).unfold(0, longest, 1)
        own = slice(window.start, window.stop)
        better = found > scores[own]
        scores[own][better], where[own][better] = found[better], number
    return Scores(scores, where, min(float(both[0].sum()) for both in logits))


def _answer(context: str, read: Read, scores: Scores, impossible: bool, top: int) -> Answer:
    """The likeliest spans, and no answer among them where that is a choice."""
    first = read.encoded.sequence.index(1)
    offsets = read.encoded.offsets[first : first + len(scores.spans)]
    _leave_out_blanks(scores.spans, [not context[start:end].strip() for start, end in offsets])
    total = scores.spans.logsumexp(1).double().logsumexp(0)
    if impossible:
        total = total.logaddexp(total.new_tensor(scores.nothing))
    best = scores.spans.flatten().topk(min(top, scores.spans.numel()))
    found = []
    for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        if score > -math.inf:
            token, more = divmod(place, scores.spans.size(1))
            chance = math.exp(score - float(total))
            found.append(_cut(context, offsets[token][0], offsets[token + more][1], chance, scores.window[token, more]))
    if impossible:
        missing = math.exp(scores.nothing - float(total))
        found = [replace(one, impossible=missing) for one in (*found, Answer("", 0, 0, missing, 0))]
    if not found:
        raise DataError(f"the context has nothing to answer with: {context[:60]!r}")
    best_one, *others = sorted(found, key=lambda one: -one.probability)[:top]
    return replace(best_one, others=tuple(others))


def _leave_out_blanks(scores: Tensor, blank: list[bool]) -> None:
    """No answer starts or ends with a token that has no text of its own, such as a lone space."""
    if not any(blank):
        return
    empty = torch.tensor(blank)
    scores[empty] = -torch.inf
    for more in range(scores.size(1)):
        scores[: len(blank) - more, more][empty[more:]] = -torch.inf


def _cut(context: str, start: int, end: int, chance: float, window: Tensor) -> Answer:
    """The slice without the spaces at its ends, which some tokenizers count as part of a word."""
    text = context[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    return Answer(text, start, start + len(text), chance, int(window))
