"""Where sentences end, and cutting what is too long for a model: at sentence ends, then at clause marks, then at
spaces, and only a word that is too long by itself inside.

Every part is a stretch of the text as it stands, so that what was between two parts can be put there again.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import pairwise

SENTENCES = re.compile(r"(?<=[.!?…।。！？])\s+|(?<=[।。！？])(?=\S)")
INSIDE = (re.compile(r"(?<=[,;:—–])\s+|(?<=[、，；：])(?=\S)"), re.compile(r"\s+"))
LETTER = re.compile(r"[^\W\d_]")
FULL_STOPS = "।॥。！？"  # which end a sentence without a space after them
Fits = Callable[[str], bool]
Span = tuple[int, int]

# All of them look at each character a bounded number of times: a line may have a million.
_MAYBE = re.compile(rf"[.!?…][\"'”’»›)\]]*+\s|[{FULL_STOPS}\n]")  # quick, and right in what has none
_MARK = re.compile(  # the mark, what closes, the space
    rf"(?<![.!?…])([.!?…]++)([\"'”’»›)\]]*+)(\s+)|([{FULL_STOPS}]+)([”’」』）]*)(\s*)|()()(\n\s*)"
)
_OPENING = re.compile(r"[\"'“‘«‹„(\[¿¡*_–—-]*")
_LAST_WORD = re.compile(r"[^\s\"“‘«(\[]+$")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # J., U.S., e.g., z.B.
_NEVER_LAST = frozenset(
    ["mr", "mrs", "ms", "dr", "prof", "st", "mt", "gen", "sen", "rep", "rev", "capt", "lt", "col", "sgt", "hon", "gov",
     "pres", "messrs", "mme", "mlle", "vs", "cf", "approx", "hr", "fr", "bzw", "ca", "ggf", "evtl", "inkl", "geb"]
)  # fmt: skip
_BEFORE_NUMBERS = frozenset(
    ["no", "nos", "nr", "p", "pp", "vol", "fig", "figs", "ch", "sec", "art", "eq", "tel", "ext", "abs", "kap", "s",
     "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "okt", "dez"]
)  # fmt: skip
_MAY_BE_LAST = frozenset(["a.m", "p.m", "i"])  # of those that look like initials
_ABBREVIATIONS = _NEVER_LAST | _BEFORE_NUMBERS | {"etc", "inc", "ltd", "co", "corp", "jr", "sr", "usw", "dept", "est"}
_MONTHS = re.compile(
    r"(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b"
)  # 3. Mai
_PAIRS = (("(", ")"), ("[", "]"), ("“", "”"), ("«", "»"), ('"', '"'))
_NEAR = 300  # characters within which what was opened is closed, if it ever is


def sentences(text: str) -> list[Span]:
    """From where to where each sentence of a text goes, without the space around it."""
    begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if _MAYBE.search(text, begin, end) is None:
        return [(begin, end)] if begin < end else []
    found: list[Span] = []
    small = text == text.lower()  # whoever types no capitals begins no sentence with one
    for mark in _MARK.finditer(text, begin, end):
        if begin < mark.end() < end and _ends(text, begin, mark, small):
            stop = mark.end() - len(mark[3] or mark[6] or mark[9] or "")
            found.append((begin, len(text[begin:stop].rstrip()) + begin))
            begin = mark.end()
    return [*found, (begin, end)]


def spaced(text: str) -> list[tuple[str, str]]:
    """The sentences of a text, each with the space that stands before it; nothing before the first."""
    spans = sentences(text)
    if len(spans) < 2:
        return [("", text[begin:end]) for begin, end in spans]
    gaps = ["", *(text[one[1] : other[0]] for one, other in pairwise(spans))]
    return [(gap, text[begin:end]) for gap, (begin, end) in zip(gaps, spans, strict=True)]


def _ends(text: str, begin: int, found: re.Match[str], small: bool) -> bool:
    """Whether a sentence that began at `begin` ends with this mark."""
    mark, close, gap = (found[n] or found[n + 3] or found[n + 6] or "" for n in (1, 2, 3))
    if gap.count("\n") > 1:
        return True
    after = _OPENING.match(text, found.end()).end()  # type: ignore[union-attr] # it matches nothing, too
    lower = text[after : after + 1].islower()
    if not mark:  # a line that was broken inside a sentence goes on in small letters
        return not lower
    if mark[0] in FULL_STOPS:
        return bool(gap) or not close
    if lower and (close or not (small or mark.strip(".…"))):  # “Why?” he asked; well... maybe
        return False
    if mark.strip(".") == "" and not _full_stop(text, begin, found, after, lower):
        return False
    return not _inside(text, begin, found.end(2))


def _full_stop(text: str, begin: int, found: re.Match[str], after: int, lower: bool) -> bool:
    """Whether dots are the end of a sentence, and not of an abbreviation, a number, or a pause."""
    if len(found[1]) > 1:  # I... I don't know
        return not lower and not text.startswith(("I ", "I'", "I’"), after)
    if (last := _LAST_WORD.search(text, max(begin, found.start() - 20), found.start())) is None:
        return True
    word = last[0].lower().lstrip("'")
    if word.isdecimal():  # the number of an item, or of a day
        return last.start() > begin and _MONTHS.match(text, after) is None
    if _INITIALS.fullmatch(word):
        return word in _MAY_BE_LAST
    if word in _BEFORE_NUMBERS and text[after : after + 1].isdecimal():
        return False
    return word not in (_ABBREVIATIONS - {"no", "s", "p", "art"} if lower else _NEVER_LAST)


def _inside(text: str, begin: int, at: int) -> bool:
    """Whether a quotation or a parenthesis is open here and is closed soon."""
    begin = max(begin, at - _NEAR)
    for opening, closing in _PAIRS:
        if (opened := text.count(opening, begin, at)) == 0:
            continue
        still = opened % 2 == 1 if opening == closing else opened > text.count(closing, begin, at)
        if still and (closed := text.find(closing, at, at + _NEAR)) >= 0:
            return opening == closing or text.find(opening, at, closed) < 0  # :( is no parenthesis
    return False


def split(text: str, fits: Fits, can: Fits) -> list[str] | None:
    """Parts that fit, as few as possible; a sentence stays whole as long as it can be taken at all. None if a single
    character cannot."""
    whole = (len(text) - len(text.lstrip()), len(text.rstrip()))
    try:
        spans = [each for part in _packed(text, whole, SENTENCES, fits) for each in _cut(text, part, fits, can)]
    except _TooLong:
        return None
    return [text[begin:end] for begin, end in spans]


def gaps(text: str, parts: list[str]) -> list[str]:
    """What stands between the parts of a text, before each of them."""
    found, at = [], 0
    for part in parts:
        begin = text.index(part, at)
        found.append(text[at:begin])
        at = begin + len(part)
    return found


class _TooLong(Exception):  # noqa: N818 nobody sees it
    """A character that cannot be taken."""


def _cut(text: str, span: Span, fits: Fits, can: Fits, marks: tuple[re.Pattern[str], ...] = INSIDE) -> Iterator[Span]:
    """Parts of a stretch that can be taken: itself, or cut at commas, or those of them that still cannot at spaces,
    and words in the middle."""
    if can(text[span[0] : span[1]]):
        yield span
    elif marks:
        for part in _packed(text, span, marks[0], fits):
            yield from _cut(text, part, fits, can, marks[1:])
    else:
        middle = (span[0] + span[1]) // 2
        while middle < span[1] - 1 and unicodedata.category(text[middle])[0] in "MC":  # what belongs to the one before
            middle += 1
        if middle == span[0]:
            raise _TooLong
        yield from _cut(text, (span[0], middle), fits, can, ())
        yield from _cut(text, (middle, span[1]), fits, can, ())


def _packed(text: str, span: Span, mark: re.Pattern[str], fits: Fits) -> list[Span]:
    """Stretches between marks, joined again as long as they fit."""
    found = [(each.start(), each.end()) for each in mark.finditer(text, *span)]
    begins, stops = [span[0], *(end for _, end in found)], [*(start for start, _ in found), span[1]]
    parts: list[Span] = []
    for begin, end in zip(begins, stops, strict=True):
        if parts and fits(text[parts[-1][0] : end]):
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((begin, end))
    return parts
