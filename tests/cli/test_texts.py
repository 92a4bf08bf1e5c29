"""Texts as they come: what is there when a pipe pauses is answered, and no line is lost or cut on the way."""

import io
import os
import sys
from pathlib import Path
from threading import Thread
from time import sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.cli import texts
from clearformer.cli.texts import Piped, chunks
from clearformer.errors import DataError


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> int:
    """What is written to this comes in as stdin."""
    out, into = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(out))
    return into


def test_what_came_is_answered_while_the_pipe_is_open(pipe: int) -> None:
    os.write(pipe, b"one\ntwo\nthr")
    waiting = chunks(None, [])
    assert next(waiting) == ["one", "two"]
    os.write(pipe, "ee\nvier ä\n".encode())
    assert next(waiting) == ["three", "vier ä"]
    os.write(pipe, b"last")
    os.close(pipe)
    assert list(waiting) == [["last"]]


def test_no_more_than_so_many_at_once(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "AT_ONCE", 3)
    os.write(pipe, b"1\n2\n3\n4\n")
    os.close(pipe)
    assert list(chunks(None, [Path("-")])) == [["1", "2", "3"], ["4"]]


def test_files_do_not_wait_for_a_pipe(pipe: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PAUSE", 60)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert list(chunks(None, [tmp_path / "a.txt"])) == [["one", "two"]]
    os.close(pipe)


def test_what_is_no_text_is_an_error(pipe: int) -> None:
    os.write(pipe, b"one\n\xff\n")
    os.close(pipe)
    with pytest.raises(DataError, match="stdin, line 2"):
        list(chunks(None, []))


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_lines_are_those_of_a_file(parts: list[bytes], most: int) -> None:
    out, into = os.pipe()

    def write() -> None:
        for part in parts:
            os.write(into, part)
            sleep(0)
        os.close(into)

    writer = Thread(target=write)
    writer.start()
    piped, found = Piped(out), []
    while line := piped.readline(most):
        found.append(line)
    writer.join()
    os.close(out)
    assert b"".join(found) == b"".join(parts)
    assert all(len(line) <= most and b"\n" not in line[:-1] for line in found)
    assert all(line.endswith(b"\n") or len(line) == most for line in found[:-1])


def test_without_stdin_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    (tmp_path / "a.txt").write_text("one\n")
    assert list(chunks(None, [tmp_path / "a.txt"])) == [["one"]]
    with pytest.raises(DataError, match="there is no stdin"):
        list(chunks(None, []))


def test_a_pipe_that_does_not_block(pipe: int) -> None:
    os.set_blocking(sys.stdin.fileno(), False)
    os.write(pipe, b"one\n")
    waiting = chunks(None, [])
    assert next(waiting) == ["one"]
    later = Thread(target=lambda: (sleep(0.1), os.write(pipe, b"two\n"), os.close(pipe)))
    later.start()
    assert list(waiting) == [["two"]]
    later.join()


def test_a_terminal_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on other systems: every line is answered at once."""

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            raise OSError

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"one\ntwo\n")))
    assert list(chunks(None, [])) == [["one"], ["two"]]
