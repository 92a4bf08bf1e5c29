"""Data by name: from a mirror on this machine, resumed, checked, and made into what recipes read."""

import gzip
import hashlib
import io
import json
import struct
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

from clearformer.cli import app
from clearformer.data import fetch as module
from clearformer.data import sets
from clearformer.data.fetch import SOURCE, fetch
from clearformer.data.sets import DataSet, data_sets
from clearformer.errors import DataError

TEXT = b"".join(f"line {n}\n".encode() for n in range(100_000))  # several pieces
OTHER = TEXT.replace(b"7", b"8")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def one_file(**more: Any) -> DataSet:
    file = {"name": "text.txt", "urls": ["https://nowhere.invalid/folder/text.txt"], "sha256": sha(TEXT), **more}
    return DataSet.model_validate(
        {"title": "Lines", "licence": "CC0", "home": "https://nowhere.invalid", "files": [file]}
    )


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, DataSet]:
    """The sets that there are, in the place of the real ones."""
    found = {"lines": one_file(bytes=len(TEXT))}
    monkeypatch.setattr(sets, "data_sets", lambda: found)
    return found


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    (tmp_path / "mirror" / "lines").mkdir(parents=True)
    (tmp_path / "mirror" / "lines" / "text.txt").write_bytes(TEXT)
    return tmp_path / "mirror"


def test_a_set_comes_from_a_mirror_and_says_what_it_is(tmp_path: Path, known: Any, mirror: Path) -> None:
    done = fetch("lines", tmp_path / "data", mirror=str(mirror))
    assert (done.folder / "text.txt").read_bytes() == TEXT
    assert (done.files, done.other) == (("text.txt",), ())
    note = json.loads((done.folder / SOURCE).read_text())
    assert (note["licence"], note["files"]["text.txt"]["sha256"]) == ("CC0", sha(TEXT))
    assert sorted(path.name for path in done.folder.iterdir()) == [SOURCE, "text.txt"]


def test_what_is_there_and_right_is_not_fetched_again(tmp_path: Path, known: Any, mirror: Path) -> None:
    fetch("lines", tmp_path / "data", mirror=mirror.as_uri())
    done = fetch("lines", tmp_path / "data")  # its address cannot be reached
    assert (done.folder / "text.txt").read_bytes() == TEXT


def test_a_file_that_is_not_the_pinned_one_is_refused_or_kept_with_a_note(
    tmp_path: Path, known: Any, mirror: Path
) -> None:
    (mirror / "lines" / "text.txt").write_bytes(OTHER)
    with pytest.raises(DataError, match=f"SHA-256 is {sha(OTHER)}, not {sha(TEXT)}; it was not kept.*--any-data"):
        fetch("lines", tmp_path / "data", mirror=str(mirror))
    assert not (tmp_path / "data" / "lines" / "text.txt").exists()
    said: list[str] = []
    done = fetch("lines", tmp_path / "data", mirror=str(mirror), any_data=True, say=said.append)
    assert (done.folder / "text.txt").read_bytes() == OTHER
    assert done.other == ("text.txt",)
    assert "another file than the pinned one" in said[0]
    assert json.loads((done.folder / SOURCE).read_text())["files"]["text.txt"]["pinned"] is False
    with pytest.raises(DataError, match="is there and is not the pinned file"):
        fetch("lines", tmp_path / "data", mirror=str(mirror))


def test_a_file_without_a_pin_is_kept_and_its_checksum_said(tmp_path: Path, known: Any, mirror: Path) -> None:
    known["lines"] = one_file(sha256=None)
    said: list[str] = []
    done = fetch("lines", tmp_path / "data", mirror=str(mirror), say=said.append)
    assert done.other == ("text.txt",)
    assert said == [f"text.txt has no pinned checksum; its SHA-256 is {sha(TEXT)}"]


@pytest.mark.parametrize("packed", [True, False])
def test_content_is_checked_and_kept_unpacked(tmp_path: Path, known: Any, mirror: Path, packed: bool) -> None:
    known["lines"] = one_file(checked="content")
    if packed:
        (mirror / "lines" / "text.txt").write_bytes(gzip.compress(TEXT, 1))
    done = fetch("lines", tmp_path / "data", mirror=str(mirror))
    assert (done.folder / "text.txt").read_bytes() == TEXT


def test_a_damaged_gzip_is_an_error(tmp_path: Path, known: Any, mirror: Path) -> None:
    known["lines"] = one_file(checked="content")
    (mirror / "lines" / "text.txt").write_bytes(gzip.compress(TEXT)[:-100])
    with pytest.raises(DataError, match="cannot be unpacked"):
        fetch("lines", tmp_path / "data", mirror=str(mirror))


def test_more_than_was_promised_is_not_read(tmp_path: Path, known: Any, mirror: Path) -> None:
    known["lines"] = one_file(bytes=1000)
    with pytest.raises(DataError, match="sends more than the 1,000 bytes"):
        fetch("lines", tmp_path / "data", mirror=str(mirror))


def test_any_data_may_be_larger_than_what_is_pinned(tmp_path: Path, known: Any, mirror: Path) -> None:
    (mirror / "lines" / "text.txt").write_bytes(TEXT + b"and more\n")
    with pytest.raises(DataError, match="sends more than"):
        fetch("lines", tmp_path / "data", mirror=str(mirror))
    done = fetch("lines", tmp_path / "data", mirror=str(mirror), any_data=True)
    assert (done.folder / "text.txt").read_bytes() == TEXT + b"and more\n"


def test_names_that_are_none(tmp_path: Path, known: Any) -> None:
    with pytest.raises(DataError, match="no data set 'line'; did you mean 'lines'"):
        fetch("line", tmp_path)
    with pytest.raises(DataError, match=r"there is no file file://.*text\.txt"):
        fetch("lines", tmp_path / "data", mirror=str(tmp_path))


# --- over HTTP, from a server on this machine ----------------------------------------------------------------------


class Server(BaseHTTPRequestHandler):
    content: ClassVar[dict[str, bytes]] = {}
    breaks: ClassVar[list[int]] = []  # after so many bytes the connection breaks, once each
    ranges: ClassVar[bool] = True
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        Server.asked.append(wanted)
        if self.path not in self.content:
            self.send_error(404)
            return
        data, start = self.content[self.path], 0
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start : start + self.breaks.pop()] if self.breaks else data[start:])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Server, "content", {"/lines/text.txt": TEXT})
    monkeypatch.setattr(Server, "asked", [])
    running = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_fetch_goes_on_where_it_was(
    tmp_path: Path, known: Any, server: str, monkeypatch: pytest.MonkeyPatch, ranges: bool
) -> None:
    monkeypatch.setattr(Server, "breaks", [600_000])
    monkeypatch.setattr(Server, "ranges", ranges)
    with pytest.raises(DataError, match=r"text\.txt (broke off after 600,000 of|cannot be reached)"):
        fetch("lines", tmp_path, mirror=server)
    part = tmp_path / "lines" / ".text.txt.part"
    have = part.stat().st_size
    assert part.read_bytes() == TEXT[:have]
    assert have == 600_000
    done = fetch("lines", tmp_path, mirror=server)
    assert (done.folder / "text.txt").read_bytes() == TEXT
    assert Server.asked == [None, "bytes=600000-"]  # a server that knows no ranges sends all of it again


def test_the_beginning_of_another_addresss_file_is_not_gone_on_with(
    tmp_path: Path, known: Any, server: str, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "breaks", [600_000])
    monkeypatch.setattr(Server, "content", {"/lines/text.txt": OTHER})
    with pytest.raises(DataError):
        fetch("lines", tmp_path / "data", mirror=server)
    done = fetch("lines", tmp_path / "data", mirror=str(mirror))
    assert (done.folder / "text.txt").read_bytes() == TEXT


def test_the_next_address_is_tried_until_one_has_the_pinned_file(
    tmp_path: Path, known: Any, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "content", {"/old.txt": OTHER, "/new.txt": TEXT})
    known["lines"] = one_file(urls=[f"{server}/{name}.txt" for name in ("gone", "old", "new")])
    done = fetch("lines", tmp_path)
    assert (done.folder / "text.txt").read_bytes() == TEXT
    known["lines"] = one_file(urls=[f"{server}/gone.txt"])
    with pytest.raises(DataError, match=r"gone\.txt answers 404"):
        fetch("lines", tmp_path / "again")


def test_what_cannot_be_reached_is_said_with_its_address(tmp_path: Path, known: Any) -> None:
    known["lines"] = one_file(urls=["http://127.0.0.1:1/text.txt"])
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:1/text\.txt cannot be reached .*--mirror"):
        fetch("lines", tmp_path)


# --- what recipes read ---------------------------------------------------------------------------------------------


def prepared(tmp_path: Path, known: dict[str, DataSet], content: dict[str, bytes], **more: Any) -> Path:
    folder = tmp_path / "mirror" / "set"
    folder.mkdir(parents=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    listed = [{"name": name, "urls": [f"https://nowhere.invalid/{name}"]} for name in content]
    said = {"title": "Some", "licence": "CC0", "home": "https://nowhere.invalid", "files": listed, **more}
    known["set"] = DataSet._from(said)
    return fetch("set", tmp_path / "data", mirror=str(tmp_path / "mirror")).folder


def archive(**members: list[str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for language, lines in members.items():
            made.writestr(f"Some.de-en.{language}", "".join(line + "\n" for line in lines))
    return file.getvalue()


def test_aligned_texts_are_split_so_that_no_held_out_text_is_trained_on(tmp_path: Path, known: Any) -> None:
    english = [f"sentence {n % 40}" for n in range(60)]
    german = [f"Satz {n % 50}" for n in range(60)]
    content = {"de-en.txt.zip": archive(en=english, de=german)}
    folder = prepared(tmp_path, known, content, prepare="aligned", held_out=(5, 7))
    rows = {
        part: [
            gzip.decompress((folder / f"{part}.{side}.gz").read_bytes()).decode().splitlines() for side in ("en", "de")
        ]
        for part in ("train", "valid", "test")
    }
    assert [len(rows[part][0]) for part in ("valid", "test")] == [5, 7]
    pairs = {pair for part in rows for pair in zip(*rows[part], strict=True)}
    assert pairs <= set(zip(english, german, strict=True))
    for side in (0, 1):
        held = {*rows["valid"][side], *rows["test"][side]}
        assert not held & set(rows["train"][side])
    assert len(rows["train"][0]) == len(set(zip(*rows["train"], strict=True)))  # no pair twice


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (archive(en=["a"], de=["b"]), "1 different texts, and 3,000 are to be held out"),
        (archive(en=["a"]), "0 files of the language de"),
        (archive(en=["a", "b"], de=["a"]), "3 and 2 lines"),
        (b"no zip", "not a zip file"),
    ],
)
def test_archives_that_are_not_what_was_expected(tmp_path: Path, known: Any, content: bytes, said: str) -> None:
    with pytest.raises(DataError, match=f"not what was expected .*{said}"):
        prepared(tmp_path, known, {"de-en.txt.zip": content}, prepare="aligned")


def test_images_in_mnists_format(tmp_path: Path, known: Any) -> None:
    pixels = np.arange(20 * 2 * 3, dtype=np.uint8).reshape(20, 2, 3)
    labels = np.arange(20, dtype=np.uint8)

    def idx(values: np.ndarray) -> bytes:
        head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
        return gzip.compress(head + values.tobytes())

    content = {"a.gz": idx(pixels), "b.gz": idx(labels), "c.gz": idx(pixels[:4]), "d.gz": idx(labels[:4])}
    folder = prepared(tmp_path, known, content, prepare="idx-images")
    for name, part in (("train", slice(0, 18)), ("valid", slice(18, 20)), ("test", slice(0, 4))):
        with np.load(folder / f"{name}.npz") as found:
            np.testing.assert_array_equal(found["x"], pixels[part])
            np.testing.assert_array_equal(found["y"], labels[part])


def test_commands_become_pairs(tmp_path: Path, known: Any) -> None:
    text = b"IN: jump twice OUT: I_JUMP I_JUMP\n"
    content = {"simple-train.txt": text, "simple-test.txt": text}
    folder = prepared(tmp_path, known, content, prepare="scan")
    assert (folder / "test.tsv").read_text() == "jump twice\tI_JUMP I_JUMP\n"


# --- the command ---------------------------------------------------------------------------------------------------


def test_the_command_lists_shows_and_fetches(tmp_path: Path, known: Any, mirror: Path) -> None:
    run = CliRunner()
    told = run.invoke(app, ["data"]).output
    assert "lines: Lines" in told
    assert "CC0" in told
    shown = run.invoke(app, ["data", "lines", "--show"]).output
    assert "https://nowhere.invalid/folder/text.txt" in shown
    assert sha(TEXT) in shown
    listed = json.loads(run.invoke(app, ["data", "--json"]).output)
    assert (listed["name"], listed["licence"], listed["bytes"]) == ("lines", "CC0", len(TEXT))
    into = tmp_path / "data"
    assert not into.exists()  # nothing without being asked
    done = run.invoke(app, ["data", "lines", "--into", str(into), "--mirror", str(mirror)])
    assert done.exit_code == 0, done.output
    assert f"{into / 'lines'}: text.txt" in done.stdout
    assert "CC0" in done.stderr
    assert sha(TEXT) in done.stderr


def test_the_sets_of_the_package_are_described() -> None:
    for name, data in data_sets().items():
        assert data.licence, name
        assert data.title, name
        for file in data.files:
            assert file.sha256 or data.prepare, f"{name}/{file.name}: neither pinned nor prepared here"
    assert module.TIMEOUT > 0
