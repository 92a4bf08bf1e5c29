"""What is read of a file is said: which columns, of how many, and a first line that looks like their names."""

from pathlib import Path
from typing import Any

import pytest

from clearformer.data.pairs import Pairs
from clearformer.data.taken import taken
from clearformer.errors import DataError


def said(folder: Path, name: str, content: str, **rest: Any) -> str | None:
    (folder / name).write_text(content, encoding="utf-8")
    text = taken(Pairs(file=folder / name, **rest))
    return None if text is None else text.removeprefix(f"{folder / name}: ")


@pytest.mark.parametrize(("name", "between"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_columns_and_names(tmp_path: Path, name: str, between: str) -> None:
    def told(text: str, **rest: Any) -> str | None:
        return said(tmp_path, name, text.replace(" ", between) + "\n", **rest)

    assert told("one eins") == "columns 1 and 2 of 2 are taken"
    assert told("one eins 7") == "columns 1 and 2 of 3 are taken; choose others with fields (--fields 2,3)"
    assert told("7 one eins", fields=("2", "3")) == "columns 2 and 3 of 3 are taken"
    assert told("one eins .5", fields=("1", "2", "3")) == "columns 1, 2 and 3 of 3 are taken"
    assert told("id en de", fields=("en", "de")) == "en and de of 3 are taken; line 1 has their names and is no pair"
    header = told("English German")
    assert header is not None
    assert header.endswith("is trained on as a pair; with fields (--fields English,German) it is not")
    assert told("id de") is not None
    assert "looks like" not in str(told("hello de"))
    assert told("") is not None
    (tmp_path / name).write_text("")
    assert taken(Pairs(file=tmp_path / name)) is None


def test_other_formats(tmp_path: Path) -> None:
    assert said(tmp_path, "a.jsonl", "") == "fields source and target are taken"
    assert said(tmp_path, "a.jsonl", "", fields=("en", "de")) == "fields en and de are taken"
    assert said(tmp_path, "a.tmx", "") == "the first two texts of each unit are taken"
    assert said(tmp_path, "a.tmx", "", fields=("en", "de")) == "en and de are taken"
    assert said(tmp_path, "a.po", "") == "messages and their translations are taken"
    assert taken(Pairs(source=Path("a"), target=Path("b"))) is None


def test_fields_of_a_po_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr "b"\n')
    with pytest.raises(DataError, match=r"a\.po: a PO file has .* leave fields out"):
        list(Pairs(file=tmp_path / "a.po", fields=("en", "de")).read())
