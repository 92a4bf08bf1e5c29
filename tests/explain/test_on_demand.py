"""Insides of blocks that are computed again are those of the whole run, to the bit, with the same arithmetic."""

import threading

import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.explain import address
from clearformer.explain.trace import Trace
from clearformer.kernels.pack import pack
from tests.explain.test_questions import IDS, SOURCE, TARGET
from tests.explain.test_trace import traced
from tests.laws.cases import ALL, Case, loud


def both(case: Case) -> tuple[Trace, Trace]:
    return traced(case, record="all"), traced(case, record="blocks")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_tensor_is_the_same_to_the_bit(case: Case) -> None:
    whole, later = both(case)
    assert later.addresses() == whole.addresses()
    assert any(record.later for record in later.tape.records.values())
    assert not any(record.later for record in whole.tape.records.values())
    first, again = whole.to_dict(), later.to_dict()
    for each in (*first["addresses"], *again["addresses"]):
        each.pop("later")
    assert first == again
    names = whole.addresses()
    for name in names[::-1] + names[::7]:  # backwards, and over again, so that blocks come and go
        one, other = whole[name], later[name]
        assert one.values.dtype == other.values.dtype
        assert torch.equal(one.values, other.values), name
        assert (one.axes, one.operands) == (other.axes, other.operands)
    assert len(later.tape.opened) == 1


@pytest.mark.parametrize("case", ALL[::5], ids=str)
def test_cells_are_explained_alike(case: Case) -> None:
    whole, later = both(case)
    for name in whole.addresses()[::-3]:
        record = whole.tape.records[name]
        where = address.write(name, record.axes, tuple(size // 2 for size in record.shape), record.shape[0])
        assert later.explain(where).to_dict() == whole.explain(where).to_dict(), where


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "original"])
def test_questions_have_the_same_answers(name: str) -> None:
    model = loud(cf.build(presets.FAMILIES[name]("tiny"), seed=3)).eval()
    inputs = (SOURCE, TARGET) if name in ("t5", "original") else (IDS,)
    whole, later = (cf.trace(model, *inputs, record=each) for each in ("all", "blocks"))  # type: ignore[arg-type]
    logit = "head.logits[3,7]"
    own = later.addresses(".weights")[-1].removesuffix(".weights")
    for ask in (
        lambda trace: trace.lens().to_dict(),
        lambda trace: trace.attribution(logit).to_dict(),
        lambda trace: trace.ablations(logit).to_dict(),
        lambda trace: [head.to_dict() for head in trace.heads()],
        lambda trace: trace.carried(own).to_dict(),
        lambda trace: trace.score(f"{own}.h1.scores[3,1]").to_dict(),
        lambda trace: trace.compare(whole).to_dict(),
    ):
        assert ask(later) == ask(whole)
    assert later.compare(whole).first is None


def test_changes_are_made_again_too() -> None:
    model = loud(cf.build(presets.llama("tiny"), seed=3)).eval()
    change = {"stack.0.self.h1.mixed": 0, "stack.1.feedforward.out": lambda old: 2 * old}
    whole, later = (cf.trace(model, IDS, change=change, record=each) for each in ("all", "blocks"))  # type: ignore[arg-type]
    for name in whole:
        assert torch.equal(whole[name].values, later[name].values), name
    assert later.tape.records["stack.0.self.mixed"].changed


def test_int8_is_computed_again_on_its_own_weights() -> None:
    model = pack(loud(cf.build(presets.llama("tiny"), seed=3)).eval(), "int8", native=False)
    whole, later = (cf.trace(model, IDS, record=each) for each in ("all", "blocks"))  # type: ignore[arg-type]
    for name in whole:
        assert torch.equal(whole[name].values, later[name].values), name


def test_what_is_kept_is_bounded() -> None:
    """By itself a trace keeps some of the insides, those asked for last, and never more than it may."""
    model = cf.build(presets.gpt2("tiny").replace({"stack.blocks.*.self.heads": 4}), seed=3).eval()
    ids = torch.arange(60)[None] % 50
    whole = cf.trace(model, ids, record="all")
    one = max(block.bytes for block in whole.tape.opened)
    later = cf.trace(model, ids)
    later.tape.most = one + 1
    later.tape.trim()
    assert sum(block.bytes for block in later.tape.opened) <= later.tape.most
    for name in whole:
        assert torch.equal(whole[name].values, later[name].values)
        assert sum(block.bytes for block in later.tape.opened) <= later.tape.most
    assert later.tape.bytes < whole.tape.bytes


def test_several_threads_may_ask() -> None:
    model = loud(cf.build(presets.llama("tiny"), seed=3)).eval()
    whole, later = cf.trace(model, IDS, record="all"), cf.trace(model, IDS, record="blocks")
    wrong: list[str] = []

    def ask(start: int) -> None:
        for name in whole.addresses()[start::2] * 2:
            record = whole.tape.records[name]
            where = address.write(name, record.axes, tuple(size // 2 for size in record.shape), record.shape[0])
            if later.explain(where).to_dict() != whole.explain(where).to_dict():
                wrong.append(where)
            if not torch.equal(later[name].values, whole[name].values):
                wrong.append(name)

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_a_block_larger_than_what_is_kept_is_open_alone() -> None:
    model = loud(cf.build(presets.FAMILIES["llama"]("tiny"), seed=3)).eval()
    one, other = (cf.trace(model, IDS, record="blocks") for _ in range(2))
    assert one.tape.opened == []  # nothing inside is kept before somebody looks
    name = "stack.0.self.h1.weights[3]"
    values = one[name].values
    assert len(one.tape.opened) == 1
    assert torch.equal(other[name].values, values)
    assert (len(one.tape.opened), len(other.tape.opened)) == (0, 1)
    held, go = threading.Event(), threading.Event()

    def reading() -> None:
        with other.tape.lock:
            held.set()
            go.wait(30)

    thread = threading.Thread(target=reading)
    thread.start()
    held.wait(30)
    assert torch.equal(one[name].values, values)
    assert len(other.tape.opened) == 1  # somebody is looking into it
    go.set()
    thread.join()
    assert torch.equal(
        one["stack.1.self.h1.weights[3]"].values, cf.trace(model, IDS)["stack.1.self.h1.weights[3]"].values
    )
    assert (len(one.tape.opened), len(other.tape.opened)) == (1, 0)
