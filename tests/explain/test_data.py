"""Traces as data and pictures: exact, complete, and harmless whatever the words are."""

import base64
import json
import math
import sys
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from rich.console import Console

import clearformer as cf
from clearformer import presets, spec
from clearformer.explain import address
from clearformer.explain.trace import Trace
from clearformer.explain.words import shown
from clearformer.kernels.pack import pack
from tests.explain.test_trace import PAIR, SOURCE, TARGET, WORDS, traced
from tests.laws.cases import ALL, Case, loud

HOSTILE = [
    "<script>alert(1)</script>",
    "a\u202eb",
    "</svg><img src=x onerror=alert(1)>",
    "\"&'",
    "e" + "\u0301" * 10_000,
]


def small() -> Trace:
    return cf.trace(PAIR, SOURCE, TARGET, words=WORDS, outputs=lambda: [f"w{n}" for n in range(100)])


def test_a_trace_lists_what_there_is() -> None:
    trace = small()
    found = json.loads(json.dumps(trace.to_dict()))
    assert found["schema"] == "clearformer.trace/1"
    assert [each["address"] for each in found["addresses"]] == trace.addresses()
    by_name = {each["address"]: each for each in found["addresses"]}
    weights = by_name["decoder.1.cross.weights"]
    assert (weights["axes"], weights["shape"]) == (["h", "t", "s"], [4, 3, 5])
    assert weights["names"] == ["head", "query", "key"]
    assert weights["words"] == {"t": "target", "s": "source"}
    assert found["words"]["source"] == WORDS["source"]
    assert found["inputs"]["source"] == {"ids": SOURCE[0].tolist(), "words": WORDS["source"], "shape": [5]}
    assert "87 steps" in repr(trace)
    assert "“how are you my friend”" in repr(trace)


@pytest.mark.parametrize("name", ["decoder.1.cross.h3.weights", "decoder.0.self.scores", "head.logits[1]", "target"])
def test_numbers_come_back_exactly(name: str) -> None:
    trace = small()
    found = json.loads(json.dumps(trace.to_dict(name), allow_nan=False))
    values = trace[name].values
    assert found["schema"] == "clearformer.tensor/1"
    assert found["shape"] == list(values.shape)
    again = np.array(found["values"], dtype=found["dtype"])
    assert again.tobytes() == values.numpy().tobytes()
    packed = json.loads(json.dumps(trace.to_dict(name, packed=True)))
    raw = np.frombuffer(base64.b64decode(packed["base64"]), np.dtype(packed["dtype"]).newbyteorder("<"))
    assert np.array_equal(raw.reshape(packed["shape"]), values.numpy())
    assert np.array_equal(trace[name].numpy(), values.numpy())


def evaluate(node: dict[str, Any], leaf: Any) -> float:
    """A tiny evaluator that knows the schema alone."""
    kind = node["kind"]
    if kind == "number":
        return leaf(node["address"], node["value"])
    if kind in ("constant", "masked"):
        return node["value"]

    def inner(each: dict[str, Any]) -> float:
        return evaluate(each, leaf)

    if kind == "products":
        total = sum(inner(a) * inner(b) for a, b in node["pairs"])
        return total + (inner(node["bias"]) if node["bias"] else 0.0)
    if kind == "softmax":
        row = [inner(each) for each in node["row"]]
        return math.exp(row[node["place"]] - max(row)) / sum(math.exp(x - max(row)) for x in row)
    if kind == "norm":
        row = [inner(each) for each in node["row"]]
        mean = sum(row) / len(row) if node["centred"] else 0.0
        spread = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + node["eps"])
        made = (row[node["place"]] - mean) / spread * (inner(node["weight"]) if node["weight"] else 1.0)
        return made + (inner(node["bias"]) if node["bias"] else 0.0)
    assert kind == "apply"
    parts = [inner(each) for each in node["parts"]]
    if len(parts) == 1:
        functions = {"−": lambda x: -x, "abs": abs, "relu": lambda x: max(x, 0.0), "tanh": math.tanh, "sin": math.sin}
        functions |= {"cos": math.cos, "silu": lambda x: x / (1 + math.exp(-x))}
        functions |= {"gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))}
        curve = math.sqrt(2 / math.pi)
        functions |= {"gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(curve * (x + 0.044715 * x**3)))}
        return functions[node["sign"]](parts[0])
    a, b = parts
    return {"+": a + b, "−": a - b, "·": a * b, "/": a / (b or 1.0), "^": a**b if node["sign"] == "^" else 0.0}[
        node["sign"]
    ]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_cell_s_json_gives_its_number(case: Case) -> None:
    trace = traced(case)
    for name in trace:
        record = trace.tape.records[name]
        where = address.write(name, record.axes, tuple(size // 2 for size in record.value.shape), record.value.size(0))
        found = json.loads(json.dumps(trace.explain(where).to_dict(), allow_nan=False))
        assert (found["schema"], found["address"]) == ("clearformer.explanation/1", where)
        made = evaluate(found["expression"], lambda _, value: value)
        assert made == pytest.approx(found["value"], abs=2e-5, rel=2e-5), where


SMALL = {
    "gpt2": presets.gpt2("tiny", vocabulary=9),
    "llama": presets.llama("tiny", vocabulary=9),
    "bert": presets.bert("tiny", vocabulary=9, head=spec.TokenClasses(count=2)),
    "int8": presets.llama("tiny", vocabulary=9),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_logit_is_computed_again_from_its_json_down_to_the_table(name: str) -> None:
    """Every address is asked for in turn, until only parameters, ids and places are left."""
    model: Any = loud(cf.build(SMALL[name], seed=1))
    model = pack(model, "int8", native=False) if name == "int8" else model
    trace = cf.trace(model, torch.tensor([[3, 5]]))
    known: dict[str, float] = {}
    given: set[str] = set()

    def leaf(where: str, value: float) -> float:
        if where not in known:
            found = trace.explain(where).to_dict()
            if found["expression"] is None:
                given.add(where.split("[")[0])
                known[where] = found["value"]
            else:
                known[where] = evaluate(found["expression"], leaf)
        return known[where]

    wanted = float(model(torch.tensor([[3, 5]])).detach()[0, 1, 1])
    assert leaf("head.logits[1,1]", 0.0) == pytest.approx(wanted, abs=1e-4, rel=1e-4)
    assert any(each.startswith("stack.embed.table") for each in given)
    assert given <= trace.tape.given
    assert "stack.places" in given or name != "llama"


def test_every_number_of_an_explanation_has_an_address_or_is_a_constant() -> None:
    trace = cf.trace(loud(cf.build(presets.llama("tiny"), seed=1)), torch.tensor([[3, 5, 7]]))
    text = str(trace.explain("stack.0.self.h1.q[2,1]"))
    assert "cos((2.0000 [stack.places[2]] · 0.1000 [constant]))" in text
    assert "stack.0.self.query.weight[9," in text
    assert "· 0.3536 [constant]" in str(trace.explain("stack.0.self.h1.scores[2,1]"))
    assert trace.explain("stack.places[2]").to_dict()["expression"] is None


def test_words_name_cells() -> None:
    trace = small()
    assert trace["head.logits[1, 'w7']"].values == trace["head.logits[1,7]"].values
    assert trace.explain('decoder.1.cross.h0.weights["geht", "friend"]').address == "decoder.1.cross.h0.weights[2,4]"
    spaced = cf.trace(
        PAIR, SOURCE, TARGET, outputs=[*(f"Ġw{n}" for n in range(50)), *(f"▁w{n}" for n in range(50, 100))]
    )
    assert spaced.attribution("head.logits[1, ' w7']").address == "head.logits[1,7]"
    assert spaced["head.logits[1, ' w60']"].values == spaced["head.logits[1,60]"].values
    twice = cf.trace(PAIR, SOURCE, TARGET, words={"source": ["a", "b", "a", "c", "it's, [x]"]})
    assert twice[r"decoder.0.cross.h0.weights[0,'it\'s, [x]']"].values.dim() == 0
    for text, message in (
        ("decoder.0.cross.h0.weights[0,'a']", r"is there 2 times, at \[0, 2\]"),
        ("decoder.0.cross.h0.weights[0,'d']", "there is no 'd'"),
        ("head.logits[0,'d']", "no words are known"),
        ("decoder.0.cross.h0.weights[0,'d]", "is no cell"),
    ):
        with pytest.raises(cf.TraceError, match=message):
            twice[text]
    with pytest.raises(cf.TraceError, match="no words are known"):
        cf.trace(PAIR, SOURCE, TARGET, change={"decoder.0.cross.h0.weights['a']": 0})


def test_parts_of_a_tensor_keep_their_numbers() -> None:
    view = small()["decoder.1.cross.h3.weights[1:,2:4]"]
    text = str(view)
    for label in ("1 wie", "2 geht", "2 you", "3 my"):
        assert label in text
    assert "0 <s>" not in text
    assert view.to_dict()["starts"] == [1, 2]
    assert "2 you" in view.to_svg()


@pytest.mark.parametrize("width", [20, 40, 80])
def test_tables_fit_and_never_cut_a_number(width: int) -> None:
    words = {"source": [f"▁word{n}" for n in range(11)], "target": ["<s>", "▁a", "▁b"]}
    trace = cf.trace(PAIR, torch.arange(3, 14)[None], TARGET, words=words)
    view = trace["decoder.1.cross.h3.weights"]
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(view)
    lines = capture.get().splitlines()
    rows = [line for line in lines if line.startswith(("0 ", "1 ", "2 "))]
    assert len(rows) == 3
    assert all(len(line) <= width for line in lines)
    for row, values in zip(rows, view.values.tolist(), strict=True):
        numbers = [cell for cell in row.split() if "." in cell]
        assert len(numbers) >= {20: 1, 40: 4, 80: 10}[width]
        assert numbers == [f"{value:.4f}" for value in values[: len(numbers)]]
        assert "…" not in "".join(numbers)
    assert (len(numbers) < 11) == any("more column" in line for line in lines)


def test_pandas_tables_or_a_word_about_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(cf.TraceError, match="pip install pandas"):
        small()["decoder.1.cross.h3.weights"].to_dataframe()
    monkeypatch.undo()
    pytest.importorskip("pandas")
    frame = small()["decoder.1.cross.h3.weights"].to_dataframe()
    assert frame.shape == (3, 5)
    assert frame.loc["1 wie", "4 friend"] == float(small()["decoder.1.cross.h3.weights[1,4]"].values)
    assert small()["decoder.1.cross.weights"].to_dataframe().index.names == ["head", "query"]


def hostile() -> Trace:
    trace = cf.trace(PAIR, SOURCE, TARGET, words={"source": HOSTILE, "target": ["<s>", "<b>", "\x1b[31m"]})
    return trace


def test_hostile_words_are_only_text() -> None:
    trace = hostile()
    pages = [trace["decoder.1.cross.h3.weights"].to_svg(), trace["decoder.1.cross.h3.weights"]._repr_html_()]
    pages += [trace._repr_html_(), trace["decoder.1.cross.weights"]._repr_html_(), trace.lens()._repr_html_()]
    pages += [trace.attribution("head.logits[0,3]")._repr_html_(), trace.compare(trace)._repr_html_()]
    for page in pages:
        assert "<script" not in page
        assert "<img" not in page
        assert "<b>\x1b" not in page
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert page.count("\u0301") < 2_000
        assert " on" not in "".join(part.split(">")[0] for part in page.split("<")[1:] if "=" in part.split(">")[0])
    assert "&lt;script&gt;" in pages[0]
    assert "⟨U+202E⟩" in pages[0]
    for text in (
        str(trace["decoder.1.cross.h3.weights"]),
        str(trace.explain("decoder.1.cross.h3.weights[2,1]")),
        repr(trace),
    ):
        assert "\u202e" not in text
        assert "\x1b" not in text


def test_a_heat_map_has_its_cells_words_and_axes() -> None:
    trace = small()
    view = trace["decoder.1.cross.h3.weights"]
    root = ElementTree.fromstring(view.to_svg())
    names = "{http://www.w3.org/2000/svg}"
    said = [each.text for each in root.iter(f"{names}text")]
    assert "queries ↓ keys →" in said
    assert {"0 how", "4 friend", "2 geht"} <= set(said)
    titles = [each.text for each in root.iter(f"{names}title")]
    for t, s in ((1, 2), (2, 4)):  # rows are queries and columns keys, and not the other way round
        assert f"{view.label('t', t)} · {view.label('s', s)}: {float(view[t, s]):.4f}" in titles
    assert len([each for each in root.iter(f"{names}rect") if each.find(f"{names}title") is not None]) == 15
    assert view.to_png().startswith(b"\x89PNG")
    for name, message in (("decoder.1.cross.weights", "3 axes"), ("decoder.1.cross.h3.weights[0,0]", "one number")):
        with pytest.raises(cf.TraceError, match=message):
            trace[name].to_svg()
        assert "<svg" not in trace[name]._repr_html_()


def test_long_texts_are_drawn_in_tiles() -> None:
    model = cf.build(presets.gpt2("tiny"), seed=0)
    view = cf.trace(model, torch.arange(100)[None] % 90)["stack.0.self.h0.weights"]
    made = view.to_svg()
    assert "each square is the mean of 2 × 2 cells" in made
    assert len(made) < 1_000_000
    assert view.to_png().startswith(b"\x89PNG")


def test_what_is_no_model_and_no_tensor_is_said() -> None:
    model = cf.build(presets.gpt2("tiny"), seed=0)
    for given, message in (
        ((model, "How are you?"), r"cf.load\(folder\).trace\(text\)"),
        ((model, [[1, 2]]), "give ids as a tensor"),
        ((model,), "nothing to run"),
        ((object(), "x"), "given object"),
        (("en-de", "x"), "given str"),
    ):
        with pytest.raises(cf.TraceError, match=message):
            cf.trace(*given)


def test_words_are_shown_without_what_acts() -> None:
    assert shown("a\u202eb\n") == "a⟨U+202E⟩b⟨U+000A⟩"
    assert shown("क्\u200dष") == "क्\u200dष"
    assert shown("x" * 50) == "x" * 40 + "…"
