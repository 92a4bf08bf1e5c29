"""Gettext PO: by hand, against Python's reading of the quotes, and against msgfmt and gettext where they are."""

import ast
import gettext
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.data.po import messages
from clearformer.errors import DataError

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Plural-Forms: nplurals=2; plural=n != 1;\\n"\n'
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("po") / "a.po"


def read(file: Path, text: str) -> list[tuple[str, str]]:
    file.write_bytes(text.encode())
    return [(message, translation) for _, message, translation in messages(file)]


def test_a_file_by_hand(file: Path) -> None:
    text = (
        HEADER
        + r"""
# a comment
#: main.c:12
#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid ""
"one "
"two"
msgstr ""
"eins\t"  "\"zwei\"\n"
msgctxt "menu"
msgid "Open"
msgstr "Öffnen"
#, fuzzy, c-format
#| msgid "Shut"
msgid "Close"
msgstr "Schließen?"

msgid "untranslated"
msgstr ""

#, fuzzy
#~ msgid "old"
#~ msgstr "alt"

msgid "new"
msgstr "neu"
#, fuzzy
msgctxt "x"
msgid "unsure"
msgstr "unsicher"
"""
    )
    assert read(file, text) == [
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
        ("one two", 'eins\t"zwei"\n'),
        ("Open", "Öffnen"),
        ("new", "neu"),
    ]


def test_a_message_is_named_by_its_first_line(file: Path) -> None:
    file.write_text('\n# c\nmsgid "a"\nmsgstr "b"\n\nmsgctxt "x"\nmsgid "c"\nmsgstr "d"\n', encoding="utf-8")
    assert [line for line, _, _ in messages(file)] == [3, 6]


def test_a_fuzzy_header_says_nothing_about_the_messages(file: Path) -> None:
    assert read(file, "#, fuzzy\n" + HEADER + 'msgid "a"\nmsgstr "b"\n') == [("a", "b")]


@given(st.text(st.sampled_from('abfnrtvx05 \\"é')))
def test_quotes_are_read_as_python_reads_them(file: Path, inside: str) -> None:
    """msgfmt.py takes Python's own rule for quoted strings; \\x, \\u and \\N are not the same in gettext."""
    if any(escape in inside for escape in ("\\x", "\\0", "\\5", "\\é", "\\ ")):
        return
    try:
        meant = ast.literal_eval(f'"{inside}"')
    except SyntaxError:
        with pytest.raises(DataError, match="line 2"):
            read(file, f'msgid "a"\nmsgstr "{inside}"')
        return
    assert read(file, f'msgid "a"\nmsgstr "{inside}"') == ([("a", meant)] if meant else [])


def test_escapes_of_bytes_are_utf_8(file: Path) -> None:
    assert read(file, r'msgid "\101\x42"' + "\n" + r'msgstr "\303\xa4\\n"') == [("AB", "ä\\n")]
    with pytest.raises(DataError, match=r"a\.po, line 2: its escapes are not UTF-8"):
        read(file, 'msgid "a"\nmsgstr "\\377"')


@pytest.mark.parametrize(
    "line", ['msgstr "b', "msgstr b", 'msgstr "b" c', '"b', 'msgstr "b\\"', "<html>", 'msgid_many "b"', '"a"b"']
)
def test_a_line_that_is_none_is_named(file: Path, line: str) -> None:
    with pytest.raises(DataError, match=r"a\.po, line 3: not a line of a PO file"):
        read(file, f'\nmsgid "a"\n{line}\n')


ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})
TEXT = st.text(st.sampled_from('ab \\"\n\té漢'), max_size=8).filter(lambda t: t == t.strip("\n"))
ENTRY = st.tuples(
    st.text(st.sampled_from("abc"), min_size=1, max_size=4),  # message
    st.booleans(),  # plural
    TEXT,
    TEXT,
    st.sampled_from(["", "", "#, fuzzy\n", "# c\n\n"]),
    st.sampled_from(["", "", '#, fuzzy\n#~ msgid "old {}"\n#~ msgstr "y"\n', "\n"]),
    st.integers(1, 4),  # characters a line
)


def quoted(text: str, width: int) -> str:
    return "\n".join(f'"{text[n : n + width].translate(ESCAPES)}"' for n in range(0, max(1, len(text)), width))


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="msgfmt is not installed")
@settings(max_examples=25)
@given(st.lists(ENTRY, max_size=6, unique_by=lambda entry: entry[0]))
def test_msgfmt_and_gettext_find_the_same(file: Path, entries: list[tuple]) -> None:
    text = HEADER + "\n"
    for message, plural, first, second, before, after, width in entries:
        text += f"{before}msgid {quoted(message, width)}\n"
        after = after.format(message)
        if plural:
            text += f"msgid_plural {quoted(message + 's', width)}\n"
            text += f"msgstr[0] {quoted(first, width)}\nmsgstr[1] {quoted(second, width)}\n{after}"
        else:
            text += f"msgstr {quoted(first, width)}\n{after}"
    found = read(file, text)
    subprocess.run(["msgfmt", "-o", file.with_suffix(".mo"), file], check=True, capture_output=True)
    with file.with_suffix(".mo").open("rb") as handle:
        catalog = gettext.GNUTranslations(handle)._catalog  # type: ignore[attr-defined]
    expected = set()
    for key, value in catalog.items():
        if isinstance(key, tuple):  # (message, 0 or 1)
            expected.add((key[0] + "s" * key[1], value))
        elif key:
            expected.add((key, value))
    assert set(found) == {pair for pair in expected if pair[1]}
    assert len(found) == len(set(found))
