"""The block-sparse kernel on texts of many blocks and groups, and the ways in which gradients may be asked for."""

import pytest
import torch
from torch import Tensor

import clearformer as cf
from clearformer import presets, spec
from clearformer.core.kernel import Kernel, Reference
from clearformer.core.patterns import Visible
from clearformer.core.places import Places
from clearformer.core.positions import ALiBi, Buckets, Relative, Rotary, Vectors
from clearformer.kernels import sparse
from clearformer.kernels.fused import Fused
from clearformer.kernels.sparse import Sparse
from clearformer.spec import BigBird, Causal, Global, Near, Pattern, Random, Window

PATTERNS = {
    "near": Near(radius=70),
    "window": Window(size=100),
    "bigbird": BigBird(block=16, radius=20, count=2, first=3),
    "causal bigbird": Causal() & BigBird(block=16, radius=20, count=2, first=3),
    "global and near": Global(count=70) | Near(radius=5),
    "random": Random(count=2, block=16) | Near(radius=0),
}
POSITIONS = {
    "none": lambda: Relative(),
    "alibi": lambda: ALiBi(4),
    "buckets": lambda: Buckets(4, 8, 60, True),
    "shaw": lambda: Vectors(5, 8, values=True),
    "rotary": lambda: Rotary(10_000.0, None, "halves"),
}


def problem(relative: Relative) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in relative.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    q = torch.randn(2, 4, 530, 8, generator=generator, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, 530, 8, generator=generator, dtype=torch.float64)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize(("group", "side"), [(64, "right"), (8192, "right"), (8192, "left")])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_many_blocks_are_the_reference(
    pattern: Pattern, positions: str, group: int, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "GROUP", group)
    relative = POSITIONS[positions]().double()
    layer = spec.SelfAttention(heads=4, key_heads=2, pattern=pattern)
    if positions == "shaw":
        layer = layer.replace(positions=spec.Shaw(reach=5))
    mask = torch.ones(2, 530, dtype=torch.bool)
    mask[1, slice(400, None) if side == "right" else slice(130)] = False
    found = []
    for kernel in (Reference(layer, 0.3), Sparse(layer, 0.3)):
        q, k, v = problem(relative)
        places = Places.where(mask)
        visible = Visible(pattern, places, places)
        if isinstance(kernel, Sparse):
            assert kernel._layout(visible) is not None, "this text should not be computed densely"
        out = kernel(q, k, v, visible, relative)
        weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        inputs = [q, k, v, *relative.parameters()]
        found.append((out, torch.autograd.grad((out * weight).sum(), inputs, allow_unused=True)))
    torch.testing.assert_close(found[1][0], found[0][0], atol=1e-9, rtol=1e-9)
    for a, b in zip(found[1][1], found[0][1], strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)


def bigbird(**changes: object) -> torch.nn.Module:
    what = presets.bigbird("tiny", head=spec.States(), dropout=0.2)
    return cf.build(what.replace({"stack.initial": None, **changes}), seed=0)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_gradients_under_dropout_are_those_of_the_same_mask(kernel: str) -> None:
    """A finite difference along one direction, with the random numbers of both runs the same."""
    what = presets.bigbird("tiny", head=spec.States(), dropout=0.2).replace({"stack.initial": None})
    model = cf.build(what, seed=0, kernel=kernel).double().train()
    ids = torch.randint(0, 100, (1, 200), generator=torch.Generator().manual_seed(1))
    weight = model.stack.blocks[0].branches["self"].layer.value.weight
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    shares = torch.linspace(-1, 1, 200 * 32, dtype=torch.float64).view(1, 200, 32)

    def run() -> Tensor:
        torch.manual_seed(5)
        return (model(ids) * shares).sum()

    (gradient,) = torch.autograd.grad(run(), [weight])
    with torch.no_grad():
        weight += 1e-6 * direction
        above = run()
        weight -= 2e-6 * direction
        below = run()
    assert float((gradient * direction).sum()) == pytest.approx(float(above - below) / 2e-6, rel=1e-4)


def test_frozen_parameters_and_autocast() -> None:
    model = bigbird(**{"stack.blocks.*.self.positions": spec.Shaw(reach=3)}).train()
    ids = torch.randint(0, 100, (1, 120))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("output" in name)
    model(ids).sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())
    model.requires_grad_(True)
    with torch.autocast("cpu", torch.bfloat16):
        model(ids).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_fused_by_name_is_the_reference_where_sparse_would_be_picked() -> None:
    what = presets.bigbird("tiny", head=spec.States())
    ids = torch.randint(0, 100, (2, 120))
    fused, reference = (cf.build(what, seed=0, kernel=kernel) for kernel in ("fused", "reference"))
    assert all(isinstance(module, Fused) for module in fused.modules() if isinstance(module, Kernel))
    torch.testing.assert_close(fused(ids), reference(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "bigbird", "linformer", "bert", "t5"])
def test_texts_of_no_tokens_at_all(family: str) -> None:
    model = cf.build(presets.FAMILIES[family]("tiny"), seed=0)
    none = torch.zeros(2, 0, dtype=torch.long)
    result = model(none, none) if family == "t5" else model(none)
    assert torch.isfinite(result).all()


def test_huge_patterns_cost_nothing_to_build() -> None:
    for pattern in (Global(count=2**24), Near(radius=2**24), Window(size=2**24)):
        encoder = presets.bert("tiny").replace({"stack.blocks.*.self.pattern": pattern})
        assert cf.build(encoder)(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 32)
