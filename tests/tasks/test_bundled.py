"""The models that come with the package: found by name and by verb, described, and good at fixed inputs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import clearformer as cf
from clearformer.cli import app
from clearformer.errors import CheckpointError
from clearformer.tasks import bundled as module
from clearformer.tasks.bundled import (
    BUNDLED,
    PUBLIC,
    VERBS,
    bundled,
    bundled_for,
    bundled_model,
    bundled_models,
    model_for,
    read_card,
    serving,
)
from clearformer.tasks.load import find

CARD = """---
license: CC0
verbs: embed, search
scores:
  STS-B: test, Spearman: 0.7
---

# mine: a model
Text.
"""


def test_a_card_begins_with_what_a_program_wants_to_know() -> None:
    said, text = read_card(CARD)
    assert said == {"license": "CC0", "verbs": "embed, search", "scores": {"STS-B: test, Spearman": 0.7}}
    assert text == "# mine: a model\nText.\n"
    assert read_card("# a card\n---\nof old\n") == ({}, "# a card\n---\nof old\n")
    assert read_card("---\nlicense: never ended\n") == ({}, "---\nlicense: never ended\n")


def test_every_bundled_model_says_what_it_is() -> None:
    for model in bundled_models():
        assert model.licence, model.name
        assert model.scores, model.name
        assert model.title != model.name
        assert set(model.verbs) <= set(VERBS)
        assert model.bytes > 10_000
    assert sum(model.bytes for model in bundled_models()) < 40e6


def test_verbs_find_their_models() -> None:
    assert serving("translate") == "en-de"
    assert find("translate") == BUNDLED / "en-de"
    assert bundled_for("hi") == "en-hi"
    for verb in VERBS:
        if (name := serving(verb)) is not None:
            assert find(verb) == find(name) == bundled_model(name).folder
            assert verb in bundled_model(name).verbs
    assert set(PUBLIC) == set(VERBS)


def test_a_folder_comes_before_a_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "translate").mkdir()
    with pytest.raises(CheckpointError, match="translate is not a model folder"):
        find("translate")


def test_a_verb_without_a_model_says_what_to_download() -> None:
    said = "no bundled model can answer; fetch a public one with: clearformer download distilbert/distilbert-base-cased"
    with pytest.raises(CheckpointError, match=said) as caught:
        model_for("answer")
    assert caught.value.hint == f"clearformer download {PUBLIC['answer']}"
    with pytest.raises(CheckpointError, match=said):
        cf.load("answer")


@pytest.mark.parametrize(("words", "verb"), [(["answer", "Why?"], "answer"), (["summarize", "A text."], "summarize")])
def test_the_command_of_such_a_verb_says_it_too(words: list[str], verb: str) -> None:
    done = CliRunner().invoke(app, words, input="A text.")
    assert done.exit_code
    assert isinstance(done.exception, CheckpointError)
    assert f"clearformer download {PUBLIC[verb]}" in str(done.exception)


def test_all_verbs_have_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bundled_models", list)
    for verb in VERBS:
        with pytest.raises(CheckpointError, match=f"clearformer download {PUBLIC[verb]}"):
            model_for(verb)


def test_the_bundled_model_is_taken_and_said_once() -> None:
    done = CliRunner().invoke(app, ["translate", "Thank you.", "How are you?"])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == "clearformer: with the bundled model en-de; clearformer models en-de tells about it\n"
    named = CliRunner().invoke(app, ["translate", "--model", "en-de", "Thank you."])
    assert named.stderr == ""


def test_the_list_of_models() -> None:
    told = CliRunner().invoke(app, ["models"]).output
    listed = [json.loads(line) for line in CliRunner().invoke(app, ["models", "--json"]).output.splitlines()]
    assert [each["name"] for each in listed] == bundled()
    for each in listed:
        assert f"{each['name']}: {each['title']}" in told
        assert each["licence"] in told
    assert "answer: none; a public one is fetched by clearformer download" in told


def test_the_card_of_a_model() -> None:
    told = CliRunner().invoke(app, ["models", "en-de"]).output
    assert told.startswith("# en-de: English → German")
    assert CliRunner().invoke(app, ["models", "translate"]).output == told  # by what it does
    found = json.loads(CliRunner().invoke(app, ["models", "en-de", "--json"]).output)
    assert found["card"].startswith("# en-de")
    done = CliRunner().invoke(app, ["models", "en-fr"])
    assert "no bundled model 'en-fr'; did you mean" in str(done.exception)


# --- fixed inputs, with what each model says to them ---------------------------------------------------------------

SENTENCES = {
    "en": "We are going to the cinema tonight.",
    "de": "Meine Schwester wohnt seit zwei Jahren in Bremen.",
    "hi": "मेरी बहन दो साल से दिल्ली में रहती है।",
    "fr": "Ma sœur habite à Lyon depuis deux ans.",
    "nl": "We gaan vanavond naar de bioscoop.",
    "pl": "Moja siostra mieszka w Krakowie od dwóch lat.",
    "ru": "Моя сестра живёт в Москве уже два года.",
}


def test_language_id() -> None:
    model = cf.load("classify", kind=cf.Classifier)
    assert [one.label for one in model.classify(list(SENTENCES.values()))] == list(SENTENCES)


def test_sentences() -> None:
    asked = ["Where is the train station?", "I am hungry."]
    said = ["Wo ist der Bahnhof?", "The cat is asleep.", "Ich habe Hunger.", "Prices rose in March."]
    near = cf.load("search", kind=cf.Embedder).similarity(asked, said)
    assert near.argmax(1).tolist() == [0, 2]
    assert near.max(1).min() > 0.6 > 0.4 > near[0, 1:].max()


def test_an_index_remembers_a_bundled_model_by_its_name(tmp_path: Path) -> None:
    out = str(tmp_path / "index")
    made = CliRunner().invoke(app, ["search", "index", "Ich habe Hunger.", "The cat is asleep.", "--out", out])
    assert made.exit_code == 0, made.output
    assert "with the bundled model sentences" in made.stderr
    assert json.loads((tmp_path / "index" / "index.json").read_text())["model"] == "sentences"
    found = CliRunner().invoke(app, ["search", "query", out, "I am hungry.", "--top", "1"])
    assert found.stdout.endswith("\t1\tIch habe Hunger.\n")
