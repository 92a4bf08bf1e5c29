"""Translating: texts in, texts out, with score, tokens, alignment and the reason why each one ended.

Texts are encoded once, batched by length under a budget of tokens, and put back in their order. What is longer than
anything the model was trained on is an error, or split, or cut with a word about it: never cut in silence.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from clearformer.core.model import EncoderDecoder
from clearformer.data.batches import pad
from clearformer.errors import DataError
from clearformer.generate.beams import Early
from clearformer.generate.logits_rules import FREE, Controls
from clearformer.generate.search import Continuation, beam, greedy, sample
from clearformer.tasks import align
from clearformer.tasks.base import Task, by_length
from clearformer.tasks.split import split
from clearformer.text.translation import TranslationCodec

OnLong = Literal["error", "split", "truncate"]
Done = Callable[[int], None]
BUDGET = 2_000  # source tokens × beams decoded at once


@dataclass(frozen=True)
class Translation:
    """What became of one text."""

    text: str
    score: float  # the sum of its tokens' log-probabilities
    tokens: tuple[str, ...]
    finish: str  # "end", "limit" (the model did not stop by itself) or "truncated" (the source was cut)
    source_tokens: tuple[str, ...] = ()
    alignment: tuple[align.Link, ...] | None = None
    others: tuple["Translation", ...] = ()  # the next best, where asked for

    def to_dict(self) -> dict[str, Any]:
        """For JSON: only what was asked for."""
        found = {key: value for key, value in asdict(self).items() if value is not None and key != "others"}
        if self.alignment is not None:
            found["alignment"] = [link._asdict() for link in self.alignment]
        if self.others:
            found["others"] = [other.to_dict() for other in self.others]
        return found


@dataclass(frozen=True)
class Sampling:
    """Draw instead of search; the same seed draws the same."""

    seed: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise DataError(f"seed must be from 0 to 2^63 − 1, given {self.seed}")


@dataclass(frozen=True)
class Way:
    """How to look for a translation; what is None is the model's own choice."""

    beam: int | None = None
    length_penalty: float | None = None
    n_best: int = 1
    sampling: Sampling | None = None
    prefix: str = ""  # what every translation begins with
    controls: Controls | None = None
    new: int | None = None  # the most tokens to write

    def __post_init__(self) -> None:
        for name in ("beam", "new"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise DataError(f"{name} must be at least 1, given {value}")
        if self.n_best < 1:
            raise DataError(f"n_best must be at least 1, given {self.n_best}")
        if self.beam is not None and self.n_best > self.beam:
            raise DataError(f"{self.n_best} best translations need a beam of at least {self.n_best}, given {self.beam}")
        if self.sampling is not None and self.n_best > 1:
            raise DataError("sampling gives one translation a text; leave n_best out, or use a beam")


class Translator(Task):
    """An encoder–decoder with its tokenizer.

    `longest` is the longest source, in tokens, that it was trained on, and `usual` the length that 99 of 100 had:
    texts are split between sentences to keep to that, and inside a sentence only where it is longer than `longest`.
    """

    can: tuple[str, ...] = ("translate",)
    beams = 4
    early: Early = True

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: Any,
        longest: int = 256,
        to: Sequence[str] = (),
        usual: int | None = None,
        length_penalty: float = 1.0,
        growth: float = 2.0,
    ):
        super().__init__(model, tokenizer)
        self.sides = self._sides(tokenizer)
        self.longest, self.to = longest, tuple(to)
        self.usual = min(usual or longest, longest)
        self.growth = max(growth, 2.0)  # target tokens a source token, as in the training data
        self.length_penalty = length_penalty  # the one that suits the model best; chosen on validation data

    def _sides(self, tokenizer: Any) -> TranslationCodec:
        return TranslationCodec.of(tokenizer)

    def translate(
        self,
        texts: str | Sequence[str],
        *,
        to: str | None = None,
        way: Way | None = None,
        on_long: OnLong = "error",
        alignments: bool = False,
        done: Done | None = None,
        number: int = 0,
        **ways: Any,
    ) -> list[Translation]:
        """One translation for each text, in order. `ways` are the fields of `Way`: beam=, length_penalty=, n_best=,
        sampling=, prefix=, controls=. `done` is called with the number of texts finished since; `number` texts came
        before these, for errors that name one."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        return self._all(texts, self.language(to), replace(way or Way(), **ways), on_long, alignments, done, number)

    def _all(
        self,
        texts: list[str],
        to: str | None,
        way: Way,
        on_long: OnLong,
        alignments: bool = False,
        done: Done | None = None,
        number: int = 0,
    ) -> list[Translation]:
        way = replace(way, beam=self._beam(way))
        pieces = [self._parts(text, n, to, on_long) for n, text in enumerate(texts, number + 1)]
        if way.prefix and any(len(parts) > 1 for parts in pieces):
            raise DataError(
                "a prefix cannot begin every part of a text that is split; translate its sentences one by one"
            )
        encoded = [ids for parts in pieces for ids, _ in parts]
        owner = [n for n, parts in enumerate(pieces) for _ in parts]
        made: list[Translation | None] = [None] * len(encoded)
        waiting = [len(parts) for parts in pieces]
        if done is not None and (blank := waiting.count(0)):
            done(blank)
        for rows in by_length([len(ids) * (way.beam or 1) for ids in encoded], BUDGET):
            for row, found in zip(rows, self._search([encoded[row] for row in rows], way), strict=True):
                made[row] = self._result(found, encoded[row], alignments)
                waiting[owner[row]] -= 1
                if done is not None and not waiting[owner[row]]:
                    done(1)
        each: list[list[Translation]] = [[] for _ in texts]
        for n, one in zip(owner, made, strict=True):
            assert one is not None
            each[n].append(one)
        cut = [any(was_cut for _, was_cut in parts) for parts in pieces]
        return [self._whole(found, was_cut, alignments) for found, was_cut in zip(each, cut, strict=True)]

    def _beam(self, way: Way) -> int:
        return way.beam if way.beam is not None else max(self.beams, way.n_best)

    def language(self, to: str | None) -> str | None:
        """The tag to put in front of a source; a language that the model does not have is an error."""
        known = self.sides.languages or self.to
        if to is not None and to not in known:
            having = f"it translates to {', '.join(known)}" if known else "it does not say what it translates to"
            raise DataError(f"this model does not translate to {to!r}; {having}")
        if not self.sides.languages:
            return None
        if to is None:
            if len(self.sides.languages) > 1:
                raise DataError(f"this model translates to {', '.join(known)}; say which one with to")
            return next(iter(self.sides.languages))
        return to

    def limit(self, tokens: int) -> int:
        """How many tokens a translation of so many may have."""
        return int(self.growth * tokens) + 20

    def controls(self, asked: Controls | None = None) -> Controls:
        """The rules asked for, or the model's own, and that padding, starts and language tags are never said."""
        never = (self.sides.pad, self.sides.start, *self.sides.languages.values())
        asked = asked or FREE
        return replace(asked, forbidden=(*asked.forbidden, *never))

    def ends(self) -> tuple[int, ...]:
        return (self.sides.end,)

    def forced(self, prefix: str) -> list[int]:
        """The tokens of what a translation must begin with."""
        return self.sides.encode(prefix)[:-1] if prefix else []

    def front(self, pieces: Sequence[str]) -> int:
        """How many tokens of a source stand before its text."""
        return int(bool(pieces) and pieces[0] in self.sides.pieces(list(self.sides.languages.values())))

    def source_pieces(self, source: list[int]) -> list[str]:
        return self.sides.pieces(source)

    def _parts(self, text: str, number: int, to: str | None, on_long: OnLong) -> list[tuple[list[int], bool]]:
        """The ids of a text's parts, and whether anything was cut off; nothing for a blank text."""
        if not text.strip():
            return []
        ids = self.sides.encode(text, to)
        if len(ids) <= (self.usual if on_long == "split" else self.longest):
            return [(ids, False)]
        if on_long == "truncate":
            return [([*ids[: self.longest - 1], self.sides.end], True)]
        parts = self._split(text, to) if on_long == "split" else None
        if parts is None:
            remedy = "one of its words alone is longer" if on_long == "split" else "split or truncate it with on_long"
            raise DataError(
                f"text {number} has {len(ids)} tokens, and the longest this model was trained on had"
                f" {self.longest}: {text[:60]!r}…; {remedy}"
            )
        return [(self.sides.encode(part, to), False) for part in parts]

    def _split(self, text: str, to: str | None) -> list[str] | None:
        def at_most(count: int) -> Callable[[str], bool]:
            return lambda part: len(self.sides.encode(part, to)) <= count

        return split(text, at_most(self.usual), at_most(self.longest))

    def _search(self, sources: list[list[int]], way: Way) -> list[list[Continuation]]:
        """The best continuations of every source, best first, each with the forced prefix in front."""
        device = next(self.model.parameters()).device
        source, mask = (part.to(device) for part in pad(sources, self.sides.pad))
        forced = self.forced(way.prefix)
        prompt = torch.tensor([[self.sides.start, *forced]] * len(sources), device=device)
        ways: dict[str, Any] = {
            # a text's own, whatever it is batched with
            "limit": [way.new or self.limit(len(ids)) for ids in sources],
            "end": self.ends(),
            "source": source,
            "source_mask": None if bool(mask.all()) else mask,
            "controls": self.controls(way.controls),
        }
        if way.sampling is not None:
            # every text from the same seed, so that it draws the same whatever it is batched with
            ways |= {**asdict(way.sampling), "seed": [way.sampling.seed] * len(sources)}
            found = [[one] for one in sample(self.model, prompt, **ways)]
        elif way.beam == 1:
            found = [[one] for one in greedy(self.model, prompt, **ways)]
        else:
            penalty = self.length_penalty if way.length_penalty is None else way.length_penalty
            found = beam(self.model, prompt, size=way.beam or 1, length_penalty=penalty, early=self.early, **ways)
        return [[one._replace(tokens=forced + one.tokens) for one in best[: way.n_best]] for best in found]

    def _result(self, found: list[Continuation], source: list[int], alignments: bool) -> Translation:
        first, *others = [self._one(one, source, alignments) for one in found]
        return replace(first, others=tuple(others))

    def _one(self, one: Continuation, source: list[int], alignments: bool) -> Translation:
        ids = one.tokens[:-1] if one.finish == "end" else one.tokens
        pieces, seen = self.sides.pieces(ids), self.source_pieces(source)
        linked = None
        if alignments:
            first = self.front(seen)
            matrix = align.weights(self.model, source, [self.sides.start, *ids])
            linked = tuple(align.links(matrix[:, first:-1], seen[first:-1], pieces))
        return Translation(self.sides.decode(ids), one.score, tuple(pieces), one.finish, tuple(seen), linked)

    def _whole(self, parts: list[Translation], cut: bool, alignments: bool) -> Translation:
        """The translation of a text from those of its parts, rank by rank."""
        if not parts:
            return Translation("", 0.0, (), "end", alignment=() if alignments else None)
        if len(parts) == 1:
            return replace(parts[0], finish="truncated") if cut else parts[0]
        ranks = zip(*[(part, *part.others) for part in parts], strict=False)
        first, *others = [self._joined(list(rank)) for rank in ranks]
        return replace(first, others=tuple(others))

    def _joined(self, parts: list[Translation]) -> Translation:
        links: list[align.Link] = []
        source_words = target_words = 0
        for part in parts:
            links += [align.Link(a + source_words, b + target_words, w) for a, b, w in part.alignment or ()]
            source_words += len({*align.words(list(part.source_tokens[self.front(part.source_tokens) : -1]))})
            target_words += len({*align.words(list(part.tokens))})
        return Translation(
            text=" ".join(part.text for part in parts),
            score=sum(part.score for part in parts),
            tokens=tuple(token for part in parts for token in part.tokens),
            finish="limit" if any(part.finish == "limit" for part in parts) else "end",
            source_tokens=tuple(token for part in parts for token in part.source_tokens),
            alignment=tuple(links) if parts[0].alignment is not None else None,
        )
