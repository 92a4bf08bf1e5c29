"""Position schemes against float64 loops that follow their papers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearformer import spec
from clearformer.core import positions
from clearformer.core.kernel import Reference
from clearformer.core.patterns import Visible
from clearformer.core.places import Places
from clearformer.errors import DataError


def test_sinusoid_of_the_notes() -> None:
    """N3: d = 6, positions 0 to 2."""
    found = positions.sinusoid(torch.arange(3), 6, 10_000.0, "interleaved", torch.zeros((), dtype=torch.float64))
    expected = [
        [0, 1, 0, 1, 0, 1],
        [0.8415, 0.5403, 0.0464, 0.9989, 0.0022, 1.0],
        [0.9093, -0.4161, 0.0927, 0.9957, 0.0043, 1.0],
    ]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=5e-5, rtol=0)


@given(st.integers(0, 5000), st.sampled_from([2, 8, 64]), st.sampled_from(["interleaved", "halves"]))
def test_sinusoid(position: int, width: int, layout: str) -> None:
    found = positions.sinusoid(torch.tensor([position]), width, 10_000.0, layout, torch.zeros((), dtype=torch.float64))[
        0
    ]
    for i in range(width // 2):
        angle = position / 10_000 ** (2 * i / width)
        sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, width // 2 + i)
        assert found[sine].item() == pytest.approx(math.sin(angle), abs=1e-9)
        assert found[cosine].item() == pytest.approx(math.cos(angle), abs=1e-9)


@given(st.integers(0, 3000), st.integers(0, 3000), st.sampled_from(["halves", "interleaved"]))
def test_rotary_depends_on_the_distance_only(i: int, j: int, layout: str) -> None:
    rotary = positions.Rotary(10_000.0, None, layout)
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=generator, dtype=torch.float64)

    def product(a: int, b: int) -> float:
        turned = (rotary.rotate(q, Places.span(a, a + 1)) * rotary.rotate(k, Places.span(b, b + 1))).sum()
        return float(turned)

    assert product(i, j) == pytest.approx(product(i + 17, j + 17), abs=1e-9)
    angles = [(i - j) * 10_000 ** (-2 * n / 8) for n in range(4)]
    pairs = [(n, n + 4) if layout == "halves" else (2 * n, 2 * n + 1) for n in range(4)]
    expected = 0.0
    for angle, (a, b) in zip(angles, pairs, strict=True):
        x, y, u, v = q[..., a].item(), q[..., b].item(), k[..., a].item(), k[..., b].item()
        expected += (x * u + y * v) * math.cos(angle) + (x * v - y * u) * math.sin(angle)
    assert product(i, j) == pytest.approx(expected, abs=1e-6)


def test_llama3_scaling_keeps_fast_turns_and_slows_slow_ones() -> None:
    scaling = spec.Llama3(factor=8.0, low=1.0, high=4.0, original=8192)
    like = torch.zeros((), dtype=torch.float64)
    plain = positions.scaled_frequencies(500_000.0, None, 128, like)
    found = positions.scaled_frequencies(500_000.0, scaling, 128, like)
    for before, after in zip(plain.tolist(), found.tolist(), strict=True):
        wavelength = 2 * math.pi / before
        if wavelength < 8192 / 4:
            assert after == pytest.approx(before)
        elif wavelength > 8192:
            assert after == pytest.approx(before / 8)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            assert after == pytest.approx((1 - smooth) * before / 8 + smooth * before)


@given(st.integers(-300, 300), st.booleans())
def test_bucket(away: int, two_way: bool) -> None:
    """Raffel et al. 2020: exact buckets near, logarithmic ones up to the reach, the last for all beyond."""
    found = int(positions.Buckets(1, 32, 128, two_way).bucket(torch.tensor(away)))
    count, first = (16, 16 if away > 0 else 0) if two_way else (32, 0)
    distance = abs(away) if two_way else max(-away, 0)
    exact = count // 2
    if distance < exact:
        assert found == first + distance
    else:
        widening = math.log(distance / exact) / math.log(128 / exact) * (count - exact)
        if abs(widening - round(widening)) > 1e-4:  # on an edge, single precision may fall to either side
            assert found == first + min(exact + int(widening), count - 1)


def test_alibi_slopes() -> None:
    """Press et al. 2022: 8 heads have 1/2 ... 1/256; 12 heads add every other slope of 16."""
    assert positions.alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    between = [2 ** (-8 * n / 16) for n in (1, 3, 5, 7)]
    assert positions.alibi_slopes(12).tolist() == pytest.approx([2.0**-n for n in range(1, 9)] + between)


def attend(
    module: positions.Relative, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, places: Places
) -> torch.Tensor:
    layer = spec.SelfAttention(heads=q.size(1))
    kernel = Reference(layer, q.size(-1) ** -0.5).eval()
    return kernel(q, k, v, Visible(spec.Everyone(), places, places), module)


def shaw_by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keys: list, values: list, away: list) -> list:
    """Equations 3 and 4 of Shaw et al. 2018, one number at a time, for one head."""
    t, d = q.shape
    out = []
    for i in range(t):
        scores = [
            sum(float(q[i, c]) * (float(k[j, c]) + keys[away[i][j]][c]) for c in range(d)) / math.sqrt(d)
            for j in range(t)
        ]
        total = sum(math.exp(s) for s in scores)
        weights = [math.exp(s) / total for s in scores]
        out.append([sum(weights[j] * (float(v[j, c]) + values[away[i][j]][c]) for j in range(t)) for c in range(d)])
    return out


def filled(module: positions.Relative) -> positions.Relative:
    module = module.double()
    with torch.no_grad():
        for n, parameter in enumerate(module.parameters()):
            parameter.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
            )
    return module


def test_shaw_by_hand() -> None:
    module = filled(positions.Vectors(2, 4, values=True))
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    found = attend(module, q, k, v, Places.span(0, 5))
    away = [[max(-2, min(2, j - i)) + 2 for j in range(5)] for i in range(5)]
    keys, values = module.key_table.tolist(), module.value_table.tolist()
    for head in range(2):
        expected = shaw_by_hand(q[0, head], k[0, head], v[0, head], keys, values, away)
        torch.testing.assert_close(found[0, head], torch.tensor(expected, dtype=torch.float64))


def test_tree_distance_by_hand() -> None:
    """Wang et al. 2019, for «The man saw the astronomer»: saw is the root; man and astronomer hang from it."""
    heads = [2, 3, 0, 5, 3]
    places = Places.span(0, 5).with_trees([heads])
    assert places.depth[0].tolist() == [2, 1, 0, 2, 1]
    found = positions.tree_distance(places, places)[0].tolist()

    def above(token: int) -> set[int]:
        path = {token}
        while heads[token]:
            token = heads[token] - 1
            path.add(token)
        return path

    depth = [2, 1, 0, 2, 1]
    for i in range(5):
        for j in range(5):
            if j in above(i) or i in above(j):
                assert found[i][j] == depth[i] - depth[j]
            else:
                assert found[i][j] == (depth[i] + depth[j]) * (1 if i > j else -1)
    assert found[0][1] == 1  # The → man: one step up
    assert found[1][0] == -1
    assert found[0][3] == -4  # the two articles: neither above the other, the first before
    assert found[3][0] == 4


def test_tree_vectors_by_hand() -> None:
    module = filled(positions.TreeVectors(3, 4, values=True))
    q, k, v = torch.randn(3, 1, 1, 5, 4, dtype=torch.float64)
    places = Places.span(0, 5).with_trees([[2, 3, 0, 5, 3]])
    found = attend(module, q, k, v, places)
    away = [[max(-3, min(3, n)) + 3 for n in row] for row in positions.tree_distance(places, places)[0].tolist()]
    expected = shaw_by_hand(q[0, 0], k[0, 0], v[0, 0], module.key_table.tolist(), module.value_table.tolist(), away)
    torch.testing.assert_close(found[0, 0], torch.tensor(expected, dtype=torch.float64))


def test_tree_depth_by_hand() -> None:
    module = filled(positions.TreeDepth(positions.Sinusoid(10_000.0, "interleaved"), 4))
    x = torch.zeros(1, 3, 4, dtype=torch.float64)
    found = module(x, Places.span(0, 3).with_trees([[2, 0, 2]]))

    def wave(position: int) -> list[float]:
        return [f(position / 100**i) for i in range(2) for f in (math.sin, math.cos)]

    for token, depth in enumerate([1, 0, 1]):
        both = torch.tensor(wave(token) + wave(depth), dtype=torch.float64)
        torch.testing.assert_close(found[0, token], torch.tanh(module.mix.weight @ both + module.mix.bias))


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ([[0, 1]], "2 heads given for a text of 3 tokens"),
        ([[0, 1, 9]], "head 9 is no whole number between 0 and 3"),
        ([[2, 3, 1]], "run in a circle"),
        ([[0, 1, 1], [0, 1, 1]], "2 given for a batch of"),
    ],
)
def test_bad_trees(trees: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Places.span(0, 3).with_trees(trees)
