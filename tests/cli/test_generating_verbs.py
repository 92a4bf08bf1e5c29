"""`complete`, `summarize` and `translate` with models that write, from the command line."""

import io
import json
import sys
from pathlib import Path

import pytest

from clearformer.cli import main
from clearformer.tasks.load import load
from tests.tasks.writers import TEMPLATE, completer, save, writer


class Ran:
    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """The command line in this process: arguments and stdin in, exit code and output out."""

    def ran(*words: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "argv", ["clearformer", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return ran


@pytest.fixture(scope="module")
def complete_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(completer(TEMPLATE), tmp_path_factory.mktemp("models") / "complete"))


@pytest.fixture(scope="module")
def write_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    prompts = {"translate": {"de": "translate English to German: "}}
    return str(save(writer(prompts=prompts, to=("de",)), tmp_path_factory.mktemp("models") / "write"))


def test_one_prompt_is_told_with_its_text_in_front(run, complete_folder: str) -> None:  # type: ignore[no-untyped-def]
    model = ("complete", "--model", complete_folder, "--max-new-tokens", "8", "--precision", "float32")
    expected = completer().complete("one two", max_new_tokens=8)[0]
    done = run(*model, "one two")
    assert (done.code, done.out) == (0, f"one two{expected.text}\n"), done.err
    assert run(*model, "--no-prompt", "one two").out == expected.text + "\n"
    found = json.loads(run(*model, "--json", "--scores", "one two").out)
    assert found["text"] == expected.text
    assert len(found["probabilities"]) == len(found["tokens"]) == 8
    stopped = run(*model, "--stop", expected.text[2:4], "one two").out
    assert stopped == "one two" + expected.text[: expected.text.index(expected.text[2:4])] + "\n"


def test_many_prompts_are_a_line_each(run, complete_folder: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    model = ("complete", "--model", complete_folder, "--max-new-tokens", "5", "--no-prompt")
    piped = run(*model, stdin="one\nseven\n")
    assert piped.code == 0, piped.err
    assert len(piped.out.splitlines()) == 2
    (tmp_path / "in").write_text("one\nseven\n")
    filed = run(*model, "--file", str(tmp_path / "in"), "--out", str(tmp_path / "out"))
    assert filed.code == 0, filed.err
    assert (tmp_path / "out").read_text() == piped.out
    drawn = [run(*model, "--temperature", "1.2", "--seed", seed, "one").out for seed in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_message_goes_through_the_template(run, complete_folder: str) -> None:  # type: ignore[no-untyped-def]
    model = ("complete", "--model", complete_folder, "--max-new-tokens", "4")
    found = json.loads(run(*model, "--chat", "--system", "two", "--json", "one").out)
    assert found["prompt"] == "system: two\nuser: one\nassistant:"
    told = run(*model, "--chat", "one")
    assert "user:" not in told.out
    assert run(*model, "--system", "two", "one").code == 2


def test_the_end_of_the_positions_is_said(run, complete_folder: str) -> None:  # type: ignore[no-untyped-def]
    done = run("complete", "--model", complete_folder, "--max-new-tokens", "500", "--min-new-tokens", "400", "one")
    assert done.code == 0
    assert "positions are used up" in done.err


def test_ctrl_c_leaves_what_was_told(run, complete_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    from clearformer.tasks.complete import Completer

    def interrupted(*_: object, on_token, **__: object) -> None:  # type: ignore[no-untyped-def]
        on_token(0, " and")
        raise KeyboardInterrupt

    monkeypatch.setattr(Completer, "complete", interrupted)
    done = run("complete", "--model", complete_folder, "one")
    assert (done.code, done.out) == (130, "one and\n")


def test_articles_are_lines_or_whole_files(run, write_folder: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    model = ("summarize", "--model", write_folder, "--max-new-tokens", "6", "--num-beams", "1")
    article = tmp_path / "article.txt"
    article.write_text("one two.\nfour five.\n")
    whole = (*model, "--whole", "--file", str(article))
    expected = load(write_folder).summarize("one two.\nfour five.", max_new_tokens=6, num_beams=1)[0]
    assert json.loads(run(*whole, "--json").out)["text"] == expected.text
    assert run(*model, "--whole", stdin=article.read_text()).out == run(*whole).out
    assert len(run(*whole, "--file", str(article)).out.splitlines()) == 2
    assert len(run(*model, "--file", str(article)).out.splitlines()) == 2
    article.write_text("one two three. " * 40)
    long = run(*whole)
    assert (long.code, long.out) == (2, "")
    assert "split or truncate" in long.err
    cut = run(*whole, "--on-long", "truncate")
    assert cut.code == 0
    assert "1 of 1 texts were too long and were cut" in cut.err
    assert run(*whole, "--on-long", "split").code == 0
    article.write_bytes(b"one\n\xff\xfe")
    assert f"{article}, line 2" in run(*whole).err
    assert "stdin is empty" in run(*model, "--whole", stdin=" \n").err


def test_a_writer_translates(run, write_folder: str) -> None:  # type: ignore[no-untyped-def]
    expected = writer().write("translate English to German: one two", num_return_sequences=2, num_beams=4)[0]
    model = ("translate", "--model", write_folder, "--precision", "float32")
    done = run(*model, "--num-beams", "4", "--num-return-sequences", "2", "--json", "one two")
    assert done.code == 0, done.err
    assert json.loads(done.out)["text"] == expected.text
    ruled = run("translate", "--model", write_folder, "--to", "de", "--no-repeat-ngram-size", "1", "--json", "one two")
    tokens = json.loads(ruled.out)["tokens"]
    assert len(tokens) == len(set(tokens))
    assert "no prompt for 'fr'" in run("translate", "--model", write_folder, "--to", "fr", "one").err


def test_several_results_are_a_line_each(run, complete_folder: str, write_folder: str) -> None:  # type: ignore[no-untyped-def]
    several = ("--max-new-tokens", "5", "--num-return-sequences", "3", "one two")
    for verb, model in (("complete", complete_folder), ("summarize", write_folder)):
        done = run(verb, "--model", model, *several)
        assert (done.code, len(done.out.splitlines())) == (0, 3), done.err
        assert len(json.loads(run(verb, "--model", model, "--json", *several).out)["others"]) == 2


def test_every_verb_that_writes_has_the_same_words() -> None:
    """One definition: the flags of generation are the fields of `GenerationOptions`, the same on every verb."""
    from dataclasses import fields

    from typer.main import get_command

    from clearformer.cli import app
    from clearformer.cli.generation import FLAGS
    from clearformer.generate.options import GenerationOptions

    assert set(FLAGS) <= {field.name for field in fields(GenerationOptions)}
    verbs = get_command(app).commands  # type: ignore[attr-defined]
    for verb in ("translate", "summarize", "complete", "answer", "see", "score", "explain"):
        flags = {name for each in verbs[verb].params for name in each.opts}
        expected = {f"--{name.replace('_', '-')}" for name in FLAGS if name != "stop"}
        assert expected <= flags
        assert ("--stop" in flags) == (verb in ("complete", "answer"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("translate", "--model", "COMPLETE", "one"), "cannot translate"),
        (("summarize", "--model", "COMPLETE"), "cannot summarize"),
        (("complete", "--model", "WRITE", "one"), "cannot complete"),
        (("complete", "--model", "COMPLETE", "--temperature", "-1", "one"), "temperature must be"),
        (("complete", "--model", "COMPLETE", "--top-p", "1.5", "one"), "top_p must be above 0 and at most 1"),
        (("complete", "--model", "COMPLETE", "--min-p", "2", "one"), "min_p must be from 0 to 1"),
        (("answer", "--model", "WRITE", "--context", __file__, "--stop", "x", "one?"), "stop is for completions"),
        (("complete", "--model", "COMPLETE", "one " * 99), "there is no room to go on"),
        (("complete", "--model", "COMPLETE", "--file", "nowhere.txt"), "no file nowhere.txt"),
        (("complete", "--model", "nowhere", "one"), "no folder nowhere"),
        (("summarize", "--model", "WRITE", "--max-new-tokens", "0"), "max_new_tokens must be a whole number from 1"),
    ],
)
def test_what_makes_no_sense_is_one_message(run, words, says, complete_folder: str, write_folder: str) -> None:  # type: ignore[no-untyped-def]
    folders = {"COMPLETE": complete_folder, "WRITE": write_folder}
    done = run(*(folders.get(word, word) for word in words))
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err
