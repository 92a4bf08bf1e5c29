"""Searching by words: as cosines of all documents in a loop, and on the command line."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

import clearformer as cf
from clearformer.cli import app
from clearformer.errors import CheckpointError, ClearformerError, DataError
from clearformer.tasks.index import Index
from clearformer.tasks.tfidf_index import TfIdfIndex, open_index
from clearformer.tasks.word_vectors import WordVectors
from tests.static.test_counting import slowly
from tests.static.test_word2vec import sentences

DOCUMENTS = ["the cat sat", "", "a dog sat on the cat", "a saw", "the cat sat", " ", "nothing at all"]


@given(
    documents=st.lists(st.lists(st.sampled_from("abcdef"), max_size=5).map(" ".join), min_size=1, max_size=9),
    asked=st.lists(st.sampled_from("abcxy"), min_size=1, max_size=5).map(" ".join),
    top=st.integers(1, 12),
)
def test_hits_are_the_highest_cosines(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], asked: str, top: int
) -> None:
    home = tmp_path_factory.mktemp("index")
    if not any(documents):
        with pytest.raises(DataError, match="none holds text"):
            TfIdfIndex.build(documents, home / "index")
        assert not list(home.iterdir())
        return
    real = [(number, text) for number, text in enumerate(documents, 1) if text.strip()]
    texts = [text for _, text in real]
    question = slowly(texts, asked) if any(set(asked.split()) & set(text.split()) for text in texts) else {}
    cosines = {}
    for number, text in real:
        own = slowly(texts, text)
        cosines[number] = round(sum(weight * own.get(word, 0.0) for word, weight in question.items()), 5)
    wanted = sorted((n for n in cosines if cosines[n] > 0), key=lambda n: (-cosines[n], n))[:top]
    (hits,) = TfIdfIndex.build(iter(documents), home / "index").query(asked, top=top)
    assert [hit.score for hit in hits] == pytest.approx([cosines[n] for n in wanted], abs=2e-5)
    assert [cosines[hit.number] for hit in hits] == pytest.approx([cosines[n] for n in wanted], abs=2e-5)
    assert all(hit.text == documents[hit.number - 1] for hit in hits)


def test_equal_documents_come_in_order_and_blank_ones_are_skipped(tmp_path: Path) -> None:
    found = TfIdfIndex.build(DOCUMENTS, tmp_path / "index")
    assert (len(found), found.about.skipped) == (5, 2)
    hits = found.query(["the cat sat", "zebra"], top=2)
    assert [(hit.number, hit.score) for hit in hits[0]] == [(1, 1.0), (5, 1.0)]
    assert hits[1] == []
    assert found.unseen("a zebra sat") == ["zebra"]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = cf.static.Word2Vec.train(sentences(1_000), width=8, min_count=1, epochs=4, subsample=1.0)
    return model.save(tmp_path_factory.mktemp("home") / "words")


def test_word_vectors_are_a_task_that_embeds(words: Path, tmp_path: Path) -> None:
    opened = cf.load(words)
    assert isinstance(opened, WordVectors)
    found = opened.embed(["cat dog", "zebra"])
    assert found.shape == (2, 8)
    assert (found[0] @ found[0], abs(found[1]).max()) == pytest.approx((1, 0), abs=1e-6)
    assert opened.similarity("cat", "dog")[0, 0] == pytest.approx(opened.words.similarity("cat", "dog"), abs=1e-6)
    index = Index.build(opened, ["see a cat", "see a saw"], model=words).save(tmp_path / "index")
    again = open_index(index)
    assert isinstance(again, Index)
    assert [hit.number for hit in again.query("the hen")[0]] == [1, 2]
    assert again.unseen("the zebra") == ["zebra"]
    with pytest.raises(DataError, match="cannot classify"):
        opened.classify(["cat"])
    with pytest.raises(DataError, match="text 4 is empty"):
        opened.embed(["cat", " "], number=2)
    with pytest.raises(DataError, match="no first state"):
        opened.embed(["cat"], pool="first")
    with pytest.raises(DataError, match="float32"):
        cf.load(words, precision="int8")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("index.json", '"count": 5', '"count": 4', "has 5 documents"),
        ("index.json", '"skipped": 2', '"skipped": -1', "must be numbers"),
        ("index.json", '"skipped": 2', '"left": 2', "left"),
        ("index.json", '"version": 1', '"version": 7', "of version 1"),
        ("documents.jsonl", "\n", " ", "documents"),
        ("static.json", '"texts": 5', '"texts": 6', "the words of 6"),
    ],
)
def test_a_damaged_index_is_named(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    folder = tmp_path / "index"
    TfIdfIndex.build(DOCUMENTS, folder)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises(CheckpointError, match=said):
        TfIdfIndex.load(folder)


@pytest.mark.parametrize(("name", "value"), [("rows", 5), ("rows", -1), ("starts", 9), ("weights", float("nan"))])
def test_postings_that_lead_nowhere_are_named(tmp_path: Path, name: str, value: float) -> None:
    folder = tmp_path / "index"
    TfIdfIndex.build(DOCUMENTS, folder)
    tensors = load_file(folder / "postings.safetensors")
    tensors[name][1] = value
    save_file(tensors, folder / "postings.safetensors")
    with pytest.raises(CheckpointError, match="damaged"):
        TfIdfIndex.load(folder)


# --- the command line ----------------------------------------------------------------------------------


def call(*given: str | Path) -> Result:
    return CliRunner().invoke(app, [str(each) for each in given])


def test_from_text_to_neighbours(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(sentences(1_000)) + "\n")
    out = tmp_path / "words"
    options = ("--min-count", "1", "--width", "8", "--epochs", "4", "--subsample", "1", "--seed", "3")
    done = call("train", "words", "--train", tmp_path / "text.txt", "--out", out, *options)
    assert done.exit_code == 0, done.output
    assert "13 different ones; 4 passes" in done.stderr
    model = cf.static.Word2Vec.load(out)
    assert (model.settings.seed, model.settings.epochs) == (3, 4)
    near = model.neighbours("cat", 2)
    assert call("neighbours", "cat", "--model", out, "--top", "2").stdout.splitlines() == [
        f"{each.cosine:.4f}\t{each.word}" for each in near
    ]
    told = json.loads(call("neighbours", "cat", "--model", out, "--top", "2", "--json").stdout)
    assert told == {"word": "cat", "neighbours": [{"word": each.word, "cosine": each.cosine} for each in near]}
    several = call("neighbours", "cat", "saw", "--model", out, "--top", "1").stdout.splitlines()
    assert [line.split("\t")[0] for line in several] == ["cat", "saw"]
    asked = call("analogy", "cat", "dog", "saw", "--model", out, "--top", "1").stdout
    assert asked.split("\t")[1].strip() == model.analogy("cat", "dog", "saw", 1)[0].word
    again = call("train", "words", "--train", tmp_path / "text.txt", "--resume", out)
    assert again.exit_code == 0, again.output


def test_search_by_words_and_by_vectors_of_words(words: Path, tmp_path: Path) -> None:
    (tmp_path / "docs.txt").write_text("see a cat\n\nthe saw\n")
    for by, more in (("tfidf", ()), ("words", ("--model", words))):
        index = tmp_path / by
        done = call("search", "index", "--by", by, *more, "--file", tmp_path / "docs.txt", "--out", index)
        assert done.exit_code == 0, done.output
        assert "2 documents in" in done.stderr
        found = call("search", "query", index, "a cat zebra", "--top", "1")
        assert found.stdout.split("\t")[1:] == ["1", "see a cat\n"]
        assert "never seen: zebra" in found.stderr
    told = json.loads(call("search", "query", tmp_path / "tfidf", "saw", "--json").stdout)
    assert [hit["number"] for hit in told["hits"]] == [3]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("train", "words"), "no text: give --train"),
        (("train", "words", "--train", "TEXT"), "no out"),
        (("train", "words", "--train", "TEXT", "--out", "WORDS"), "exists already"),
        (("train", "words", "--train", "/nowhere", "--out", "NEW"), "no file /nowhere"),
        (("train", "words", "--train", "EMPTY", "--out", "NEW"), "no words in these texts"),
        (("train", "words", "--train", "ONE", "--out", "NEW"), "one word only, 'echo'"),
        (("train", "words", "--train", "BINARY", "--out", "NEW"), "binary file"),
        (("train", "words", "--train", "TEXT", "--out", "NEW", "--width", "0"), "width must be"),
        (("train", "words", "--train", "TEXT", "--resume", "WORDS", "--seed", "1"), "goes on as it began"),
        (("train", "words", "--train", "TEXT", "--resume", "WORDS"), "not the texts"),
        (("train", "--train", "TEXT", "words"), "train words --train TEXT --out FOLDER, in that order"),
        (("neighbours", "cot", "--model", "WORDS"), "'cot' was never seen, or too seldom: 13 words.*'cow' or 'cat'"),
        (("neighbours", "cat", "--model", "WORDS", "--top", "0"), "top must be at least 1"),
        (("neighbours", "cat", "--model", "HOME"), "holds no static vectors"),
        (("analogy", "cat", "dog", "zebra", "--model", "WORDS"), "'zebra' was never seen"),
        (("search", "index", "--by", "tfidf", "--file", "EMPTY", "--out", "NEW"), "nothing to index"),
        (("search", "index", "--by", "tfidf", "--file", "TEXT", "--out", "NEW", "--model", "WORDS"), "no model"),
        (("search", "index", "--by", "words", "--file", "TEXT", "--out", "NEW"), "needs --model FOLDER"),
        (("search", "index", "--by", "words", "--file", "TEXT", "--out", "NEW", "--model", "HOME"), "no static"),
        (("search", "query", "INDEX", "cat", "--model", "WORDS"), "has no model"),
        (("inspect", "WORDS"), "holds word vectors, and this takes models"),
    ],
)
def test_what_cannot_be_done_is_one_message(words: Path, tmp_path: Path, given: tuple[str, ...], said: str) -> None:
    files = {"TEXT": b"see a cat\nsee a dog\n", "EMPTY": b"", "ONE": b"echo echo\n" * 9, "BINARY": b"\x89PNG\xff\0"}
    names = {"WORDS": words, "NEW": tmp_path / "new", "HOME": tmp_path, "INDEX": tmp_path / "index"}
    for name, raw in files.items():
        names[name] = tmp_path / name.lower()
        names[name].write_bytes(raw)
    if "INDEX" in given:
        TfIdfIndex.build(["a cat"], names["INDEX"])
    done = call(*(names.get(word, word) for word in given))
    assert isinstance(done.exception, ClearformerError), done.output
    assert re.search(said, str(done.exception))
    assert done.stdout == ""
    assert not (tmp_path / "new").exists()


def test_a_signal_saves_and_the_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(sentences(20_000)) + "\n")
    out = tmp_path / "words"
    text = ("--train", str(tmp_path / "text.txt"))
    run = subprocess.Popen(
        [sys.executable, "-m", "clearformer", "train", "words", *text, "--out", str(out), "--epochs", "50"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    assert "passes" in run.stderr.readline()  # it has read the text, and listens
    run.send_signal(signal.SIGTERM)
    said = run.stderr.read()
    assert run.wait() == 128 + signal.SIGTERM, said
    assert "stopped by SIGTERM" in said
    stopped = cf.static.Word2Vec.load(out)
    assert 0 < stopped.run.done < stopped.run.chunks
    done = call("train", "words", *text, "--resume", out)
    assert done.exit_code == 0, done.output
    whole = cf.static.Word2Vec.train(tmp_path / "text.txt", epochs=50)
    assert (cf.static.Word2Vec.load(out).vectors == whole.vectors).all()
