"""`classify`, `embed`, `search`, `fill` and `tag` as a person uses them: lines in, answers out, errors of one line."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import clearformer as cf
from clearformer.cli import app
from tests.tasks.encoders import TEXTS, long_text, save

KINDS = {
    "classify": "DistilBertForSequenceClassification",
    "embed": "BertModel",
    "fill": "RobertaForMaskedLM",
    "tag": "DistilBertForTokenClassification",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("models")
    return {
        verb: str(save(home / verb, kind, **({"num_labels": 3} if verb in ("classify", "tag") else {}))[0])
        for verb, kind in KINDS.items()
    }


def call(*words: str, given: str | bytes = "") -> Result:
    """In this process: a new one imports torch anew each time."""
    return CliRunner().invoke(app, list(words), input=given)


def lines(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_classify_lines_files_and_json(models: dict[str, str], tmp_path: Path) -> None:
    wanted = cf.load(models["classify"]).classify(TEXTS)
    done = call("classify", "--model", models["classify"], *TEXTS)
    assert lines(done.stdout) == [
        [one.label, f"{one.probability:.4f}", text] for one, text in zip(wanted, TEXTS, strict=True)
    ]
    assert call("classify", "--model", models["classify"], given="\n".join(TEXTS)).stdout == done.stdout
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / "out.txt"
    call("classify", "--model", models["classify"], "--file", str(tmp_path / "in.txt"), "--out", str(out))
    assert out.read_text() == done.stdout
    found = [
        json.loads(line)
        for line in call("classify", "--model", models["classify"], "--json", *TEXTS).stdout.splitlines()
    ]
    assert found == [{"text": text, **one.to_dict()} for one, text in zip(wanted, TEXTS, strict=True)]
    three = lines(call("classify", "--model", models["classify"], "--top", "3", TEXTS[0]).stdout)
    assert [row[0] for row in three] == [name for name, _ in wanted[0].best(3)]


def test_classify_pairs_long_texts_and_several(models: dict[str, str]) -> None:
    classifier = cf.load(models["classify"])
    done = call("classify", "--model", models["classify"], "--pairs", "It rains.\tIt is wet.")
    (one,) = classifier.classify("It rains.", "It is wet.")
    assert lines(done.stdout) == [[one.label, f"{one.probability:.4f}", "It rains.", "It is wet."]]
    cut = call("classify", "--model", models["classify"], "--on-long", "truncate", long_text(), TEXTS[0])
    assert "1 of 2 texts were too long and were cut" in cut.stderr
    found = json.loads(call("classify", "--model", models["classify"], "--several", "--json", TEXTS[0]).stdout)
    assert found["probabilities"] == classifier.classify(TEXTS[0], several=True)[0].probabilities


def test_embed_writes_rows_in_the_order_of_the_lines(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearformer.cli.texts.AT_ONCE", 3)  # the file grows
    for name, part in (("a.txt", TEXTS[:5]), ("b.txt", TEXTS[5:])):
        (tmp_path / name).write_text("\n".join(part) + "\n")
    files = ["--file", str(tmp_path / "a.txt"), "--file", str(tmp_path / "b.txt")]
    done = call("embed", "--model", models["embed"], *files, "--out", str(tmp_path / "vectors.npy"))
    assert done.exit_code == 0, done.output
    found = np.load(tmp_path / "vectors.npy")
    assert (found.dtype, found.shape) == (np.float32, (len(TEXTS), 32))
    np.testing.assert_allclose(found, cf.load(models["embed"]).embed(TEXTS), atol=2e-6)
    rows = [
        json.loads(line)
        for line in call("embed", "--model", models["embed"], given="\n".join(TEXTS)).stdout.splitlines()
    ]
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_allclose([row["vector"] for row in rows], found, atol=2e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "vectors.npy"]


def test_embed_options_and_cut_texts(models: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "v.npy"
    words = (
        "embed",
        "--model",
        models["embed"],
        "--pool",
        "first",
        "--prompt",
        "It rains. ",
        "--normalise",
        "--on-long",
        "truncate",
    )
    done = call(*words, "--out", str(out), given=f"{TEXTS[0]}\n{long_text()}\n")
    assert "1 of 2 texts were too long and were cut" in done.stderr
    wanted = cf.load(models["embed"]).embed(
        [TEXTS[0], long_text()], prompt="It rains. ", pool="first", normalise=True, on_long="truncate"
    )
    np.testing.assert_allclose(np.load(out), wanted, atol=2e-6)
    call(*words, "--json", "--out", str(tmp_path / "v.jsonl"), given=TEXTS[0])
    np.testing.assert_allclose(json.loads((tmp_path / "v.jsonl").read_text())["vector"], wanted[0], atol=2e-6)


def test_a_run_that_fails_leaves_nothing(models: dict[str, str], tmp_path: Path) -> None:
    for given in (f"{TEXTS[0]}\n\n", ""):
        done = call("embed", "--model", models["embed"], "--out", str(tmp_path / "v.npy"), given=given)
        assert done.exit_code
        assert list(tmp_path.iterdir()) == []


def test_search_indexes_and_answers(models: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "docs.txt").write_text("\n".join([*TEXTS, "", long_text()]) + "\n")
    index = str(tmp_path / "my.index")
    done = call("search", "index", "--file", str(tmp_path / "docs.txt"), "--model", models["embed"], "--out", index)
    assert done.exit_code == 0, done.output
    assert "9 documents in" in done.stderr
    assert "1 blank lines were skipped" in done.stderr
    found = lines(call("search", "query", index, TEXTS[4], "--top", "2").stdout)
    assert len(found) == 2
    assert found[0] == ["1.0000", "5", TEXTS[4]]
    several = lines(call("search", "query", index, *TEXTS[:2], "--top", "1").stdout)
    assert several == [["1", "1.0000", "1", TEXTS[0]], ["2", "1.0000", "2", TEXTS[1]]]
    one = json.loads(call("search", "query", index, TEXTS[4], "--json").stdout)
    assert one["query"] == TEXTS[4]
    assert one["hits"][0] == {"number": 5, "score": one["hits"][0]["score"], "text": TEXTS[4]}
    assert len(one["hits"]) == 5


def test_fill_shows_candidates(models: dict[str, str]) -> None:
    wanted = cf.load(models["fill"]).fill("Paris is the <mask> of France.", top=2)[0]
    done = call("fill", "--model", models["fill"], "--top", "2", "Paris is the [MASK] of France.")
    assert done.stdout.splitlines()[0] == wanted.text
    assert lines(done.stdout)[1:] == [[f"  {each.probability:.4f}", each.token] for each in wanted.masks[0]]
    found = json.loads(call("fill", "--model", models["fill"], "--json", "A <mask> and a <mask>.").stdout)
    assert len(found["masks"]) == 2
    assert lines(call("fill", "--model", models["fill"], "--top", "1", "A <mask> and a <mask>.").stdout)[2][0] == "  2"


def test_tag_shows_words(models: dict[str, str]) -> None:
    wanted = cf.load(models["tag"]).tag(TEXTS[:2])
    done = call("tag", "--model", models["tag"], *TEXTS[:2])
    assert done.stdout == "".join(
        "".join(f"{word.text}\t{word.label}\n" for word in one.words) + "\n" for one in wanted
    )
    found = json.loads(call("tag", "--model", models["tag"], "--json", TEXTS[0]).stdout)
    assert found == {"text": TEXTS[0], **json.loads(json.dumps(wanted[0].to_dict()))}
    assert call("tag", "--model", models["tag"], "--entities", TEXTS[0]).stdout == "\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("classify", "--model", "EMBED", "It rains."), "cannot classify: that needs a model with a head over classes"),
        (("embed", "--model", "CLASSIFY", "--file", "FILE"), "cannot embed: that needs an encoder"),
        (("search", "index", "--file", "FILE", "--model", "TAG", "--out", "NEW"), "cannot embed"),
        (("fill", "--model", "EMBED", "It [MASK]."), "cannot fill: that needs an encoder with a masked-token head"),
        (("tag", "--model", "EMBED", "It rains."), "cannot tag"),
        (("classify", "--model", "/nowhere", "It rains."), "no folder /nowhere"),
        (("classify", "--model", "CLASSIFY", ""), "text 1 is empty"),
        (("classify", "--model", "CLASSIFY", "--top", "0", "a"), "--top must be at least 1"),
        (("classify", "--model", "CLASSIFY", "--file", "FILE", "a"), "give texts or files, not both"),
        (("classify", "--model", "CLASSIFY", "--pairs", "a"), "text 1 has 0 tabs; with --pairs it is two texts"),
        (("classify", "--model", "CLASSIFY", "word " * 50), "split or truncate it with on_long"),
        (("classify", "--model", "CLASSIFY", "--out", "FILE", "a"), "exists already"),
        (("embed", "--model", "EMBED", "--file", "FILE", "--out", "vectors.txt"), "must end in .npy"),
        (("embed", "--model", "EMBED", "--file", "/nowhere"), "no file /nowhere"),
        (("fill", "--model", "FILL", "It rains."), "text 1 has no <mask> to fill"),
        (("search", "query", "EMBED", "It rains."), "is no index"),
        (("search", "index", "--file", "/nowhere", "--model", "EMBED", "--out", "NEW"), "no file /nowhere"),
        (("search", "index", "--file", "FILE", "--model", "EMBED", "--out", "FILE"), "exists already"),
    ],
)
def test_what_cannot_be_done_is_one_message(
    models: dict[str, str], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "in.txt").write_text("It rains.\n")
    names = {verb.upper(): folder for verb, folder in models.items()}
    names |= {"FILE": str(tmp_path / "in.txt"), "NEW": str(tmp_path / "new")}
    done = call(*(names.get(word, word) for word in words))
    assert isinstance(done.exception, cf.ClearformerError), done.output
    assert said in str(done.exception)
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_as_a_program(models: dict[str, str]) -> None:
    """In a process of its own: bytes in and out, and what cannot be done after what could."""
    command = [sys.executable, "-m", "clearformer", "embed", "--model", models["embed"]]
    done = subprocess.run(command, input="Höchst unnötig\n\n".encode() * 1_500, capture_output=True, timeout=280)
    assert done.returncode == 2
    assert done.stderr.decode() == "clearformer: text 2 is empty; give every line a text, or leave it out\n"
    assert done.stdout == b""
