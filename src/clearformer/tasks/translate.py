"""Translating: texts in, texts out, with score, tokens, alignment and the reason why each one ended.

Every sentence of a text is a request to the engine, and what was between sentences stands between their translations; a
sentence without a letter (numbers, signs, an emoji) is copied. A model that was made for it reads and writes
placeholders for e-mail and web addresses, which are put back; a sentence that loses one is translated again as it is.
One that is longer than anything the model was trained on is an error, or split, or cut with a word about it: never cut
in silence.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from clearformer.core.model import EncoderDecoder
from clearformer.errors import DataError
from clearformer.generate.collector import collector_paused
from clearformer.generate.options import GenerationOptions, Plan, merge, plan, translating, translation_limit
from clearformer.generate.requests import Request, Written
from clearformer.tasks import align, placeholders
from clearformer.tasks.base import Task
from clearformer.tasks.split import FULL_STOPS, LETTER, gaps, spaced, split
from clearformer.text.translation import TranslationCodec

OnLong = Literal["error", "split", "truncate"]
Done = Callable[[int], None]


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


class Piece(NamedTuple):
    """A stretch of a text that is translated by itself."""

    gap: str  # the space before it
    text: str
    ids: list[int] | None  # None: it is copied
    cut: bool = False
    hidden: str = ""  # with placeholders, where it has addresses
    addresses: tuple[str, ...] = ()


class Translator(Task):
    """An encoder–decoder with its tokenizer.

    `longest` is the longest source, in tokens, that it was trained on, and `usual` the length that 99 of 100 had: what
    must be split is split to keep to that, and inside a sentence only where it is longer than `longest`. `by_sentence`
    and `copies` are what the training data was like: whether sources are sentences rather than paragraphs, and whether
    what has no letters stays as it is. With `placeholders` e-mail and web addresses are kept from it.
    """

    can: tuple[str, ...] = ("translate",)

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: Any,
        longest: int = 256,
        to: Sequence[str] = (),
        usual: int | None = None,
        length_penalty: float = 1.0,
        growth: float = 2.0,
        by_sentence: bool = True,
        copies: bool = True,
        placeholders: bool = False,
    ):
        super().__init__(model, tokenizer)
        self.sides = self._sides(tokenizer)
        self.longest, self.to = longest, tuple(to)
        self.usual = min(usual or longest, longest)
        self.growth = growth  # target tokens a source token, as in the training data
        self.by_sentence, self.copies, self.placeholders = by_sentence, copies, placeholders
        self.length_penalty = length_penalty  # the one that suits the model best; chosen on validation data

    def _sides(self, tokenizer: Any) -> TranslationCodec:
        return TranslationCodec.of(tokenizer)

    def translate(
        self,
        texts: str | Sequence[str],
        *,
        to: str | None = None,
        options: GenerationOptions | None = None,
        prefix: str = "",
        on_long: OnLong = "error",
        by_sentence: bool | None = None,
        alignments: bool = False,
        done: Done | None = None,
        number: int = 0,
        **fields: Any,
    ) -> list[Translation]:
        """One translation for each text, in order. `fields` are those of `GenerationOptions`: num_beams=,
        num_return_sequences=, length_penalty=, temperature=, ... `prefix` is what every translation begins with; a text
        with one is translated as a whole, and so is every one with `by_sentence=False`. `done` is called with the
        number of texts finished since; `number` texts came before these, for errors that name one."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        asked = GenerationOptions.of(options, **fields)
        sentences = (self.by_sentence if by_sentence is None else by_sentence) and not prefix
        return self._all(texts, self.language(to), asked, on_long, alignments, done, number, prefix, sentences)

    @collector_paused()
    def _all(
        self,
        texts: list[str],
        to: str | None,
        asked: GenerationOptions,
        on_long: OnLong,
        alignments: bool = False,
        done: Done | None = None,
        number: int = 0,
        prefix: str = "",
        sentences: bool = False,
    ) -> list[Translation]:
        if asked.stop:
            raise DataError("translations and summaries end by themselves or at their limit; stop is for completions")
        pieces = self._pieces(texts, number, to, on_long, sentences)
        if prefix and any(len(parts) > 1 for parts in pieces):
            raise DataError(
                "a prefix cannot begin every part of a text that is split; translate its sentences one by one"
            )
        asking = [part for parts in pieces for part in parts if part.ids is not None]
        owner = [n for n, parts in enumerate(pieces) for part in parts if part.ids is not None]
        left = [sum(part.ids is not None for part in parts) for parts in pieces]
        if done is not None and (blank := left.count(0)):
            done(blank)

        def ended(row: int) -> None:
            left[owner[row]] -= 1
            if done is not None and not left[owner[row]]:
                done(1)

        made = iter(self._translated(asking, to, asked, prefix, alignments, ended))

        def of(part: Piece) -> Translation:
            return self._copy(part.text, to, alignments) if part.ids is None else next(made)

        return [self._whole(parts, [of(part) for part in parts], alignments) for parts in pieces]

    def _translated(
        self,
        pieces: list[Piece],
        to: str | None,
        asked: GenerationOptions,
        prefix: str,
        alignments: bool,
        ended: Done,
    ) -> list[Translation]:
        """What becomes of each piece, with its addresses in it."""
        made = self._search([part.ids or [] for part in pieces], asked, prefix, alignments, ended)
        lost = [
            n
            for n, (part, one) in enumerate(zip(pieces, made, strict=True))
            if not placeholders.kept(one.text, part.hidden, part.addresses)
        ]
        for n, part in enumerate(pieces):
            if part.addresses:
                made[n] = _shown(made[n], part.addresses)
        sources = zip(lost, self.sides.encode_all([pieces[n].text for n in lost], to), strict=True)
        again = {n: ids for n, ids in sources if len(ids) <= self.longest}
        found = self._search(list(again.values()), asked, prefix, alignments, lambda row: None) if again else []
        for n, one in zip(again, found, strict=True):
            made[n] = one
        return made

    def _pieces(
        self, texts: list[str], number: int, to: str | None, on_long: OnLong, sentences: bool
    ) -> list[list[Piece]]:
        """What each text is translated in: its sentences, or as a whole, and smaller where that is too long."""
        if sentences:
            parts = [spaced(text) for text in texts]
        else:
            parts = [[("", text)] if text.strip() else [] for text in texts]
        copies, most = sentences and self.copies, self.usual if on_long == "split" else self.longest
        says = [not copies or LETTER.search(text) is not None for one in parts for _, text in one]
        given = (text for one in parts for _, text in one)
        hides = placeholders.hide if self.placeholders else _as_it_is
        hidden = [hides(text) for text, told in zip(given, says, strict=True) if told]
        ids = zip(self.sides.encode_all([text for text, _ in hidden], to), hidden, strict=True)
        told = iter(says)
        found: list[list[Piece]] = []
        for n, one in enumerate(parts, number + 1):
            pieces: list[Piece] = []
            for gap, text in one:
                if not next(told):
                    pieces.append(Piece(gap, text, None))
                    continue
                own, (read, addresses) = next(ids)
                if len(own) <= most:
                    pieces.append(Piece(gap, text, own, False, read, addresses))
                else:
                    where = f"text {n} has" if len(one) == 1 else f"text {n} has a sentence of"
                    pieces += self._parts(gap, text, own, where, to, on_long)
            found.append(pieces)
        return found

    def defaults(self) -> GenerationOptions:
        """What holds where a caller says nothing."""
        sides, tags = self.sides, self.sides.languages.values()
        return translating(
            start=sides.start, end=sides.end, pad=sides.pad, tags=tags, length_penalty=self.length_penalty
        )

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
        return translation_limit(tokens, self.growth)

    def forced(self, prefix: str) -> list[int]:
        """The tokens of what a translation must begin with."""
        return self.sides.encode(prefix)[:-1] if prefix else []

    def front(self, pieces: Sequence[str]) -> int:
        """How many tokens of a source stand before its text."""
        return int(bool(pieces) and pieces[0] in self.sides.pieces(list(self.sides.languages.values())))

    def source_pieces(self, source: list[int]) -> list[str]:
        return self.sides.pieces(source)

    def _parts(self, gap: str, text: str, ids: list[int], where: str, to: str | None, on_long: OnLong) -> list[Piece]:
        """The parts of a text that is too long; as a whole it has these ids."""
        if on_long == "truncate":
            return [Piece(gap, text, [*ids[: self.longest - 1], self.sides.end], cut=True)]
        parts = self._split(text, to) if on_long == "split" else None
        if parts is None:
            remedy = (
                "one of its characters alone is longer" if on_long == "split" else "split or truncate it with on_long"
            )
            raise DataError(
                f"{where} {len(ids)} tokens, and the longest this model was trained on had"
                f" {self.longest}: {text[:60]!r}…; {remedy}"
            )
        encoded = self.sides.encode_all(parts, to)
        between = [gap, *gaps(text, parts)[1:]]
        return [Piece(*each) for each in zip(between, parts, encoded, strict=True)]

    def _split(self, text: str, to: str | None) -> list[str] | None:
        def at_most(count: int) -> Callable[[str], bool]:
            return lambda part: len(self.sides.encode(part, to)) <= count

        return split(text, at_most(self.usual), at_most(self.longest))

    def request(
        self, source: list[int], options: GenerationOptions, forced: Sequence[int] = (), **more: Any
    ) -> Request:
        """What the engine is asked to make of a source; its limit is its own, whatever it is batched with."""
        prompt = [self.sides.start, *forced]
        return Request(prompt, _plan(options, len(prompt), self.limit(len(source))), source=source, **more)

    def _search(
        self, sources: list[list[int]], asked: GenerationOptions, prefix: str, alignments: bool, ended: Done
    ) -> list[Translation]:
        """The translation of every source, each with the forced prefix in front."""
        options, forced = merge(self.defaults(), asked), self.forced(prefix)
        order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))  # what takes longest comes first
        found: dict[int, list[Written]] = {}
        made: dict[int, Translation] = {}

        def done(number: int, best: list[Written]) -> None:
            row = order[number]
            found[row] = [one._replace(tokens=[*forced, *one.tokens]) for one in best] if forced else best
            if not alignments:  # these run the model once more, so not here, where it writes
                made[row] = self._result(found[row], sources[row])
            ended(row)

        self.engine.run((self.request(sources[row], options, forced) for row in order), done)
        rows = range(len(sources))
        return [self._result(found[row], sources[row], True) if alignments else made[row] for row in rows]

    def _result(self, found: list[Written], source: list[int], alignments: bool = False) -> Translation:
        first, *others = [self._one(one, source, alignments) for one in found]
        return replace(first, others=tuple(others)) if others else first

    def _one(self, one: Written, source: list[int], alignments: bool) -> Translation:
        ids = one.tokens[:-1] if one.finish == "end" else one.tokens
        pieces, seen = self.sides.pieces(ids), self.source_pieces(source)
        linked = None
        if alignments:
            first = self.front(seen)
            matrix = align.weights(self.model, source, [self.sides.start, *ids])
            linked = tuple(align.links(matrix[:, first:-1], seen[first:-1], pieces))
        return Translation(self.sides.decode(ids), one.score, tuple(pieces), one.finish, tuple(seen), linked)

    def _copy(self, text: str, to: str | None, alignments: bool) -> Translation:
        """What has no letters is the same in every language."""
        seen = self.source_pieces(self.sides.encode(text, to))
        pieces = self.sides.pieces(self.sides.encode_targets([text])[0][:-1])
        count = len({*align.words(pieces)})
        links = tuple(align.Link(n, n, 1.0) for n in range(count)) if alignments else None
        return Translation(text, 0.0, tuple(pieces), "end", tuple(seen), links)

    def _whole(self, pieces: list[Piece], made: list[Translation], alignments: bool) -> Translation:
        """The translation of a text from those of its parts, rank by rank; of a part that has fewer, the last."""
        if not made:
            return Translation("", 0.0, (), "end", alignment=() if alignments else None)
        if len(made) == 1:
            return replace(made[0], finish="truncated") if pieces[0].cut else made[0]
        ranked = [(part, *part.others) for part in made]
        ranks = ([each[min(n, len(each) - 1)] for each in ranked] for n in range(max(map(len, ranked))))
        first, *others = [self._joined(pieces, rank) for rank in ranks]
        return replace(first, others=tuple(others))

    def _joined(self, pieces: list[Piece], parts: list[Translation]) -> Translation:
        links: list[align.Link] = []
        source_words = target_words = 0
        for part in parts:
            links += [align.Link(a + source_words, b + target_words, w) for a, b, w in part.alignment or ()]
            source_words += len({*align.words(list(part.source_tokens[self.front(part.source_tokens) : -1]))})
            target_words += len({*align.words(list(part.tokens))})
        return Translation(
            text=_with_gaps(pieces, parts),
            score=sum(part.score for part in parts),
            tokens=tuple(token for part in parts for token in part.tokens),
            finish=_finish(pieces, parts),
            source_tokens=tuple(token for part in parts for token in part.source_tokens),
            alignment=tuple(links) if parts[0].alignment is not None else None,
        )


def _as_it_is(text: str) -> tuple[str, tuple[str, ...]]:
    return text, ()


def _shown(made: Translation, addresses: tuple[str, ...]) -> Translation:
    others = tuple(_shown(other, addresses) for other in made.others)
    return replace(made, text=placeholders.show(made.text, addresses), others=others)


def _with_gaps(pieces: list[Piece], parts: list[Translation]) -> str:
    """Translations with the space of the original between them; a language that has none after a full stop may be
    translated to one that has."""
    text = parts[0].text
    for before, piece, part in zip(pieces, pieces[1:], parts[1:], strict=False):
        stop = before.text[-1] in FULL_STOPS and text[-1:] not in FULL_STOPS
        text += (piece.gap or " " * stop) + part.text
    return text


def _finish(pieces: list[Piece], parts: list[Translation]) -> str:
    if any(piece.cut for piece in pieces):
        return "truncated"
    return "limit" if any(part.finish == "limit" for part in parts) else "end"


@lru_cache(maxsize=256)  # texts of one length share it
def _plan(options: GenerationOptions, prompt: int, limit: int) -> Plan:
    return plan(options, prompt, default=limit)
