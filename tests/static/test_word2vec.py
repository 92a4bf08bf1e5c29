"""Word2Vec as it is used: what it learns, that it learns the same again, and folders that cannot be trusted."""

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clearformer as cf
from clearformer.errors import CheckpointError, ClearformerError, DataError, TrainingError
from clearformer.static import Progress, Run, Settings, Word2Vec, run, tokens

ANIMALS, TOOLS = ["cat", "dog", "cow", "hen", "pig"], ["saw", "axe", "nail", "drill", "rasp"]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Each about animals or about tools, with a few words of both."""
    random = np.random.default_rng(seed)
    made = []
    for n in range(count):
        words = [*random.choice([ANIMALS, TOOLS][n % 2], 4), *random.choice(["the", "a", "see"], 2)]
        made.append(" ".join(random.permutation(words)))
    return made


SMALL: dict[str, Any] = {"width": 8, "window": 3, "min_count": 1, "epochs": 2, "subsample": 1.0}


@pytest.fixture(scope="module")
def model() -> Word2Vec:
    return Word2Vec.train(sentences(2_000), **{**SMALL, "width": 16, "epochs": 8})


@pytest.fixture
def folder(model: Word2Vec, tmp_path: Path) -> Path:
    return model.save(tmp_path / "words")


def test_words_used_alike_point_alike(model: Word2Vec) -> None:
    for group in (ANIMALS, TOOLS):
        for word in group:
            assert {each.word for each in model.neighbours(word, 4)} == set(group) - {word}
    assert model.similarity("cat", "dog") > 0.5 > model.similarity("cat", "saw")


def test_neighbours_are_the_highest_cosines(model: Word2Vec) -> None:
    vectors = model.vectors.double().numpy()
    own = vectors[model.vocabulary.id("cat")]
    cosines = vectors @ own / np.linalg.norm(vectors, axis=1) / np.linalg.norm(own)
    order = [model.vocabulary[n] for n in np.argsort(-cosines) if model.vocabulary[n] != "cat"]
    found = model.neighbours("Cat", 5)
    assert [each.word for each in found] == order[:5]
    assert [each.cosine for each in found] == pytest.approx(np.sort(cosines)[::-1][1:6], abs=1e-5)
    assert len(model.neighbours("cat", 1000)) == len(model) - 1


def test_analogy_is_king_minus_man_plus_woman(model: Word2Vec) -> None:
    by_hand = Word2Vec(model.vocabulary, model.counts, model.vectors.clone(), model.beside, model.settings, model.run)
    rows = {"cat": [1, 0, 0], "dog": [1, 1, 0], "cow": [0, 0, 1], "hen": [0, 1, 1], "pig": [-1, 0, 0]}
    rows["saw"] = [0, -1, 1]  # where cat − dog + cow leads
    by_hand.vectors.zero_()
    for word, row in rows.items():
        by_hand.vectors[model.vocabulary.id(word), :3] = torch.tensor(row, dtype=torch.float32)
    assert by_hand.analogy("dog", "cat", "cow", 1)[0].word == "hen"  # dog − cat + cow
    assert "dog" not in [each.word for each in by_hand.analogy("dog", "cat", "cow", 100)]


def test_a_text_is_the_mean_of_its_words_and_rare_ones_count_more(model: Word2Vec) -> None:
    found = model.text_vectors(["cat the nonsense", "nonsense", "dog"])
    share = dict(zip(model.vocabulary, (model.counts / model.counts.sum()).tolist(), strict=True))
    a, b = (1e-3 / (1e-3 + share[word]) for word in ("cat", "the"))
    unit = {word: model[word] / model[word].norm() for word in ("cat", "the", "dog")}
    torch.testing.assert_close(found[0], (a * unit["cat"] + b * unit["the"]) / (a + b))
    assert found[1].abs().max() == 0
    torch.testing.assert_close(found[2], unit["dog"])
    assert model.unseen("cat the nonsense") == ["nonsense"]


def same(a: Word2Vec, b: Word2Vec) -> bool:
    tables = torch.equal(a.vectors, b.vectors) and torch.equal(a.beside, b.beside)
    return tables and a.vocabulary == b.vocabulary and a.settings == b.settings and a.run == b.run


def test_the_same_seed_gives_the_same_bits_from_a_list_a_file_and_gzip(tmp_path: Path) -> None:
    texts = sentences(300)
    (tmp_path / "one.txt").write_text("\n".join(texts[:100]) + "\n")
    (tmp_path / "two.gz").write_bytes(gzip.compress("\n".join(texts[100:]).encode()))
    held = Word2Vec.train(texts, **SMALL)
    assert same(held, Word2Vec.train([tmp_path / "one.txt", tmp_path / "two.gz"], **SMALL))
    assert not torch.equal(held.vectors, Word2Vec.train(texts, **SMALL, seed=1).vectors)


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "CHUNK", 500)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("after", [0, 1, 5, 7])
def test_a_run_that_was_interrupted_goes_on_with_the_same_bits(tmp_path: Path, after: int) -> None:
    texts, folder = sentences(300), tmp_path / "words"
    whole = Word2Vec.train(texts, **SMALL)
    assert whole.run.chunks == 10
    begun = Run.begin(texts, Settings(**SMALL))
    learning = begun.go()
    for _ in range(after):
        next(learning)
    begun.save(folder)
    assert repr(Word2Vec.load(folder)).endswith(f" {after / 10:.0%} of its training)")
    resumed = Run.resume(folder, texts)
    for progress in resumed.go():
        resumed.save(folder)
        assert (progress.words == progress.total) == (resumed.done == 10)
    assert same(resumed.model(), whole)
    assert same(Word2Vec.load(folder), whole)
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "static.json",
        "static.safetensors",
        "words.txt",
    ]
    with pytest.raises(TrainingError, match="not the texts"):
        Run.resume(folder, [*texts, "one cat more"])


@pytest.mark.usefixtures("short_chunks")
def test_every_epoch_sees_every_chunk_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    chunk = tokens.Tokens.chunk
    monkeypatch.setattr(tokens.Tokens, "chunk", lambda self, number: (seen.append(number), chunk(self, number))[1])
    Word2Vec.train(sentences(300), **SMALL)
    assert sorted(seen[:5]) == sorted(seen[5:]) == [0, 1, 2, 3, 4]
    assert seen[:5] != seen[5:]


def test_every_epoch_draws_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[torch.Tensor]] = []
    batches = Run._batches

    def spied(self: Run, *given: Any) -> Any:
        made = list(batches(self, *given))
        drawn.append([torch.cat([each.reach, each.drawn.flatten()]) for each in made])
        return made

    monkeypatch.setattr(Run, "_batches", spied)
    Word2Vec.train(sentences(100), **SMALL)
    first, second = drawn
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_loss_falls() -> None:
    found: list[Progress] = []
    Word2Vec.train(sentences(500), watch=found.append, **{**SMALL, "epochs": 20})
    assert found[0].loss < 6 * math.log(2) - 0.5  # of vectors of zeros
    assert min(each.loss for each in found[-5:]) < found[0].loss
    assert found[-1].words == found[-1].total == 20 * 500 * 6


@pytest.mark.parametrize("words", [2, 3, 40])
@pytest.mark.parametrize("rate", [0.025, 0.2])
def test_few_words_and_a_high_rate_do_not_diverge(words: int, rate: float) -> None:
    """A step adds up the gradients of a word: where words are few, it must be short."""
    random = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in random.integers(0, words, 8)) for _ in range(300)]
    found: list[Progress] = []
    model = Word2Vec.train(texts, watch=found.append, **{**SMALL, "epochs": 30, "rate": rate})
    assert model.vectors.norm(dim=1).max() < 20
    assert found[-1].loss < 6  # of vectors of zeros: 6 ln 2 = 4.2


def test_a_run_that_diverges_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PULL", 1e9)
    with pytest.raises(TrainingError, match="lower rate than 10"):
        Word2Vec.train(sentences(500), **{**SMALL, "epochs": 30, "rate": 10.0})


def test_epochs_follow_from_the_length_and_from_minutes() -> None:
    texts = sentences(50)
    assert Run.begin(texts, Settings(min_count=1)).settings.epochs == 50
    assert Run.begin(texts, Settings(min_count=1), minutes=1e-9).chunks == 1
    with pytest.raises(DataError, match="not both"):
        Run.begin(texts, Settings(min_count=1, epochs=1), minutes=1)


def test_a_model_is_the_same_after_it_was_saved(model: Word2Vec, folder: Path) -> None:
    again = cf.static.Word2Vec.load(folder)
    assert same(again, model)
    assert again.counts.tolist() == model.counts.tolist()
    assert again.neighbours("cat") == model.neighbours("cat")
    assert str(folder.parent) not in "".join(path.read_text(errors="replace") for path in folder.iterdir())


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_folder_is_an_error_that_says_so_or_loads(
    model: Word2Vec, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = model.save(tmp_path_factory.mktemp("damaged") / "words")
    path = folder / data.draw(st.sampled_from(["static.json", "words.txt", "static.safetensors"]))
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, min(len(raw), 400) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        found = Word2Vec.load(folder)
    except CheckpointError as error:
        assert str(error)  # noqa: PT017 either is right
    else:
        assert found.vectors.shape == (len(found.vocabulary), found.settings.width)
        found.neighbours(found.vocabulary[0])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"width": 16', '"width": 0', "width must be a whole number from 1 to 4,096"),
        ('"width": 16', '"width": 17', r"vectors has the shape \[13, 16\].*\[13, 17\]"),
        ('"width": 16', '"breadth": 16', "unexpected keyword argument 'breadth'"),
        ('"epochs": 8', '"epochs": null', "how long"),
        ('"rate": 0.025', '"rate": true', "rate must be"),
        ('"kind": "word2vec"', '"kind": "pickle"', "of kind 'pickle'"),
        ('"chunks": 8', '"chunks": 7', "8 of 7 chunks"),
    ],
)
def test_what_is_damaged_is_named(folder: Path, old: str, new: str, said: str) -> None:
    text = (folder / "static.json").read_text()
    assert old in text
    (folder / "static.json").write_text(text.replace(old, new))
    with pytest.raises(CheckpointError, match=said):
        Word2Vec.load(folder)


def test_infinite_numbers_and_missing_files_are_named(folder: Path, model: Word2Vec, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    broken = model.tensors()
    broken["vectors"] = broken["vectors"].clone()
    broken["vectors"][0, 0] = torch.nan
    save_file(broken, folder / "static.safetensors")
    with pytest.raises(CheckpointError, match="vectors holds NaN"):
        Word2Vec.load(folder)
    (folder / "static.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no static\.safetensors"):
        Word2Vec.load(folder)
    with pytest.raises(CheckpointError, match="no folder"):
        Word2Vec.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="holds no static vectors"):
        Word2Vec.load(tmp_path)


@pytest.mark.parametrize(
    ("texts", "options", "said"),
    [
        ([], {}, "no words"),
        (["", " — "], {}, r"no words in these texts \(2 lines\)"),
        (["echo echo echo"] * 9, {}, "one word only, 'echo'"),
        (["one two three four"], {}, "min_count of 1 at most"),
        (["one", "two"] * 9, {}, "no two known words stand in one line"),
        (["a b"], {"width": 0}, "width must be"),
        (["a b"], {"epochs": -1}, "epochs must be"),
        (["a b"], {"subsample": 2}, "subsample must be"),
        (["a b"], {"seed": -1}, "seed must be"),
    ],
)
def test_what_cannot_be_learned_from_is_said(texts: list[str], options: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Word2Vec.train(texts, **options)


def test_an_iterator_cannot_be_read_twice() -> None:
    with pytest.raises(DataError, match="read twice"):
        Word2Vec.train(iter(["a b"]))


@given(st.lists(st.text(max_size=30), max_size=6))
@settings(max_examples=25)
def test_any_texts_give_a_model_or_an_error_that_says_why(texts: list[str]) -> None:
    try:
        found = Word2Vec.train(texts, **{**SMALL, "epochs": 1})
    except ClearformerError as error:
        assert str(error)  # noqa: PT017 either is right
    else:
        assert bool(torch.isfinite(found.vectors).all())
