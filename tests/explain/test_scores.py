"""Why a score is what it is: parts of queries and keys, against a separate computation and against the recorded sum."""

import json

import pytest
import torch
from torch import Tensor

import clearformer as cf
from clearformer import presets
from clearformer.errors import TraceError
from clearformer.explain.trace import Trace
from clearformer.kernels.pack import pack
from clearformer.spec import Shaw
from tests.explain.test_questions import IDS
from tests.explain.test_trace import traced
from tests.laws.cases import ALL, Case, loud


def scores(trace: Trace) -> list[str]:
    """A score of every attention: its last head, a late query and an early key."""
    found = []
    for name in trace.addresses(".scores"):
        _, heads, queries, keys = trace.tape.records[name].shape
        own = name.removesuffix(".scores")
        found.append(f"{own}.h{heads - 1}.scores[{queries - 1},{keys // 3}]")
    return found


@pytest.mark.parametrize("case", ALL, ids=str)
def test_parts_sum_to_the_score_in_every_model(case: Case) -> None:
    trace = traced(case)
    for address in scores(trace):
        found = trace.score(address)
        size = sum(abs(cell) for row in found.table for cell in row) + sum(abs(each.value) for each in found.biases)
        assert found.total == pytest.approx(found.value, abs=1e-4 * max(1.0, size)), address
        assert found.value == float(trace[address].values)


def test_parts_are_what_brute_force_gives() -> None:
    """Llama by hand in double precision: the embedding's part and the first feed-forward layer's, rotated, through the
    norm with its spread held."""
    model = loud(cf.build(presets.llama("tiny"), seed=3)).eval()
    trace = cf.trace(model, IDS)
    query, key, head = 5, 2, 3
    found = trace.score(f"stack.1.self.h{head}.scores[{query},{key}]")
    block, layer = model.stack.blocks[1].branches["self"], model.stack.blocks[1].branches["self"].layer
    first = model.stack.blocks[0].branches
    stream = trace["stack.0.feedforward.sum"].values.double()
    scale = (stream.square().mean(-1, keepdim=True) + block.before.eps).rsqrt() * block.before.weight.double()
    group = head * layer.key_heads // layer.heads
    w_q = layer.query.weight.double().unflatten(0, (layer.heads, -1))[head]
    w_k = layer.key.weight.double().unflatten(0, (layer.key_heads, -1))[group]

    def turned(x: Tensor, position: int) -> Tensor:
        half = len(x) // 2
        angle = position * 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        a, b = x[:half], x[half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])

    mixed = trace["stack.0.self.mixed"].values.double()
    parts = {
        "stack.embed": trace["stack.embed.tokens"].values.double(),
        "stack.0.self": mixed.transpose(0, 1).flatten(1) @ first["self"].layer.output.weight.double().T,
        "stack.0.feedforward": trace["stack.0.feedforward.out"].values.double(),
    }
    torch.testing.assert_close(sum(parts.values()), stream, atol=1e-5, rtol=1e-5)
    named = [next(part for part in parts if name.startswith(part)) for name in found.queries]
    assert named == list(parts)
    for n, of_query in enumerate(parts.values()):
        for m, of_key in enumerate(parts.values()):
            q = turned(w_q @ (of_query * scale)[query], query)
            k = turned(w_k @ (of_key * scale)[key], key)
            wanted = float((q @ k).detach()) * len(q) ** -0.5
            assert found.table[n][m] == pytest.approx(wanted, abs=1e-5)
    detailed = trace.score(found.address, by="head")
    assert len(detailed.queries) == 1 + layer.heads + 1
    assert sum(map(sum, detailed.table)) == pytest.approx(sum(map(sum, found.table)), abs=1e-9)


def test_vectors_for_distances_are_parts_of_the_key() -> None:
    model = loud(cf.build(presets.gpt2("tiny").replace({"stack.blocks.*.self.positions": Shaw(reach=3)}), seed=3))
    trace = cf.trace(model.eval(), IDS)
    found = trace.score("stack.0.self.h1.scores[4,3]")
    (place,) = [n for n, name in enumerate(found.keys) if "key_table[2]" in name]
    column = sum(row[place] for row in found.table)
    assert column == pytest.approx(float(trace["stack.0.self.h1.bias[4,3]"].values), abs=1e-5)
    assert not found.biases


def test_biases_stand_beside_and_masks_are_said() -> None:
    trace = cf.trace(
        loud(cf.build(presets.t5("tiny"), seed=3)).eval(), torch.tensor([[3, 4, 5]]), torch.tensor([[1, 9]])
    )
    found = trace.score("decoder.0.self.h1.scores[0,1]")
    assert not found.visible
    assert "may not see" in str(found)
    (bias,) = found.biases
    assert bias.value == float(trace[bias.address].values)
    assert trace.score("encoder.0.self.h1.weights[2,1]").visible
    json.dumps(found.to_dict(), allow_nan=False)
    assert "<table" in found._repr_html_()


def test_int8_scores_are_split_on_their_own_weights() -> None:
    model = pack(loud(cf.build(presets.llama("tiny"), seed=3)).eval(), "int8", native=False)
    found = cf.trace(model, IDS).score("stack.1.self.h0.scores[5,1]")
    assert found.total == pytest.approx(found.value, abs=1e-4)


def test_what_is_no_score_is_said() -> None:
    model = loud(cf.build(presets.llama("tiny"), seed=3)).eval()
    trace = cf.trace(model, IDS)
    for address, says in (
        ("head.logits[0,0]", "a score is asked for, such as stack.0.self.h0.scores"),
        ("stack.0.self.h1.scores[1]", "name one score"),
        ("stack.0.self.scores[1,1]", "name one score"),
        ("stack.9.self.h1.scores[1,1]", "did you mean"),
    ):
        with pytest.raises(TraceError, match=says):
            trace.score(address)
    with pytest.raises(TraceError, match="branch or head"):
        trace.score("stack.0.self.h1.scores[1,1]", by="cell")
    changed = cf.trace(model, IDS, change={"stack.1.self.h1.q": 1.0})
    with pytest.raises(TraceError, match="a change replaced"):
        changed.score("stack.1.self.h1.scores[1,1]")
