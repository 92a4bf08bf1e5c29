"""What a program sees of the package: one type for every model, verbs that can be asked for, errors with fields."""

import json
import pickle
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

import clearformer as cf
from clearformer.tasks.base import LIKE, VERBS
from clearformer.tasks.classify import Classifier
from clearformer.tasks.complete import Completer
from clearformer.tasks.embed import Embedder, Options
from clearformer.tasks.explain import explain
from clearformer.tasks.load import load
from clearformer.training.session import Trained
from tests.tasks.encoders import save
from tests.tasks.writers import completer


@pytest.fixture(scope="module")
def translator() -> cf.Translator:
    return load("en-de", kind=cf.Translator)


def test_what_is_loaded_is_a_task(translator: cf.Translator) -> None:
    assert get_type_hints(cf.load)["return"] is cf.Task
    assert isinstance(load("en-de"), cf.Task)
    assert translator.metadata.to == ("de",)
    with pytest.raises(cf.DataError, match="en-de is a Translator and not a Completer; it can translate") as caught:
        load("en-de", kind=Completer)
    assert caught.value.param == "kind"


def test_verbs_can_be_asked_for(translator: cf.Translator) -> None:
    assert tuple(LIKE) == VERBS
    assert [verb for verb in VERBS if hasattr(translator, verb)] == ["translate"]
    assert [verb for verb in (*VERBS, "chat", "stream", "score") if hasattr(completer(), verb)] == [
        "answer",
        "complete",
        "chat",
        "stream",
        "score",
    ]
    assert getattr(translator, "embed", None) is None
    assert not hasattr(translator, "nonsense")
    with pytest.raises(AttributeError, match="this model cannot chat: that needs a decoder-only model") as caught:
        translator.chat("x")
    assert isinstance(caught.value, cf.DataError)
    assert caught.value.param == "chat"


def test_errors_have_fields_and_survive_a_process() -> None:
    made = cf.DataError("pool must be mean", param="pool", path="a/b", hint="give mean")
    for one in (made, pickle.loads(pickle.dumps(made))):
        assert str(one) == one.message == "pool must be mean"
        told = {"error": "DataError", "message": "pool must be mean", "param": "pool", "path": "a/b"}
        assert one.to_dict() == {**told, "hint": "give mean"}
    assert cf.SpecError("x").to_dict() == {"error": "SpecError", "message": "x"}
    for kind in (cf.SpecError, cf.KernelError, cf.CheckpointError, cf.TrainingError, cf.TraceError, cf.VerbError):
        assert issubclass(kind, cf.ClearformerError)


def test_errors_name_the_option_and_the_file(tmp_path: Path) -> None:
    folder, _, _ = save(tmp_path / "public", "BertModel")
    embedder = load(folder, kind=Embedder)
    for options in ({"pool": "max"}, {"on_long": "cut"}):
        with pytest.raises(cf.DataError) as caught:
            embedder.embed("a", **options)  # type: ignore[arg-type]
        assert caught.value.param == next(iter(options))
    (folder / "config.json").write_text("{")
    with pytest.raises(cf.CheckpointError) as wrong:
        load(folder)
    assert wrong.value.path == folder / "config.json"


def test_embed_and_embedded_are_told_the_same() -> None:
    hints = get_type_hints(Embedder.embedded)
    assert {name: hints[name] for name in Options.__annotations__} == get_type_hints(Options)
    assert set(hints) == {*Options.__annotations__, "texts", "return"}


def test_results_are_written_as_json(translator: cf.Translator, tmp_path: Path) -> None:
    found = explain(translator, "Hello.").to_dict()
    assert json.loads(json.dumps(found))["text"] == found["text"]
    assert set(found) == {field.name for field in fields(cf.Explanation)} - {"trace"}
    assert found["choices"][0]["likeliest"]
    assert found["tree"]["children"]
    score = cf.score(["a b"], ["a b"], ["x"], worst=1).to_dict()
    assert json.loads(json.dumps(score))["worst"][0]["line"] == 1
    assert json.loads(json.dumps(Trained(tmp_path, 3, "steps", {"loss": 1.0}).to_dict())) == {
        "folder": str(tmp_path),
        "steps": 3,
        "finish": "steps",
        "scores": {"loss": 1.0},
    }


def test_the_classes_of_all_tasks_are_named() -> None:
    assert cf.Classifier is Classifier
    for kind in (cf.Writer, cf.Filler, cf.Answerer, cf.Tagger, cf.Seer, cf.Captioner, cf.Embedder):
        assert issubclass(kind, cf.Task)
    assert issubclass(cf.Stopped, Exception)
    assert isinstance(load("en-de").tokenizer, cf.LearnedTokenizer)
