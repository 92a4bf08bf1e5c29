"""A benchmark of tiny models, in this process: what is counted, what is told, and what the answers agree in."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearformer import presets
from clearformer.bench import contender, gguf, inputs, limits, ours, process, run, workloads
from clearformer.bench.chart import chart
from clearformer.bench.peers import PEERS, CTranslate2, Peer, peers_of
from clearformer.bench.report import report
from clearformer.bench.table import show
from clearformer.bench.workloads import FIRST, Job, Lengths, Runs, Said, Sizes
from clearformer.errors import DataError


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contenders run here, once each, and the machine is measured with little."""
    monkeypatch.setattr(run, "alone", contender.measure)
    monkeypatch.setattr(contender, "MOST", 1)
    monkeypatch.setattr(inputs, "BATCH", 4)
    for module in (ours, workloads):
        monkeypatch.setattr(module, "ONE", 2)
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
        both = [
            name
            for name in names
            if each["name"] == "clearformer" or name not in (workloads.AT_ONCE, workloads.ARRIVING)
        ]
        assert list(each["speeds"]) == list(each["medians"]) == both
        assert all(each["medians"][name] <= each["speeds"][name] for name in both)
        assert min(each["speeds"].values()) > 0
        assert set(each["shares"][names[0]]) == {"memory", "products"}
        assert each["peak_bytes"] > 0
        assert each["load_seconds"] > 0
    assert found["machine"]["products_gflops"] > 0
    assert found["machine"]["memory_gigabytes_per_second"] > 0
    assert [ratio["to"] for ratio in found["ratios"]] == ["transformers float32"] * len(precisions)
    assert [set(ratio["to"].values()) for ratio in found["best_peer"]] == [{"transformers float32"}] * len(precisions)
    assert "busy" not in found
    if work != "train":  # both were given the same weights
        assert rows["transformers", "float32"]["same"] > 0.99
        assert rows["clearformer", "float32"]["first_token_seconds"] > 0
    json.dumps(found)


@pytest.mark.usefixtures("together")
def test_a_table_a_file_and_a_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    found = told("complete", against=[], precision="float32")
    show(found, Console(width=220))
    shown = capsys.readouterr().out
    for words in (
        "Clearformer float32",
        "8 texts",
        "one text sampled",
        "text to text",
        "best · median",
        "GFLOP/s",
        "GB/s",
        "first token",
        "of the limit",
    ):
        assert words in shown
    for name in ("bars.png", "bars.svg"):
        assert chart(found, tmp_path / name).stat().st_size > 1000
    with pytest.raises(DataError, match=r"\.png or \.svg"):
        chart(found, tmp_path / "bars.gif")


@pytest.mark.usefixtures("together")
def test_a_model_of_ours_and_texts_of_ones_own() -> None:
    found = told("translate", shape=None, texts=["How are you?", "", "Good."], precision="float32")
    assert (found["model"], found["texts"]) == ("en-de", 2)  # the bundled one, where none is named
    assert {column["unit"] for column in found["columns"]} == {"texts/s"}  # it ends its answers itself
    assert "speeds" in found["contenders"][0]
    assert "speeds" in found["contenders"][1]  # the same model, exported
    assert told("embed", texts=["one two", "three"], against=[])["columns"][0]["unit"] == "texts/s"
    with pytest.raises(DataError, match="no texts to embed"):
        told("embed", texts=["", " "])


@pytest.mark.usefixtures("together")
def test_a_peer_that_is_not_installed_has_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CTranslate2, "modules", ("no_such_module",))
    found = told("translate", against=["ctranslate2"], precision="int8")
    whys = [each.get("why") for each in found["contenders"]]
    assert whys == [None, *["not installed; pip install ctranslate2"] * 2]
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
    step = 20480 + 3200
    many, beam, one, _ = workloads.columns_of("translate", sizes, Lengths([20] * 32, [32] * 32))
    assert (many.reads, many.amount) == (20480 + 32 * step, 32 * 32)
    assert many.operations == 32 * 2 * (20 * 20480 + 32 * step)
    assert beam.operations == 32 * 2 * (20 * 20480 + (1 + 31 * 4) * step)
    assert (one.reads, one.operations) == (16 * (20480 + 32 * step), many.operations // 2)  # sixteen, one by one
    ragged, *_ = workloads.columns_of("translate", sizes, Lengths([3, 5], [4, 2], tokens=False))
    assert (ragged.unit, ragged.amount) == ("texts/s", 2)
    assert (ragged.reads, ragged.operations) == (20480 + 4 * step, 2 * (8 * 20480 + 6 * step))
    alone, _, prompt, eight, *_ = workloads.columns_of("complete", Sizes(0, 10, 3), Lengths([16] * 32))
    assert (alone.reads, alone.operations) == (64 * 13, 2 * (79 * 10 + 64 * 3))
    assert (prompt.reads, prompt.operations) == (13, 2 * (4000 + 3))
    assert (eight.reads, eight.operations) == (alone.reads, 8 * alone.operations)


def test_rounds_keep_all_runs_and_the_highest_peak() -> None:
    first = {"load": 2.0, "peak": 5, "seconds": {"a": [1.0], "b": [3.0]}}
    second = {"load": 1.0, "peak": 4, "seconds": {"a": [2.0], "b": [2.0]}}
    assert process.merged(None, first) == first
    assert process.merged(first, second) == {"load": 1.0, "peak": 5, "seconds": {"a": [1.0, 2.0], "b": [3.0, 2.0]}}


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


# --- verbs --------------------------------------------------------------------------------------------------


class Verbs:
    """A task object that remembers how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str], dict[str, Any]]] = []

    def translate(self, texts: list[str], **options: Any) -> list[Any]:
        from clearformer.tasks.translate import Translation

        self.calls.append(("translate", texts, options))
        return [Translation(text.upper(), 0.0, tuple(text.split()), "end") for text in texts]


def test_translating_is_timed_through_the_verb_as_people_call_it() -> None:
    task, job = Verbs(), Job("translate", "clearformer", "float32", "", 1, texts=("a b", "c") * 20)
    runs = ours.translating(job, lambda texts, beams, limit: ours.translate(task, texts, beams, limit))
    assert runs[workloads.MANY_GREEDY]() == Said(["A B", "C"] * 20, 60)
    assert [(name, len(texts)) for name, texts, _ in task.calls] == [("translate", 40)]
    task.calls.clear()
    assert runs[workloads.ONE_BEAM]().texts == ["A B", "C"] * 8
    assert [len(texts) for _, texts, _ in task.calls] == [1] * workloads.ONE


def test_made_up_texts_have_the_lengths_that_the_columns_count(tmp_path: Path) -> None:
    for work, length, count in (("translate", 20, 32), ("complete", 16, 32)):
        given = inputs.made(work, "tiny", tmp_path / work)
        told = Job(work, "clearformer", "float32", str(given.folder), 1, vocabulary=100)
        job, lengths = inputs.inputs_of(told, given, None)
        assert list(lengths.sources) == [length] * count
        runs = ours.Clearformer(job).load(job, "")
        name = workloads.MANY_GREEDY if work == "translate" else workloads.EIGHT
        assert runs[name]().tokens == (32 * 32 if work == "translate" else 8 * 64)
    assert lengths.long == workloads.LONG


def test_the_sentences_that_come_with_it() -> None:
    found = inputs.sentences()
    assert len(found) == len(set(found)) > 200
    assert all(text == text.strip() != "" for text in found)


def test_a_long_prompt_is_as_long_as_the_model_can_read() -> None:
    class Letters:
        def encode(self, texts: list[str]) -> list[list[int]]:
            return [[ord(letter) for letter in text] for text in texts]

    assert inputs.long_text(Letters(), ["ab cd"], None) == " ".join(["ab", "cd"] * 100)[:399].strip()
    assert inputs.long_text(Letters(), ["ab cd"], 10) == "ab cd ab"


# --- configurations and other load --------------------------------------------------------------------------


class Fake(Peer):
    """Fast with one text in one configuration, with many in another."""

    name, modules, packages, works = "ctranslate2", ("json",), ("torch",), ("translate",)
    wait: dict[str, dict[str, int]] = {  # noqa: RUF012
        "narrow": {FIRST: 1, workloads.ONE_GREEDY: 1, workloads.ONE_BEAM: 2},
        "wide": {FIRST: 2, workloads.ONE_GREEDY: 2, workloads.ONE_BEAM: 1},
        "wide, batch 2": {workloads.MANY_GREEDY: 1, workloads.MANY_BEAM: 1},
    }

    def __init__(self, job: Job):
        self.loaded: list[str] = []

    @classmethod
    def prepare(cls, given: Any, precision: str, to: Path) -> Path:
        return to

    @classmethod
    def ways(cls, job: Job) -> list[str]:
        return list(cls.wait)

    def load(self, job: Job, way: str) -> Runs:
        self.loaded.append(way)

        def runner(name: str, units: int) -> Any:
            def run() -> Said:
                return Said([f"{way} {name}"] * max(1, len(job.texts)), 32)

            run.units = units  # type: ignore[attr-defined]
            return run

        return {name: runner(name, units) for name, units in self.wait[way].items()}


@pytest.mark.usefixtures("together")
def test_a_peer_runs_every_column_in_the_best_of_its_configurations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    monkeypatch.setitem(PEERS, "ctranslate2", Fake)
    monkeypatch.setattr(contender, "best", lambda run, *_: run.units)
    found = told("translate", against=["ctranslate2"], precision="float32")
    peer = found["contenders"][1]
    best = {FIRST: "narrow", workloads.ONE_GREEDY: "narrow", workloads.ONE_BEAM: "wide"}
    best |= dict.fromkeys((workloads.MANY_GREEDY, workloads.MANY_BEAM), "wide, batch 2")
    assert peer["ways"] == best
    assert set(peer["tried_seconds"][workloads.ONE_BEAM]) == {"narrow", "wide"}
    assert set(peer["speeds"]) == {column["name"] for column in found["columns"]}
    assert found["best_peer"][0]["to"][workloads.ONE_BEAM] == "CTranslate2 float32 (wide)"
    show(found, Console(width=220))
    assert "one text beam 4 wide" in capsys.readouterr().out


def test_a_column_is_run_in_the_configuration_that_was_found_for_it() -> None:
    ways = {FIRST: "narrow", workloads.ONE_GREEDY: "wide", workloads.MANY_GREEDY: "wide, batch 2"}
    job = Job("translate", "ctranslate2", "float32", "", 1, ways=ways)
    peer = Fake(job)
    made = contender.figures(peer, job)
    assert peer.loaded == ["narrow", "wide", "wide, batch 2"]
    assert made["said"] == [f"wide, batch 2 {workloads.MANY_GREEDY}"]


def test_workers_threads_and_batches_of_ctranslate2() -> None:
    job = Job("translate", "ctranslate2", "float32", "", 2)
    assert CTranslate2.ways(job)[:2] == ["1×2", "1×1"]  # for one text
    many = {f"{layout}, batch {size}" for layout in ("2×1", "1×2", "1×1") for size in (16, 32, 64)}
    assert set(CTranslate2.ways(job)[2:]) == many


@pytest.mark.usefixtures("together")
def test_beside_other_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from contextlib import contextmanager

    from rich.console import Console

    beside: list[int] = []

    @contextmanager
    def counted(count: int) -> Any:
        beside.append(count)
        yield

    monkeypatch.setattr(run, "busy_beside", counted)
    found = told("train", busy=2)
    assert beside == [0, 0, 2, 2]  # configurations and rounds: first quiet, then not
    assert found["busy"]["processes"] == 2
    assert [each["of"] for each in found["busy"]["of_quiet"]] == ["Clearformer float32", "transformers float32"]
    quiet, loud = found["contenders"][0]["speeds"]["step"], found["busy"]["contenders"][0]["speeds"]["step"]
    assert found["busy"]["of_quiet"][0]["times"]["step"] == pytest.approx(loud / quiet)
    assert found["busy"]["best_peer"][0]["to"] == {"step": "transformers float32"}
    show(found, Console(width=220))
    shown = capsys.readouterr().out
    assert "The same beside 2 busy processes" in shown
    assert "Clearformer float32 : its own quiet speed" in shown


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
@pytest.mark.usefixtures("together")
def test_on_fewer_cores(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    seen: list[int] = []

    def measure(job: Job) -> dict[str, Any]:
        seen.append(len(os.sched_getaffinity(0)))
        return contender.measure(job)

    monkeypatch.setattr(run, "alone", measure)
    found = told("train", cores=1, threads=None, against=[])
    assert set(seen) == {1}
    assert found["machine"] | {"cores": 1, "threads": 1, "confined": True} == found["machine"]
    show(found, Console(width=220))
    assert "1 thread on 1 core, all on these cores alone" in capsys.readouterr().out
