"""Every task object can be traced: the trace is of what its verb really did, with words on the axes."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import clearformer as cf
from clearformer import spec
from clearformer.errors import DataError
from clearformer.explain.trace import Trace
from clearformer.kernels.pack import is_int8
from clearformer.tasks.load import load
from tests.data.test_images import noise
from tests.tasks import encoders, writers
from tests.tasks.test_see import LABELS, save_captioner, save_seer

TEXT = "Paris is the capital of France."
PAIR = "It rains."


def checked(trace: Trace) -> dict[str, Any]:
    """What holds for every trace: the JSON is whole, and the result is the model's."""
    found = json.loads(json.dumps(trace.to_dict(), allow_nan=False))
    assert found["run"]["verb"]
    assert trace._repr_html_().startswith("<div")
    return found["run"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    kinds = {
        "classify": ("BertForSequenceClassification", {"num_labels": 3}),
        "tag": ("BertForTokenClassification", {"num_labels": 4}),
        "fill": ("RobertaForMaskedLM", {}),
        "answer": ("BertForQuestionAnswering", {}),
        "embed": ("DistilBertModel", {}),
    }
    made = {}
    for name, (kind, rest) in kinds.items():
        made[name] = encoders.save(tmp_path_factory.mktemp("traced") / name, kind, **rest)[0]
    return made


def test_a_translation_is_traced_as_it_was_made(translator: cf.Translator) -> None:
    text = "Do you know him?"
    trace = translator.trace(text, num_beams=3, num_return_sequences=2, top=4)
    plain = translator.translate(text, num_beams=3, num_return_sequences=2)[0]
    run = checked(trace)
    assert (run["text"], run["score"]) == (plain.text, plain.score)
    assert [one["text"] for one in run["best"]] == [plain.text, plain.others[0].text]
    assert [one["score"] for one in run["best"]] == [plain.score, plain.others[0].score]
    normal = [one["normalised"] for one in run["best"]]
    assert normal == sorted(normal, reverse=True)
    assert run["options"]["num_beams"] == 3
    assert trace.words["source"] == list(plain.source_tokens)
    assert trace["decoder.1.cross.h0.weights"].labels["s"] == trace.words["source"]
    assert trace["decoder.1.cross.h0.weights"].labels["t"][1:] == list(plain.tokens)
    assert sum(run["logprobs"]) == pytest.approx(plain.score, abs=1e-3)
    assert all(len(step["likeliest"]) == 4 for step in run["choices"])
    same = cf.trace(translator, text, num_beams=3)
    assert same.run.text == plain.text
    assert trace[f"head.logits[0,'{run['tokens'][0]}']"].values == trace[f"head.logits[0,{run['ids'][0]}]"].values


def test_a_target_that_is_given_is_scored_and_not_searched_for(translator: cf.Translator) -> None:
    trace = translator.trace("Do you know him?", target="four five")
    run = checked(trace)
    assert run["finish"] == "forced"
    assert run["text"] == "four five"
    source = torch.tensor([translator.sides.encode("Do you know him?")])
    target = translator.sides.encode_targets(["four five"])[0]
    with torch.no_grad():
        logits = translator.model(source, torch.tensor([[translator.sides.start, *target[:-1]]]))[0].double()
    wanted = logits.log_softmax(-1)[range(len(target)), target]
    assert run["logprobs"] == pytest.approx(wanted.tolist(), abs=1e-4)
    assert run["score"] == pytest.approx(float(wanted.sum()), abs=1e-3)
    assert len(translator.trace("one", target="").words["target"]) == 1
    changed = translator.trace("one", target="four", change={"decoder.1.cross.h0.mixed": 0})
    assert float(changed["decoder.1.cross.h0.mixed"].values.abs().max()) == 0


def test_writers_put_their_prompts_in_front() -> None:
    writer = writers.writer()
    trace = writer.trace("one two", to="de", max_new_tokens=6)
    assert checked(trace)["verb"] == "translate"
    assert trace.run.text == writer.translate("one two", to="de", max_new_tokens=6)[0].text
    assert len(trace.words["source"]) > len(writer.trace("one two", max_new_tokens=2).words["source"])
    plain = writer.trace("one two three", max_new_tokens=5)
    assert (plain.run.verb, plain.run.text) == ("write", writer.write("one two three", max_new_tokens=5)[0].text)
    short = writer.trace("one two three.", verb="summarize", max_new_tokens=5)
    assert short.run.text == writer.summarize("one two three.", max_new_tokens=5)[0].text
    with pytest.raises(DataError, match="verb must be"):
        writer.trace("one", verb="sing")


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 6},
        {"max_new_tokens": 6, "temperature": 0.9, "seed": 3},
        {"max_new_tokens": 5, "num_beams": 3},
        {"max_new_tokens": 6, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
    ],
)
def test_a_completion_is_traced_as_it_was_made(options: dict[str, Any]) -> None:
    completer = writers.completer()
    trace = completer.trace("one two", top=3, **options)
    plain = completer.complete("one two", scores=True, **options)[0]
    run = checked(trace)
    assert (run["text"], run["score"]) == (plain.text, plain.score)
    ends = len(run["tokens"]) - len(plain.tokens)
    assert run["tokens"][: len(plain.tokens)] == list(plain.tokens)
    assert plain.probabilities is not None
    chances = [math.exp(gain) for gain in run["logprobs"]][: len(plain.tokens)]
    assert chances == pytest.approx(list(plain.probabilities), abs=1e-4)
    assert [step["probability"] for step in run["choices"]][: len(chances)] == pytest.approx(chances, abs=1e-4)
    prompt = completer.prompt_ids("one two", 1)
    assert run["read"] == completer.tokenizer.pieces(prompt)
    words = trace["stack.1.self.h0.weights"].labels["t"]
    assert words == [*run["read"], *run["tokens"][: len(run["tokens"]) - ends]]
    first, node = len(prompt) - 1, trace.run.tree
    assert trace.lens().guesses[-1][first][0].word == run["choices"][0]["likeliest"][0][0]
    for _ in run["tokens"]:
        (node,) = [child for child in node.children.values() if child.chosen]
    assert node.score == pytest.approx(plain.score, abs=1e-3)


def test_each_row_of_a_completion_is_its_step_with_a_cache() -> None:
    completer = writers.completer()
    trace = completer.trace("one two three", max_new_tokens=5)
    context, logits = completer.model.context(), []
    ids = trace.tape.records["input"].value
    with torch.no_grad():
        for n in range(ids.size(1)):
            logits.append(completer.model.step(ids[:, n : n + 1], context))
    torch.testing.assert_close(trace["head.logits"].values, torch.cat(logits), atol=1e-4, rtol=1e-4)


def test_prompts_alone_forced_continuations_stops_and_ids() -> None:
    completer = writers.completer()
    prompt = completer.trace("one two three", target="")
    assert prompt.run.tokens == []
    assert prompt.words["input"] == completer.tokenizer.pieces(completer.prompt_ids("one two three", 1))
    given = completer.trace("one two", target=" three")
    assert given.run.text.strip() == "three"
    assert given.run.finish == "forced"
    assert completer.trace([1, 5, 9], max_new_tokens=2).run.ids == completer.trace([1, 5, 9], max_new_tokens=2).run.ids
    long = completer.complete("one two", max_new_tokens=12)[0].text
    stop = long[len(long) // 2]
    options = {"max_new_tokens": 12, "stop": (stop,)}
    assert completer.trace("one two", **options).run.text == completer.complete("one two", **options)[0].text


def test_int8_is_traced_on_its_own_weights(folder: Path) -> None:
    task = load(folder, precision="int8", kind=cf.Translator)
    assert is_int8(task.model)
    trace = task.trace("Do you know him?")
    assert trace.run.text == task.translate("Do you know him?")[0].text
    assert trace["decoder.0.cross.query.matrix.whole"].values.dtype == torch.int8
    logits = trace["head.logits"].values.double().softmax(-1)
    assert logits[0].max().item() == pytest.approx(trace.run.choices[0].likeliest[0][1])


def test_classes_with_pairs_and_segments(folders: dict[str, Path]) -> None:
    task = load(folders["classify"], precision="float32")
    trace = task.trace(TEXT, PAIR)
    run, plain = checked(trace), task.classify(TEXT, PAIR)[0]
    assert run["answer"] == plain.to_dict()
    assert 1 in run["segments"]
    assert run["tokens"][0] == "[CLS]"
    chances = trace["head.logits"].values.double().softmax(-1)
    assert chances.tolist() == pytest.approx(list(plain.probabilities.values()), abs=1e-5)
    label = plain.label
    assert float(trace[f"head.logits['{label}']"].values) == float(trace["head.logits"].values.max())
    without = task.trace(TEXT)
    assert without.run.answer["probabilities"] == task.classify(TEXT)[0].probabilities
    with pytest.raises(cf.TraceError, match="pooled vector's activation"):
        trace.attribution(f"head.logits['{label}']")
    assert trace.ablations(f"head.logits['{label}']").word == label
    assert trace.lens().guesses[-1][0][0].word == label


def test_long_texts_are_looked_at_window_by_window(folders: dict[str, Path]) -> None:
    task = load(folders["classify"], precision="float32")
    with pytest.raises(DataError, match="too long"):
        task.trace(encoders.long_text())
    trace = task.trace(encoders.long_text(), on_long="split", window=1)
    assert trace.run.windows > 2
    assert trace.run.window == 1
    with pytest.raises(DataError, match="windows, 0 to"):
        task.trace(TEXT, window=1)


def test_tags_spans_fills_and_vectors(folders: dict[str, Path]) -> None:
    tagger = load(folders["tag"], precision="float32")
    trace = tagger.trace(TEXT)
    assert checked(trace)["answer"]["words"] == [vars(w) for w in tagger.tag(TEXT)[0].words]
    assert trace["head.logits"].labels["c"] == tagger.labels(4)
    assert trace["head.logits"].labels["t"][0] == "[CLS]"
    answerer = load(folders["answer"], precision="float32")
    trace = answerer.trace("What is it?", TEXT)
    assert checked(trace)["answer"]["text"] == answerer.answer("What is it?", TEXT)[0].text
    assert trace["head.logits"].labels["c"] == ["start", "end"]
    with pytest.raises(DataError, match="needs a context"):
        answerer.trace("What is it?")
    filler = load(folders["fill"], precision="float32")
    trace = filler.trace("Paris is the [MASK] of France.")
    filled = filler.fill("Paris is the [MASK] of France.")[0]
    assert checked(trace)["answer"]["text"] == filled.text
    place = trace.run.tokens.index("<mask>")
    best = trace["head.logits"].values[place].double().softmax(-1).max()
    assert float(best) == pytest.approx(filled.masks[0][0].probability, abs=1e-5)
    for task, pool in ((filler, "mean"), (load(folders["embed"], precision="float32"), "mean")):
        trace = task.trace(TEXT)
        assert checked(trace)["verb"] == "embed"
        assert trace.run.answer["pool"] == pool
        vector = task.embed(TEXT)[0]
        np.testing.assert_allclose(trace["head.pooled"].numpy(), vector, atol=1e-5)
        np.testing.assert_allclose(trace.run.answer["vector"], vector, atol=1e-6)
        with pytest.raises(cf.TraceError, match="one vector"):
            trace.lens()


def test_images_have_patches_on_the_axes(tmp_path: Path) -> None:
    save_seer(tmp_path)
    seer = load(tmp_path, precision="float32")
    image = Image.fromarray(noise(30, 40, seed=1))
    trace = seer.trace(image)
    run = checked(trace)
    assert run["grid"] == [3, 3]
    assert trace.words["input"] == ["[summary]", *(f"{row},{column}" for row in range(3) for column in range(3))]
    assert trace["stack.0.self.h0.weights"].labels["s"] == trace.words["input"]
    plain = seer.see(image)[0]
    assert run["answer"]["labels"][0]["label"] == plain.label
    assert trace.outputs == LABELS
    assert trace.attribution(f"head.logits['{plain.label}']").total == pytest.approx(
        float(trace["head.logits"].values.max()), rel=1e-4
    )
    image.save(tmp_path / "x.png")
    assert seer.trace(str(tmp_path / "x.png")).run.text.endswith("x.png")
    with pytest.raises(DataError, match="one image"):
        seer.trace([image, image])


def test_captions_are_traced_over_patches(tmp_path: Path) -> None:
    save_captioner(tmp_path)
    captioner = load(tmp_path, precision="float32")
    image = Image.fromarray(noise(30, 40, seed=1))
    trace = captioner.trace(image, num_beams=2)
    assert checked(trace)["text"] == captioner.see(image, num_beams=2)[0].text
    assert trace["decoder.1.cross.h0.weights"].labels["s"][0] == "[summary]"
    assert len(trace["decoder.1.cross.h0.weights"].labels["t"]) == trace["decoder.1.cross.h0.weights"].values.size(0)
    assert trace.heads()


def test_what_does_not_fit_is_said(folders: dict[str, Path], translator: cf.Translator) -> None:
    task = load(folders["classify"], precision="float32")
    for call, message in (
        (lambda: task.trace("  "), "empty text"),
        (lambda: task.trace(), "empty text"),
        (lambda: task.trace(TEXT, num_beams=3), "num_beams: for models that write"),
        (lambda: task.trace(TEXT, target="x", to="de"), "target, to: for models that write"),
        (lambda: task.trace(TEXT, top=0), "top must be at least 1"),
        (lambda: translator.trace("one", "two"), "a second text"),
        (lambda: translator.trace("one " * 60), "the longest this model was trained on"),
        (lambda: translator.trace("one", verb="summarize"), "can translate"),
        (lambda: translator.trace("one", num_bems=3), "is no option of generation"),
    ):
        with pytest.raises(DataError, match=message):
            call()
    trace = task.trace([2, 5, 7, 3])
    assert trace.run.ids == [2, 5, 7, 3]
    assert isinstance(trace.ran.model.spec.head, spec.Classes)
