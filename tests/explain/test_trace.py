"""Every number of a run can be asked for, explained and changed, on every model."""

import random

import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.explain import address
from clearformer.explain.cell import Masked, Number
from clearformer.explain.trace import Trace
from tests.laws.cases import ALL, Case, inputs, loud, tree


def traced(case: Case, **options: object) -> Trace:
    if case.images:
        return cf.trace(case.model(), torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(2)), **options)
    source, target = inputs(case, 6)
    if case.trees:
        options["trees"] = [tree(6)]
    return cf.trace(case.model(), *(batch.ids for batch in (source, target) if batch), **options)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_arithmetic_of_every_step_gives_its_number(case: Case) -> None:
    """Two cells of every step are computed again from the numbers the explanation names."""
    trace, chance = traced(case), random.Random(0)
    for name in trace:
        record = trace.tape.records[name]
        for _ in range(2):
            index = tuple(chance.randrange(size) for size in record.value.shape)
            where = address.write(name, record.axes, index, record.value.size(0))
            found = trace.explain(where)
            assert found.address == where
            assert found.number == float(record.value[index])
            assert found.expression.value() == pytest.approx(found.number, abs=2e-5, rel=2e-5), where
            opened = not isinstance(found.expression, Number) or found.expression.address not in (None, where)
            assert opened, f"{where} was not explained but only stated"
            assert str(found).startswith(where)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_step_leads_down_to_parameters_and_input(case: Case) -> None:
    trace = traced(case)
    given = {name for name, record in trace.tape.records.items() if name not in set(trace.addresses())}
    reached: set[str] = set()
    waiting = [trace.addresses()[-1]]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        if name not in given:
            operands = trace[name].operands
            assert operands or name.endswith(("positions", "sequential")), (
                f"{name} comes from nowhere"
            )  # sines of places
            waiting += operands
    assert reached & given
    assert any("table" in name or "project" in name for name in reached)


WORDS = {"source": "how are you my friend".split(), "target": "<s> wie geht".split()}  # noqa: SIM905
PAIR = loud(cf.build(presets.original("tiny"), seed=1))
SOURCE, TARGET = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[1, 9, 8]])


def test_a_view_has_axes_values_and_operands() -> None:
    trace = cf.trace(PAIR, SOURCE, TARGET, words=WORDS)
    view = trace["decoder.1.cross.h3.weights"]
    assert view.axes == ["t", "s"]
    assert view.values.shape == (3, 5)
    torch.testing.assert_close(view.values.sum(-1), torch.ones(3))
    assert view.operands == ["decoder.1.cross.scores"]
    assert repr(view).startswith("<decoder.1.cross.h3.weights: query 3 × key 5 in [")
    whole = trace["decoder.1.cross.weights"]
    assert whole.axes == ["h", "t", "s"]
    assert torch.equal(whole.values[3], view.values)
    assert trace["decoder.1.cross.h3.weights[1,2]"].values == view[1, 2]
    assert torch.equal(trace["decoder.1.cross.h3.weights[1]"].values, view[1])
    assert torch.equal(trace["decoder.1.cross.h3.weights[:,1:3]"].values, view[:, 1:3])


def test_a_table_carries_words_numbers_and_the_names_of_axes() -> None:
    text = str(cf.trace(PAIR, SOURCE, TARGET, words=WORDS)["decoder.1.cross.h3.weights"])
    view = cf.trace(PAIR, SOURCE, TARGET)["decoder.1.cross.h3.weights"]
    assert "query ↓ key →" in text
    assert "4 friend" in text
    assert "2 geht" in text
    for number in view.values.flatten().tolist():
        assert f"{number:.4f}" in text
    assert "choose a head or cells" in str(cf.trace(PAIR, SOURCE, TARGET)["decoder.1.cross.weights"])


def test_an_explanation_reads_as_the_equation() -> None:
    trace = cf.trace(PAIR, SOURCE, TARGET, words=WORDS)
    text = str(trace.explain("decoder.1.cross.h3.weights[1,2]"))
    assert "(head 3, query 1 “wie”, key 2 “you”)" in text
    assert "exp(x2) / Σ exp(x) over 5 keys" in text
    assert "[decoder.1.cross.h3.scores[1,4]]" in text
    assert "√(variance + eps) · weight + bias" in str(trace.explain("decoder.0.self.after[0,0]"))
    assert "encoder.embed.table[5,0]" in str(trace.explain("encoder.embed.tokens[2,0]"))
    hidden = trace.explain("decoder.0.self.h0.weights[0,2]")
    assert isinstance(hidden.expression, Masked)
    assert "may not see" in str(hidden)


def test_query_heads_find_their_key_head() -> None:
    model = cf.build(presets.llama("tiny"), seed=1)  # four heads over two key heads
    trace = cf.trace(model, SOURCE)
    assert torch.equal(trace["stack.0.self.h3.k"].values, trace["stack.0.self.g1.k"].values)
    assert torch.equal(trace["stack.0.self.h1.k"].values, trace["stack.0.self.g0.k"].values)


def test_dropping_a_head_changes_what_comes_after_and_nothing_before() -> None:
    before = cf.trace(PAIR, SOURCE, TARGET)
    after = cf.trace(PAIR, SOURCE, TARGET, change={"decoder.1.cross.h3.mixed": 0})
    assert float(after["decoder.1.cross.h3.mixed"].values.abs().max()) == 0
    changed = {name for name, most in before.differences(after).items() if most > 0}
    assert "decoder.1.cross.weights" not in changed
    assert {"decoder.1.cross.mixed", "decoder.1.cross.out", "head.logits"} <= changed
    assert not torch.equal(before.result, after.result)
    by_hand = before["decoder.1.cross.merged"].values.clone()
    by_hand[:, 24:] = 0  # head 3 of 4 × 8
    layer = PAIR.decoder.blocks[1].branches["cross"].layer
    torch.testing.assert_close(after["decoder.1.cross.out"].values, layer.output(by_hand).detach())
    assert "set by a change" in str(after.explain("decoder.1.cross.h3.mixed[0,0]"))


def test_patching_a_row_and_a_function() -> None:
    row = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0])
    patched = cf.trace(PAIR, SOURCE, TARGET, change={"decoder.0.cross.h1.weights[2]": row})
    assert torch.equal(patched["decoder.0.cross.h1.weights[2]"].values, row)
    torch.testing.assert_close(patched["decoder.0.cross.h1.mixed[2]"].values, patched["decoder.0.cross.h1.v[2]"].values)
    doubled = cf.trace(PAIR, SOURCE, TARGET, change={"encoder.embed.tokens": lambda old: 2 * old})
    plain = cf.trace(PAIR, SOURCE, TARGET)
    torch.testing.assert_close(doubled["encoder.embed.tokens"].values, 2 * plain["encoder.embed.tokens"].values)


def test_the_model_is_never_touched() -> None:
    before = {name: module.forward for name, module in PAIR.named_modules()}
    result = PAIR(SOURCE, TARGET)
    cf.trace(PAIR, SOURCE, TARGET, change={"head.logits": 0})
    assert torch.equal(PAIR(SOURCE, TARGET), result)
    for name, module in PAIR.named_modules():
        assert module.forward == before[name]
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_a_trace_of_a_training_model_runs_without_dropout_and_leaves_it_training() -> None:
    model = cf.build(presets.original("tiny"), seed=1).train()
    torch.testing.assert_close(cf.trace(model, SOURCE, TARGET).result, model.eval()(SOURCE, TARGET).detach())
    model.train()
    cf.trace(model, SOURCE, TARGET)
    assert model.training


def test_batches_keep_their_axis() -> None:
    trace = cf.trace(PAIR, SOURCE.expand(2, 5), TARGET.expand(2, 3))
    assert trace["decoder.1.cross.h3.weights"].axes == ["b", "t", "s"]
    found = trace.explain("decoder.1.cross.h3.weights[1,2,4]")
    assert found.number == float(trace["decoder.1.cross.weights"].values[1, 3, 2, 4])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decoder.1.crss.h3.weights", "did you mean 'decoder.1.cross.weights'"),
        ("decoder.1.cross.h9.weights", "there are 4 heads, 0 to 3"),
        ("decoder.1.cross.h3.weights[9,9]", "axis t has 3 cells, given 9"),
        ("decoder.1.cross.h3.weights[0,0,0,0]", "cells given for the axes"),
        ("encoder.0.feedforward.h1.inner", "has no heads"),
        ("decoder.1.cross.h3.weights[x]", "'x' is no cell"),
        ("decoder[[", "is no address"),
    ],
)
def test_names_that_do_not_fire(text: str, message: str) -> None:
    trace = cf.trace(PAIR, SOURCE, TARGET)
    with pytest.raises(cf.TraceError, match=message.replace("[", r"\[")):
        trace[text]


def test_changes_that_do_not_fire_or_fit() -> None:
    with pytest.raises(cf.TraceError, match=r"did you mean 'decoder.1.cross.weights'"):
        cf.trace(PAIR, SOURCE, TARGET, change={"decoder.1.cros.weights": 0})
    with pytest.raises(cf.TraceError, match=r"of shape \[3, 5\], given \[7\]"):
        cf.trace(PAIR, SOURCE, TARGET, change={"decoder.1.cross.h1.weights": torch.ones(7)})
    with pytest.raises(cf.TraceError, match="still open: query, key"):
        cf.trace(PAIR, SOURCE, TARGET).explain("decoder.1.cross.h1.weights")


def test_long_texts_are_traced_by_the_equation_too() -> None:
    for what in (presets.gpt2("tiny"), presets.bigbird("tiny")):
        model = cf.build(what, seed=0)
        ids = torch.arange(70)[None] % 100
        trace = cf.trace(model, ids)
        assert trace["stack.1.self.h0.weights"].values.shape == (70, 70)
        torch.testing.assert_close(trace.result, model(ids).detach(), atol=1e-5, rtol=1e-5)


def test_padded_batches_are_traced() -> None:
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    trace = cf.trace(PAIR, SOURCE.expand(2, 5), TARGET.expand(2, 3), mask)
    assert float(trace["decoder.0.cross.weights"].values[1, :, :, 2:].abs().max()) == 0
    assert isinstance(trace.explain("decoder.0.cross.h0.weights[1,0,4]").expression, Masked)


def test_words_go_where_they_belong() -> None:
    for words, message in (
        (["a"], "give a list for each of source and target"),
        ({"source": ["a"]}, "1 given for the 5 tokens of source"),
        ({"sorce": WORDS["source"]}, "did you mean 'source'"),
    ):
        with pytest.raises(cf.TraceError, match=message):
            cf.trace(PAIR, SOURCE, TARGET, words=words)
    linformer = cf.build(presets.linformer("tiny", rank=5), seed=0)
    view = cf.trace(linformer, SOURCE, words=WORDS["source"])["stack.0.self.h0.weights"]
    assert set(view.labels) == {"t"}, "compressed keys are no words"


def test_only_steps_can_be_changed() -> None:
    with pytest.raises(cf.TraceError, match="this is a parameter or an input"):
        cf.trace(PAIR, SOURCE, TARGET, change={"encoder.embed.table": 0})
    with pytest.raises(cf.TraceError, match="given 'much'"):
        cf.trace(PAIR, SOURCE, TARGET, change={"head.logits": "much"})  # type: ignore[dict-item]
    with pytest.raises(cf.TraceError, match="no cells in that range"):
        cf.trace(PAIR, SOURCE, TARGET, change={"head.logits[2:1]": 0})
