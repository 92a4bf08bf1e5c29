"""Traces over HTTP are those of Python, number for number; the trace of an answer is that of the run that gave it."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearformer as cf
from clearformer.serve import trace_bodies
from clearformer.serve.registry import Registry, ServedModel
from clearformer.serve.runs import Store
from clearformer.tasks.load import load
from tests.serve.asking import Answer, Asking
from tests.serve.bundled import bundled
from tests.serve.models import completer
from tests.serve.test_encoders import png
from tests.tasks import encoders as tiny
from tests.tasks.test_see import save_captioner, save_seer

TEXT = "How are you?"
WEIGHTS = "decoder.1.cross.h3.weights"


@pytest.fixture(scope="module")
def asking() -> Asking:
    return bundled()


@pytest.fixture(scope="module")
def traced(asking: Asking) -> dict[str, Any]:
    return asking.post("/trace", {"text": TEXT, "model": "en-de"}).json()


def array(answer: Answer) -> Any:
    """Exact numbers, as a client puts them together again."""
    shape = [int(size) for size in answer.headers["x-shape"].split(",") if size]
    return np.frombuffer(answer.content, "<f4").reshape(shape)


def in_python(asking: Asking, **more: Any) -> cf.Trace:
    """The same trace, made without the server."""
    task = asking.task("en-de")
    source = task.sides.encode(TEXT)
    best = task.engine.run([task.request(source, task.defaults())])[0][0]
    target = [task.sides.start, *best.tokens[:-1]]
    words = {"source": task.sides.pieces(source), "target": task.sides.pieces(target)}
    return cf.trace(task.model, torch.tensor([source]), torch.tensor([target]), words=words, **more)


# --- tokens -----------------------------------------------------------------------------------------------


def test_tokens_and_back(asking: Asking) -> None:
    for model in ("en-de", "sentences"):
        found = asking.post("/tokenize", {"text": "Où est-il ?", "model": model}).json()
        encoded = asking.task(model).tokenizer.encode("Où est-il ?")
        assert found["ids"] == encoded.ids
        assert found["pieces"] == asking.task(model).tokenizer.pieces(encoded.ids)
        assert [tuple(each) for each in found["offsets"]] == encoded.offsets
        back = asking.post("/detokenize", {"ids": found["ids"], "model": model}).json()
        assert back == {"model": model, "text": "Où est-il ?"}
    bare = asking.post("/tokenize", {"text": "a", "special": False}).json()
    assert not any(bare["special"])
    assert asking.post("/tokenize", {"text": ""}).status == 200
    assert asking.post("/tokenize", {"text": "a", "model": "nobody"}).status == 404
    assert asking.post("/detokenize", {"ids": [10**6]}).status == 400
    assert asking.post("/detokenize", {"ids": [-1]}).status == 400
    assert asking.post("/detokenize", {"ids": ["a"]}).status == 400


# --- traces -----------------------------------------------------------------------------------------------


def test_every_tensor_is_that_of_python_to_the_last_bit(asking: Asking, traced: dict[str, Any]) -> None:
    trace_bodies.Listing.model_validate(traced)
    own = in_python(asking)
    assert [each["address"] for each in traced["addresses"]] == own.addresses()
    for each in traced["addresses"]:
        answer = asking.get(f"/trace/{traced['id']}/tensor", address=each["address"], format="float32")
        expected = own[each["address"]].values
        assert each["shape"] == list(expected.shape)
        assert array(answer).tobytes() == expected.float().numpy().astype("<f4").tobytes(), each["address"]


def test_a_tensor_as_json_has_its_words_and_axes(asking: Asking, traced: dict[str, Any]) -> None:
    found = asking.get(f"/trace/{traced['id']}/tensor", address=WEIGHTS).json()
    trace_bodies.Tensor.model_validate(found)
    view = in_python(asking)[WEIGHTS]
    assert found["words"] == view.labels
    assert (found["axes"], found["names"]) == (["t", "s"], ["query", "key"])
    assert np.array_equal(np.array(found["values"], np.float32), view.values.numpy())
    row = asking.get(f"/trace/{traced['id']}/tensor", address=f"{WEIGHTS}[1,0:3]").json()
    assert row["values"] == found["values"][1][:3]
    assert row["words"] == {"s": found["words"]["s"][:3]}


def test_a_cell_is_explained_so_that_one_can_compute_it_again(asking: Asking, traced: dict[str, Any]) -> None:
    """Softmax over scores, and each score from its queries and keys, by hand from the numbers in the answers."""
    weight = asking.get(f"/trace/{traced['id']}/explain", address=f"{WEIGHTS}[1,2]").json()
    assert "= exp(x2) / Σ exp(x)" in weight["text"]
    made = weight["expression"]
    assert made["kind"] == "softmax"
    total = sum(math.exp(each["value"]) for each in made["row"])
    assert math.exp(made["row"][made["place"]]["value"]) / total == pytest.approx(weight["value"], rel=1e-5)
    operand = made["row"][made["place"]]
    assert operand["address"] == "decoder.1.cross.h3.scores[1,2]"
    score = asking.get(f"/trace/{traced['id']}/explain", address=operand["address"]).json()
    assert score["value"] == operand["value"]
    assert _computed(score["expression"]) == pytest.approx(score["value"], rel=1e-4)
    leaves = _leaves(score["expression"])
    assert leaves
    for address, value in list(leaves.items())[:6]:  # every operand is the number that stands at its address
        answer = asking.get(f"/trace/{traced['id']}/tensor", address=address, format="float32")
        assert float(array(answer)) == np.float32(value)


def _computed(made: dict[str, Any]) -> float:
    match made["kind"]:
        case "products":
            bias = _computed(made["bias"]) if made["bias"] else 0.0
            return sum(_computed(a) * _computed(b) for a, b in made["pairs"]) + bias
        case "apply":
            a, b = (_computed(part) for part in made["parts"])
            return {"·": a * b, "/": a / b if b else 0.0, "+": a + b, "−": a - b}[made["sign"]]
    return made["value"]


def _leaves(made: dict[str, Any]) -> dict[str, float]:
    if made["kind"] == "number":
        return {made["address"]: made["value"]} if made["address"] else {}
    parts = [*made.get("parts", []), *(each for pair in made.get("pairs", []) for each in pair)]
    return {name: value for part in parts for name, value in _leaves(part).items()}


def test_changes_are_those_of_python(asking: Asking) -> None:
    for change, own in (
        ({"decoder.1.cross.h3.mixed": 0}, {"decoder.1.cross.h3.mixed": 0}),
        ({f"{WEIGHTS}[1]": [1, 0, 0, 0, 0]}, {f"{WEIGHTS}[1]": torch.tensor([1.0, 0, 0, 0, 0])}),
    ):
        made = asking.post("/trace", {"text": TEXT, "model": "en-de", "change": change}).json()
        assert made["changed"] == list(change)
        answer = asking.get(f"/trace/{made['id']}/tensor", address="head.logits", format="float32")
        expected = in_python(asking, change=own)["head.logits"].values
        assert array(answer).tobytes() == expected.numpy().tobytes()
        assert not torch.equal(expected, in_python(asking)["head.logits"].values)


def test_ids_and_targets_may_be_given(asking: Asking, traced: dict[str, Any]) -> None:
    ids, written = traced["inputs"]["source"]["ids"], traced["written"]
    same = asking.post("/trace", {"ids": ids, "target_ids": written, "model": "en-de"}).json()
    assert (same["inputs"], same["written"]) == (traced["inputs"], written)
    other = asking.post("/trace", {"text": TEXT, "target": "Wie geht's?", "model": "en-de"}).json()
    assert other["written"] == asking.task("en-de").sides.encode_targets(["Wie geht's?"])[0]
    encoder = asking.post("/trace", {"text": TEXT, "model": "sentences"}).json()
    assert encoder["inputs"]["input"]["ids"] == asking.task("sentences").tokenizer.encode(TEXT).ids
    assert asking.post("/trace", {"text": TEXT, "target": "a", "model": "sentences"}).status == 400


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 400, "give a text"),
        ({"text": "a", "ids": [1]}, 400, "not both"),
        ({"ids": []}, 400, "no token"),
        ({"ids": [5], "to": "de"}, 400, "to is for a text"),
        ({"text": "a", "to": "fr"}, 400, "does not translate to"),
        ({"ids": [10**6]}, 400, "ids from 0"),
        ({"text": "a", "model": "nobody"}, 404, "en-de"),
        ({"text": "a", "change": {"decoder.9.nothing": 0}}, 404, "nothing in this run"),
        ({"text": "a", "change": {"head.logits": [[1], [2, 3]]}}, 400, "rows of one length"),
        ({"text": "a", "change": {"head.logits": [[1, 2, 3]]}}, 404, "shape"),
        ({"text": "a", "change": {"head.logits": "zero"}}, 400, "change"),
        ({"text": "word " * 15_000}, 400, "tokens"),
        ({"text": " "}, 400, "empty text"),
        ({"text": "a", "image": "AAAA"}, 400, "not both"),
        ({"text": "a", "pair": "b"}, 400, "second text"),
        ({"text": "a", "target": "b", "target_ids": [5]}, 400, "not both"),
        ({"text": "a", "target_ids": [10**6]}, 400, "ids from 0"),
        ({"text": "a", "continue": True}, 400, "begins with"),
        ({"text": "a", "options": {"num_beams": 99}}, 400, "side by side"),
        ({"text": "a", "options": {"beems": 2}}, 400, "beems"),
        ({"text": "a", "options": {"max_new_tokens": 10**6}}, 400, "max_new_tokens"),
        ({"image": "AAAA"}, 400, "given a text"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said(asking: Asking, body: Any, status: int, says: str) -> None:
    answer = asking.post("/trace", {"model": "en-de", **body})
    assert answer.status == status, answer.content
    assert says in answer.json()["error"]


def test_what_is_not_there_is_not_found(asking: Asking, traced: dict[str, Any]) -> None:
    where = f"/trace/{traced['id']}"
    assert "did you mean" in asking.get(f"{where}/tensor", address="decoder.1.cross.weightz").json()["error"]
    assert asking.get(f"{where}/tensor", address="decoder.1.cross.weightz").status == 404
    assert asking.get(f"{where}/tensor", address="a[b").status == 404
    assert asking.get(f"{where}/tensor").status == 400
    assert asking.get(f"{where}/tensor", address=WEIGHTS, format="float16").status == 400
    assert asking.get(f"{where}/explain", address=WEIGHTS).status == 404  # more than one cell
    assert asking.get("/trace/none/tensor", address=WEIGHTS).status == 404
    made = asking.post("/trace", {"text": "Hi", "model": "en-de"}).json()
    assert asking.delete(f"/trace/{made['id']}").json() == {"id": made["id"], "deleted": True}
    assert asking.get(f"/trace/{made['id']}").status == asking.delete(f"/trace/{made['id']}").status == 404


# --- runs -------------------------------------------------------------------------------------------------


def test_the_trace_of_an_answer_gives_its_score(asking: Asking) -> None:
    """A beam's tokens are not each the likeliest, but their log-probabilities add up to its score."""
    body = {"q": "How are you? I am fine.", "source": "en", "target": "de"}
    answer = asking.post("/translate", body, {"X-Trace": "1"})
    name = answer.headers["x-trace-id"]
    run = asking.get(f"/runs/{name}").json()
    trace_bodies.RunRecord.model_validate(run)
    assert (run["model"], run["verb"], len(run["parts"])) == ("en-de", "translate", 2)
    task = asking.task("en-de")
    scores = 0.0
    for number, part in enumerate(run["parts"]):
        made = asking.post(f"/runs/{name}/trace", {"part": number}).json()
        logits = array(asking.get(f"/trace/{made['id']}/tensor", address="head.logits", format="float32"))
        chances = torch.from_numpy(logits.copy()).double().log_softmax(-1)
        written = part["written"]["ids"]
        assert len(chances) == len(written)
        scores += float(chances[range(len(written)), written].sum())
        expected = cf.trace(
            task.model, torch.tensor([part["source"]["ids"]]), torch.tensor([[*part["start"]["ids"], *written[:-1]]])
        )
        assert logits.tobytes() == expected["head.logits"].values.numpy().tobytes()
    assert scores == pytest.approx(task.translate(body["q"])[0].score, abs=0.05)  # int8 rounds inputs too
    assert (
        " ".join(task.sides.decode(part["written"]["ids"]) for part in run["parts"]) == answer.json()["translatedText"]
    )
    assert asking.get(f"/trace/{name}").json()["answer"] == name  # the header's id is enough
    assert asking.post(f"/runs/{name}/trace", {"part": 2}).status == 400


@pytest.mark.parametrize("stream", [False, True])
def test_a_greedy_run_has_written_what_its_trace_finds_likeliest(stream: bool) -> None:
    task = completer(suppress_tokens=None)
    asking = Asking(registry=Registry([ServedModel("tiny", task, Path(), 0)]))
    body = {"model": "tiny", "prompt": "one two", "max_tokens": 8, "temperature": 0, "stream": stream}
    answer = asking.post("/v1/completions", body, {"X-Trace": "1"})
    assert answer.status == 200
    name = answer.headers["x-trace-id"]
    (part,) = asking.get(f"/runs/{name}").json()["parts"]
    assert part["source"]["ids"] == task.tokenizer.encode("one two").ids[:-1]  # to go on from, without an end
    made = asking.get(f"/trace/{name}").json()
    logits = array(asking.get(f"/trace/{made['id']}/tensor", address="head.logits", format="float32"))
    written, read = part["written"]["ids"], len(part["source"]["ids"])
    assert written
    assert logits[read - 1 :].argmax(-1).tolist()[: len(written)] == written
    assert made["run"]["ids"] == written
    if not stream:  # the id of the response is a name too
        assert asking.get(f"/runs/{answer.json()['id']}").json()["id"] == name


def test_runs_of_encoders_are_what_was_read(asking: Asking, tmp_path: Path) -> None:
    texts = ["A man plays.", "word " * 400]
    asking.post("/embed", {"inputs": texts, "truncate": True}, {"x-request-id": "read-1"})
    run = asking.get("/runs/read-1").json()
    ids = [part["source"]["ids"] for part in run["parts"]]
    assert ids[0] == asking.task("sentences").tokenizer.encode(texts[0]).ids
    assert len(ids[1]) == 256
    made = asking.post("/runs/read-1/trace", {}).json()
    states = array(asking.get(f"/trace/{made['id']}/tensor", address="stack.final", format="float32"))
    states = states.reshape(len(ids[0]), -1)
    vector = asking.task("sentences").embed(texts[0], normalise=False)[0]
    assert np.allclose(states.mean(0), vector, atol=0.02)


def test_runs_with_pairs_and_images(tmp_path: Path) -> None:
    for name in ("answers", "sees", "writes"):
        (tmp_path / name).mkdir()
    tiny.save(tmp_path / "answers", "BertForQuestionAnswering")
    save_seer(tmp_path / "sees")
    save_captioner(tmp_path / "writes")
    names = ("answers", "sees", "writes")
    tasks = {name: load(tmp_path / name, precision="float32") for name in names}
    asking = Asking(registry=Registry([ServedModel(name, tasks[name], tmp_path, 0) for name in names]))
    context = {"question": "What is Paris?", "context": "Paris is the capital of France."}
    asking.post("/answer", context, {"x-request-id": "asked"})
    made = asking.post("/runs/asked/trace", {}).json()
    logits = array(asking.get(f"/trace/{made['id']}/tensor", address="head.logits", format="float32"))
    encoded = tasks["answers"].tokenizer.encode(*context.values())
    segments = torch.tensor([encoded.segments])
    expected = tasks["answers"].model(torch.tensor([encoded.ids]), segments=segments)
    assert np.allclose(logits.reshape(expected.shape), expected.detach().numpy(), atol=1e-5)
    for model in ("sees", "writes"):
        seen = asking.post("/see", png(), {"content-type": "image/png", "x-trace": "1"}, model=model)
        listed = asking.get(f"/trace/{seen.headers['x-trace-id']}").json()
        assert listed["model"] == model
        record = asking.get(f"/runs/{seen.headers['x-trace-id']}").json()
        assert record["parts"][0]["source"] is None
    assert record["parts"][0]["written"]["ids"]


def test_runs_are_bounded_and_can_be_off() -> None:
    few = Asking(registry=bundled().server.registry, traces=2)
    for n in range(4):
        few.post("/embed", {"inputs": "a"}, {"x-request-id": f"run-{n}", "x-trace": "1" if n == 0 else "0"})
    assert [few.get(f"/runs/run-{n}").status for n in range(4)] == [200, 404, 200, 200]  # the first was asked for
    assert "last 2" in few.get("/runs/run-1").json()["error"]
    off = Asking(registry=bundled().server.registry, traces=0)
    assert off.post("/embed", {"inputs": "a"}, {"x-request-id": "a"}).status == 200
    for answer in (
        off.get("/runs/a"),
        off.get("/trace/a"),
        off.post("/trace", {"text": "a"}),
        off.post("/runs/a/trace", {}),
        off.post("/embed", {"inputs": "a"}, {"x-trace": "1"}),
    ):
        assert answer.status == 404
        assert "--traces" in json.dumps(answer.json())


def test_a_store_keeps_to_its_bounds() -> None:
    store: Store[int] = Store(3, 100)
    for n in range(5):
        store.keep(str(n), n, 40, [f"also-{n}"])
        assert store.bytes <= 100
    assert [store.get(str(n)) for n in range(5)] == [None, None, None, 3, 4]
    assert (store.get("also-4"), store.get("also-1")) == (4, None)
    store.keep("large", 9, 101)
    assert store.get("large") is None
    store.keep("4", 5, 10)
    assert (store.get("4"), len(store), store.bytes) == (5, 2, 50)
    assert store.get("also-4") is None
    assert store.drop("4")
    assert not store.drop("4")
