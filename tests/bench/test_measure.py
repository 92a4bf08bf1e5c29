"""A benchmark of tiny models, in this process: what is counted, what is told, and what the answers agree in."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearformer import presets
from clearformer.bench import contender, gguf, limits, process, run, workloads
from clearformer.bench.peers import PEERS, CTranslate2, peers_of
from clearformer.bench.report import chart, report, show
from clearformer.bench.workloads import Job, Sizes
from clearformer.errors import DataError


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contenders run here, once each, and the machine is measured with little."""
    monkeypatch.setattr(run, "alone", contender.measure)
    monkeypatch.setattr(contender, "MOST", 1)
    monkeypatch.setattr(limits, "SIDE", 64)
    monkeypatch.setattr(limits, "BUFFER", 2**16)


def told(work: str, **options: Any) -> dict[str, Any]:
    given = {"shape": "tiny", "threads": 1, "rounds": 1, "against": ["transformers"], **options}
    return report(run.run(work, **given))


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("work", ["translate", "complete", "embed", "train"])
def test_every_work_tells_speeds_limits_and_ratios(work: str) -> None:
    found = told(work)
    rows = {(each["name"], each["precision"]): each for each in found["contenders"]}
    precisions = ["float32"] if work == "train" else ["float32", "int8"]
    assert list(rows) == [*(("clearformer", each) for each in precisions), ("transformers", "float32")]
    names = [column["name"] for column in found["columns"]]
    for each in rows.values():
        assert "why" not in each, each["why"]
        assert list(each["speeds"]) == names
        assert min(each["speeds"].values()) > 0
        assert set(each["shares"][names[0]]) == {"memory", "products"}
        assert each["peak_bytes"] > 0
        assert each["load_seconds"] > 0
    assert found["machine"]["products_gflops"] > 0
    assert found["machine"]["memory_gigabytes_per_second"] > 0
    assert [ratio["to"] for ratio in found["ratios"]] == ["transformers float32"] * len(precisions)
    if work != "train":  # both were given the same weights
        assert rows["transformers", "float32"]["same"] > 0.99
        assert rows["clearformer", "float32"]["first_token_seconds"] > 0
    json.dumps(found)


@pytest.mark.usefixtures("together")
def test_a_table_a_file_and_a_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    found = told("complete", against=[], precision="float32")
    show(found, Console(width=160))
    shown = capsys.readouterr().out
    for words in ("Clearformer float32", "batch 8", "GFLOP/s", "GB/s", "first token", "of the limit"):
        assert words in shown
    for name in ("bars.png", "bars.svg"):
        assert chart(found, tmp_path / name).stat().st_size > 1000
    with pytest.raises(DataError, match=r"\.png or \.svg"):
        chart(found, tmp_path / "bars.gif")


@pytest.mark.usefixtures("together")
def test_a_model_of_ours_and_texts_of_ones_own(tmp_path: Path) -> None:
    found = told("translate", shape=None, model="en-de", against=["transformers"], precision="float32")
    assert found["model"] == "en-de"
    assert "speeds" in found["contenders"][0]
    assert told("embed", texts=["one two", "three"], against=[])["columns"][0]["unit"] == "texts/s"
    with pytest.raises(DataError, match="no texts to embed"):
        told("embed", texts=["", " "])


@pytest.mark.usefixtures("together")
def test_a_peer_that_is_not_installed_has_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CTranslate2, "modules", ("no_such_module",))
    found = told("translate", against=["ctranslate2"], precision="int8")
    whys = [each.get("why") for each in found["contenders"]]
    assert whys == [None, *["not installed; pip install ctranslate2 transformers"] * 2]
    assert CTranslate2 not in peers_of("translate", None)
    assert found["ratios"] == []


def test_a_contender_that_fails_says_why_and_the_others_go_on() -> None:
    job = Job("translate", "clearformer", "float32", "no/such/folder", 1, 100)
    with pytest.raises(DataError, match="there is no folder no/such/folder"):
        process.alone(job)


def test_wrong_input() -> None:
    with pytest.raises(DataError, match=f"unknown peer 'onnx'; known: {', '.join(PEERS)}"):
        run.run("translate", against=["onnx"])
    with pytest.raises(DataError, match=r"ctranslate2 has no part in embed here; peers that have: transformers, sent"):
        run.run("embed", against=["ctranslate2"])
    with pytest.raises(DataError, match="translate has no shape 'bas'; did you mean 'base'"):
        run.run("translate", shape="bas")
    with pytest.raises(DataError, match="a model or a shape"):
        run.run("translate", shape="tiny", model="en-de")
    with pytest.raises(DataError, match="en-de does not complete: it is a model to translate"):
        run.run("complete", model="en-de", against=[])


def test_what_a_run_must_read_and_multiply() -> None:
    # width 32, inner 64, two layers a side: an attention has 4 · 32², a feed-forward layer 2 · 32 · 64 numbers
    sizes = workloads.sizes_of(presets.marian("tiny"))
    assert sizes == Sizes(once=2 * 8192 + 2 * 2048, each=2 * 12288 - 2 * 2048, head=100 * 32)
    one, _, many, _ = workloads.columns_of("translate", sizes)
    assert one.reads == many.reads == 20480 + 32 * (20480 + 3200)
    assert one.operations == 2 * (20 * 20480 + 32 * (20480 + 3200))
    assert many.operations == 32 * one.operations
    alone, prompt, _ = workloads.columns_of("complete", Sizes(0, 10, 3))
    assert (alone.reads, alone.operations) == (64 * 13, 2 * (79 * 10 + 64 * 3))
    assert (prompt.reads, prompt.operations) == (13, 2 * (4000 + 3))


def test_rounds_keep_the_best_times_and_the_highest_peak() -> None:
    first = {"load": 2.0, "peak": 5, "seconds": {"a": 1.0, "b": 3.0}}
    second = {"load": 1.0, "peak": 4, "seconds": {"a": 2.0, "b": 2.0}}
    assert process.merged(None, first) == first
    assert process.merged(first, second) == {"load": 1.0, "peak": 5, "seconds": {"a": 1.0, "b": 2.0}}


def test_shapes_are_the_published_ones() -> None:
    from clearformer.assemble import count_parameters

    millions = {
        (work, name): round(count_parameters(workloads.shape_of(work, name)) / 1e6, 1)
        for work, name in [("translate", "base"), ("complete", "llama"), ("complete", "gpt2"), ("embed", "minilm")]
    }
    assert list(millions.values()) == [60.6, 134.5, 124.4, 22.6]


def test_names_and_order_of_a_gguf_file() -> None:
    assert gguf._place("model.layers.3.self_attn.q_proj.weight", "llama") == "blk.3.attn_q.weight"
    assert gguf._place("transformer.h.0.attn.c_attn.bias", "gpt2") == "blk.0.attn_qkv.bias"
    assert gguf._place("model.embed_tokens.weight", "llama") == "token_embd.weight"
    rows = np.arange(8, dtype=np.float32)[:, None]  # two heads of four: halves become neighbours
    turned = gguf._turned("blk.0.attn_q.weight", rows, "llama", {"num_attention_heads": 2})
    assert turned[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert gguf._turned("blk.0.ffn_up.weight", np.ones((2, 3)), "gpt2", {}).shape == (3, 2)


@pytest.mark.parametrize(
    ("config", "base"),
    [
        ({}, 10_000.0),
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}}, 1e5),  # as transformers 5 writes it
        ({"rope_theta": 1.0, "rope_parameters": {"rope_theta": 1e5}, "rope_scaling": None}, 1e5),
    ],
)
def test_the_rotary_base_of_a_gguf_file(config: dict[str, Any], base: float) -> None:
    assert gguf.rotary_base(config) == base


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_scaled_rotary_angles_are_refused_for_a_gguf_file(key: str) -> None:
    with pytest.raises(DataError, match="'llama3' are not written"):
        gguf.rotary_base({key: {"rope_type": "llama3", "factor": 8.0}})


@pytest.mark.parametrize("where", ["top", "parameters"])
def test_a_gguf_file_holds_the_models_rotary_base(tmp_path: Path, where: str) -> None:
    library = pytest.importorskip("gguf")
    from clearformer.assemble import build
    from clearformer.checkpoints.huggingface import save_public

    folder = save_public(build(presets.llama("tiny"), seed=0), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    given = {"rope_theta": 123_456.0} if where == "top" else {"rope_parameters": {"rope_theta": 123_456.0}}
    config = {key: value for key, value in config.items() if not key.startswith("rope")} | given
    (folder / "config.json").write_text(json.dumps(config))
    written = library.GGUFReader(gguf.write(folder, tmp_path / "model.gguf", "float32"))
    assert written.get_field("llama.rope.freq_base").contents() == pytest.approx(123_456.0)
