"""All that the page asks: answered, in every family, as Python answers it, or refused with a reason."""

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.errors import TraceError
from clearformer.page.answers import QUESTIONS, answer
from clearformer.serve.registry import Registry, ServedModel
from clearformer.tasks.load import load
from tests.explain.test_trace import traced
from tests.laws.cases import ALL, Case, loud
from tests.serve.asking import Asking
from tests.serve.models import completer
from tests.serve.test_encoders import png
from tests.tasks import encoders
from tests.tasks.test_see import save_captioner, save_seer


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_question_is_answered_or_refused_with_a_reason(case: Case) -> None:
    trace = traced(case)
    weights = trace.addresses(".weights")[-1]
    own = weights.removesuffix(".weights")
    logits = trace.tape.records.get("head.logits")
    logit = "head.logits[" + ",".join("0" * (len(logits.shape) - 1)) + "]" if logits is not None else "head.logits[0]"
    asked = {
        "trace": {}, "lens": {}, "top": {"top": "3"}, "outputs": {}, "heads": {}, "ablations": {},
        "tensor": {"address": weights}, "explain": {"address": f"{own}.h0.weights[1,0]"},
        "attribution": {"address": logit}, "carried": {"address": own}, "visible": {"address": own},
        "score": {"address": f"{own}.h0.scores[1,0]"}, "compare": {"other": "itself"},
        "pooled": {"address": weights},
    }  # fmt: skip
    assert set(asked) == set(QUESTIONS)
    refused = []
    for question, told in asked.items():
        try:
            found = answer(trace, question, told, lambda name: trace)
        except TraceError:
            refused.append(question)
        else:
            assert json.loads(json.dumps(found, allow_nan=False))["schema"].startswith("clearformer.")
    assert set(refused) <= {"lens", "top", "attribution", "ablations", "carried"}
    facts = answer(trace, "trace")["facts"]
    assert set(facts["attentions"]) == {name.removesuffix(".q") for name in trace.addresses() if name.endswith(".q")}
    seen = answer(trace, "visible", {"address": own})["rows"]
    for row, line in zip(trace[f"{own}.h0.weights"].values, seen, strict=True):  # no weight on what cannot be seen
        assert all(sign == "1" or weight == 0 for weight, sign in zip(row.tolist(), line, strict=True))


def test_what_is_asked_wrongly_is_said() -> None:
    trace = cf.trace(loud(cf.build(presets.llama("tiny"), seed=3)).eval(), torch.tensor([[3, 4, 5]]))
    for question, asked, says in (
        ("lenz", {}, "did you mean 'lens'"),
        ("explain", {}, "address is missing"),
        ("tensor", {"address": "stack.0.self.wieghts"}, "did you mean"),
        ("lens", {"top": "many"}, "whole number"),
        ("visible", {"address": "stack.0.elf"}, "did you mean"),
        ("compare", {}, "other"),
        ("explain", {"address": "stack.0.self.weights[1,1]<script>"}, "is no address"),
    ):
        with pytest.raises(TraceError, match=says):
            answer(trace, question, asked)


def test_a_large_tensor_as_a_picture_keeps_what_is_farthest_from_0() -> None:
    model = loud(cf.build(presets.gpt2("tiny"), seed=3)).eval()
    trace = cf.trace(model, torch.arange(7, 37)[None])
    name = "stack.1.self.scores"
    found = answer(trace, "pooled", {"address": name, "top": "10"})
    pooled = np.frombuffer(b64decode(found["float32"]), "<f4").reshape(found["shape"])
    values = trace[name].values.numpy()
    assert (found["whole"], pooled.shape) == ([*values.shape], (values.shape[0], 10, 10))
    for h, r, c in np.ndindex(*pooled.shape):
        part = values[h, 3 * r : 3 * r + 3, 3 * c : 3 * c + 3]
        assert pooled[h, r, c] == part.flat[np.abs(part).argmax()]
    whole = answer(trace, "pooled", {"address": f"{name}[2]", "top": "64"})
    assert np.frombuffer(b64decode(whole["float32"]), "<f4").tolist() == trace[f"{name}[2]"].values.flatten().tolist()
    with pytest.raises(TraceError, match="rows and columns"):
        answer(trace, "pooled", {"address": f"{name}[2,1]"})


def test_heads_of_one_attention_are_those_of_all() -> None:
    trace = traced(next(case for case in ALL if str(case) == "original"))
    for own in ("encoder.1.self", "decoder.0.cross"):
        found = trace.heads(own)
        assert found == [head for head in trace.heads() if head.address.startswith(own)]
        assert len(found) == trace[f"{own}.weights"].values.size(0)
    with pytest.raises(TraceError, match=r"stack\.0: name an attention"):
        trace.heads("stack.0")


def test_the_top_is_that_of_the_logits() -> None:
    trace = cf.trace(loud(cf.build(presets.llama("tiny"), seed=3)).eval(), torch.tensor([[3, 4, 5]]))
    rows = answer(trace, "top", {"top": "2"})["rows"]
    logits = trace["head.logits"].values.double()
    for row, found in zip(logits, rows, strict=True):
        order = row.argsort(descending=True)[:2].tolist()
        assert [each["id"] for each in found] == order
        assert [each["probability"] for each in found] == pytest.approx(row.softmax(-1)[order].tolist())


# --- over HTTP, every family of tasks -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    home = tmp_path_factory.mktemp("page")
    for name in ("sees", "captions"):
        (home / name).mkdir()
    save_seer(home / "sees")
    save_captioner(home / "captions")
    encoders.save(home / "classify", "BertForSequenceClassification", num_labels=3)
    encoders.save(home / "answer", "BertForQuestionAnswering")
    (home / "ids").mkdir()
    for file in (home / "classify").iterdir():
        if "token" not in file.name and "vocab" not in file.name:
            (home / "ids" / file.name).write_bytes(file.read_bytes())
    names = ("sees", "captions", "classify", "answer", "ids")
    tasks: dict[str, Any] = {name: load(home / name, precision="float32") for name in names}
    tasks["writes"] = completer(suppress_tokens=None)
    return Asking(registry=Registry([ServedModel(name, task, Path(), 0) for name, task in tasks.items()]))


IMAGE = b64encode(png()).decode()
ASKED: dict[str, dict[str, Any]] = {
    "sees": {"image": IMAGE},
    "captions": {"image": f"data:image/png;base64,{IMAGE}", "options": {"max_new_tokens": 4}},
    "classify": {"text": "Paris is the capital of France.", "pair": "It rains."},
    "answer": {"text": "What is Paris?", "pair": "Paris is the capital of France."},
    "ids": {"ids": [3, 4, 5]},
    "writes": {"text": "one two", "options": {"max_new_tokens": 4, "temperature": 0.9, "seed": 3}},
}


@pytest.mark.parametrize("name", ASKED)
def test_every_kind_of_task_is_traced_and_asked(asking: Asking, name: str) -> None:
    listed = {each["name"]: each for each in asking.get("/models").json()}
    takes = next(iter(set(ASKED[name]) & {"text", "ids", "image"}))
    assert takes in listed[name]["takes"]
    answered = asking.post("/trace", {"model": name, **ASKED[name]})
    assert answered.status == 200, answered.content
    found = answered.json()
    assert found["facts"]["kind"] == listed[name]["kind"]
    assert found["run"]["verb"]
    steps = {each["address"]: each for each in found["addresses"]}
    weights = next(each for each in steps if each.endswith(".weights"))
    tensor = asking.get(f"/trace/{found['id']}/tensor", address=weights, format="float32")
    values = np.frombuffer(tensor.content, "<f4").reshape(steps[weights]["shape"])
    assert np.allclose(values.sum(-1), 1, atol=1e-5)
    side = steps[weights]["words"].get("s")
    assert side is None or len(found["words"][side]) == values.shape[-1]
    for question in ("heads", "lens", "top", "ablations"):
        assert asking.get(f"/trace/{found['id']}/{question}").status in (200, 404)
    if "image" in ASKED[name]:
        assert found["run"]["picture"].startswith("data:image/png;base64,")
        rows, columns = found["run"]["grid"]
        assert steps[weights]["shape"][-1] in (rows * columns, rows * columns + 1)


def test_a_fork_begins_as_told_and_goes_on(asking: Asking) -> None:
    """As if the tokens until there had been the prompt: the same continuation, token for token."""
    first = asking.post("/trace", {"model": "writes", "text": "one two", "options": {"max_new_tokens": 5}}).json()
    other = first["run"]["choices"][2]["ids"][1]
    begun = [*first["run"]["ids"][:2], other]
    body = {
        "model": "writes",
        "text": "one two",
        "target_ids": begun,
        "continue": True,
        "options": {"max_new_tokens": 3},
    }
    fork = asking.post("/trace", body).json()["run"]
    assert (fork["ids"][:3], fork["forced"]) == (begun, 3)
    task = asking.task("writes")
    prompt = [*task.prompt_ids("one two", 1), *begun]
    best = task.engine.run([task.request(prompt, task.own.of(task.own, max_new_tokens=3))])[0][0]
    assert fork["ids"][3:] == best.tokens
    assert fork["score"] == pytest.approx(sum(fork["logprobs"]), abs=1e-4)
    at, node = 0, fork["tree"][0]
    for token in fork["ids"]:
        ((at, node),) = [
            (n, each) for n, each in enumerate(fork["tree"]) if (each["parent"], each["id"]) == (at, token)
        ]
        assert node["chosen"]
    assert node["score"] == pytest.approx(fork["score"], abs=1e-4)


def test_a_long_text_is_told_however_deep_its_tree(asking: Asking) -> None:
    body = {"model": "writes", "ids": [5], "target_ids": [6, 7] * 300}
    run = asking.post("/trace", body).json()["run"]
    assert len(run["ids"]) == 600
    assert [each["parent"] for each in run["tree"]] == [None, *range(600)]
    assert all(each["chosen"] for each in run["tree"][1:])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"model": "ids", "text": "hello"}, "no tokenizer"),
        ({"model": "sees", "text": __file__}, "is given an image"),
        ({"model": "captions", "ids": [1]}, "is given an image"),
        ({"model": "classify", "image": IMAGE}, "is given a text"),
        ({"model": "sees", "image": "AAAA"}, "not an image"),
        ({"model": "sees", "image": "no base64!"}, "base64"),
        ({"model": "classify", "text": "word " * 5_000}, "too long"),
        ({"model": "classify", "ids": [10**6]}, "ids from 0"),
        ({"model": "classify", "text": "\u202e"}, ""),
        ({"model": "answer", "text": "What?"}, "context"),
    ],
)
def test_bad_input_is_said(asking: Asking, body: dict[str, Any], says: str) -> None:
    answered = asking.post("/trace", body)
    assert answered.status in (400, 413), answered.content
    assert says in answered.json()["error"]


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "e" + "\u0301" * 200, "a\u202eb\u2066c", "\x00one"])
def test_hostile_texts_are_texts(asking: Asking, text: str) -> None:
    answered = asking.post("/trace", {"model": "writes", "text": text, "options": {"max_new_tokens": 2}})
    assert answered.status in (200, 400)
    assert answered.headers["content-type"] == "application/json"
    assert answered.headers["x-content-type-options"] == "nosniff"
