"""Lens, attribution, ablations and the rest equal separate computations with hooks on the model itself."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

import clearformer as cf
from clearformer import presets, spec
from clearformer.core.attention import Attention
from clearformer.core.model import EncoderDecoder
from clearformer.explain.trace import Trace
from clearformer.kernels.pack import pack
from clearformer.spec import Classes, RMSNorm, Shaw
from tests.laws.cases import ALL, Case, inputs, loud, tree

IDS = torch.tensor([[3, 17, 42, 17, 5, 17]])
SOURCE, TARGET = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[1, 9, 8, 4]])
FAMILIES: dict[str, Any] = {
    "gpt2": presets.gpt2("tiny"),
    "llama": presets.llama("tiny"),
    "t5": presets.t5("tiny"),
    "original": presets.original("tiny"),
    "original, norms before": presets.original("tiny", norm="before"),
    "vit": presets.vit("tiny"),
    "bert tags": presets.bert("tiny", head=spec.TokenClasses(count=4)),
    "bert classes by mean": presets.bert("tiny", head=Classes(count=3, vector=spec.Vector(pool="mean"))),
    "bigbird": presets.bigbird("tiny", head=spec.TokenClasses(count=4)),
    "linformer": presets.linformer("tiny", rank=4, head=spec.TokenClasses(count=4)),
    "norms between": presets.gpt2("tiny").replace({"stack.blocks.*.self.between": RMSNorm()}),
}


def given(model: Any) -> tuple[Tensor, ...]:
    if isinstance(model, EncoderDecoder):
        return SOURCE, TARGET
    if isinstance(model.spec.stack.embed, spec.Patches):
        return (torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(2)),)
    return (IDS,)


def made(name: str) -> tuple[Any, tuple[Tensor, ...]]:
    model = loud(cf.build(FAMILIES[name], seed=3)).eval()
    return model, given(model)


def stack_of(model: Any) -> Any:
    return model.decoder if isinstance(model, EncoderDecoder) else model.stack


@pytest.mark.parametrize("name", FAMILIES)
def test_the_lens_is_the_head_on_the_stream_behind_each_block(name: str) -> None:
    model, tensors = made(name)
    streams: list[Tensor] = []
    places: list[Any] = []
    stack = stack_of(model)
    hooks = [block.register_forward_hook(lambda _, given, out: streams.append(out)) for block in stack.blocks]
    hooks.append(stack.blocks[0].register_forward_pre_hook(lambda _, given: streams.append(given[0])))
    hooks.append(stack.blocks[0].register_forward_pre_hook(lambda _, given: places.append(given[1])))
    with torch.no_grad():
        result = model(*tensors)
        wanted = [model.head(stack.final(x), places[0]).double().softmax(-1)[0] for x in streams]
    for hook in hooks:
        hook.remove()
    trace = cf.trace(model, *tensors)
    lens = trace.lens(top=3)
    assert len(lens.layers) == len(stack.blocks) + 1
    for address, row, chances in zip(lens.layers, lens.guesses, wanted, strict=True):
        assert address in trace
        for guesses, one in zip(row, chances.reshape(-1, chances.size(-1)), strict=True):
            assert [guess.probability for guess in guesses] == pytest.approx(one.topk(3).values.tolist(), abs=1e-5)
            assert [one[guess.id].item() for guess in guesses] == pytest.approx(
                [g.probability for g in guesses], abs=1e-5
            )
    last = result.double().softmax(-1)[0].reshape(-1, result.size(-1))
    assert [row[0].probability for row in lens.guesses[-1]] == pytest.approx(last.max(-1).values.tolist(), abs=1e-5)
    assert json.loads(json.dumps(lens.to_dict()))["guesses"][0][0][0]["id"] == lens.guesses[0][0][0].id
    assert "never trained" in lens.note.replace("\n", " ")


def address_of(trace: Trace) -> str:
    return "head.logits[1]" if trace.result.dim() == 2 else f"head.logits[{trace.result.size(1) - 1},2]"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_parts_of_a_logit_sum_to_it(name: str) -> None:
    model, tensors = made(name)
    trace = cf.trace(model, *tensors)
    found = trace.attribution(address_of(trace))
    with torch.no_grad():
        result = model(*tensors)[0]
    wanted = float(result[1] if result.dim() == 1 else result[-1, 2])
    assert found.logit == pytest.approx(wanted, abs=1e-5)
    assert found.total == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    assert sum(part.value for part in found.branches()) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    for part in found.parts:
        assert part.address in trace
        trace[part.address]
    heads = sum(isinstance(module, Attention) and module.heads for module in stack_of(model).modules())
    assert sum(".mixed" in part.address for part in found.parts) == heads


CASES = [case for case in ALL if getattr(case.spec.head, "kind", "") in ("next_token", "token_classes", "spans")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_sum_to_the_logit_in_every_model(case: Case) -> None:
    source, target = inputs(case, 6)
    options = {"trees": [tree(6)]} if case.trees else {}
    trace = cf.trace(case.model(), *(batch.ids for batch in (source, target) if batch), **options)
    found = trace.attribution("head.logits[2,1]")
    assert found.total == pytest.approx(float(trace.result[0, 2, 1]), rel=1e-4, abs=2e-5)


def test_a_head_s_part_is_what_autograd_says_with_the_spread_held() -> None:
    """GPT-2: the gradient of the logit with respect to the stream, times what the head wrote into it."""
    model, (ids,) = made("gpt2")
    kept: dict[str, Tensor] = {}
    layer = model.stack.blocks[0].branches["self"].layer
    hooks = [
        layer.output.register_forward_pre_hook(lambda _, given: kept.update(merged=given[0].detach())),
        model.stack.final.register_forward_pre_hook(lambda _, given: kept.update(stream=given[0].detach())),
    ]
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    place, token = 4, 7
    stream = kept["stream"][0, place].double().requires_grad_()
    norm = model.stack.final
    spread = (stream.var(unbiased=False) + norm.eps).sqrt().detach()
    normed = (stream - stream.mean()) / spread * norm.weight.double() + norm.bias.double()
    (normed @ model.head.weight[token].double() * model.head.scale).backward()
    assert stream.grad is not None
    found = {part.address: part.value for part in cf.trace(model, ids).attribution("head.logits[4,7]").parts}
    width = layer.output.weight.size(1) // layer.heads
    for head in range(layer.heads):
        cut = slice(head * width, (head + 1) * width)
        wrote = kept["merged"][0, place, cut].double() @ layer.output.weight[:, cut].double().T
        assert found[f"stack.0.self.h{head}.mixed[4]"] == pytest.approx(float((stream.grad @ wrote).detach()), abs=1e-5)


def test_what_cannot_be_split_is_said() -> None:
    for head, what in (
        (spec.MaskedToken(), "activation"),
        (Classes(count=3, vector=spec.Vector(dense="tanh")), "pooled"),
    ):
        model = cf.build(presets.bert("tiny", head=head), seed=0)
        trace = cf.trace(model, IDS)
        with pytest.raises(cf.TraceError, match=what):
            trace.attribution(address_of(trace))
        assert trace.ablations(address_of(trace)).heads
    states = cf.trace(cf.build(presets.bert("tiny", head=spec.States()), seed=0), IDS)
    for ask in (states.lens, states.ablations):
        with pytest.raises(cf.TraceError, match="no logits"):
            ask()
    gpt = cf.trace(made("gpt2")[0], IDS)
    with pytest.raises(cf.TraceError, match="a logit is asked for"):
        gpt.attribution("stack.0.self.out[0,0]")
    with pytest.raises(cf.TraceError, match="name one logit"):
        gpt.attribution("head.logits[2]")
    changed = cf.trace(made("gpt2")[0], IDS, change={"stack.0.self.sum": 0})
    with pytest.raises(cf.TraceError, match="because a change"):
        changed.attribution("head.logits[2,3]")
    with pytest.raises(cf.TraceError, match="changed already"):
        changed.ablations()
    with pytest.raises(cf.TraceError, match="one text at a time"):
        cf.trace(made("gpt2")[0], IDS.expand(2, -1)).lens()


@pytest.mark.parametrize("name", FAMILIES)
def test_all_heads_gone_at_once_are_the_single_changed_runs(name: str) -> None:
    model, tensors = made(name)
    trace = cf.trace(model, *tensors)
    found = trace.ablations(address_of(trace))
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    assert len(found.heads) == sum(layer.heads for layer in layers)
    cell = (1,) if trace.result.dim() == 2 else (trace.result.size(1) - 1, 2)
    for each in found.heads:
        alone = cf.trace(model, *tensors, change={f"{each.address}.mixed": 0}).result[0]
        assert each.logit == pytest.approx(float(alone[cell]), abs=2e-6, rel=1e-6)
        chances = alone[cell[:-1]].double().softmax(-1)
        assert each.probability == pytest.approx(float(chances[cell[-1]]), abs=1e-6)
        assert each.logit_change == pytest.approx(each.logit - found.logit, abs=1e-9)


def test_a_head_that_is_gone_is_a_slice_of_zeros_before_w_o() -> None:
    model, tensors = made("original")
    trace = cf.trace(model, *tensors)
    found = {each.address: each.logit for each in trace.ablations("head.logits[3,2]").heads}
    for stack, kind in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross")):
        layer = getattr(model, stack).blocks[1].branches[kind].layer
        width = layer.output.weight.size(1) // layer.heads

        def hook(_: Any, given: Any, width: int = width) -> Any:
            merged = given[0].clone()
            merged[..., 2 * width : 3 * width] = 0
            return (merged,)

        handle = layer.output.register_forward_pre_hook(hook)
        with torch.no_grad():
            wanted = float(model(*tensors)[0, 3, 2])
        handle.remove()
        assert found[f"{stack}.1.{kind}.h2"] == pytest.approx(wanted, abs=1e-5)


def test_without_an_address_the_likeliest_word_at_the_end_is_looked_at() -> None:
    model, (ids,) = made("llama")
    found = cf.trace(model, ids, outputs=[f"w{n}" for n in range(100)]).ablations()
    best = int(model(ids)[0, -1].argmax())
    assert found.address == f"head.logits[5,{best}]"
    assert found.word == f"w{best}"
    assert f"“w{best}”" in str(found)


def test_int8_models_are_taken_apart_on_their_own_weights() -> None:
    model = pack(loud(cf.build(presets.llama("tiny"), seed=3)), "int8", native=False)
    trace = cf.trace(model, IDS)
    with torch.no_grad():
        assert torch.equal(trace.result, model(IDS))
    found = trace.attribution("head.logits[4,7]")
    assert found.total == pytest.approx(float(trace.result[0, 4, 7]), rel=1e-4)
    assert trace.lens().guesses[-1][4][0].id == int(trace.result[0, 4].argmax())
    weight = trace["stack.0.self.query.matrix.whole"].values
    assert weight.dtype == torch.int8
    text = str(trace.explain("stack.0.self.h0.q[0,0]"))
    assert "stack.0.self.query.matrix.whole[0," in text
    assert "stack.0.self.query.matrix.scale[0]" in text
    assert "stack.embed.table.whole[17,3]" in str(trace.explain("stack.embed.tokens[1,3]"))


def test_runs_are_compared_step_by_step() -> None:
    model, (ids,) = made("gpt2")
    one = cf.trace(model, ids)
    other = cf.trace(model, ids, change={"stack.1.self.h0.mixed": 0})
    found = one.compare(other)
    assert found.first == "stack.1.self.mixed"
    by_name = {step.address: step for step in found.steps}
    a, b = one["stack.1.self.out"].values.double(), other["stack.1.self.out"].values.double()
    step = by_name["stack.1.self.out"]
    assert step.share == pytest.approx(float((a - b).norm() / a.norm()))
    assert step.largest == pytest.approx(float((a - b).abs().max()))
    assert by_name["stack.0.self.out"].share == 0
    assert one.compare(one).first is None
    short = one.compare(cf.trace(model, ids[:, :4]))
    assert "head.logits" in short.left_out
    assert "other shapes" in str(short)
    with pytest.raises(cf.TraceError, match="different steps"):
        one.compare(cf.trace(made("original")[0], SOURCE, TARGET))


@pytest.mark.parametrize("name", ["gpt2", "llama", "original", "linformer"])
def test_what_attention_carries_is_the_length_of_weighted_values_behind_w_o(name: str) -> None:
    model, tensors = made(name)
    trace = cf.trace(model, *tensors)
    own = "decoder.1.cross" if name == "original" else "stack.1.self"
    layer = stack_of(model).blocks[1].branches[own.rsplit(".", 1)[1]].layer
    view = trace.carried(own)
    width = layer.output.weight.size(1) // layer.heads
    weights = trace[f"{own}.weights"].values
    for head, t, s in ((0, 3, 1), (3, 2, 0), (1, 3, 3)):
        values = trace[f"{own}.short_v" if name == "linformer" else f"{own}.v"].values
        value = values[head * values.size(0) // layer.heads, s]
        through = layer.output.weight.detach()[:, head * width : (head + 1) * width] @ value
        assert float(view[head, t, s]) == pytest.approx(float(weights[head, t, s] * through.norm()), abs=1e-5)
    assert torch.equal(trace.carried(f"{own}.h1").values, view.values[1])
    assert "sink" in view.note
    assert "sink" in trace.carried(f"{own}.h1")._repr_html_()


def test_carried_says_what_it_cannot() -> None:
    shaw = cf.build(presets.gpt2("tiny").replace({"stack.blocks.*.self.positions": Shaw(reach=3)}), seed=0)
    with pytest.raises(cf.TraceError, match="depend on the distance"):
        cf.trace(shaw, IDS).carried("stack.0.self")
    trace = cf.trace(made("gpt2")[0], IDS)
    with pytest.raises(cf.TraceError, match="name an attention"):
        trace.carried("stack.0.feedforward")
    with pytest.raises(cf.TraceError, match="there are 4 heads"):
        trace.carried("stack.0.self.h9")


def test_heads_are_named_by_where_they_look() -> None:
    """Weights are set by hand, and the names follow."""
    ids = torch.tensor([[3, 17, 42, 5, 9, 17, 42]])
    count = ids.size(1)
    previous, first, even = torch.zeros(count, count), torch.zeros(count, count), torch.zeros(count, count)
    induction = torch.zeros(count, count)
    for t in range(count):
        previous[t, max(0, t - 1)] = 1
        first[t, 0] = 1
        even[t, : t + 1] = 1 / (t + 1)
        induction[t, 0] = 1
    induction[5, 0], induction[5, 2] = 0.2, 0.8  # 17 again: what followed was at 2
    induction[6, 0], induction[6, 3] = 0.1, 0.9  # and 42: what followed was at 3
    change = {f"stack.0.self.h{n}.weights": w for n, w in enumerate((previous, first, even, induction))}
    heads = {head.address: head for head in cf.trace(made("gpt2")[0], ids, change=change).heads()}
    assert heads["stack.0.self.h0"].label == "previous token"
    assert heads["stack.0.self.h0"].previous == pytest.approx(1)
    assert heads["stack.0.self.h0"].entropy == pytest.approx(0, abs=1e-6)
    assert heads["stack.0.self.h1"].label == "first token (sink)"
    assert heads["stack.0.self.h1"].first == pytest.approx(1)
    assert heads["stack.0.self.h2"].label == "even"
    assert heads["stack.0.self.h2"].evenness == pytest.approx(1)
    assert heads["stack.0.self.h3"].induction == pytest.approx(1)
    assert heads["stack.0.self.h3"].label.startswith("induction")
    assert "not what it is for" in heads["stack.0.self.h3"].to_dict()["note"]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_s_heads_are_measured(name: str) -> None:
    model, tensors = made(name)
    heads = cf.trace(model, *tensors).heads()
    assert len(heads) == sum(m.heads for m in model.modules() if isinstance(m, Attention))
    assert all(0 <= head.first <= 1 + 1e-6 and 0 <= head.evenness <= 1 + 1e-6 for head in heads)
    json.dumps([head.to_dict() for head in heads])
