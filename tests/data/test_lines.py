"""Lines end at a line feed and nowhere else; what cannot be read is named with its file and line."""

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.data import lines as module
from clearformer.data.lines import fingerprint, lines
from clearformer.errors import DataError


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "text"


def truth(content: str) -> list[str]:
    """Python's own rule with nothing but the line feed: split, and the last end ends no further line."""
    found = content.split("\n")
    return [line.removesuffix("\r") for line in (found[:-1] if found[-1] == "" else found)]


@given(st.text(st.sampled_from("ab \n\r\0\f\v\x1c\x1e\x85\u2028\u2029é漢")), st.booleans())
def test_only_a_line_feed_ends_a_line(file: Path, content: str, packed: bool) -> None:
    raw = content.encode()
    file.write_bytes(gzip.compress(raw, 1) if packed else raw)
    assert list(lines(file)) == truth(content)


def test_the_signs_that_other_readers_split_at_stay_inside(file: Path) -> None:
    file.write_bytes("a\u2028b\x0cc\rd\0e\x85f\r\ng\n\nh".encode())
    assert list(lines(file)) == ["a\u2028b\x0cc\rd\0e\x85f", "g", "", "h"]


def test_a_mark_in_front_of_the_file_is_no_text(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
    assert list(lines(file)) == ["a", "\ufeffb"]


def test_gzip_is_told_by_its_bytes_and_not_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "plain.gz").write_bytes(b"a\nb")
    (tmp_path / "packed.txt").write_bytes(
        gzip.compress(b"a\n", mtime=0) + gzip.compress(b"b", mtime=0)
    )  # two parts, as gzip allows
    assert list(lines(tmp_path / "plain.gz")) == list(lines(tmp_path / "packed.txt")) == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"fine\ngr\xfc\xdfe\n", r"text, line 2: byte 3 \(0xfc\) shows this is not UTF-8; .*iconv -f LATIN1"),
        (b"\xef\xbb\xbfa\xe4\n", r"text, line 1: byte 5 \(0xe4\)"),  # counted in the file, mark and all
        ("ab\n".encode("utf-16"), r"text, line 1: .*UTF-16; .*iconv -f UTF-16"),
        (b"\x7fELF\0\0\xff\xfe\n", r"text, line 1: .*a binary file; give a text file"),
        (b"\x89PNG\r\n\x1a\n\0\0", r"text, line 1: .*a binary file"),
        (gzip.compress(b"no end of it" * 9, mtime=0)[:-12], r"text, line 1: cannot be unpacked .*damaged"),
        (b"\x1f\x8b\x08\x00garbage", r"text, line 1: cannot be unpacked .*damaged"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xff", r"text, line 1: cannot be unpacked .*invalid block"),
        (b"\x1f\x8b", r"text, line 1: cannot be unpacked .*damaged"),
    ],
)
def test_what_is_no_text_is_named_with_file_and_line(file: Path, raw: bytes, said: str) -> None:
    file.write_bytes(raw)
    with pytest.raises(DataError, match=said):
        list(lines(file))


def test_the_lines_before_a_truncated_end_still_come(file: Path) -> None:
    packed = gzip.compress("".join(f"line {n}\n" for n in range(20_000)).encode())
    file.write_bytes(packed[: len(packed) // 2])
    found: list[str] = []
    with pytest.raises(DataError, match=r"text, line \d+: cannot be unpacked") as error:
        found.extend(lines(file))
    assert len(found) > 1000
    assert found == [f"line {n}" for n in range(len(found))]
    assert f"line {len(found) + 1}:" in str(error.value)


def test_a_missing_file_a_folder_and_a_pipe_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*gone"):
        list(lines(tmp_path / "gone"))
    with pytest.raises(DataError, match="is a folder; give a file"):
        list(lines(tmp_path))
    reading, writing = os.pipe()
    os.write(writing, b"text\n")
    os.close(writing)
    try:
        with pytest.raises(DataError, match="cannot be read twice"):
            list(lines(Path(f"/dev/fd/{reading}")))
    finally:
        os.close(reading)


def test_a_line_without_end_stops_before_it_fills_the_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 10)
    file.write_bytes(b"123456789\n12345678\r\n")  # ten bytes each, ends and all
    assert [len(line) for line in lines(file)] == [9, 8]
    file.write_bytes(b"a\n1234567890\n")
    with pytest.raises(DataError, match="line 2: longer than 10 bytes"):
        list(lines(file))


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_not_held_in_memory(file: Path, packed: bool) -> None:
    raw = b"0123456789 0123456789 0123456789 0123456789\n" * 100_000  # 4.4 MB
    file.write_bytes(gzip.compress(raw, 1) if packed else raw)
    tracemalloc.start()
    assert sum(1 for _ in lines(file)) == 100_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_fingerprint_is_the_size_and_the_hash_of_the_bytes(file: Path) -> None:
    file.write_bytes(b"abc")
    # the first example of FIPS 180-2
    assert fingerprint(file) == (3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    with pytest.raises(DataError, match="cannot read"):
        fingerprint(file.parent)
