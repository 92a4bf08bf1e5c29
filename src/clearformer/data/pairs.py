"""Pairs of texts from files: two aligned ones, or one that is TSV, CSV, JSONL, TMX or gettext PO, each plain or gzip.
A text and its label, or two texts and how alike they are, are pairs too.

Everything streams: a file may be larger than memory. Every error names the file and the line.
"""

import csv
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from xml.etree import ElementTree

from pydantic import Field, model_validator

from clearformer.data.lines import fingerprint, lines, open_bytes
from clearformer.data.po import messages
from clearformer.errors import DataError, nearest
from clearformer.spec.base import Part

Format = Literal["tsv", "csv", "jsonl", "tmx", "po"]
Fields = tuple[str, ...] | None


class Pair(NamedTuple):
    source: str
    target: str
    where: str  # file and line, for whoever has something to say about it
    more: tuple[float, ...] = ()  # numbers that belong to it: how alike the sides are, the heads of a tree, a span


class Pairs(Part):
    """Where pairs are: `source` and `target` files, or one `file` that holds both.

    `fields` names the two sides in it: columns of a TSV or CSV, counted from 1 or by the names in its first line, keys
    of a JSONL, languages of a TMX; a third one is a number, how alike the sides are. What holds no pairs (plain text,
    trees, images) is a `file` too. `to` is the target's language, for models that serve several. `name` is what the set
    is called in reports and logs; without one, its file's. An `optional` set whose files are absent is left out, with
    a word about it.
    """

    name: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    source: Path | None = None
    target: Path | None = None
    file: Path | None = None
    format: Format | None = None
    fields: tuple[str, str] | tuple[str, str, str] | None = None
    rows: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(gt=0)]] | None = None  # from, up to: only these
    to: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,20}$")] | None = None
    sha256: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], ...] | None = None
    optional: bool = False

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.file is None) == (self.source is None and self.target is None):
            raise ValueError("give source and target, two aligned files, or file, one that holds both")
        if self.file is None and (self.source is None or self.target is None):
            raise ValueError("source and target go together; for one file that holds both sides use file")
        if self.file is None and (self.format or self.fields):
            raise ValueError("format and fields are for one file that holds both sides; source and target are plain")
        return self

    @property
    def pairs(self) -> bool:
        """Whether pairs can be read from it, rather than running text or images."""
        try:
            return self.file is None or bool(self.format or guess(self.file))
        except DataError:
            return False

    def files(self) -> list[Path]:
        return [path for path in (self.source, self.target, self.file) if path is not None]

    @property
    def absent(self) -> bool:
        """Whether it is optional and a file of it is not there."""
        return self.optional and not all(path.exists() for path in self.files())

    def read(self) -> Iterator[Pair]:
        return islice(self._all(), *(self.rows or (None,)))

    def _all(self) -> Iterator[Pair]:
        if self.source is not None and self.target is not None:
            return _aligned(self.source, self.target)
        assert self.file is not None
        return READERS[self.format or guess(self.file)](self.file, self.fields)

    def check(self) -> None:
        """Where checksums were given, the files must be the very ones."""
        if other := self.others():
            raise DataError(
                f"{other[0]}. Fetch the pinned one (clearformer data lists what can be fetched), or go on with this one"
                " by --any-data, and the model's card says so",
                hint="--any-data",
            )

    def others(self) -> list[str]:
        """What there is to say of files that are not the pinned ones."""
        if self.sha256 is None:
            return []
        if len(self.sha256) != len(self.files()):
            raise DataError(f"{self}: {len(self.sha256)} checksums given for {len(self.files())} files")
        return [
            f"{path} is another file than was asked for: its SHA-256 is {found}, not {wanted}"
            for path, wanted in zip(self.files(), self.sha256, strict=True)
            if (found := fingerprint(path).sha256) != wanted
        ]

    def __str__(self) -> str:
        return " + ".join(map(str, self.files()))


def columns_of(fields: str | None) -> dict[str, tuple[str, ...]]:
    """The words of `--fields` as a set of pairs has them."""
    if fields is None:
        return {}
    names = tuple(name.strip() for name in fields.split(","))
    if not 2 <= len(names) <= 3 or not all(names):
        raise DataError(f"fields are two or three names, separated by commas, given {fields!r}")
    return {"fields": names}


def guess(path: Path) -> Format:
    """The format that a file's name tells."""
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.removeprefix(".").lower()
    known: dict[str, Format] = {
        "tsv": "tsv",
        "csv": "csv",
        "jsonl": "jsonl",
        "ndjson": "jsonl",
        "tmx": "tmx",
        "po": "po",
    }
    if suffix not in known:
        raise DataError(
            f"{path}: cannot tell from its name how it holds pairs; say format = tsv, csv, jsonl, tmx or po,"
            " or give two aligned files as source and target"
        )
    return known[suffix]


def _aligned(source: Path, target: Path) -> Iterator[Pair]:
    count = [0, 0]
    for ours, theirs in zip_longest(lines(source), lines(target)):
        count[0] += ours is not None
        count[1] += theirs is not None
        if ours is not None and theirs is not None:
            yield Pair(ours, theirs, f"{source}, line {count[0]}")
    if count[0] != count[1]:
        raise DataError(
            f"{source} has {count[0]:,} lines and {target} has {count[1]:,}; line n of one must translate"
            " line n of the other"
        )


def _tsv(path: Path, fields: Fields) -> Iterator[Pair]:
    yield from _columns(path, fields, "TSV", ((n, line.split("\t")) for n, line in enumerate(lines(path), 1)))


def _csv(path: Path, fields: Fields) -> Iterator[Pair]:
    """A quoted field may hold line ends; CR and LF inside are kept."""
    numbered = NumberedLines(path)
    try:
        yield from _columns(path, fields, "CSV", ((numbered.number, row) for row in csv.reader(numbered, strict=True)))
    except csv.Error as error:
        raise DataError(f"{path}, line {numbered.number}: not CSV ({error})") from None


class NumberedLines:
    """The lines of a file with their ends, as the csv module wants them, and how many it has taken."""

    def __init__(self, path: Path):
        self.lines, self.number = lines(path), 0

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.number += 1
            yield line + "\n"


def first_row(path: Path, kind: str) -> list[str] | None:
    """The columns of the first line of a TSV or CSV; None where there is none."""
    if kind == "tsv":
        return next((line.split("\t") for line in lines(path)), None)
    try:
        return next(csv.reader(NumberedLines(path), strict=True), None)
    except csv.Error as error:
        raise DataError(f"{path}, line 1: not CSV ({error})") from None


def _columns(path: Path, fields: Fields, kind: str, rows: Iterable[tuple[int, list[str]]]) -> Iterator[Pair]:
    rows = iter(rows)
    if fields is not None and not all(name.isdecimal() and int(name) > 0 for name in fields):
        fields = _named(path, fields, kind, next(rows, (1, []))[1])
    first, second, *third = (int(name) - 1 for name in fields or ("1", "2"))
    needed = max(first, second, *third)
    between = "tabs" if kind == "TSV" else "commas"
    for number, columns in rows:
        where = f"{path}, line {number}"
        if not any(map(str.strip, columns)):  # a blank line is a pair with empty sides, which whoever reads it counts
            yield Pair("", "", where)
            continue
        if len(columns) <= needed:
            raise DataError(
                f"{where}: {len(columns)} column{'s' * (len(columns) != 1)}, and column"
                f" {needed + 1} is needed; columns are separated by {between}"
            )
        more = tuple(_number(columns[column], where) for column in third)
        yield Pair(columns[first], columns[second], where, more)


def _named(path: Path, fields: tuple[str, ...], kind: str, names: list[str]) -> tuple[str, ...]:
    """The numbers of columns whose names are in the first line."""
    names = [name.strip().removeprefix("\ufeff") for name in names]
    for name in fields:
        if name not in names:
            raise DataError(
                f"{path}, line 1: no column {name!r}{nearest(name, names)}; fields of a {kind} are names in its first"
                " line, or numbers from 1"
            )
    return tuple(str(names.index(name) + 1) for name in fields)


def _number(text: Any, where: str) -> float:
    try:
        found = float(text)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise DataError(f"{where}: {text!r} is no number, and the third field must be one")
    return found


def _jsonl(path: Path, fields: Fields) -> Iterator[Pair]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f"{where}: not JSON; every line must be one object") from None
        if isinstance(record, dict) and isinstance(record.get("translation"), dict):
            record = record["translation"]
        names = fields or ("source", "target")
        source, target = (_field(record, name, where) for name in names[:2])
        more = tuple(_number(record.get(name), where) for name in names[2:])
        yield Pair(source, target, where, more)


def _field(record: Any, name: str, where: str) -> str:
    if not isinstance(record, dict):
        raise DataError(f"{where}: an object is needed, given {type(record).__name__}")
    if name not in record:
        raise DataError(f"{where}: no field {name!r}{nearest(name, record)}")
    if type(record[name]) is int:  # a label
        return str(record[name])
    if not isinstance(record[name], str):
        raise DataError(f"{where}: field {name!r} must be text, given {type(record[name]).__name__}")
    try:
        record[name].encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: field {name!r} holds a lone surrogate, which is half a character") from None
    return record[name]


_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = {"bpt", "ept", "it", "ph", "ut"}  # the original's formatting inside a segment, no words


def _tmx(path: Path, fields: Fields) -> Iterator[Pair]:
    """Units of two languages; `en` also finds `en-GB`. Without fields, the first two texts of each unit.

    A side that a unit does not have is empty.
    """
    number, complete, languages = 0, False, set[str]()
    body: ElementTree.Element | None = None
    try:
        with open_bytes(path) as handle:
            for event, unit in ElementTree.iterparse(handle, ("start", "end")):
                if event == "start" and _tag(unit) == "body":
                    body = unit
                if event == "start" or _tag(unit) != "tu":
                    continue
                number += 1
                texts = [
                    ((part.get(_LANGUAGE) or part.get("lang") or "").lower(), _words(segment))
                    for part in unit
                    if _tag(part) == "tuv"
                    for segment in part
                    if _tag(segment) == "seg"
                ]
                if body is not None:
                    body.clear()  # units that are done would fill the memory
                inside = [text for _, text in texts]
                first, second, *_ = [_in_language(texts, f) for f in fields] if fields else [*inside, None, None]
                complete = complete or None not in (first, second)
                languages.update(language for language, _ in texts)
                yield Pair(first or "", second or "", f"{path}, unit {number}")
    except ElementTree.ParseError as error:
        raise DataError(f"{path}, line {error.position[0]}: not well-formed XML ({error})") from None
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path}, unit {number + 1}: cannot be read ({error}); the file is damaged, copy it anew"
        ) from None
    except (LookupError, ValueError, RecursionError) as error:
        raise DataError(f"{path}, unit {number + 1}: cannot be read ({error}); write it as plain UTF-8") from None
    if number and not complete:
        raise DataError(
            f"{path}: none of {number:,} units has {' and '.join(fields or ('two texts',))};"
            f" its languages: {', '.join(sorted(languages)) or 'none'}"
        )


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _words(element: ElementTree.Element) -> str:
    parts = ((("" if _tag(part) in _CODES else _words(part)), part.tail or "") for part in element)
    return (element.text or "") + "".join(inside + after for inside, after in parts)


def _in_language(texts: list[tuple[str, str]], name: str) -> str | None:
    name = name.lower()
    return next((text for language, text in texts if language == name or language.startswith(name + "-")), None)


def _po(path: Path, fields: Fields) -> Iterator[Pair]:
    if fields is not None:
        raise DataError(f"{path}: a PO file has a message and its translation and no other fields; leave fields out")
    for number, message, translation in messages(path):
        yield Pair(message, translation, f"{path}, line {number}")


READERS: dict[Format, Callable[[Path, Fields], Iterator[Pair]]] = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _jsonl,
    "tmx": _tmx,
    "po": _po,
}
