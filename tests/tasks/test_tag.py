"""Labels of words and entities, compared with Hugging Face's token-classification pipeline on the same folders."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import clearformer as cf
from clearformer.errors import DataError
from clearformer.tasks.tag import Tagger, Word, entities
from tests.tasks.encoders import LONGEST, TEXTS, long_text, save

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
Each = tuple[Tagger, Any, Any]


@pytest.fixture(scope="module", params=["BertForTokenClassification", "DistilBertForTokenClassification"])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Each:
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: n for n, name in enumerate(LABELS)}}
    folder, model, tokenizer = save(tmp_path_factory.mktemp("tag") / "model", request.param, **names)
    return cf.load(folder, precision="float32"), model, tokenizer


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    return cf.load(
        save(tmp_path_factory.mktemp("one") / "model", "RobertaForTokenClassification", num_labels=3)[0],
        precision="float32",
    )


def test_words_and_entities_are_the_pipeline_s(each: Each) -> None:
    ours, model, tokenizer = each
    pipeline = transformers.pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first", ignore_labels=[]
    )
    seen = set()
    for text, found in zip(TEXTS, ours.tag(TEXTS), strict=True):
        wanted = [each for each in pipeline(text) if each["entity_group"] != "O"]
        assert [(each.label, each.start, each.end) for each in found.entities] == [
            (each["entity_group"], each["start"], each["end"]) for each in wanted
        ]
        np.testing.assert_allclose(
            [each.probability for each in found.entities], [each["score"] for each in wanted], atol=1e-5
        )
        assert all(each.text == text[each.start : each.end] for each in (*found.words, *found.entities))
        assert "".join(word.text for word in found.words) == "".join(text.split())
        assert found.finish == "whole"
        seen |= {word.label for word in found.words}
    assert len(seen) > 2


def test_a_long_text_takes_each_label_from_the_window_with_most_context(each: Each) -> None:
    ours, model, tokenizer = each
    text = long_text()
    (found,) = ours.tag(text)
    assert found.finish == "split"
    room = LONGEST - 2
    windows = tokenizer(
        text,
        truncation=True,
        max_length=LONGEST,
        stride=room // 2,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    best: dict[int, tuple[int, int]] = {}  # where a token starts → its context, its label
    for ids, offsets in zip(windows["input_ids"], windows["offset_mapping"], strict=True):
        with torch.no_grad():
            labels = model(torch.tensor([ids])).logits[0].argmax(-1).tolist()
        first, last = offsets[1][0] == 0, offsets[-2][1] == len(text)
        for n in range(1, len(ids) - 1):
            context = min(n - 1 if not first else 99, len(ids) - 2 - n if not last else 99)
            if context >= best.get(offsets[n][0], (-1, 0))[0]:
                best[offsets[n][0]] = (context, labels[n])
    assert [word.label for word in found.words] == [LABELS[best[word.start][1]] for word in found.words]
    assert "".join(word.text for word in found.words) == "".join(text.split())


def test_a_truncated_text_has_the_words_of_its_start(each: Each) -> None:
    ours = each[0]
    (found,) = ours.tag(long_text(), on_long="truncate")
    whole = ours.tag(long_text())[0].words
    assert found.finish == "truncated"
    assert 0 < len(found.words) < len(whole)
    assert [word.start for word in found.words] == [word.start for word in whole][: len(found.words)]
    with pytest.raises(DataError, match="text 1 is too long"):
        ours.tag(long_text(), on_long="error")


def test_words_of_a_tokenizer_that_counts_spaces(tagger: Tagger) -> None:
    (found,) = tagger.tag("Don't  go to\tNew-York, 東京 (3.5) naïve nai\u0308ve!")
    words = ["Don", "'", "t", "go", "to", "New", "-", "York", ",", "東", "京", "(", "3", ".", "5", ")"]
    text = [word.text for word in found.words]
    assert text[:9] == words[:9]
    assert text[-3:] == ["naïve", "nai\u0308ve", "!"]
    assert "".join(text) == "Don'tgotoNew-York,東京(3.5)naïvenai\u0308ve!"
    assert {word.label for word in found.words} <= {"LABEL_0", "LABEL_1", "LABEL_2"}
    assert found.entities == ()


def marked(labels: str) -> list[tuple[str, str]]:
    """One-letter words w with these labels, and the entities they make."""
    words = [Word("w", label, 0.5, 2 * n, 2 * n + 1) for n, label in enumerate(labels.split())]
    text = " ".join("w" for _ in words)
    return [(each.label, each.text) for each in entities(text, words)]


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ("O O", []),
        ("B-X I-X O B-X", [("X", "w w"), ("X", "w")]),
        ("B-X B-X I-X", [("X", "w"), ("X", "w w")]),
        ("I-X I-X I-Y", [("X", "w w"), ("Y", "w")]),
        ("O I-X O I-X", [("X", "w"), ("X", "w")]),
        ("B-X I-Y I-X", [("X", "w"), ("Y", "w"), ("X", "w")]),
        ("B-X I-X E-X I-X S-Y S-Y", [("X", "w w w"), ("X", "w"), ("Y", "w"), ("Y", "w")]),
        ("NOUN VERB", []),
        ("B-PER-X I-PER-X", [("PER-X", "w w")]),
    ],
)
def test_entities_by_hand(labels: str, wanted: list[tuple[str, str]]) -> None:
    assert marked(labels) == wanted


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=40))
def test_any_text_is_tagged_without_loss_of_order(tagger: Tagger, text: str) -> None:
    if not text.strip():
        return
    (found,) = tagger.tag(text)
    places = [(word.start, word.end) for word in found.words]
    assert all(start < end for start, end in places)
    assert all(a[1] <= b[0] for a, b in pairwise(places))
    assert all(text[word.start : word.end] == word.text for word in found.words)


@pytest.mark.parametrize(
    ("texts", "said"), [(["It rains.", ""], "text 2 is empty"), ([b"It rains."], "text 1 is of type bytes")]
)
def test_bad_texts(tagger: Tagger, texts: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        tagger.tag(texts)


def test_json(tagger: Tagger) -> None:
    found = tagger.tag("It rains.")[0].to_dict()
    assert set(found) == {"words", "entities", "finish"}
    assert set(found["words"][0]) == {"text", "label", "probability", "start", "end"}
