"""What encoders say over HTTP is what their verbs say, to the last bit, alone and together with other requests."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clearformer.serve import encoders, labels, rerank, see
from clearformer.serve.registry import Registry, ServedModel
from clearformer.tasks.load import load
from tests.data.test_images import noise
from tests.serve.asking import Answer, Asking
from tests.serve.bundled import bundled
from tests.tasks import encoders as tiny
from tests.tasks.test_see import LABELS, save_captioner, save_seer
from tests.tasks.writers import writer

TEXTS = ["A man plays the guitar.", "The weather is fine today", "यह एक वाक्य है", "x"]
LONG = "word " * 400


@pytest.fixture(scope="module")
def asking() -> Asking:
    return bundled()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    """Tiny models with random weights, one for each verb."""
    folders: dict[str, Path] = {}
    for name, kind, more in (
        ("fills", "BertForMaskedLM", {}),
        ("tags", "BertForTokenClassification", {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
        ("answers", "BertForQuestionAnswering", {}),
        ("pairs", "BertForSequenceClassification", {"num_labels": 1}),
        ("feels", "BertForSequenceClassification", {"id2label": {0: "bad", 1: "good"}}),
    ):
        folders[name] = tiny.save(tmp_path_factory.mktemp(name), kind, **more)[0]
    folders["sees"] = tmp_path_factory.mktemp("sees")
    save_seer(folders["sees"])
    tasks = {name: load(folder, precision="float32") for name, folder in folders.items()}
    made = [ServedModel(name, task, folders[name], 0) for name, task in tasks.items()]
    return Asking(registry=Registry([*made, ServedModel("writes", writer(), Path(), 0)]), max_pixels=5_000)


def floats(answer: Answer) -> Any:
    return np.array(answer.json(), np.float32)


# --- vectors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_those_of_the_verb_to_the_last_bit(asking: Asking, normalize: bool) -> None:
    answer = asking.post("/embed", {"inputs": TEXTS, "normalize": normalize})
    encoders.Vectors.model_validate(answer.json())
    expected = asking.task("sentences").embed(TEXTS, normalise=normalize)
    assert np.array_equal(floats(answer), expected)
    alone = asking.post("/embed", {"inputs": TEXTS[0], "normalize": normalize})
    assert np.array_equal(floats(alone), expected[:1])


def test_many_at_once_are_as_each_alone(asking: Asking) -> None:
    """Requests that come together are computed together, and nobody sees that."""

    async def all_of_them() -> list[Answer]:
        bodies = [{"inputs": [f"{text} {n}" for text in TEXTS]} for n in range(20)]
        headers = {"content-type": "application/json"}
        return await asyncio.gather(
            *(asking.ask("POST", "/embed", json.dumps(body).encode(), {}, headers) for body in bodies)
        )

    for n, answer in enumerate(asyncio.run(all_of_them())):
        expected = asking.task("sentences").embed([f"{text} {n}" for text in TEXTS], normalise=True)
        assert np.array_equal(floats(answer), expected)


def test_a_long_text_is_refused_or_cut_with_a_word(asking: Asking) -> None:
    refused = asking.post("/embed", {"inputs": ["short", LONG]})
    assert refused.status == 413
    assert "text 2 is too long" in refused.json()["error"]
    assert "truncate: true" in refused.json()["error"]
    cut = asking.post("/embed", {"inputs": ["short", LONG], "truncate": True})
    assert cut.headers["x-truncated"] == "1"
    expected = asking.task("sentences").embed(["short", LONG], on_long="truncate", normalise=True)
    assert np.array_equal(floats(cut), expected)
    assert "x-truncated" not in asking.post("/embed", {"inputs": "short", "truncate": True}).headers
    assert asking.post("/predict", {"inputs": LONG}).status == 413
    assert asking.post("/predict", {"inputs": LONG, "truncate": True}).headers["x-truncated"] == "0"


def test_errors_name_a_text_by_its_own_number_however_many_there_are(asking: Asking) -> None:
    answer = asking.post("/embed", {"inputs": ["fine"] * 600 + [" "]})
    assert answer.status == 400
    assert "text 601 is empty" in answer.json()["error"]


def test_similarity_is_the_verbs(asking: Asking) -> None:
    said = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    answer = asking.post("/similarity", {"inputs": said})
    assert np.array_equal(floats(answer), asking.task("sentences").similarity(TEXTS[0], TEXTS[1:])[0])


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"inputs": []}, 400, "at least one"),
        ({"inputs": ""}, 400, "text 1 is empty"),
        ({"inputs": [1, 2]}, 400, "inputs"),
        ({"inputs": "a", "prompt_name": "query"}, 400, "prompt_name"),
        ({"inputs": "a", "truncation_direction": "Left"}, 400, "truncation_direction"),
        ({"inputs": "a", "dimensions": 3}, 400, "dimensions: this field is not supported"),
        ({"inputs": "a", "model": "nobody"}, 404, "sentences"),
        ({"inputs": "a", "model": "en-de"}, 400, "cannot embed"),
        ({"inputs": ["a"] * 3000}, 413, "2,048"),
    ],
)
def test_what_is_wrong_is_said(asking: Asking, body: Any, status: int, says: str) -> None:
    answer = asking.post("/embed", body)
    assert answer.status == status
    assert says in answer.json()["error"]
    assert answer.json()["error_type"]


# --- ranks ------------------------------------------------------------------------------------------------


def test_both_shapes_of_ranking(asking: Asking) -> None:
    query, texts = "a dog", ["the stock market fell", "a puppy plays", "It rains."]
    cosines = asking.task("sentences").similarity(query, texts)[0]
    order = sorted(range(3), key=lambda n: -cosines[n])
    first = asking.post("/rerank", {"query": query, "texts": texts, "return_text": True}).json()
    assert first == [{"index": n, "score": float(cosines[n]), "text": texts[n]} for n in order]
    assert order[0] == 1
    body = {"query": query, "documents": [*texts[:2], {"text": texts[2]}], "top_n": 2, "return_documents": True}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        second = asking.post(path, {**body, "model": "sentences"}).json()
        rerank.Ranking.model_validate(second)
        assert second["results"] == [
            {"index": n, "relevance_score": float(cosines[n]), "document": {"text": texts[n]}} for n in order[:2]
        ]
    assert asking.post("/rerank", {"query": query}).status == 400
    assert asking.post("/rerank", {"query": query, "texts": texts, "documents": texts}).status == 400
    assert asking.post("/rerank", {"query": query, "texts": []}).status == 400


def test_a_model_that_reads_pairs_ranks_by_its_score(small: Asking) -> None:
    query, texts = "It rains.", ["The cat sat.", "Paris is the capital.", "film"]
    found = small.task("pairs").classify([query] * 3, texts)
    answer = small.post("/rerank", {"query": query, "texts": texts}).json()
    assert {each["index"]: each["score"] for each in answer} == {n: one.probability for n, one in enumerate(found)}
    raw = small.post("/rerank", {"query": query, "texts": texts, "raw_scores": True}).json()
    for each in raw:
        chance = found[each["index"]].probability
        assert each["score"] == pytest.approx(np.log(chance / (1 - chance)), rel=1e-6)


# --- labels -----------------------------------------------------------------------------------------------


def test_predictions_are_those_of_the_verb_best_first(asking: Asking, small: Asking) -> None:
    texts = ["Wo ist der Bahnhof?", "Where is it?"]
    found = asking.task("language-id").classify(texts)
    expected = [[{"label": name, "score": chance} for name, chance in one.best(12)] for one in found]
    assert asking.post("/predict", {"inputs": [[text] for text in texts]}).json() == expected
    one = asking.post("/predict", {"inputs": texts[0]}).json()
    labels.Predictions.model_validate(one)
    assert one == expected[0]
    pair = small.task("feels").classify(["A film."], ["A mess!"])[0]
    answer = small.post("/predict", {"inputs": [["A film.", "A mess!"]], "model": "feels"}).json()
    assert answer == [[{"label": name, "score": chance} for name, chance in pair.best(2)]]
    alone = small.post("/predict", {"inputs": ["A film.", "A mess!"], "model": "feels"}).json()
    assert alone == answer[0]  # as text-embeddings-inference has it: one text and a second one
    assert asking.post("/predict", {"inputs": texts[:1]}).json() == expected[0]
    assert '[["a"], ["b"]]' in asking.post("/predict", {"inputs": ["a", "b", "c"]}).json()["error"]
    assert asking.post("/predict", {"inputs": [["a", "b"], "c"]}).status == 400
    assert asking.post("/predict", {"inputs": "a", "raw_scores": True}).status == 400


def test_filling_tagging_and_answering(small: Asking) -> None:
    filled = small.post("/fill", {"inputs": ["The [MASK] sat on the <mask>.", "It [MASK]."], "top": 2}).json()
    labels.Fills.model_validate(filled)
    expected = small.task("fills").fill(["The [MASK] sat on the <mask>.", "It [MASK]."], top=2)
    assert filled == json.loads(json.dumps([one.to_dict() for one in expected]))
    refused = small.post("/fill", {"inputs": ["It [MASK].", "no mask"]})
    assert refused.status == 400
    assert "text 2 has no [MASK]" in refused.json()["error"]
    texts = ["Angela Merkel met Barack Obama.", tiny.long_text()]
    tagged = small.post("/tag", {"inputs": texts}).json()
    labels.Tags.model_validate(tagged)
    assert tagged == json.loads(json.dumps([one.to_dict() for one in small.task("tags").tag(texts)]))
    context = "Paris is the capital of France."
    for question in ("What is Paris?", ["What is Paris?", "The capital?"]):
        answer = small.post("/answer", {"question": question, "context": context, "top": 2}).json()
        labels.Answers.model_validate(answer)
        found = [one.to_dict() for one in small.task("answers").answer(question, context, top=2)]
        assert answer == json.loads(json.dumps(found[0] if isinstance(question, str) else found))
    assert small.post("/answer", {"question": ["a", "b"], "context": ["x", "y", "z"]}).status == 400
    assert small.post("/answer", {"question": "", "context": context}).status == 400


def test_a_model_that_writes_answers_in_its_own_words(small: Asking) -> None:
    body = {"question": "one two", "context": "three four", "model": "writes"}
    answer = small.post("/answer", body).json()
    one = small.task("writes").answer("one two", "three four")[0]
    assert answer == {"text": one.text, "score": one.score, "finish": one.finish}
    assert small.post("/answer", {**body, "top": 2}).status == 400


def test_info_says_what_a_client_of_text_embeddings_asks(asking: Asking) -> None:
    found = asking.get("/info").json()
    encoders.Info.model_validate(found)
    assert (found["model_id"], found["max_input_length"]) == ("sentences", 256)
    assert found["model_type"] == {"embedding": {"pooling": "mean"}}
    assert "classifier" in asking.get("/info", model="language-id").json()["model_type"]
    assert asking.get("/info", model="nobody").status == 404
    assert asking.get("/info", modell="sentences").status == 400


# --- images -----------------------------------------------------------------------------------------------


def png(height: int = 30, width: int = 40) -> bytes:
    made = io.BytesIO()
    Image.fromarray(noise(height, width, seed=1)).save(made, "PNG")
    return made.getvalue()


def form(*files: bytes, **fields: str) -> tuple[bytes, dict[str, str]]:
    parts = [
        b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + file + b"\r\n"
        for file in files
    ]
    parts += [
        f'--XX\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    return b"".join(parts) + b"--XX--\r\n", {"content-type": "multipart/form-data; boundary=XX"}


def test_an_image_is_seen_as_the_verb_sees_it(small: Asking, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    expected = json.loads(json.dumps(small.task("sees").see(tmp_path / "a.png", top=3)[0].to_dict()))
    for content, headers in ((png(), {"content-type": "image/png"}), form(png())):
        answer = small.post("/see", content, headers, top=3)
        assert answer.status == 200
        see.Seen.model_validate(answer.json())
        assert answer.json() == expected
    assert {each["label"] for each in expected["labels"]} <= {*LABELS}
    patches = small.post("/see", png(), {"content-type": "image/png"}, patches="true").json()["patches"]
    assert patches == [list(row) for row in small.task("sees").see(tmp_path / "a.png", patches=True)[0].patches]


def test_a_captioner_writes_about_an_image(tmp_path: Path) -> None:
    save_captioner(tmp_path)
    task = load(tmp_path, precision="float32")
    asking = Asking(registry=Registry([ServedModel("writes", task, tmp_path, 0)]))
    answer = asking.post("/see", png(), {"content-type": "image/png"}).json()
    assert answer["text"] == task.see(Image.open(io.BytesIO(png())))[0].text
    assert asking.post("/see", png(), {"content-type": "image/png"}, top=2).status == 400


@pytest.mark.parametrize(
    ("content", "headers", "status", "says"),
    [
        (b"no image", {"content-type": "image/png"}, 400, "not an image"),
        (b"", {"content-type": "image/png"}, 400, "empty"),
        (png()[:300], {"content-type": "image/png"}, 400, "damaged"),
        (png(100, 51), {"content-type": "image/png"}, 400, "5,000 pixels"),
        (png(), {"content-type": "text/html"}, 415, "text/html"),
        (b"nonsense", {"content-type": "multipart/form-data"}, 400, "form"),
        (b"nonsense", {"content-type": "multipart/form-data; boundary=XX"}, 400, "form"),
        (*form(), 400, "0 files"),
        (*form(png(), png()), 400, "form"),
        (*form(png(), top="3"), 400, "question mark"),
    ],
)
def test_what_is_no_image_is_the_clients_fault(
    small: Asking, content: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    answer = small.post("/see", content, headers)
    assert answer.status == status, answer.content
    assert says in answer.json()["error"]


def test_a_verb_that_no_model_has_is_not_implemented(asking: Asking) -> None:
    for path, body in (("/fill", {"inputs": "a"}), ("/tag", {"inputs": "a"}), ("/see", None)):
        assert asking.post(path, body).status == 501
    assert asking.post("/answer", {"question": "a", "context": "b"}).status == 501
