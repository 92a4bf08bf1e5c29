"""Search, compared with sorting every cosine; and folders that were damaged."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import clearformer as cf
from clearformer.errors import CheckpointError, DataError
from clearformer.kernels.int8 import Matrix
from clearformer.tasks import index as module
from clearformer.tasks.embed import Embedder
from clearformer.tasks.index import Index, fingerprint, nearest_rows
from tests.tasks.encoders import TEXTS, long_text, save

DOCUMENTS = [*TEXTS, "", "It rains in Paris.", "  ", TEXTS[3], long_text()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("search") / "model", "BertModel")[0]


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Embedder:
    return cf.load(folder, precision="float32")


@pytest.fixture
def saved(embedder: Embedder, folder: Path, tmp_path: Path) -> Path:
    return Index.build(embedder, DOCUMENTS, model=folder).save(tmp_path / "my.index")


@settings(max_examples=60, deadline=None)
@given(
    vectors=arrays.arrays(np.int8, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-2, 2)),
    asked=arrays.arrays(np.int8, st.tuples(st.integers(0, 3), st.just(3)), elements=st.integers(-2, 2)),
    top=st.integers(1, 50),
    chunk=st.integers(1, 50),
)
def test_the_nearest_are_those_a_full_sort_gives(vectors: Any, asked: Any, top: int, chunk: int) -> None:
    """Whole numbers, so that many scores are equal and their order must be that of the rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        found = nearest_rows(asked.astype(np.float32), vectors.astype(np.float32), top)
    for one, rows in zip(asked.tolist(), found, strict=True):
        scores = [float(sum(a * b for a, b in zip(one, row, strict=True))) for row in vectors.tolist()]
        wanted = sorted(range(len(scores)), key=lambda n: (-scores[n], n))[:top]
        assert rows == [(n, scores[n]) for n in wanted]


def test_hits_are_the_highest_cosines(embedder: Embedder, saved: Path) -> None:
    found = Index.load(saved, embedder)
    real = [(n, text) for n, text in enumerate(DOCUMENTS, 1) if text.strip()]
    assert (len(found), found.about.skipped) == (len(real), 2)
    for question, hits in zip(TEXTS[:3], found.query(TEXTS[:3], top=4), strict=True):
        cosines = embedder.similarity(question, [text for _, text in real], on_long="split")[0]
        own = {number: float(cosine) for (number, _), cosine in zip(real, cosines, strict=True)}
        best = sorted(own.values(), reverse=True)[:4]
        np.testing.assert_allclose([hit.score for hit in hits], best, atol=2e-6)
        np.testing.assert_allclose([own[hit.number] for hit in hits], best, atol=2e-6)  # twins may change places
        assert all((hit.number, hit.text) in real for hit in hits)
        assert len({hit.number for hit in hits}) == 4
        assert hits[0].score == pytest.approx(1, abs=1e-5)  # the question is one of the documents
    twins = found.query(TEXTS[3], top=2)[0]
    assert sorted(hit.number for hit in twins) == [4, 12]
    assert len(found.query("It rains.", top=100)[0]) == len(real)
    assert twins[0].to_dict() == {"number": twins[0].number, "score": twins[0].score, "text": TEXTS[3]}


def test_an_index_is_the_same_before_and_after_it_is_saved(embedder: Embedder, folder: Path, tmp_path: Path) -> None:
    texts = ["It rains.", 'quotes " and \\ and \u2028', "line\nfeed", "zero\x00"]
    built = Index.build(embedder, iter(texts), model=folder, pool="first")
    built.save(tmp_path / "one")
    loaded = Index.load(tmp_path / "one")  # its model is found by its path
    assert loaded.query(texts, top=4) == built.query(texts, top=4)
    assert loaded.about == built.about
    assert loaded.about.pool == "first"
    assert [loaded.documents[n][1] for n in range(4)] == texts
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [
        "documents.jsonl",
        "index.json",
        "vectors.npy",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_documents_in_many_parts(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Index.build(embedder, DOCUMENTS)
    monkeypatch.setattr(module, "AT_ONCE", 2)
    parts = Index.build(embedder, DOCUMENTS)
    assert parts.about == whole.about
    assert parts.documents == whole.documents
    np.testing.assert_allclose(parts.vectors, whole.vectors, atol=2e-6)
    with pytest.raises(DataError, match="text 13 is too long"):  # as the lines count, blank ones too
        Index.build(embedder, DOCUMENTS, on_long="error")


def test_a_model_with_other_weights_is_refused(embedder: Embedder, saved: Path, folder: Path) -> None:
    other = cf.load(folder, precision="float32")
    assert fingerprint(other.model) == fingerprint(embedder.model)
    next(other.model.parameters()).data[0, 0] += 1
    with pytest.raises(DataError, match="not those that made the index"):
        Index.load(saved, other)


def test_the_fingerprint_of_int8_covers_its_matrices(folder: Path) -> None:
    one, other = (cf.load(folder, precision="int8") for _ in range(2))
    assert fingerprint(one.model) == fingerprint(other.model) != fingerprint(cf.load(folder, precision="float32").model)
    next(each for each in other.model.modules() if isinstance(each, Matrix)).panels[0, 0, 0, 0] ^= 1
    assert fingerprint(one.model) != fingerprint(other.model)


def test_a_model_that_pools_in_another_way_is_refused(embedder: Embedder, saved: Path, tmp_path: Path) -> None:
    for facts, told in (
        (
            {"pool": "first"},
            "this model's vectors are the first state, as it is, and .* the mean of all states, as it is",
        ),
        ({"normalise": True}, "this model's vectors are the mean of all states, with length one"),
    ):
        other = Embedder(embedder.model, embedder.tokenizer, embedder.metadata.replace(**facts))
        with pytest.raises(DataError, match=told):
            Index.load(saved, other)
    first = Index.build(embedder, TEXTS, pool="first").save(tmp_path / "first")
    assert Index.load(first, embedder).query(TEXTS[0])  # what was asked for is no matter of the model's


def test_an_index_that_does_not_say_how_its_model_pools_is_opened(embedder: Embedder, saved: Path) -> None:
    about = json.loads((saved / "index.json").read_text())
    del about["own"]
    (saved / "index.json").write_text(json.dumps(about))
    assert Index.load(saved, embedder).query(TEXTS[0])


def test_a_model_that_is_gone(embedder: Embedder, tmp_path: Path) -> None:
    Index.build(embedder, TEXTS, model=tmp_path / "nowhere").save(tmp_path / "one")
    with pytest.raises(DataError, match=r"made with the model in .*nowhere, which is gone; give the model"):
        Index.load(tmp_path / "one").query("It rains.")
    assert Index.load(tmp_path / "one", embedder).query("It rains.")
    Index.build(embedder, TEXTS).save(tmp_path / "two")
    with pytest.raises(DataError, match="does not say where its model is"):
        Index.load(tmp_path / "two").query("It rains.")


def test_misuse(embedder: Embedder, saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="of 2 documents, none holds text"):
        Index.build(embedder, ["", " "])
    with pytest.raises(DataError, match="of 0 documents"):
        Index.build(embedder, [])
    with pytest.raises(DataError, match="text 2 is of type int"):
        Index.build(embedder, ["a", 3])  # type: ignore[list-item]
    with pytest.raises(DataError, match="exists already"):
        Index.build(embedder, TEXTS).save(saved)
    with pytest.raises(DataError, match="cannot write to"):
        Index.build(embedder, TEXTS).save(tmp_path / "no" / "folder")
    opened = Index.load(saved, embedder)
    with pytest.raises(DataError, match="text 1 is empty"):
        opened.query("")
    with pytest.raises(DataError, match="top must be at least 1"):
        opened.query("It rains.", top=0)
    with pytest.raises(CheckpointError, match=r"is no index: it has no index\.json"):
        Index.load(tmp_path)


def test_damaged_folders_say_so(saved: Path, embedder: Embedder, tmp_path: Path) -> None:
    def damaged(name: str, content: bytes) -> Path:
        copy = tmp_path / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(saved, copy)
        (copy / name).write_bytes(content)
        return copy

    about = json.loads((saved / "index.json").read_text())
    vectors = (saved / "vectors.npy").read_bytes()
    documents = (saved / "documents.jsonl").read_bytes()
    cases = [
        ("index.json", b"{"),
        ("index.json", b"[]"),
        ("index.json", json.dumps({**about, "version": 9}).encode()),
        ("index.json", json.dumps({**about, "count": "many"}).encode()),
        ("index.json", json.dumps({**about, "count": 10**9}).encode()),
        ("index.json", json.dumps({**about, "width": 31}).encode()),
        ("index.json", json.dumps({**about, "colour": "red"}).encode()),
        ("index.json", json.dumps({**about, "model": 5}).encode()),
        ("index.json", json.dumps({**about, "own": 5}).encode()),
        ("vectors.npy", b""),
        ("vectors.npy", vectors[:-1]),
        ("vectors.npy", vectors[:60]),
        ("vectors.npy", b"\x93NUMPY\x01\x00" + b"\xff" * 100),
        ("vectors.npy", vectors.replace(b"<f4", b"|O8")),
        ("documents.jsonl", b""),
        ("documents.jsonl", documents[: len(documents) // 2]),
    ]
    for name, content in cases:
        with pytest.raises(CheckpointError):
            Index.load(damaged(name, content))
    lines = documents.split(b"\n")
    lines[3] = b"nonsense"
    with pytest.raises(CheckpointError, match="damaged in line 4"):
        Index.load(damaged("documents.jsonl", b"\n".join(lines)), embedder).query(TEXTS[3], top=1)


def test_an_approximate_index_finds_what_an_exact_one_does(embedder: Embedder, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    texts = [f"{a} {b}" for a in TEXTS[:6] for b in ("It rains.", "Paris.", "cat", "dog", "film", "never", "the", "a")]
    texts = [" ".join(text.split()[-6:]) + f" {n}" for n, text in enumerate(texts)]
    Index.build(embedder, texts, model=folder, approximate=True).save(tmp_path / "one")
    opened = Index.load(tmp_path / "one", embedder)
    for near, exact in zip(opened.query(texts, top=3), opened.query(texts, top=3, exact=True), strict=True):
        assert [hit.score for hit in near] == pytest.approx([hit.score for hit in exact], abs=2e-6)
        for one, other in zip(near, exact, strict=True):  # equals in any order
            assert one.number == other.number or one.score == pytest.approx(other.score, abs=2e-6)
        assert len({hit.number for hit in near}) == 3
    for content in (b"", b"nonsense" * 100, (tmp_path / "one" / "graph.faiss").read_bytes()[:999]):
        (tmp_path / "one" / "graph.faiss").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"graph\.faiss is damaged"):
            Index.load(tmp_path / "one", embedder).query("It rains.")
        assert Index.load(tmp_path / "one", embedder).query("It rains.", exact=True)


def test_without_faiss_there_is_one_message(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(module, "import_module", absent)
    with pytest.raises(DataError, match=r"pip install 'clearformer\[search\]'"):
        Index.build(embedder, TEXTS, approximate=True)
