"""Messages and their translations from a gettext PO file.

Left out: the header (the empty message), fuzzy and obsolete entries, and messages not yet translated. Of a message
with plurals, the singular goes with the first form and the plural with the last.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from clearformer.data.lines import lines
from clearformer.errors import DataError

_STRING = r'"(?:[^"\\]|\\.)*"'
_ENTRY = re.compile(rf"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)?\s*({_STRING}(?:\s*{_STRING})*)")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_MEANING = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


def messages(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, message, translation) of every translated message."""
    entry: dict[str, str] = {}
    start, key, fuzzy = 0, None, False
    for number, line in enumerate(lines(path), 1):
        line = line.strip()
        found = _ENTRY.fullmatch(line)
        if found and found[1]:
            key = found[1]
            if key == "msgctxt" or (key == "msgid" and set(entry) != {"msgctxt"}):
                yield from _finished(entry, start, fuzzy)
                entry, start, fuzzy = {}, number, fuzzy and not entry
            entry[key] = _text(found[2], path, number)
        elif found and key is not None:
            entry[key] += _text(found[2], path, number)
        elif line.startswith("#"):
            if "msgstr" in entry or "msgstr[0]" in entry:  # a comment belongs to the entry that follows
                yield from _finished(entry, start, fuzzy)
                entry, fuzzy = {}, False
            fuzzy = not line.startswith("#~") and (fuzzy or (line.startswith("#,") and "fuzzy" in line))
            key = None
        elif line:
            raise DataError(
                f"{path}, line {number}: not a line of a PO file, or its quotes do not match: {line[:60]!r}"
            )
    yield from _finished(entry, start, fuzzy)


def _finished(entry: dict[str, str], start: int, fuzzy: bool) -> Iterator[tuple[int, str, str]]:
    message, forms = entry.get("msgid"), [entry[key] for key in sorted(entry) if key.startswith("msgstr")]
    if fuzzy or not message or not forms or not forms[0]:
        return
    yield start, message, forms[0]
    if "msgid_plural" in entry and forms[1:] and forms[-1]:
        yield start, entry["msgid_plural"], forms[-1]


def _text(quoted: str, path: Path, number: int) -> str:
    inside = "".join(string[1:-1] for string in re.findall(_STRING, quoted))
    try:
        return _ESCAPE.sub(_meant, inside.encode()).decode()
    except UnicodeDecodeError:
        raise DataError(f"{path}, line {number}: its escapes are not UTF-8: {quoted[:60]}") from None


def _meant(escape: re.Match[bytes]) -> bytes:
    name = escape[1]
    if name[:1] in b"01234567":
        return bytes([int(name, 8) & 255])
    if len(name) == 3:
        return bytes([int(name[1:], 16)])
    return bytes([_MEANING.get(name[0], name[0])])
