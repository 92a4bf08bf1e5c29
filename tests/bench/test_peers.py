"""Peers are given the very weights: where they are installed, they answer as we do."""

from pathlib import Path
from typing import Any

import pytest

from clearformer import presets, spec
from clearformer.assemble import build
from clearformer.bench import ctranslate2, inputs
from clearformer.bench.ours import Clearformer
from clearformer.bench.peers import PEERS
from clearformer.bench.workloads import EIGHT, MANY_BEAM, MANY_GREEDY, Job, Said
from clearformer.errors import DataError


def answers(work: str, peer: str, given: inputs.Given, to: Path, names: tuple[str, ...]) -> list[tuple[Said, Said]]:
    """Ours and the peer's, by column; the peer's in every configuration that has it."""
    told = Job(work, peer, "float32", str(given.folder), 2, vocabulary=inputs.vocabulary(given.what))
    job, _ = inputs.inputs_of(told, given, None if given.made_up else ["How are you?", "The door is open.", "Yes."])
    ours = Clearformer(job).load(job, "")
    kind = PEERS[peer]
    theirs: Any = Job(**{**job.to_dict(), "folder": str(kind.prepare(given, "float32", to))})
    made = kind(theirs)
    found = []
    for way in kind.ways(theirs):
        runs = made.load(theirs, way)
        found += [(ours[name](), runs[name]()) for name in names if name in runs]
    return found


@pytest.mark.parametrize("model", [None, "en-de"])
def test_ctranslate2_translates_as_we_do(tmp_path: Path, model: str | None) -> None:
    pytest.importorskip("ctranslate2")
    given = inputs.made("translate", "tiny", tmp_path) if model is None else inputs.read("translate", model, tmp_path)
    found = answers("translate", "ctranslate2", given, tmp_path / "theirs", (MANY_GREEDY, MANY_BEAM))
    assert len(found) == 2 * 9
    for ours, theirs in found:
        assert theirs == ours


@pytest.mark.parametrize("shape", ["tiny", "gpt2"])
def test_llama_cpp_completes_as_we_do(tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp")
    pytest.importorskip("gguf")
    monkeypatch.setitem(inputs.SHAPES["complete"], "gpt2", lambda: presets.gpt2("tiny"))
    found = answers("complete", "llama.cpp", inputs.made("complete", shape, tmp_path), tmp_path / "theirs", (EIGHT,))
    assert len(found) == 2
    for ours, theirs in found:  # its KV cache is of half precision, so random weights soon go another way
        assert theirs.tokens == ours.tokens
        for one, other in zip(ours.texts, theirs.texts, strict=True):
            assert one.split()[:8] == other.split()[:8]


def test_a_row_that_ends_first_leaves_the_others_their_places(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    pytest.importorskip("gguf")
    from clearformer.bench.gguf import write
    from clearformer.bench.llama_cpp import Model

    given = inputs.made("complete", "tiny", tmp_path)
    model = Model(str(write(given.folder, tmp_path / "model.gguf", "float32")), 1, 3, 200)
    prompts = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
    alone = [model.complete([prompt], 12)[0] for prompt in prompts]
    assert model.complete(prompts, 12) == alone
    end = alone[1][2]
    cut = [row[: row.index(end) + 1] if end in row else row for row in alone]
    assert model.complete(prompts, 12, ends=[end]) == cut
    assert len(model.complete(prompts, 4, top_p=0.9)[0]) == 4


def test_what_ctranslate2_cannot_hold(tmp_path: Path) -> None:
    rotary = presets.original("tiny", vocabulary=50)
    rotary = rotary.replace({"decoder.blocks.1.self.layer.positions": spec.Rotary()})
    with pytest.raises(DataError, match=r"blocks\.1\.self: only full and causal attention"):
        ctranslate2.write(build(rotary, seed=0), tmp_path / "made", start=0, end=1)
    with pytest.raises(DataError, match="only an encoder–decoder"):
        ctranslate2.write(build(presets.llama("tiny"), seed=0), tmp_path / "made", start=0, end=1)
