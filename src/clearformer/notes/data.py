"""The examples as JSON, for the page: every number as it is, in double precision, and null for −∞.

    lessons()            what there is
    lesson("mask")       one of them, computed once a process

No torch until an example runs.
"""

import math
import threading
from dataclasses import fields
from functools import cache
from typing import Any

from clearformer.errors import DataError, nearest
from clearformer.notes import EXAMPLES, get, parts

SCHEMA = "clearformer.lesson/1"
PLAYED = ("tokenizer",)  # lessons of the page that no example of the notes stands behind
LESSONS = (*(example.name for example in EXAMPLES), *PLAYED)
_ONCE = threading.Lock()


def lessons() -> list[dict[str, Any]]:
    """Names and titles of all examples."""
    return [
        {"name": example.name, "number": example.number, "title": example.title, "where": example.where}
        for example in EXAMPLES
    ]


def lesson(name: str) -> dict[str, Any]:
    """An example with its sections, each `{"kind": …}` and its fields."""
    with _ONCE:  # who asks for what another is computing waits for that
        return _lesson(get(name).name)


@cache
def _lesson(name: str) -> dict[str, Any]:
    example = get(name)
    listed = next(each for each in lessons() if each["name"] == name)
    return {"schema": SCHEMA, **listed, "sections": [to_dict(section) for section in example.run()]}


def known(name: str) -> str:
    """The name of a lesson of the page, which may be given as its number."""
    if name in PLAYED:
        return name
    try:
        return get(name).name
    except DataError:
        said = nearest(name, list(LESSONS))
        raise DataError(f"no lesson {name[:100]!r}{said}; there is {', '.join(LESSONS)}") from None


def to_dict(section: parts.Section) -> dict[str, Any]:
    return {
        "kind": type(section).__name__.lower(),
        **{f.name: _plain(getattr(section, f.name)) for f in fields(section)},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, frozenset):
        return sorted(map(list, value))
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return to_dict(value) if isinstance(value, parts.Matrix | parts.Seen) else value
