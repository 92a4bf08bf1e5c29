"""Labels and probabilities, compared with Hugging Face's own models and tokenizers on the same folders."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clearformer as cf
from clearformer.errors import CheckpointError, DataError
from clearformer.tasks.classify import Classifier
from clearformer.tasks.encoder_task import spans
from tests.tasks.encoders import LONGEST, TEXTS, long_text, save

NAMES = {0: "bad", 1: "fair", 2: "good"}
KINDS = ["BertForSequenceClassification", "DistilBertForSequenceClassification", "RobertaForSequenceClassification"]


@pytest.fixture(scope="module", params=KINDS)
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    label = {"id2label": NAMES, "label2id": {name: n for n, name in NAMES.items()}}
    folder, model, tokenizer = save(tmp_path_factory.mktemp("classify") / "model", request.param, **label)
    return cf.load(folder, precision="float32"), model, tokenizer


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    return cf.load(save(tmp_path_factory.mktemp("one") / "model", KINDS[0], num_labels=2)[0], precision="float32")


def theirs(model: Any, tokenizer: Any, *texts: Any, **rest: Any) -> torch.Tensor:
    """Logits, a row for each window that the tokenizer makes."""
    given = tokenizer(*texts, return_token_type_ids=True, **rest)
    keys = {"input_ids": "input_ids"}
    if getattr(model.config, "type_vocab_size", 1) > 1:
        keys["token_type_ids"] = "token_type_ids"
    many = isinstance(given["input_ids"][0], list)
    rows = [
        {key: given[key][n] if many else given[key] for key in keys}
        for n in range(len(given["input_ids"]) if many else 1)
    ]
    with torch.no_grad():
        return torch.cat([model(**{key: torch.tensor([ids]) for key, ids in row.items()}).logits for row in rows])


def close(found: Any, wanted: torch.Tensor) -> None:
    rows = torch.tensor([list(one.probabilities.values()) for one in found])
    torch.testing.assert_close(rows, wanted, atol=1e-5, rtol=0)


def test_probabilities_are_hugging_face_s(each: tuple[Any, Any, Any]) -> None:
    ours, model, tokenizer = each
    found = ours.classify(TEXTS)
    wanted = torch.cat([theirs(model, tokenizer, text) for text in TEXTS]).softmax(-1)
    close(found, wanted)
    assert [one.label for one in found] == [NAMES[n] for n in wanted.argmax(-1).tolist()]
    assert all(list(one.probabilities) == list(NAMES.values()) for one in found)
    assert all(one.probability == max(one.probabilities.values()) and one.finish == "whole" for one in found)
    assert all(abs(sum(one.probabilities.values()) - 1) < 1e-12 for one in found)
    close(ours.classify(TEXTS, several=True), torch.cat([theirs(model, tokenizer, text) for text in TEXTS]).sigmoid())


def test_pairs_are_hugging_face_s(each: tuple[Any, Any, Any]) -> None:
    ours, model, tokenizer = each
    first, second = ["It rains.", TEXTS[3]], ["It rains!", "Paris is in France."]
    wanted = torch.cat([theirs(model, tokenizer, a, b) for a, b in zip(first, second, strict=True)]).softmax(-1)
    close(ours.classify(first, second), wanted)
    close(ours.classify(first[0], second[0]), wanted[:1])


@pytest.mark.parametrize(("a", "b"), [(40, 3), (3, 40), (30, 31), (20, 20), (31, 30), (9, 60)])
def test_a_truncated_pair_is_cut_as_hugging_face_does(each: tuple[Any, Any, Any], a: int, b: int) -> None:
    ours, model, tokenizer = each
    first, second = long_text(a), long_text(b)
    found = ours.classify(first, second, on_long="truncate")
    assert found[0].finish == "truncated"
    close(found, theirs(model, tokenizer, first, second, truncation=True, max_length=LONGEST).softmax(-1))


def test_a_split_text_is_the_mean_of_hugging_face_s_windows(each: tuple[Any, Any, Any]) -> None:
    ours, model, tokenizer = each
    text = long_text()
    found = ours.classify([TEXTS[0], text], on_long="split")
    assert [one.finish for one in found] == ["whole", "split"]
    ways = {"truncation": True, "max_length": LONGEST, "stride": (LONGEST - 2) // 4, "return_overflowing_tokens": True}
    weights = torch.tensor([len(ids) - 2.0 for ids in tokenizer(text, **ways)["input_ids"]])
    assert len(weights) > 3
    close(found[1:], (weights / weights.sum() @ theirs(model, tokenizer, text, **ways).softmax(-1))[None])


def test_a_split_pair_keeps_the_shorter_text_whole(each: tuple[Any, Any, Any]) -> None:
    ours, model, tokenizer = each
    long, short = long_text(30), "It rains."
    one = len(tokenizer(short, add_special_tokens=False)["input_ids"])
    fixed = len(tokenizer(short, short)["input_ids"]) - one  # the special tokens and the shorter text
    for texts, side in (((long, short), "only_first"), ((short, long), "only_second")):
        ways = {"truncation": side, "max_length": LONGEST, "stride": (LONGEST - fixed) // 4}
        ways["return_overflowing_tokens"] = True
        weights = torch.tensor([len(ids) - float(fixed) for ids in tokenizer(*texts, **ways)["input_ids"]])
        rows = theirs(model, tokenizer, *texts, **ways).softmax(-1)
        close(ours.classify(*texts, on_long="split"), (weights / weights.sum() @ rows)[None])


@settings(deadline=None)
@given(count=st.integers(1, 300), room=st.integers(1, 40), share=st.floats(0, 0.75))
def test_windows_cover_every_token(count: int, room: int, share: float) -> None:
    overlap = int(room * share)
    found = spans(count, room, overlap)
    assert found[0][0] == 0
    assert found[-1][1] == count
    assert all(0 < stop - start <= room for start, stop in found)
    assert all(before[1] - after[0] == overlap for before, after in pairwise(found))
    assert all(stop - start == room for start, stop in found[:-1])


def test_the_batch_does_not_matter(classifier: Classifier) -> None:
    texts = [*TEXTS, *(text[:-4] for text in TEXTS)]
    together, alone = classifier.classify(texts), [classifier.classify(text)[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one.label == other.label
        assert one.probability == pytest.approx(other.probability, abs=1e-6)


def test_dropout_is_off_and_the_model_is_left_as_it_was(classifier: Classifier) -> None:
    wanted = classifier.classify(TEXTS)
    classifier.model.train()
    assert classifier.classify(TEXTS) == wanted
    assert classifier.model.training
    classifier.model.eval()


def test_what_a_model_does_not_say(classifier: Classifier, tmp_path: Path) -> None:
    bare = Classifier(classifier.model, classifier.tokenizer, {})
    assert list(bare.classify("It rains.")[0].probabilities) == ["LABEL_0", "LABEL_1"]
    assert bare.longest == LONGEST  # the table of positions has so many rows
    twice = Classifier(classifier.model, classifier.tokenizer, {"labels": ["yes", "yes"]})
    assert list(twice.classify("It rains.")[0].probabilities) == ["yes", "yes (1)"]
    with pytest.raises(CheckpointError, match="2 classes and names for 3"):
        Classifier(classifier.model, classifier.tokenizer, {"labels": ["a", "b", "c"]}).classify("It rains.")
    with pytest.raises(CheckpointError, match="longest: Input should be a valid integer, given 'many'"):
        Classifier(classifier.model, classifier.tokenizer, {"longest": "many"})
    one = cf.load(save(tmp_path / "one", KINDS[0], num_labels=1)[0], precision="float32")
    assert 0 < one.classify("It rains.")[0].probability < 1  # a softmax over one label would say 1 to all


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["It rains.", ""], "text 2 is empty"),
        (["It rains.", " \t"], "text 2 is empty"),
        (["\x00\u200b"], "text 1 has no tokens"),
        (["It rains.", 7], "text 2 is of type int, not text: 7"),
        ([None], "text 1 is of type NoneType"),
        (["word " * 50], "text 1 is too long: this model takes 24 tokens"),
        (["word " * 2_000_000], "text 1 is too long: this model takes 24 tokens"),
        (["\ud800"], "surrogate"),
    ],
)
def test_bad_texts(classifier: Classifier, texts: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        classifier.classify(texts)


def test_the_line_is_named_where_lines_came_before(classifier: Classifier) -> None:
    with pytest.raises(DataError, match="text 102 is empty"):
        classifier.classify(["It rains.", ""], number=100)


def test_ten_megabytes_are_cut_without_being_read(classifier: Classifier) -> None:
    start = long_text(200)
    found = classifier.classify(start + " word" * 2_000_000, on_long="truncate")
    assert found[0].probabilities == pytest.approx(classifier.classify(start, on_long="truncate")[0].probabilities)


def test_other_misuse(classifier: Classifier) -> None:
    with pytest.raises(DataError, match="2 texts and 1 second texts"):
        classifier.classify(TEXTS[:2], TEXTS[:1])
    with pytest.raises(DataError, match="both parts of text 1 are too long to split"):
        classifier.classify(long_text(60), long_text(61), on_long="split")
    with pytest.raises(DataError, match="on_long must be error, split or truncate, given 'cut'"):
        classifier.classify("It rains.", on_long="cut")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="cannot embed: that needs an encoder, such as BERT; it can classify"):
        classifier.embed("It rains.")
    with pytest.raises(CheckpointError, match="to classify, a model needs 'classes'; its head is 'vector'"):
        Classifier(cf.build(cf.presets.bert("tiny")), classifier.tokenizer, {})  # type: ignore[arg-type]
    assert classifier.classify([]) == []


def test_json_has_everything(classifier: Classifier) -> None:
    one = classifier.classify("It rains.")[0]
    assert one.to_dict() == {
        "label": one.label,
        "probability": one.probability,
        "probabilities": one.probabilities,
        "finish": "whole",
    }
    assert one.best(1) == [(one.label, one.probability)]
    assert [p for _, p in one.best(9)] == sorted(one.probabilities.values(), reverse=True)
