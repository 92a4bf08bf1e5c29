"""One table for all verbs that read texts: the same texts by every way in give the same answers by every way out."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

import clearformer as cf
from clearformer.cli import app
from clearformer.cli.output import output
from tests.tasks import conftest as translators
from tests.tasks import encoders, writers
from tests.tasks.test_answer import CONTEXT, save_public


class Verb(NamedTuple):
    words: tuple[str, ...]  # of the command line, before the texts
    texts: tuple[str, str]


Call = Callable[..., Result]
NAMES = ("translate", "complete", "summarize", "classify", "embed", "fill", "tag", "answer", "search")


@pytest.fixture(scope="module")
def verbs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verb]:
    home = tmp_path_factory.mktemp("verbs")

    def encoder(name: str, kind: str, **options: Any) -> str:
        return str(encoders.save(home / name, kind, **options)[0])

    save_public(home / "answerer", longest=40)
    page = home / "page.txt"
    page.write_text(CONTEXT)
    embedder = encoder("embed", "BertModel")
    index = home / "my.index"
    cf.Index.build(cf.load(embedder), encoders.TEXTS, model=embedder).save(index)
    few = ("one two", "seven eight nine")
    made = {
        "translate": (("--model", str(translators.save(home / "translate"))), few),
        "complete": (
            ("--model", str(writers.save(writers.completer(), home / "complete")), "--max-new-tokens", "4"),
            few,
        ),
        "summarize": (("--model", str(writers.save(writers.writer(), home / "write")), "--max-new-tokens", "4"), few),
        "classify": (("--model", encoder("classify", "DistilBertForSequenceClassification", num_labels=3)), ()),
        "embed": (("--model", embedder), ()),
        "fill": (("--model", encoder("fill", "BertForMaskedLM")), ("It [MASK].", "The [MASK] sat on the mat.")),
        "tag": (("--model", encoder("tag", "DistilBertForTokenClassification", num_labels=3)), ()),
        "answer": (("--model", str(home / "answerer"), "--context", str(page)), ("Who?", "When was it built?")),
    }
    found = {
        name: Verb((name, *words), texts or (encoders.TEXTS[0], encoders.TEXTS[5]))
        for name, (words, texts) in made.items()
    }
    return found | {"search": Verb(("search", "query", str(index)), (encoders.TEXTS[0], encoders.TEXTS[5]))}


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """In this process, and in a folder that is empty."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, list(words), input=stdin)

    return call


def said(done: Result) -> str:
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_way_in_gives_the_same(verbs: dict[str, Verb], name: str, call: Call) -> None:
    words, (one, two) = verbs[name]
    wanted = said(call(*words, one, two))
    assert wanted
    Path("both.txt").write_text(f"{one}\n{two}\n")
    Path("first.txt").write_text(one)
    Path("second.txt").write_text(f"{two}\r\n")
    assert said(call(*words, "--file", "both.txt")) == wanted
    assert said(call(*words, "--file", "first.txt", "--file", "second.txt")) == wanted
    assert said(call(*words, "--file", "first.txt", "--file", "second.txt", "--whole")) == wanted
    assert said(call(*words, stdin=f"{one}\n{two}\n")) == wanted
    assert said(call(*words, "-", stdin=f"{one}\n{two}")) == wanted
    assert said(call(*words, "--file", "-", stdin=f"{one}\n{two}")) == wanted
    assert said(call(*words, one, "-", stdin=two)) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_every_way_out_gives_the_same(verbs: dict[str, Verb], name: str, call: Call) -> None:
    words, texts = verbs[name]
    lines = said(call(*words, *texts, "--json")).splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert len(lines) == 2
    assert said(call(*words, *texts, "--json", "--out", "new.jsonl")) == ""
    assert Path("new.jsonl").read_text().splitlines() == lines
    if name == "embed":
        said(call(*words, *texts, "--out", "new.npy"))
        vectors = [json.loads(line)["vector"] for line in lines]
        np.testing.assert_allclose(np.load("new.npy"), vectors, atol=1e-6)
        return
    assert said(call(*words, *texts, "--out", "new.txt")) == ""
    assert Path("new.txt").read_text() == said(call(*words, *texts))
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["new.jsonl", "new.txt"]
    again = call(*words, *texts, "--out", "new.txt")
    assert "new.txt exists already" in str(again.exception)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_is_also_a_file_is_a_text(verbs: dict[str, Verb], name: str, call: Call) -> None:
    words, (text, other) = verbs[name]
    plain = call(*words, text)
    assert plain.stderr == ""
    assert said(plain)
    Path(text).write_text(other)
    done = call(*words, text)
    assert done.stderr.startswith(f"clearformer: {text!r} is also a file; --file ")
    assert done.stderr.endswith(" reads it\n")
    assert said(done) == said(plain)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_is_said_before_the_work(verbs: dict[str, Verb], name: str, call: Call) -> None:
    words, texts = verbs[name]
    Path("there.txt").write_text(texts[0])
    for more, told in (
        ((texts[0], "--file", "there.txt"), "give texts or files, not both"),
        (("--file", "nowhere.txt"), "there is no file nowhere.txt"),
        (("--file", "."), ". is a folder; give a file"),
        (("-", "-"), "stdin can be read only once"),
        ((texts[0], "--whole"), "--whole is about files and stdin"),
        ((texts[0], "--json", "--out", "there.txt"), "there.txt exists already; give a new name"),
        ((texts[0], "--json", "--out", "nowhere/new"), "there is no folder nowhere to write new in"),
        ((texts[0], "--json", "--out", "n" * 300), f"cannot write {'n' * 300}: File name too long"),
    ):
        done = call(*words, *more)
        assert isinstance(done.exception, cf.ClearformerError), (more, done.output)
        assert told in str(done.exception)
        assert done.stdout == ""
    assert [path.name for path in Path.cwd().iterdir()] == ["there.txt"]


@pytest.mark.parametrize("name", [*NAMES, "index"])
def test_help_is_alike(name: str) -> None:
    """The same options with the same words."""
    words = {"search": ["search", "query"], "index": ["search", "index"]}.get(name, [name])
    command: Any = get_command(app)
    for word in words:
        command = command.commands[word]
    shown = {each.name: each.help for each in command.params}
    assert all(shown.values()), shown
    wanted = {each.name: each.help for each in get_command(app).commands["translate"].params}  # type: ignore[attr-defined]
    alike = ("texts", "file", "whole", "json", "out", "precision")
    own = {"embed": ("json", "out"), "search": ("precision",), "index": ("json", "out")}.get(name, ())
    for option in set(alike) - set(own):
        assert shown[option] == wanted[option], option


def test_an_index_is_made_of_texts_or_files(verbs: dict[str, Verb], call: Call) -> None:
    model = verbs["embed"].words[2]
    texts = encoders.TEXTS[:3]
    Path("docs.txt").write_text("\n".join(texts))
    for name, words, stdin in (("a", texts, ""), ("b", ["--file", "docs.txt"], ""), ("c", ["-"], "\n".join(texts))):
        said(call("search", "index", "--model", model, "--out", name, *words, stdin=stdin))
        assert Path(name, "documents.jsonl").read_bytes() == Path("a", "documents.jsonl").read_bytes()
    done = call("search", "index", "--model", model, "--out", "d", "docs.txt")
    assert "'docs.txt' is also a file; --file docs.txt reads it" in done.stderr
    assert json.loads(Path("d", "documents.jsonl").read_text())["text"] == "docs.txt"
    said(call("search", "index", "--model", model, "--out", "e", "--file", "docs.txt", "--whole"))
    assert json.loads(Path("e", "documents.jsonl").read_text())["text"] == "\n".join(texts)


def test_an_index_is_asked_in_its_own_precision(verbs: dict[str, Verb], call: Call) -> None:
    model = verbs["embed"].words[2]
    for precision, other in (("float32", "int8"), ("int8", "float32")):
        said(call("search", "index", "--model", model, "--precision", precision, "--out", precision, *encoders.TEXTS))
        assert json.loads(Path(precision, "index.json").read_text())["precision"] == precision
        wanted = said(call("search", "query", precision, "It rains."))
        assert said(call("search", "query", precision, "--model", model, "It rains.")) == wanted
        refused = call("search", "query", precision, "--precision", other, "It rains.")
        assert f"made with {precision} and the model was loaded as {other}" in str(refused.exception)
    about = json.loads(Path("float32", "index.json").read_text())
    del about["precision"]  # as older ones
    Path("float32", "index.json").write_text(json.dumps(about))
    assert said(call("search", "query", "float32", "It rains."))


def test_what_the_disk_refuses_is_said_with_the_path(tmp_path: Path) -> None:
    def full() -> None:
        with output(tmp_path / "new") as stream:
            stream.write("something")
            raise OSError(28, "No space left on device")

    with pytest.raises(cf.DataError, match=f"cannot write {tmp_path / 'new'}: No space left"):
        full()
    assert list(tmp_path.iterdir()) == []


def test_without_stdout_a_file_is_written(verbs: dict[str, Verb], tmp_path: Path) -> None:
    words, (text, _) = verbs["classify"]
    command = [sys.executable, "-m", "clearformer", *words, text]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (2, "clearformer: cannot write: stdout is closed\n")
    command += ["--out", str(tmp_path / "new")]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "new").read_text().endswith(f"{text}\n")


def shown_on_a_terminal(command: list[str], **streams: Any) -> tuple[bytes, bytes]:
    """What a program writes to stdout, and what to a terminal that is its stderr."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment, **streams) as running:
        os.close(theirs)
        assert running.stdout is not None
        told = b""
        while part := _read(ours):
            told += part
        out = running.stdout.read()
    os.close(ours)
    assert running.returncode == 0, told
    return out, told


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 2**16)
    except OSError:  # nobody writes to it any more
        return b""


def test_a_bar_on_a_terminal_and_nowhere_else(verbs: dict[str, Verb], tmp_path: Path) -> None:
    words, (one, two) = verbs["classify"]
    path = tmp_path / "many.txt"
    path.write_text(f"{one}\n{two}\n" * 100)
    command = [sys.executable, "-m", "clearformer", *words]
    out, told = shown_on_a_terminal([*command, "--file", str(path)])
    assert b"200/200" in told
    assert out.count(b"\n") == 200
    assert shown_on_a_terminal([*command, one])[1] == b""  # one is done before a bar is read
    done = subprocess.run([*command, "--file", str(path)], capture_output=True, timeout=280)
    assert (done.stdout, done.stderr) == (out, b"")


def test_the_first_answers_do_not_wait_for_the_last_texts(
    verbs: dict[str, Verb], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many are worked on at first as a person waits for; then more."""
    from clearformer.tasks.classify import Classifier

    words, (one, _) = verbs["classify"]
    sizes, whole = [], Classifier.classify

    def classify(self: Classifier, texts: list[str], *rest: Any, **options: Any) -> Any:
        sizes.append(len(texts))
        return whole(self, texts, *rest, **options)

    monkeypatch.setattr(Classifier, "classify", classify)
    Path("many.txt").write_text(f"{one}\n" * 3_000)
    assert said(call(*words, "--file", "many.txt")).count("\n") == 3_000
    assert sizes == [64, 128, 256, 512, 1_000, 1_000, 40]


def test_errors_count_from_the_first_text(verbs: dict[str, Verb], call: Call) -> None:
    for name, told in (("classify", "text 71 is empty"), ("answer", "question 71 is empty")):
        words, (one, _) = verbs[name]
        Path(f"{name}.txt").write_text(f"{one}\n" * 70 + "\n")
        done = call(*words, "--file", f"{name}.txt")
        assert told in str(done.exception)
        assert done.stdout  # what came before is answered
