"""How one request chooses its tokens: the likeliest or a drawn one (`TokenSearch`), or a beam (`BeamSearch`).

A search is told the best logits of its rows after every step and answers which rows go on, each with its next token.
Nothing here depends on other requests: what is done for many at once is done for each by itself.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clearformer.generate.logits_rules import LogitsRules, check_possible, top
from clearformer.generate.requests import Alternative, Finish, Request, TextStream, Token, Written
from clearformer.generate.sampling import draw, draw_from_all, wanted

Array = np.ndarray[Any, Any]
MOST = 256  # of the best logits; a search that needs more asks for all
ALL = 1 << 30  # more than any vocabulary
Step = tuple[list[int], list[int]]  # the rows that go on, by their number, and the token that each gets
FIRST_ROW = [0]
Hypothesis = tuple[float, list[int]]  # the sum of its log-probabilities, and its tokens


@dataclass(eq=False)
class Best:
    """The best logits of some rows: best first, equals by their number."""

    scores: Array  # r k
    tokens: Array  # r k
    highest: Array  # r
    totals: Array  # r: Σ exp(x − highest) over the vocabulary
    tempered: Array  # r: Σ exp((x − highest) / temperature)
    logits: Callable[[int], Array]  # all those of a row

    @cached_property
    def logs(self) -> Array:
        """r: log Σ e^x, in float32, the same for all that choose."""
        return self.highest + np.log(self.totals)


def search_for(request: Request, vocabulary: int) -> "TokenSearch | BeamSearch":
    kind = BeamSearch if request.plan.beams > 1 else TokenSearch
    return kind(request, LogitsRules(request.plan, request.prompt, vocabulary, request.allowed))


def _asked(least: int | None, rules: LogitsRules, texts: Iterable[Sequence[int]]) -> int:
    """How many of the best logits to ask for, so that `least` are left."""
    if least is None or rules.needs_all:
        return ALL
    found = least + max((rules.more(tokens) for tokens in texts), default=0)
    return min(found, rules.vocabulary) if found <= MOST else ALL


class TokenSearch:
    """One text, or several drawn ones, token by token."""

    def __init__(self, request: Request, rules: LogitsRules):
        self.request, self.plan, self.rules = request, request.plan, rules
        count = self.plan.sequences
        self.texts: list[list[int]] = [[] for _ in range(count)]
        self.logprobs: list[list[float]] = [[] for _ in range(count)]
        self.top: list[list[tuple[Alternative, ...]]] = [[] for _ in range(count)]
        self.finish: list[Finish | None] = [None] * count
        self.generators = [np.random.default_rng([self.plan.seed, n]) for n in range(count)] if self.plan.draws else []
        self.live = list(range(count))  # the texts that go on, in the order of their rows
        self.streams: list[TextStream] = [request.text() for _ in range(count)] if request.text is not None else []
        self.simple = not (self.plan.draws or self.plan.logprobs)
        self.asked = 0  # how many of the best logits the last step was asked for
        self.flat = False  # whether the few best were too few once: then they will be again
        self.quick = self.simple and not (rules.by_history or rules.forces or request.text or request.stop)
        self.quick &= len(self.plan.suppress) + len(self.plan.ends) < rules.vocabulary  # something is always left
        self.ends, self.limit = frozenset(self.plan.ends), self.plan.limit
        self.shown = 0  # tokens of the first text that are complete: others may read them now
        self.steps = 0  # that are complete: as many tokens of every text, unless it has ended before
        self.steady = 1 + len(self.plan.suppress) if self.quick and not self.plan.least else 0
        self.best = min(self.plan.logprobs, rules.vocabulary)  # logits to be there, whatever the choice needs
        self.temperature = self.plan.temperature if self.plan.draws else 1.0

    def wanted(self) -> int:
        text = self.texts[self.live[0]]
        if self.rules.forces and self.rules.forced(len(text)) is not None:
            return ALL  # the log-probability of what is forced may be anywhere
        if self.flat:
            return ALL
        if self.plan.draws and not self.plan.top_k and (self.plan.suppress or not self.rules.simple(len(text))):
            return ALL  # what is struck out is in the normaliser that top-p divides by
        if self.simple and not self.rules.by_history:
            return min(1 + self.rules.more(text), self.rules.vocabulary)
        least = wanted(self.plan) if self.plan.draws else 1
        return min(_asked(least, self.rules, (self.texts[n] for n in self.live)), ALL)

    def advance(self, best: Best, first: int, count: int) -> Step:
        """With rows `first` and on: one a text, or one for all of them to begin with."""
        rows: list[int] = []
        tokens: list[int] = []
        asked = self.asked
        going = []
        for place, n in enumerate(self.live):
            row = place if count == len(self.live) else 0
            token, logprob = self._choose(best, first + row, asked, n)
            text = self.texts[n]
            text.append(token)
            self.logprobs[n].append(logprob)
            finish = self._finish(n, token)
            if finish is None:
                going.append(n)
                rows.append(row)
                tokens.append(token)
            else:
                self.finish[n] = finish
        self.live = going
        self.shown = len(self.texts[0])
        self.steps += 1
        return rows, tokens

    @property
    def too_short(self) -> bool:
        return len(self.texts[0]) < self.plan.least

    def take(self, token: int, logprob: float) -> Step:
        """The next token, where nothing but its end and its limit can end a text."""
        text = self.texts[0]
        text.append(token)
        self.logprobs[0].append(logprob)
        shown = self.shown + 1
        if token not in self.ends and shown < self.limit:
            self.shown = self.steps = shown
            return FIRST_ROW, [token]
        self.finish[0] = "end" if token in self.ends else "limit"
        self.live = []
        self.shown = self.steps = shown  # last: who sees the token sees that it ends the text
        return [], []

    def token(self, n: int) -> Token:
        """Token number n of the first text."""
        finish = self.finish[0]  # before the length: another thread may be writing
        last = finish is not None and n + 1 == len(self.texts[0])
        top = self.top[0][n] if self.plan.logprobs else ()
        return Token(self.texts[0][n], "", self.logprobs[0][n], finish if last else None, top)

    def _choose(self, best: Best, row: int, asked: int, n: int) -> tuple[int, float]:
        """The next token of a text and its log-probability."""
        text, normal = self.texts[n], best.logs[row]
        if self.plan.logprobs:
            scores, tokens = best.scores[row, : self.plan.logprobs], best.tokens[row, : self.plan.logprobs]
            self.top[n].append(tuple(zip(tokens.tolist(), (scores - normal).tolist(), strict=True)))
        if asked == ALL:
            return self._of_all(best.logits(row), n, normal)
        scores, tokens = best.scores[row, :asked], best.tokens[row, :asked]
        left, of = scores, tokens
        if self.plan.suppress or not self.rules.simple(len(text)):
            left, of = self.rules.few(scores, tokens, text)
        check_possible(left)
        place: int | None = 0
        if self.plan.draws:
            at, possible = self.generators[n].random(), int(np.searchsorted(-left, np.inf))
            place = draw(left[:possible], float(best.tempered[row]), self.plan, asked >= self.rules.vocabulary, at)
            if place is None:  # the best are too few
                self.flat = True
                return self._of_all(best.logits(row), n, normal)
        token = int(of[place])
        return token, float(scores[np.flatnonzero(tokens == token)[0]] - normal)

    def _of_all(self, logits: Array, n: int, normal: Any) -> tuple[int, float]:
        left = self.rules.all(logits, self.texts[n])
        check_possible(left[left.argmax() :])
        draws = self.plan.draws
        token = draw_from_all(left, self.plan, self.generators[n].random) if draws else int(left.argmax())
        return token, float(logits[token] - normal)

    def _finish(self, n: int, token: int) -> Finish | None:
        text = self.texts[n]
        if token in self.plan.ends:
            return "end"
        stop = self.request.stop
        if (self.streams and self.streams[n].stops(text)) or (stop is not None and stop(list(text))):
            return "stop"
        return "limit" if len(text) >= self.plan.limit else None

    def results(self) -> list[Written]:
        found = zip(self.texts, self.logprobs, self.finish, self.top, strict=True)
        return [Written(text, sum(gains), finish or "limit", gains, top) for text, gains, finish, top in found]


class BeamSearch:
    """Hypotheses that grow are all of one length, best first: `scores` are the sums of their log-probabilities, and
    `moves` says of every step which hypothesis each went on from, and with which token. `ended` are the best that have
    ended."""

    temperature, best = 1.0, 0

    def __init__(self, request: Request, rules: LogitsRules):
        self.request, self.plan, self.rules = request, request.plan, rules
        self.scores = [0.0]
        self.moves: list[Step] = []
        self.ended: list[Written] = []
        self.length = self.asked = 0
        self.over = False
        self.stream = request.text() if request.text is not None else None
        self.may_stop = request.stop is not None or self.stream is not None
        self.watched = self.may_stop or request.watch is not None
        steady = not (rules.by_history or rules.forces or self.plan.least)
        self.steady = min(self.plan.keep + len(self.plan.suppress), rules.vocabulary) if steady else 0

    def text(self, n: int) -> list[int]:
        """The tokens of a hypothesis that grows."""
        found = []
        for parents, tokens in reversed(self.moves):
            found.append(tokens[n])
            n = parents[n]
        return found[::-1]

    @property
    def growing(self) -> list[Hypothesis]:
        return [(score, self.text(n)) for n, score in enumerate(self.scores)]

    def wanted(self) -> int:
        if not self.rules.by_history:  # the same for all hypotheses, which are of one length
            found = self.plan.keep + self.rules.more(self.text(0))
            return min(found, self.rules.vocabulary)
        return _asked(self.plan.keep, self.rules, (tokens for _, tokens in self.growing))

    def normal(self, score: float, length: int) -> float:
        return score / length**self.plan.length_penalty

    def done(self) -> bool:
        """Whether nothing can grow or, with as many ended as there are beams, need not: at once if stopping is early,
        else as soon as the best that grows is no better than the worst that ended, at its present length or, if
        "never", at any."""
        if not self.scores:
            return True
        if len(self.ended) < self.plan.beams:
            return False
        early = self.plan.early_stopping
        longest = self.plan.limit if early == "never" and self.plan.length_penalty > 0 else self.length
        worst = self.ended[-1]
        return early is True or self.normal(self.scores[0], longest) <= self.normal(worst.score, len(worst.tokens))

    def grow(self, sums: list[float], numbers: list[int], tokens: list[int]) -> Step:
        """Keep the best extensions. Only what is among the best `beams` may end; at the limit all of it does."""
        plan, watch = self.plan, self.request.watch
        size, ends = plan.beams, plan.ends
        kept: list[float] = []
        parents: list[int] = []
        last: list[int] = []
        new: list[Written] = []
        full = self.length + 1 >= plan.limit
        for rank, score in enumerate(sums):
            if score == -math.inf:  # forbidden, as are all that follow
                break
            token = tokens[rank]
            finish: Finish | None = "end" if token in ends else None
            if self.may_stop and finish is None and self._stops([*self.text(numbers[rank]), token]):
                finish = "stop"
            if finish or full:
                if rank < size:
                    text = [*self.text(numbers[rank]), token]
                    new.append(Written(text, score, finish or "limit"))
            elif len(kept) < size:
                kept.append(score)
                parents.append(numbers[rank])
                last.append(token)
            if len(kept) == size:
                break
        self.go_on(kept, parents, last)
        if watch is not None:
            for each in new:
                watch(each.tokens, each.score, True)
            for score, text in self.growing:
                watch(text, score, False)
        if new:
            ended = sorted([*self.ended, *new], key=lambda each: -self.normal(each.score, len(each.tokens)))
            self.ended = ended[:size]
        if self.done():
            check_possible(np.zeros(len(self.ended)))
            self.over = True
            return [], []
        return parents, last

    def go_on(self, scores: list[float], parents: list[int], tokens: list[int]) -> None:
        self.scores = scores
        self.moves.append((parents, tokens))
        self.length += 1

    def _stops(self, text: list[int]) -> bool:
        """Whether a hypothesis ends here for its caller, as with an end token."""
        stop = self.request.stop
        return bool((self.stream is not None and self.stream.stops(text)) or (stop is not None and stop(text)))

    def results(self) -> list[Written]:
        return self.ended[: self.plan.sequences]

    @property
    def shown(self) -> int:
        """Tokens that can be told: none before the end, and then those of the best."""
        return len(self.ended[0].tokens) if self.over else 0

    def token(self, n: int) -> Token:
        """Token number n of the best; of their log-probabilities a beam knows the sum alone."""
        best = self.ended[0]
        return Token(best.tokens[n], "", math.nan, best.finish if n + 1 == len(best.tokens) else None)


def take_likeliest(searches: list[tuple[TokenSearch, int]], best: Best) -> list[Step]:
    """Quick searches with their rows: each takes the likeliest token that it may say."""
    rows = np.array([row for _, row in searches])
    asked = max(search.asked for search, _ in searches)
    tokens, scores = best.tokens[rows, :asked], best.scores[rows, :asked]
    place = np.zeros(len(rows), dtype=np.int64)
    kinds = [search.rules.suppressed for search, _ in searches]
    for suppressed in {id(kind): kind for kind in kinds}.values():
        if suppressed is not None:
            own = np.array([kind is suppressed for kind in kinds])
            place = np.where(own, np.argmin(suppressed[tokens], axis=1), place)
    for n in [n for n, (search, _) in enumerate(searches) if not search.steady and search.too_short]:
        struck = np.isin(tokens[n], search_ends(searches[n][0])) | _struck(searches[n][0], tokens[n])
        place[n] = np.argmin(struck)
    at = np.arange(len(rows))
    gains = scores[at, place] - best.logs[rows]
    chosen = zip(searches, tokens[at, place].tolist(), gains.tolist(), strict=True)
    return [search.take(token, gain) for (search, _), token, gain in chosen]


def search_ends(search: TokenSearch) -> Array:
    return np.array(search.plan.ends or (-1,))


def _struck(search: TokenSearch, tokens: Array) -> Array:
    suppressed = search.rules.suppressed
    return np.zeros(len(tokens), dtype=bool) if suppressed is None else suppressed[tokens]


def advance_beams(beams: list[tuple[BeamSearch, int, int]], best: Best) -> list[Step | BaseException]:
    """Beam searches with the first of their rows and their number; what goes on of each, or what went wrong."""
    steps: list[Step | BaseException] = [([], [])] * len(beams)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for n, (beam, _, count) in enumerate(beams):
        rules = beam.rules
        simple = id(rules.suppressed) if beam.steady or rules.simple(beam.length) else 0
        own = -1 if beam.request.allowed is None else n  # a caller's hook that fails is no one else's
        plan = beam.plan
        groups.setdefault((count, beam.asked, plan.keep, plan.beams, plan.ends, simple, own), []).append(n)
    logs = best.logs
    for (count, asked, keep, size, ends, simple, _), members in groups.items():
        firsts = np.array([beams[n][1] for n in members])
        rows = firsts[:, None] + np.arange(count)  # g r
        group = [beams[n][0] for n in members]
        try:
            gains, tokens = (_simple if simple else _ruled)(group, best, logs, rows, asked, keep)
        except Exception as error:
            for n in members:
                steps[n] = error
            continue
        scores = np.array([beam.scores for beam in group])
        sums = (scores[:, :, None] + gains).reshape(len(members), -1)
        negative = np.where(np.isnan(sums), math.inf, -sums)  # what is no number is not possible
        order = negative.argsort(axis=1, kind="stable")[:, :keep]
        flat = order + sums.shape[1] * np.arange(len(members))[:, None]
        numbers = (order // gains.shape[2]).tolist()
        chosen, found = tokens.reshape(-1)[flat], -negative.reshape(-1)[flat]
        # so many are possible, none of them ends: the best go on
        plain = np.isfinite(found[:, size - 1]) if found.shape[1] >= size else np.zeros(len(members), dtype=bool)
        for end in ends:
            plain &= (chosen[:, :size] != end).all(1)
        listed = zip(members, plain.tolist(), found.tolist(), numbers, chosen.tolist(), strict=True)
        for n, is_plain, sums_of, of, which in listed:
            beam = beams[n][0]
            if is_plain and not beam.watched and len(beam.ended) < size and beam.length + 1 < beam.plan.limit:
                steps[n] = of[:size], which[:size]
                beam.go_on(sums_of[:size], *steps[n])  # type: ignore[misc]
                continue
            try:
                steps[n] = beam.grow(sums_of, of, which)
            except Exception as error:
                steps[n] = error
    return steps


def _simple(
    beams: list[BeamSearch], best: Best, logs: Array, rows: Array, asked: int, keep: int
) -> tuple[Array, Array]:
    """g r k: the log-probabilities that extend each hypothesis and their tokens; those that never come are −∞."""
    tokens = best.tokens[rows, :asked]
    gains = best.scores[rows, :asked] - logs[rows][:, :, None]
    if (suppressed := beams[0].rules.suppressed) is not None:  # the same of all
        gains[suppressed[tokens]] = -math.inf
    return gains, tokens


def _ruled(beams: list[BeamSearch], best: Best, logs: Array, rows: Array, asked: int, keep: int) -> tuple[Array, Array]:
    """The same, with rules that look at what each hypothesis has so far."""
    gains = np.full((*rows.shape, keep), -np.inf, dtype=np.float32)
    tokens = np.zeros((*rows.shape, keep), dtype=np.int64)
    for n, beam in enumerate(beams):
        for r, (_, text) in enumerate(beam.growing):
            row = int(rows[n, r])
            if asked == ALL:
                left, which = top(beam.rules.all(best.logits(row) - logs[row], text), keep)
            else:
                left, which = beam.rules.few(best.scores[row, :asked] - logs[row], best.tokens[row, :asked], text)
            count = min(keep, len(left))
            gains[n, r, :count], tokens[n, r, :count] = left[:count], which[:count]
    return gains, tokens
