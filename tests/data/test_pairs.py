"""Every format gives the pairs that are in it: compared with Python's own json and XML, and with texts by hand."""

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.data.pairs import Pairs, guess
from clearformer.errors import DataError, SpecError

# texts without line feeds, rich in what other readers take for one
LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12).map(lambda t: t.rstrip("\r"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


Write = Callable[[str, str | bytes], Path]


def read(path: Path, **rest: Any) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in Pairs(file=path, **rest).read()]


# --- two aligned files ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(LINE, LINE), max_size=8), st.booleans())
def test_aligned_files_stay_aligned(folder: Path, rows: list[tuple[str, str]], packed: bool) -> None:
    files = folder / "a.en", folder / "a.de"
    for side, path in enumerate(files):
        raw = "".join(row[side].removeprefix("\ufeff") + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(raw, 1) if packed else raw)
    found = [(pair.source, pair.target) for pair in Pairs(source=files[0], target=files[1]).read()]
    assert found == [(a.removeprefix("\ufeff"), b.removeprefix("\ufeff")) for a, b in rows]


def test_a_pair_says_where_it_is(write: Write) -> None:
    source, target = write("a.en", "one\ntwo\n"), write("a.de", "eins\nzwei")
    assert [pair.where for pair in Pairs(source=source, target=target).read()] == [
        f"{source}, line 1",
        f"{source}, line 2",
    ]


@pytest.mark.parametrize(("ours", "theirs"), [(3, 5), (5, 3), (0, 1), (1200, 1)])
def test_different_line_counts_stop_with_both(write: Write, ours: int, theirs: int) -> None:
    source, target = write("a.en", "x\n" * ours), write("a.de", "y\n" * theirs)
    with pytest.raises(DataError, match=f"a.en has {ours:,} lines and .*a.de has {theirs:,};"):
        list(Pairs(source=source, target=target).read())


def test_the_file_that_is_not_text_is_named(write: Write) -> None:
    source, target = write("a.en", "x\ny\n"), write("a.de", b"x\n\xff\n")
    with pytest.raises(DataError, match=r"a\.de, line 2: byte 1 \(0xff\)"):
        list(Pairs(source=source, target=target).read())


# --- what can be asked for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give source and target"),
        ({"source": "a"}, "source and target go together"),
        ({"target": "a"}, "source and target go together"),
        ({"source": "a", "target": "b", "file": "c"}, "give source and target"),
        ({"source": "a", "file": "c"}, "give source and target"),
        ({"source": "a", "target": "b", "format": "tsv"}, "format and fields are for one file"),
        ({"source": "a", "target": "b", "fields": ("1", "2")}, "format and fields are for one file"),
        ({"file": "a", "format": "lines"}, "format"),
        ({"file": "a.tsv", "to": "de>"}, "to"),
    ],
)
def test_half_a_question_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Pairs(**given)


def test_the_format_is_told_by_the_name() -> None:
    names = {
        "a.tsv": "tsv",
        "a.TSV.gz": "tsv",
        "a.b.jsonl": "jsonl",
        "a.ndjson.gz": "jsonl",
        "a.tmx": "tmx",
        "a.po": "po",
    }
    assert {name: guess(Path(name)) for name in names} == names
    for name in ("a.txt", "tsv", "a.gz", "a.tsv.xz"):
        with pytest.raises(DataError, match="say format = tsv, csv, jsonl, tmx or po"):
            guess(Path(name))


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.tmx", "a.po"])
def test_every_format_names_what_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"there is no file .*{name}"):
        read(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=f"{name} is a folder; give a file"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.tmx", "a.po"])
def test_every_format_names_what_is_damaged(write: Write, name: str) -> None:
    body = random.Random(0).randbytes(300).hex()
    whole = {
        "a.tsv": f"a\t{body}",
        "a.jsonl": json.dumps({"source": "a", "target": body}),
        "a.tmx": tmx([[("en", "a"), ("de", body)]]).decode(),
        "a.po": f'msgid "a"\nmsgstr "{body}"',
    }[name]
    packed = gzip.compress(whole.encode())
    assert read(write(name, packed)) == [("a", body)]
    # the end is missing, a block of no known kind, a wrong sum
    for damaged in (packed[:-30], packed[:10] + b"\xff" + packed[11:], packed[:-8] + bytes(8)):
        with pytest.raises(DataError, match=f"{name}, (line|unit) .*damaged"):
            read(write(name, damaged))
    with pytest.raises(DataError, match=f"{name}, line 1: "):
        read(write(name, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe"))


# --- TSV --------------------------------------------------------------------------------------------------


def test_columns_of_a_tsv_are_chosen_by_number(write: Write) -> None:
    path = write("a.tsv", 'id\u2028\tone\t"eins"\r\n2\ttwo\tzwei\n')  # quotes are only quotes
    assert read(path) == [("id\u2028", "one"), ("2", "two")]
    assert read(path, fields=("3", "2")) == [('"eins"', "one"), ("zwei", "two")]
    with pytest.raises(DataError, match=r"a\.tsv, line 1: 3 columns, and column 4 is needed"):
        read(path, fields=("1", "4"))
    for wrong in (("0", "1"), ("en", "de"), ("1", "-2")):
        with pytest.raises(DataError, match=r"a\.tsv, line 1: no column .* names in its first line, or numbers from 1"):
            read(path, fields=wrong)


@pytest.mark.parametrize(("name", "between"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_columns_are_chosen_by_the_names_in_the_first_line(write: Write, name: str, between: str) -> None:
    path = write(name, f"\ufeffid{between}label{between}text\n1{between}good{between}a film\n")
    assert read(path, fields=("text", "label")) == [("a film", "good")]
    assert read(path, fields=("id", "label")) == [("1", "good")]
    with pytest.raises(DataError, match="no column 'lable'; did you mean 'label'"):
        read(path, fields=("text", "lable"))
    assert read(write("empty.tsv", "text\tlabel\n"), fields=("text", "label")) == []


def test_a_label_in_jsonl_may_be_a_whole_number(write: Write) -> None:
    path = write("a.jsonl", '{"text": "a film", "label": 3}\n')
    assert read(path, fields=("text", "label")) == [("a film", "3")]
    for wrong in ("1.5", "true", "null"):
        with pytest.raises(DataError, match="field 'label' must be text"):
            read(write("b.jsonl", f'{{"text": "a", "label": {wrong}}}\n'), fields=("text", "label"))


def test_a_row_that_is_too_short_is_named(write: Write) -> None:
    with pytest.raises(DataError, match=r"a\.tsv, line 2: 1 column, and column 2 is needed"):
        read(write("a.tsv", "a\tb\nc d\n"))


@pytest.mark.parametrize(("name", "between"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_a_blank_line_is_a_pair_with_empty_sides(write: Write, name: str, between: str) -> None:
    """So that it is left out and counted like any other, and lines after it keep their numbers."""
    path = write(name, f"a{between}b{between}1\n\n   \n{between}{between}\nc{between}d{between}2\n\n")
    found = list(Pairs(file=path, fields=("1", "2", "3")).read())
    assert [(pair.source, pair.target, pair.more) for pair in found] == [
        ("a", "b", (1.0,)),
        *[("", "", ())] * 3,
        ("c", "d", (2.0,)),
        ("", "", ()),
    ]
    assert found[4].where == f"{path}, line 5"


# --- JSONL ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8"), max_size=12)] * 2), max_size=6), st.booleans())
def test_jsonl_gives_what_json_wrote(folder: Path, rows: list[tuple[str, str]], ascii_only: bool) -> None:
    path = folder / "a.jsonl"
    records = (json.dumps({"en": a, "x": 1, "de": b}, ensure_ascii=ascii_only) for a, b in rows)
    path.write_bytes("".join(record + "\n\n" for record in records).encode())
    assert read(path, fields=("en", "de")) == rows


def test_a_record_may_hold_its_texts_under_translation(write: Write) -> None:
    path = write("a.jsonl", '{"id": 1, "translation": {"en": "one", "de": "eins"}}')
    assert read(path, fields=("en", "de")) == [("one", "eins")]


def test_a_field_may_be_called_translation(write: Write) -> None:
    path = write("a.jsonl", '{"source": "one", "translation": "eins"}')
    assert read(path, fields=("source", "translation")) == [("one", "eins")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"source": "a"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"source": "a", "target": "b", "n": ' + "9" * 5000 + "}", "not JSON"),
        ('["a", "b"]', "an object is needed, given list"),
        ('{"source": "a"}', "no field 'target'"),
        ('{"source": "a", "tarket": "b"}', "did you mean 'tarket'"),
        ('{"source": "a", "target": null}', "field 'target' must be text, given NoneType"),
        ('{"source": "\\ud83d", "target": "b"}', "field 'source' holds a lone surrogate"),
    ],
)
def test_a_record_that_is_no_pair_is_named(write: Write, line: str, said: str) -> None:
    path = write("a.jsonl", '{"source": "fine", "target": "gut"}\n' + line)
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{said}"):
        read(path)


# --- TMX --------------------------------------------------------------------------------------------------

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
XML_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=12)


def tmx(units: list[list[tuple[str, str]]], attribute: str = XML_LANG, encoding: str = "utf-8") -> bytes:
    """A file as ElementTree writes it."""
    root = ElementTree.Element("tmx", version="1.4")
    ElementTree.SubElement(root, "header")
    body = ElementTree.SubElement(root, "body")
    for unit in units:
        element = ElementTree.SubElement(body, "tu")
        for language, text in unit:
            part = ElementTree.SubElement(element, "tuv", {attribute: language})
            ElementTree.SubElement(part, "seg").text = text
    return ElementTree.tostring(root, encoding, xml_declaration=True)


@given(st.lists(st.tuples(XML_TEXT, XML_TEXT), max_size=6), st.sampled_from(["utf-8", "utf-16", "iso-8859-1"]))
def test_tmx_gives_what_elementtree_wrote(folder: Path, rows: list[tuple[str, str]], encoding: str) -> None:
    path = folder / "a.tmx"
    path.write_bytes(tmx([[("en", a), ("de", b)] for a, b in rows], encoding=encoding))
    assert read(path) == rows


@pytest.mark.parametrize("attribute", [XML_LANG, "lang"])
def test_languages_are_chosen_by_name(write: Write, attribute: str) -> None:
    units = [[("FR", "deux"), ("EN-gb", "two"), ("de", "zwei")], [("de-AT", "drei"), ("eng", "x"), ("en", "three")]]
    path = write("a.tmx", tmx(units, attribute))
    assert read(path, fields=("en", "de")) == [("two", "zwei"), ("three", "drei")]
    assert read(path, fields=("de", "EN")) == [("zwei", "two"), ("drei", "three")]
    assert read(path) == [("deux", "two"), ("drei", "x")]


def test_a_side_that_is_missing_is_empty(write: Write) -> None:
    path = write("a.tmx", tmx([[("en", "one")], [("en", "two"), ("de", "zwei")]]))
    assert read(path, fields=("de", "en")) == [("", "one"), ("zwei", "two")]
    assert read(path) == [("one", ""), ("two", "zwei")]


def test_languages_that_the_file_does_not_have_are_an_error(write: Write) -> None:
    path = write("a.tmx", tmx([[("en", "one"), ("de", "eins")]]))
    with pytest.raises(DataError, match="none of 1 units has en and fr; its languages: de, en"):
        read(path, fields=("en", "fr"))


def test_the_codes_of_formatting_are_no_words(write: Write) -> None:
    """TMX 1.4b: bpt, ept, it, ph and ut hold the original's codes; hi marks words."""
    segment = (
        'Press <bpt i="1">&lt;b&gt;</bpt>the <hi>red</hi> key<ept i="1">&lt;/b&gt;</ept>'
        '<!-- a note --><ph>%s<sub>x</sub>!</ph>, <it pos="begin">{</it>now<ut>\\par</ut>.'
    )
    path = write(
        "a.tmx",
        f"<!DOCTYPE tmx SYSTEM 'tmx14.dtd'><tmx><body><tu><tuv xml:lang='en'><seg>{segment}</seg></tuv>"
        "<tuv xml:lang='de'><prop>p</prop><seg>x</seg></tuv></tu></body></tmx>",
    )
    assert read(path) == [("Press the red key, now.", "x")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"line 1: not well-formed XML"),
        (b"<tmx>\n<body>\n<tu>\n</body></tmx>", r"line 4: not well-formed XML"),
        (b"<tmx>\n<tu>\xff</tu></tmx>", r"line 2: not well-formed XML"),
        (tmx([[("en", "a"), ("de", "b")]])[:-10], r"line \d: not well-formed XML"),
        (b"<?xml version='1.0' encoding='none-such'?><tmx/>", "unknown encoding"),
        (b"<?xml version='1.0' encoding='shift_jis'?><tmx/>", "multi-byte encodings"),
        (b"<tmx><tu><tuv><seg>" + b"<hi>" * 50_000 + b"</hi>" * 50_000 + b"</seg></tuv></tu></tmx>", "recursion"),
    ],
)
def test_xml_that_cannot_be_read_is_named(write: Write, content: bytes, said: str) -> None:
    with pytest.raises(DataError, match=rf"a\.tmx, .*{said}"):
        read(write("a.tmx", content))


def test_units_that_are_done_leave_the_memory(write: Write) -> None:
    path = write("a.tmx", tmx([[("en", "a"), ("de", "b")]] * 20_000))  # 2 MB
    stream = Pairs(file=path).read()
    next(stream)
    tracemalloc.start()
    assert sum(1 for _ in stream) == 19_999
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
