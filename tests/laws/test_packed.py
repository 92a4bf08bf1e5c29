"""The same laws for packed models: the fast path is the reference, and int8 is the same alone and in company."""

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

import clearformer as cf
from clearformer.assemble import Model
from clearformer.core.model import EncoderDecoder
from clearformer.core.places import Places
from clearformer.errors import DataError, KernelError
from clearformer.generate import search
from clearformer.kernels import pack as packing
from clearformer.kernels.int8 import Matrix
from clearformer.kernels.native import processor
from clearformer.kernels.native.lower import unfit
from clearformer.kernels.native.stack import NativeStack
from clearformer.kernels.pack import choice, dequantise, float_weights, is_int8, missing, pack, plain, quantise
from clearformer.kernels.packed_float import FloatMatrix
from tests.kernels.test_native import in_bytes
from tests.laws.cases import ALL, DECODING, TEXT, Batch, Case, alone, inputs, padded, run
from tests.laws.test_laws import close, per_token


def stacks(model: Model) -> list[torch.nn.Module]:
    return [model.encoder, model.decoder] if isinstance(model, EncoderDecoder) else [model.stack]


def fits(case: Case) -> bool:
    return all(unfit(stack) is None for stack in stacks(case.model()))  # type: ignore[arg-type]


FITTING = [case for case in ALL if fits(case)]
each_fitting = pytest.mark.parametrize("case", FITTING, ids=str)
each_decoding = pytest.mark.parametrize("case", [case for case in FITTING if case in DECODING], ids=str)
each_text = pytest.mark.parametrize("case", [case for case in FITTING if case in TEXT], ids=str)
precisions = pytest.mark.parametrize("precision", ["float32", "int8"])


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_this_machine_has_the_fast_path() -> None:
    assert missing() is None
    assert len(FITTING) > 35
    packed = pack(FITTING[0].model())
    assert all(isinstance(stack, NativeStack) for stack in stacks(packed))


@pytest.mark.parametrize("case", ALL, ids=str)
def test_packed_is_the_reference(case: Case) -> None:
    model = case.model(kernel="reference")
    close(answer(case, pack(model)), answer(case, model))


@pytest.mark.parametrize("case", ALL, ids=str)
def test_int8_is_its_plain_equation(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the processor has no products of bytes, inputs are rounded to so many bits that it hardly shows."""
    monkeypatch.setattr(processor, "multiplies_bytes", lambda: False)
    model = case.model()
    close(answer(case, pack(model, "int8")), answer(case, quantise(model)), 2e-3)


@pytest.mark.parametrize("case", [case for case in FITTING if not case.images], ids=str)
def test_int8_by_bytes_is_the_plain_equation_of_rounded_inputs(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has them, to bytes, of which sixty-four share a scale."""
    monkeypatch.setattr(processor, "multiplies_bytes", lambda: True)
    model, product = case.model(), Matrix.forward
    found = answer(case, pack(model, "int8"))
    monkeypatch.setattr(Matrix, "forward", lambda self, x: product(self, in_bytes(x.flatten(0, -2)).view_as(x)))
    close(found, answer(case, quantise(model)), 3e-3)


def answer(case: Case, model: Model) -> Tensor:
    if case.images:
        return model(torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0)))
    return run(case, model, *inputs(case))


@each_text
@precisions
@pytest.mark.parametrize("side", ["right", "left"])
def test_padded_and_batched_is_alone(case: Case, precision: str, side: str) -> None:
    """Not nearly: bit for bit."""
    model = pack(case.model(), precision)
    source = padded([7, 12, 1, 30], side, extra=3)
    target = padded([5, 2, 8, 3], side, extra=2, seed=1) if isinstance(model, EncoderDecoder) else None
    together = run(case, model, source, target)
    for row in range(4):
        single = run(case, model, alone(source, row), alone(target, row) if target else None)
        found, wanted = per_token(together, target or source, row), single[0]
        if together.dim() == 3:
            assert torch.equal(found, wanted)
        else:  # pooled in PyTorch, whose sums are taken in another order
            close(found, wanted)


@each_decoding
@precisions
def test_cached_is_uncached_bit_for_bit(case: Case, precision: str) -> None:
    model, (first, second) = pack(case.model(), precision), _prompts(case)
    whole = _steps(model, first, second, [second.ids.size(1)])
    for cuts in ([1] * second.ids.size(1), [3, 1, second.ids.size(1) - 4]):
        assert torch.equal(_steps(model, first, second, cuts), whole)


@each_decoding
@precisions
@pytest.mark.parametrize("count", [1, 7])
def test_the_likeliest_found_in_one_run_are_those_of_the_logits(
    case: Case, precision: str, count: int, threads: None
) -> None:
    """Bit for bit, with one thread and two, and after some rows went another way."""
    model, (source, target) = pack(case.model(), precision), _prompts(case)
    encoder = isinstance(model, EncoderDecoder)
    new = [model.context(model.encode(source.ids, source.mask)) if encoder else model.context() for _ in range(3)]
    for at in range(target.ids.size(1)):
        tokens = target.ids[:, at : at + 1]
        torch.set_num_threads(2)
        found = new[0].best(model, tokens, count)
        wanted = model.head.best(model.step(tokens, new[1]), count)
        torch.set_num_threads(1)
        for part, same, other in zip(found, wanted, new[2].best(model, tokens, count), strict=True):
            assert torch.equal(part, same)
            assert torch.equal(part, other)
        for context in new if at == 4 else ():
            context.select(torch.tensor([2, 0, 2]))


@precisions
def test_tokens_and_places_that_there_are_none_of(precision: str) -> None:
    model = pack(cf.build(cf.presets.gpt2("tiny"), seed=0), precision)
    words, longest = len(model.head.weight), model.stack.embed.positions.length
    for wrong in (words, -1):
        for tokens in ([[wrong]], [[1, wrong, 2]]):
            with pytest.raises(DataError, match=f"token id {wrong} is outside the vocabulary of {words}"):
                model.context().best(model, torch.tensor(tokens), 1)
    context = model.context()
    model.step(torch.ones(1, longest, dtype=torch.long), context)
    for ask in (lambda: context.best(model, torch.ones(1, 1, dtype=torch.long), 1), lambda: model(ones(longest + 1))):
        with pytest.raises(DataError, match=f"{longest + 1} tokens and the position table {longest} rows"):
            ask()


def test_what_is_no_token_is_refused_as_ever() -> None:
    model = pack(cf.build(cf.presets.llama("tiny"), seed=0))
    for tokens in (torch.tensor([[1.7]]), torch.tensor([[True]]), torch.tensor([1])):
        with pytest.raises(DataError, match="token ids must be integers"):
            model.context().best(model, tokens, 1)
    found = model.context().best(model, ones(1).int(), 1)
    assert torch.equal(found[1], model.context().best(model, ones(1), 1)[1])


def test_a_context_that_keeps_nothing() -> None:
    model = pack(cf.build(cf.presets.llama("tiny"), seed=0))
    context, first = model.stack.context(cached=False), model.context().best(model, ones(1), 3)
    for _ in range(3):
        assert torch.equal(context.best(model, ones(1), 3)[1], first[1])


@precisions
def test_tables_that_are_replaced(precision: str) -> None:
    """Another table of tokens, and then weights read into the model, are what it says next."""
    model, ids = pack(cf.build(cf.presets.gpt2("tiny"), seed=0), precision), torch.tensor([[3, 1, 2]])
    before, words, width = model(ids), *model.stack.embed.table.shape
    table = torch.randn(3 * words, width, generator=torch.Generator().manual_seed(0))
    if precision == "float32":
        model.stack.embed.table = torch.nn.Parameter(table)
    else:
        model.stack.embed.table = Matrix.of(table)
    assert not torch.equal(model(ids), before)
    more = torch.tensor([[3 * words - 1]])
    close(model(more), plain(model)(more), 0.05)


@precisions
@pytest.mark.parametrize("assign", [False, True])
def test_weights_read_into_a_packed_model(precision: str, assign: bool) -> None:
    with torch.inference_mode(False), torch.no_grad():
        one, other = (pack(cf.build(cf.presets.gpt2("tiny"), seed=seed), precision) for seed in (0, 1))
        ids = torch.tensor([[3, 1, 2]])
        before, wanted = one(ids), other(ids)
        one.load_state_dict({name: value.clone() for name, value in other.state_dict().items()}, assign=assign)
        assert not torch.equal(before, wanted)
        assert torch.equal(one(ids), wanted)


@each_fitting
def test_a_packed_models_state_is_the_models(case: Case) -> None:
    model = case.model()
    found, wanted = pack(model).state_dict(), model.state_dict()
    assert list(found) == list(wanted)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_packed_model_looks_at_a_part_of_an_image() -> None:
    model = cf.build(cf.presets.vit("tiny"), seed=0)
    embed = model.spec.stack.embed
    images, places = torch.randn(2, embed.channels, *embed.image), Places.some(torch.tensor([[0, 3, 2], [1, 0, 4]]))
    close(pack(model).stack(images, places), model.stack(images, places))


@pytest.mark.parametrize("limit", ["OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true"])
def test_fewer_threads_than_were_asked_for(limit: str) -> None:
    code = """
import torch, clearformer as cf
from clearformer.kernels.pack import pack
torch.set_num_threads(3)
with torch.inference_mode():
    model, ids = cf.build(cf.presets.llama("tiny"), seed=0), torch.tensor([[3, 1, 2], [5, 4, 7]])
    packed = pack(model)
    assert torch.allclose(packed(ids), model(ids), atol=1e-5)
    found = packed.context().best(packed, ids[:, :1], 4)[1]
    assert torch.equal(found, model(ids[:, :1])[:, -1].topk(4).indices), found
"""
    name, value = limit.split("=")
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, name: value}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def ones(length: int) -> Tensor:
    return torch.ones(1, length, dtype=torch.long)


def test_a_context_of_another_model() -> None:
    model, other = (pack(cf.build(cf.presets.llama("tiny"), seed=seed)) for seed in (0, 1))
    with pytest.raises(DataError, match="belongs to another model"):
        model.context().best(other, ones(1), 1)
    context = model.context()
    context.best(model, ones(1), 1)
    with pytest.raises(DataError, match="2 rows given for a context of 1"):
        context.best(model, torch.ones(2, 1, dtype=torch.long), 1)


def _prompts(case: Case) -> tuple[Batch, Batch]:
    return padded([4, 9, 6]), padded([9, 9, 9], seed=1)


def _steps(model: Model, source: Batch, target: Batch, cuts: list[int]) -> Tensor:
    """The last logits, with the text given in pieces."""
    encoder = isinstance(model, EncoderDecoder)
    context = model.context(model.encode(source.ids, source.mask)) if encoder else model.context()
    found, at = None, 0
    for length in cuts:
        found = model.step(target.ids[:, at : at + length], context)
        at += length
    return found


@each_decoding
def test_generation_is_the_references(case: Case) -> None:
    model, (source, target) = case.model(kernel="reference"), _prompts(case)
    packed = pack(model)
    for found, wanted in zip(_greedy(packed, source, target), _greedy(model, source, target), strict=True):
        assert found.tokens == wanted.tokens
        assert found.score == pytest.approx(wanted.score, abs=1e-3)
    mine, theirs = _beam(packed, source, target), _beam(model, source, target)
    assert [[each.tokens for each in row] for row in mine] == [[each.tokens for each in row] for row in theirs]


def _given(model: Model, source: Batch, target: Batch) -> tuple[Tensor, dict]:
    if isinstance(model, EncoderDecoder):
        return target.ids[:, :1], {"source": source.ids, "source_mask": source.mask}
    return source.ids, {"mask": source.mask}


def _greedy(model: Model, source: Batch, target: Batch, limit: int = 12) -> list:
    prompt, options = _given(model, source, target)
    return search.greedy(model, prompt, max_new_tokens=limit, eos_token_id=3, **options)


def _beam(model: Model, source: Batch, target: Batch) -> list:
    prompt, options = _given(model, source, target)
    return search.beam(model, prompt, max_new_tokens=12, eos_token_id=3, num_beams=4, **options)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", ["original", "llama", "gpt2", "t5"])
def test_int8_tokens_are_the_same_in_any_company(name: str) -> None:
    """2,400 texts in batches of chance, the first on two threads, against each by itself on one."""
    case = next(each for each in FITTING if each.name == name)
    model = pack(case.model(), "int8")
    generator = torch.Generator().manual_seed(11)
    done = 0
    while done < 600:
        size = int(torch.randint(2, 40, (), generator=generator))
        lengths = torch.randint(1, 24, (size,), generator=generator).tolist()
        side = "left" if size % 2 else "right"
        source, target = padded(lengths, side, seed=done), padded([1] * size, seed=done + 1)
        torch.set_num_threads(1 if done else 2)
        together = _greedy(model, source, target, limit=8)
        torch.set_num_threads(1)
        for row in range(size):
            (single,) = _greedy(model, alone(source, row), alone(target, row), limit=8)
            assert together[row] == single
        done += size


@each_fitting
@precisions
@pytest.mark.usefixtures("threads")
def test_one_thread_is_two(case: Case, precision: str) -> None:
    model = pack(case.model(), precision)
    torch.set_num_threads(1)
    alone_ = answer(case, model)
    torch.set_num_threads(2)
    assert torch.equal(answer(case, model), alone_)


@pytest.mark.parametrize(
    "case", [FITTING[0], *(each for each in FITTING if each.name in ("t5", "llama", "bert"))], ids=str
)
def test_int8_is_saved_and_loaded_as_it_is(case: Case, tmp_path: Path) -> None:
    model = quantise(case.model())
    folder = cf.save_model(model, tmp_path / "model")
    loaded = cf.load_model(folder)
    assert torch.equal(answer(case, pack(loaded, "int8")), answer(case, pack(model, "int8")))
    whole = sum(each.numel() for each in case.model().parameters()) * 4
    assert (folder / "weights.safetensors").stat().st_size < whole


@pytest.mark.parametrize("case", ALL, ids=str)
def test_without_the_compiler_all_is_as_before(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "missing", lambda: "numba is not installed")
    model = case.model()
    assert pack(model) is model
    assert pack(model, "auto") is model
    assert torch.equal(answer(case, pack(model, "int8")), answer(case, quantise(model)))
    with pytest.raises(KernelError, match="numba is not installed"):
        pack(model, native=True)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_auto_is_int8_where_all_of_it_is_a_program(case: Case) -> None:
    model = case.model()
    found = choice(model)
    assert found.auto == ("int8" if case in FITTING else "float32"), found.why
    assert packing.is_int8(pack(model, "auto")) == (case in FITTING)


def test_gradients_go_through_the_modules() -> None:
    case = next(each for each in FITTING if each.name == "llama")
    with torch.inference_mode(False), torch.enable_grad():
        model = case.model()
        packed, ids = pack(model), torch.randint(0, 100, (2, 7))
        packed(ids).sum().backward()
        found = {}
        for name, parameter in packed.named_parameters():
            panels = name.endswith(".matrix.panels")
            matrix = packed.get_submodule(name.removesuffix(".panels")) if panels else None
            grad = parameter.grad if matrix is None else FloatMatrix(parameter.grad, *matrix.shape).meant
            found[name.replace(".matrix.panels", ".weight")] = grad.clone()
        for p in model.parameters():
            p.grad = None
        model(ids).sum().backward()
    assert set(found) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        close(found[name], parameter.grad, 1e-4)


def test_a_packed_model_may_be_moved_and_copied() -> None:
    with torch.inference_mode(False), torch.no_grad():
        case = next(each for each in FITTING if each.name == "llama")
        model, ids = case.model(), torch.randint(0, 100, (2, 7))
        packed = pack(model)
        wanted = packed(ids)
        twin = copy.deepcopy(packed)
        for parameter in twin.parameters():
            parameter.mul_(0)
        assert not torch.equal(twin(ids), wanted)
        assert torch.equal(packed(ids), wanted)
        close(copy.deepcopy(packed).double()(ids).float(), wanted)
        assert torch.equal(copy.deepcopy(packed).double().float()(ids), wanted)
        assert torch.equal(plain(packed)(ids), model(ids))


def test_long_texts_outgrow_tables() -> None:
    """Angles and biases are made for as many positions as there are."""
    for name in ("t5", "llama", "gpt2"):
        case = next(each for each in FITTING if each.name == name)
        model = case.model(kernel="reference")
        packed = pack(model)
        for length in (5, 60, 63):
            source, target = padded([length]), padded([length], seed=1)
            pair = isinstance(model, EncoderDecoder)
            close(
                run(case, packed, source, target if pair else None), run(case, model, source, target if pair else None)
            )


@precisions
def test_many_at_once_are_as_one_by_one(precision: str) -> None:
    """Threads of one's own that share a model do not get into each other's rooms."""
    packed = pack(cf.build(cf.presets.gpt2("tiny"), seed=0).eval(), precision)
    prompts = [torch.arange(3, 4 + n % 5)[None] for n in range(24)]

    @torch.inference_mode()
    def written(prompt: Tensor) -> list[int]:
        return search.greedy(packed, prompt, max_new_tokens=20)[0].tokens

    expected = [written(prompt) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(written, prompts)) == expected


@precisions
@pytest.mark.parametrize("inner", [72, 1024])
def test_layers_of_several_widths(precision: str, inner: int) -> None:
    """Their buffers are shared, and what fills up the rows of one holds numbers of another."""
    what = cf.presets.gpt2("tiny")
    widths = {"stack.blocks.0.feedforward.layer.inner": inner, "stack.blocks.1.feedforward.layer.inner": 40}
    model = cf.build(what.replace(widths), seed=0).eval()
    packed, ids = pack(model, precision), torch.arange(3, 63).view(4, 15)
    many = packed(ids)
    assert all(torch.equal(many[n : n + 1], packed(ids[n : n + 1])) for n in range(4))
    if precision == "int8":
        close(many, quantise(model)(ids), 0.05)
    else:
        close(many, model(ids))


def test_unknown_precision() -> None:
    with pytest.raises(KernelError, match="int8"):
        pack(FITTING[0].model(), "int4")


@pytest.mark.parametrize("case", FITTING, ids=str)
def test_int8_can_be_run_as_floats(case: Case) -> None:
    """With the rounded numbers and the names of the model that was quantised."""
    model = case.model()
    again = dequantise(quantise(model))
    rounded = float_weights(quantise(model))
    found = dict(again.named_parameters())
    assert found.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(weight, rounded[name]) for name, weight in found.items())
    assert not is_int8(pack(quantise(model), "float32"))
