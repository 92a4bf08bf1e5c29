"""The machine: its products and ranks against brute force in float64."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.core.heads import NextToken
from clearformer.kernels.int8 import Matrix, quantised
from clearformer.kernels.native import isa, processor, runtime
from clearformer.kernels.native.heads import Product
from clearformer.kernels.native.isa import INNER, NORMED, QUERIES, STATES
from clearformer.kernels.native.topk import best

sizes = st.tuples(st.integers(1, 70), st.integers(1, 90), st.integers(1, 70), st.integers(0, 2**16))


def _drawn(rows: int, inputs: int, outputs: int, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator) for shape in ((rows, inputs), (outputs, inputs), (outputs,)))


@given(sizes)
@settings(max_examples=60, deadline=None)
def test_a_product_of_any_size(size: tuple[int, int, int, int]) -> None:
    x, w, bias = _drawn(*size)
    wanted = x.double() @ w.double().T + bias.double()
    with torch.inference_mode():
        assert torch.allclose(Product(w, bias)(x).double(), wanted, atol=1e-5, rtol=1e-5)
        assert torch.allclose(Product(w, None)(x).double(), wanted - bias.double(), atol=1e-5, rtol=1e-5)


@given(sizes)
@settings(max_examples=60, deadline=None)
def test_an_int8_product_of_any_size(size: tuple[int, int, int, int]) -> None:
    x, w, bias = _drawn(*size)
    matrix = Matrix.of(w)
    room = float(x.abs().max() * w.abs().max()) * x.size(1) ** 0.5
    for inputs, wanted_inputs in (("shorts", x.double()), ("bytes", in_bytes(x).double())):
        wanted = wanted_inputs @ (matrix.whole.double() * matrix.scale.double()[:, None]).T + bias.double()
        with torch.inference_mode(), _taking(inputs):
            assert float((Product(matrix, bias)(x).double() - wanted).abs().max()) <= 1e-4 * room


def in_bytes(x: torch.Tensor) -> torch.Tensor:
    """Rows as the bytes that they are made, by another way: 64 of them share a scale, the largest is ± 127."""
    parts = []
    for part in x.split(isa.GROUP, 1):
        most = part.abs().amax(1, keepdim=True)
        back = torch.where(most > 0, torch.tensor(127.0) / most, torch.tensor(0.0))
        parts.append((part * back).round() * (most / 127.0))
    return torch.cat(parts, 1)


@contextmanager
def _taking(inputs: str) -> Iterator[None]:
    """As on a processor that multiplies bytes, or on one that does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor, "multiplies_bytes", lambda: inputs == "bytes")
        yield


@pytest.fixture(params=["shorts", "bytes"])
def inputs(request: pytest.FixtureRequest) -> Iterator[str]:
    with _taking(request.param):
        yield request.param


@pytest.mark.usefixtures("inputs")
def test_an_int8_row_is_the_same_in_any_company() -> None:
    """Tiles of all sizes, with whole and broken panels, on one thread and two, are bit for bit a row alone."""
    for width, outputs in ((200, 53), (64, 16), (1024, 160)):
        x, w, bias = _drawn(43, width, outputs, width)
        product = Product(Matrix.of(w), bias)
        with torch.inference_mode():
            alone = torch.cat([product(x[n : n + 1]) for n in range(len(x))])
            assert all(torch.equal(product(x[:n]), alone[:n]) for n in (2, 4, 7, 8, 13, 43))


def test_an_outlier_spoils_only_the_bytes_of_its_group() -> None:
    x, w, _ = _drawn(1, 256, 32, 5)
    x[0, 70] = 1e6
    w[:, 64:128] = 0.0
    matrix = Matrix.of(w)
    with torch.inference_mode(), _taking("bytes"):
        found = Product(matrix, None)(x)
    assert float((found - F.linear(x, matrix.meant)).abs().max()) < 0.5


@given(sizes)
@settings(max_examples=40, deadline=None)
def test_panels_hold_the_rows(size: tuple[int, int, int, int]) -> None:
    _, w, _ = _drawn(*size)
    (whole, scale), kept = quantised(w), Matrix.of(w)
    for matrix in (kept, kept.arranged(quads=True)):
        assert torch.equal(matrix.whole, whole)
        assert torch.equal(matrix.scale, scale)
        assert torch.equal(matrix.pairs, kept.panels)
        assert matrix.shape == w.shape
        ids = torch.arange(len(w)).flip(0)[:, None]
        assert torch.equal(matrix.rows(ids), matrix.meant[ids])
        for outside in (-1, len(w)):
            with pytest.raises(IndexError):
                matrix.rows(torch.tensor([outside]))


def test_quads_are_four_numbers_of_each_row_with_128_added() -> None:
    w = torch.arange(-60, 68).view(16, 8).float()
    w[:, 0] = 127  # each row's scale is 1
    panels = Matrix.of(w).arranged(quads=True).panels
    assert panels.shape == (1, 4, 16, 4)
    for row, column in product(range(16), range(8)):
        assert panels[0, column // 4, row, column % 4] == w[row, column] + 128


def test_a_large_matrix_is_made_int8_part_by_part() -> None:
    w = torch.randn(1000, 600, generator=torch.Generator().manual_seed(0))  # more than AT_ONCE
    assert torch.equal(Matrix.of(w).whole, quantised(w)[0])


def test_parts_of_long_rows_are_added() -> None:
    x, w, bias = _drawn(5, 9000, 9, 1)
    with torch.inference_mode():
        found = Product(w, bias)(x)
        assert torch.allclose(found.double(), x.double() @ w.double().T + bias.double(), atol=1e-3)
        assert torch.equal(found[3:4], Product(w, bias)(x[3:4]))


@pytest.mark.usefixtures("inputs")
def test_sums_of_int8_never_overflow() -> None:
    """The largest inputs and weights there are, all of one sign, over the longest rows of public models."""
    for inputs in (16, 4096, 28672):
        x, w = torch.ones(2, inputs), torch.ones(4, inputs)
        with torch.inference_mode():
            found = Product(Matrix.of(w), None)(x)
        assert torch.allclose(found, torch.full_like(found, inputs), rtol=1e-2)


@pytest.mark.usefixtures("inputs")
def test_zeros_and_nothing() -> None:
    _, w, bias = _drawn(1, 20, 6, 0)
    with torch.inference_mode():
        assert torch.equal(Product(Matrix.of(w), bias)(torch.zeros(3, 20)), bias.expand(3, 6))
        for faint in (1e-32, 1e-38, 1e-44):  # less than a float can be divided by
            assert torch.allclose(Product(Matrix.of(w), bias)(torch.full((3, 20), faint)), bias.expand(3, 6))
        assert Product(w, bias)(torch.zeros(0, 20)).shape == (0, 6)
        assert torch.equal(Product(Matrix.of(torch.zeros(6, 20)), None)(torch.ones(2, 20)), torch.zeros(2, 6))


@given(st.integers(1, 9), st.integers(2, 900), st.integers(1, 20), st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_ranks(rows: int, width: int, keep: int, seed: int) -> None:
    keep = min(keep, width)
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * 5
    with torch.inference_mode():
        mine, theirs = best(x, keep), NextToken.best(None, x, keep)  # type: ignore[arg-type]
    assert torch.allclose(mine[0], theirs[0], atol=1e-5)
    assert torch.equal(mine[1], theirs[1])
    truth = x.double() - x.double().exp().sum(1, keepdim=True).log()
    assert torch.allclose(mine[0].double(), truth.gather(1, mine[1]), atol=1e-5)


def test_of_equal_numbers_the_first_come_first() -> None:
    """Whether they are in one block or in blocks of several threads."""
    x = torch.zeros(2, 1000)
    x[1, [3, 130, 131, 999]] = 1.0
    with torch.inference_mode():
        chances, tokens = best(x, 6)
    assert tokens.tolist() == [[0, 1, 2, 3, 4, 5], [3, 130, 131, 999, 0, 1]]
    assert chances[0].tolist() == pytest.approx([-math.log(1000)] * 6)


def test_ranks_with_forbidden_tokens() -> None:
    x = torch.tensor([[-torch.inf, 1.0, -torch.inf, 3.0]])
    with torch.inference_mode():
        chances, tokens = best(x, 2)
    assert tokens.tolist() == [[3, 1]]
    assert chances.exp().sum().item() == pytest.approx(1.0)


def test_threads_wait_where_one_needs_what_another_makes() -> None:
    norm = isa.Norm(STATES, NORMED, 32, 32, 0, 0, 0, 1, 0)
    query = isa.Linear(NORMED, QUERIES, 32, 32, 32, 32, 0, 0, 0, 0, 0)
    other = query._replace(target=INNER)
    again = norm._replace(source=NORMED)
    waits = [row[1] for row in isa.table([norm, again, query, other, norm, norm])]
    # rows of one thread twice; then all rows are needed; two products beside each other; then what they read is changed
    assert waits == [0, 1, 0, 1, 0, 0]


def test_one_thread_where_openmp_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = runtime.machine()
    monkeypatch.setattr(machine, "team", None)
    assert machine.threads == 1
    x, w, bias = _drawn(7, 40, 12, 3)
    with torch.inference_mode():
        found = Product(w, bias)(x)
    assert np.allclose(found, x @ w.T + bias, atol=1e-5)
