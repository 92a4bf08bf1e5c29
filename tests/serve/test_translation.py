"""Translations over HTTP are those of the verb, in the shapes that clients of LibreTranslate and DeepL read."""

from pathlib import Path
from typing import Any

import pytest

from clearformer.serve import deepl, translation
from clearformer.serve.languages import Guess, choose
from tests.serve.asking import Asking
from tests.serve.bundled import bundled

TEXTS = ["How are you?", "I have to go home now. It is late.", "3.14", ""]


@pytest.fixture(scope="module")
def asking() -> Asking:
    return bundled()


def verb(asking: Asking, name: str, texts: Any, **options: Any) -> list[Any]:
    return asking.task(name).translate(texts, **options)


# --- LibreTranslate ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "target"), [("en-de", "de"), ("en-hi", "hi")])
def test_translations_are_those_of_the_verb(asking: Asking, model: str, target: str) -> None:
    answer = asking.post("/translate", {"q": TEXTS, "source": "en", "target": target})
    assert answer.status == 200
    assert answer.json() == {"translatedText": [one.text for one in verb(asking, model, TEXTS)]}
    translation.Translated.model_validate(answer.json())


def test_a_form_says_the_same_as_json(asking: Asking) -> None:
    said = {"q": TEXTS[1], "source": "en", "target": "de"}
    expected = {"translatedText": verb(asking, "en-de", TEXTS[1])[0].text}
    assert asking.form("/translate", **said).json() == asking.post("/translate", said).json() == expected
    several = asking.form("/translate", q=TEXTS[:2], source="en", target="de").json()
    assert several == asking.post("/translate", {**said, "q": TEXTS[:2]}).json()
    assert asking.post("/translate", {**said, "q": [TEXTS[1]]}).json() == {
        "translatedText": [expected["translatedText"]]
    }


def test_the_language_is_detected_for_each_text(asking: Asking) -> None:
    texts = ["Where is the train station, please?", "Wo ist bitte der Bahnhof in dieser Stadt?"]
    answer = asking.post("/translate", {"q": texts, "source": "auto", "target": "de"}).json()
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "de"]
    found = asking.task("language-id").classify(texts)
    assert [each["confidence"] for each in answer["detectedLanguage"]] == [
        pytest.approx(100 * one.probability, abs=0.01) for one in found
    ]
    assert answer["translatedText"] == [verb(asking, "en-de", texts[0])[0].text, texts[1]]  # one is German already
    one = asking.form("/translate", q=texts[0], source="auto", target="de").json()
    assert one["detectedLanguage"]["language"] == "en"
    assert isinstance(one["translatedText"], str)


@pytest.mark.parametrize(
    ("text", "guesses", "language"),
    [
        ("Hello", {"de": 0.49, "en": 0.08}, "en"),  # few words tell little
        ("Guten Morgen", {"de": 0.9, "en": 0.01}, "de"),  # unless they tell much
        ("Hund", {"nl": 0.5, "en": 0.4}, "en"),  # nothing translates from there
        ("Wo ist denn hier der Bahnhof", {"nl": 0.5, "en": 0.4}, "nl"),
        ("Guten Morgen", {}, "en"),
    ],
)
def test_the_language_of_few_words(text: str, guesses: dict[str, float], language: str) -> None:
    assert choose(text, [Guess(*each) for each in guesses.items()], ["en"], "de").language == language


def test_a_bundled_model_serves_what_it_is_for() -> None:
    asking = Asking("shakespeare", "fill-en")
    assert asking.task("shakespeare").can == ("complete", "answer")  # as any that goes on with a text
    answer = asking.post("/answer", {"question": "Who?", "context": "Ann."})
    assert (answer.status, "no model that is served here can answer" in answer.content.decode()) == (501, True)
    assert asking.post("/embed", {"inputs": "a"}).status == 501
    assert asking.post("/v1/completions", {"prompt": "A", "max_tokens": 2}).status == 200
    asking.server.close()


def test_alternatives_are_the_next_best_each_once(asking: Asking) -> None:
    body = {"q": TEXTS[0], "source": "en", "target": "de", "alternatives": 2}
    answer = asking.post("/translate", body).json()
    best = verb(asking, "en-de", TEXTS[0], num_return_sequences=3)[0]
    assert answer["translatedText"] == best.text == verb(asking, "en-de", TEXTS[0])[0].text
    assert answer["alternatives"] == [other.text for other in best.others if other.text != best.text]
    assert len({answer["translatedText"], *answer["alternatives"]}) == 1 + len(answer["alternatives"])
    lists = asking.post("/translate", {**body, "q": TEXTS[:2]}).json()["alternatives"]
    assert lists[0] == answer["alternatives"]


def test_languages_are_those_of_the_models(asking: Asking) -> None:
    found = {each["code"]: each for each in asking.get("/languages").json()}
    assert found["en"] == {"code": "en", "name": "English", "targets": ["de", "hi"]}
    assert found["de"]["targets"] == []
    translation.Languages.model_validate(asking.get("/languages").json())


@pytest.mark.parametrize("form", [False, True])
def test_detecting_is_classifying(asking: Asking, form: bool) -> None:
    text = "Où est la gare, s'il vous plaît ?"
    answer = asking.form("/detect", q=text) if form else asking.post("/detect", {"q": text})
    (best, chance), *_ = asking.task("language-id").classify(text)[0].best(1)
    assert answer.json()[0] == {"confidence": round(100 * chance, 2), "language": best}
    assert best == "fr"


def test_without_an_identifier_detecting_is_not_implemented() -> None:
    alone = Asking("en-de")
    answer = alone.post("/detect", {"q": "Hallo"})
    assert answer.status == 501
    assert "language-id" in answer.json()["error"]
    assert alone.post("/translate", {"q": "How are you?", "source": "auto", "target": "de"}).status == 501
    found = alone.post("/v2/translate", {"text": ["How are you?"], "target_lang": "DE"}).json()["translations"]
    assert found == [{"detected_source_language": "EN", "text": verb(alone, "en-de", "How are you?")[0].text}]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"q": "hi", "source": "en", "target": "fr"}, 400, "en→de"),
        ({"q": "hi", "source": "fr", "target": "de"}, 400, "from fr to de"),
        ({"q": "Je ne sais pas où se trouve la gare de la ville.", "target": "de"}, 400, "from fr to de"),
        ({"q": "<b>hi</b>", "source": "en", "target": "de", "format": "html"}, 400, "plain text"),
        ({"q": "hi", "source": "en"}, 400, "target"),
        ({"q": 7, "source": "en", "target": "de"}, 400, "q"),
        ({"q": [], "source": "en", "target": "de"}, 400, "at least one"),
        ({"q": "hi", "source": "en", "target": "de", "alternatives": 1000}, 400, "31 at most"),
        ({"q": "hi", "source": "en", "target": "de", "alternatives": -1}, 400, "alternatives"),
        ({"q": "hi", "source": "en", "target": "de", "glossary": 1}, 400, "glossary: this field is not supported"),
        ({"q": ["hi"] * 3000, "source": "en", "target": "de"}, 413, "several requests"),
        ({"q": "a" * 200_000, "source": "en", "target": "de"}, 413, "split"),
        ([], 400, "object"),
    ],
)
def test_what_is_wrong_is_said_as_libretranslate_says_it(asking: Asking, body: Any, status: int, says: str) -> None:
    answer = asking.post("/translate", body)
    assert answer.status == status
    assert says in answer.json()["error"]


def test_half_a_character_is_the_clients_fault(asking: Asking) -> None:
    for content in (b'{"q": "\\ud800", "target": "de"}', b'{"q": "\xed\xa0\x80", "target": "de"}', b"{"):
        assert asking.post("/translate", content).status == 400


def test_the_key_may_stand_in_the_body(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    asking = Asking(registry=bundled().server.registry, key_file=tmp_path / "keys")
    said = {"q": "How are you?", "source": "en", "target": "de"}
    assert asking.form("/translate", **said).status == 403
    assert asking.form("/translate", **said, api_key="wrong").status == 403
    assert asking.form("/translate", **said, api_key="secret").status == 200
    assert asking.post("/translate", {**said, "api_key": "secret"}).status == 200
    assert asking.post("/translate", said, {"authorization": "Bearer secret"}).status == 200
    assert asking.get("/languages").status == 403
    assert asking.form("/detect", q="hi").status == 403
    text = {"text": ["How are you?"], "target_lang": "DE"}
    assert asking.post("/v2/translate", text).status == 403
    assert asking.post("/v2/translate", text, {"authorization": "DeepL-Auth-Key secret"}).status == 200
    assert asking.post("/v2/translate", {**text, "auth_key": "secret"}).status == 200
    assert asking.get("/v2/usage").status == 403


# --- DeepL ------------------------------------------------------------------------------------------------


def test_deepl_gives_the_verbs_translations(asking: Asking) -> None:
    body = {"text": TEXTS[:2], "target_lang": "DE", "source_lang": "EN", "show_billed_characters": True}
    answer = asking.post("/v2/translate", body).json()
    deepl.Translations.model_validate(answer)
    made = verb(asking, "en-de", TEXTS[:2])
    assert answer["translations"] == [
        {"detected_source_language": "EN", "text": one.text, "billed_characters": len(text)}
        for one, text in zip(made, TEXTS[:2], strict=True)
    ]
    form = asking.form("/v2/translate", text=TEXTS[:2], target_lang="DE", source_lang="EN", show_billed_characters=1)
    assert form.json() == answer


def test_deepl_detects_and_takes_regions_for_their_language(asking: Asking) -> None:
    body = {"text": ["Where is the train station?"], "target_lang": "DE-AT"}
    answer = asking.post("/v2/translate", body).json()["translations"][0]
    assert answer["detected_source_language"] == "EN"
    assert answer["text"] == verb(asking, "en-de", body["text"])[0].text


def test_sentences_that_are_not_to_be_split_are_not(asking: Asking) -> None:
    text = "I have to go home now. It is late."
    body = {"text": [text], "target_lang": "DE", "source_lang": "EN", "split_sentences": "0"}
    answer = asking.post("/v2/translate", body).json()["translations"][0]
    assert answer["text"] == verb(asking, "en-de", text, by_sentence=False)[0].text
    assert asking.post("/v2/translate", {**body, "split_sentences": "nonewlines"}).status == 200
    lines = {**body, "text": ["One.\nTwo."], "split_sentences": "nonewlines"}
    assert asking.post("/v2/translate", lines).status == 400


def test_languages_and_usage(asking: Asking) -> None:
    sources, targets = (asking.get("/v2/languages", type=kind).json() for kind in ("source", "target"))
    assert sources == asking.get("/v2/languages").json() == [{"language": "EN", "name": "English"}]
    assert [each["language"] for each in targets] == ["DE", "HI"]
    assert asking.form("/v2/languages", type="target").json() == targets
    assert asking.get("/v2/languages", type="all").status == 400
    before = asking.get("/v2/usage").json()
    asking.post("/v2/translate", {"text": ["How are you?"], "target_lang": "DE", "source_lang": "EN"})
    after = asking.get("/v2/usage").json()
    assert after["character_count"] == before["character_count"] + len("How are you?")
    assert after["character_limit"] > 10**9


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"glossary_id": "x"}, "glossary_id"),
        ({"tag_handling": "xml"}, "tag_handling"),
        ({"context": "a letter"}, "context"),
        ({"formality": "more"}, "formality"),
        ({"target_lang": "FR"}, "en→de"),
        ({"text": []}, "text"),
        ({"text": None}, "text"),
    ],
)
def test_what_would_change_the_result_is_refused_as_deepl_does(asking: Asking, more: Any, says: str) -> None:
    answer = asking.post("/v2/translate", {"text": ["hi"], "target_lang": "DE", "source_lang": "EN", **more})
    assert answer.status == 400
    assert says in answer.json()["message"]


def test_what_changes_nothing_is_taken(asking: Asking) -> None:
    more = {"preserve_formatting": True, "formality": "prefer_more", "model_type": "latency_optimized"}
    answer = asking.post("/v2/translate", {"text": "hi", "target_lang": "DE", "source_lang": "EN", **more})
    assert answer.status == 200
