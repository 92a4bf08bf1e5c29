"""Each operation of the machine alone, against a loop in float64, over odd sizes, rows and threads."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from clearformer import spec
from clearformer.kernels.int8 import Matrix
from clearformer.kernels.native import isa
from clearformer.kernels.native.isa import (
    INNER,
    LOGITS,
    MIXED,
    NORMED,
    QUANTISED,
    QUERIES,
    SCALES,
    STATES,
    bits,
    stride,
)
from clearformer.kernels.native.launch import Job, at
from clearformer.kernels.native.program import Program
from clearformer.kernels.native.topk import Ranking, scratch
from clearformer.kernels.packed_float import FloatMatrix

Array = np.ndarray
WIDTHS, ROWS = (1, 7, 16, 33, 100), (1, 2, 5, 37)
sizes = list(product(WIDTHS, ROWS))
FILL = 77.0  # what lies between rows, and must still be there afterwards


@pytest.fixture(params=[1, 2, 3], autouse=True, ids=lambda count: f"{count} threads")
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    with torch.inference_mode():
        yield request.param
    torch.set_num_threads(before)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape)


def spaced(values: Tensor) -> Tensor:
    """Rows with their step between them."""
    rows, width = values.shape
    room = torch.full((rows, stride(width)), FILL)
    room[:, :width] = values
    return room


def between(room: Tensor, width: int) -> bool:
    """Whether what lies between rows is as it was."""
    return bool((room[:, width:] == FILL).all())


def close(found: Tensor | Array, wanted: Array, room: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found, dtype=np.float64), wanted, rtol=room, atol=room)


def made(operations: Sequence[isa.Operation], states: Tensor, buffers: dict[int, Tensor], longest: int = 1) -> Job:
    """A job of some operations; its buffers are given."""
    program = Program(list(operations), keys=[0], patterns=[spec.Everyone()])
    job = Job(program, states, longest, scratch(len(states)))
    for number, buffer in buffers.items():
        job.buffers[number] = buffer.data_ptr()
    return job


@pytest.mark.parametrize(("centred", "more"), [(1, 0), (0, 0), (1, 1), (0, 1)])
def test_norm(centred: int, more: int) -> None:
    for width, rows in sizes:
        x, y, weight, bias = drawn(rows, width) * 3 + 1, drawn(rows, width), drawn(width), drawn(width)
        source, target, eps = spaced(x), spaced(y), 1e-3
        fields = (width, stride(width), weight.data_ptr(), bias.data_ptr(), bits(eps), centred, more)
        made([isa.Norm(STATES, NORMED, *fields)], source, {NORMED: target}).run()
        wanted = np.zeros((rows, width))
        for r in range(rows):
            row = x[r].double().numpy()
            away = row - row.sum() / width if centred else row
            normed = away / math.sqrt((away**2).sum() / width + eps)
            wanted[r] = normed * weight.double().numpy() + bias.double().numpy() + more * y[r].double().numpy()
        close(target[:, :width], wanted, 3e-5)
        assert between(target, width)
        assert torch.equal(source[:, :width], x)
        if not more:  # in place
            made([isa.Norm(STATES, STATES, *fields)], source, {}).run()
            assert torch.equal(source[:, :width], target[:, :width])


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("turns", ["none", "halves", "interleaved"])
def test_rotate(turns: str, normed: bool) -> None:
    for heads, head, rows in product((1, 3), (2, 8, 18), ROWS):
        width, eps = heads * head, 1e-3
        x, weight, positions = drawn(rows, width), drawn(head), np.random.default_rng(0).integers(0, 9, rows)
        angles = drawn(9, head // 2) * 3
        table, room = torch.cat([angles.cos(), angles.sin()], 1), spaced(x)
        addresses = (table.data_ptr() if turns != "none" else 0, int(turns == "interleaved"))
        gain = weight.data_ptr() if normed else 0
        rotate = isa.Rotate(QUERIES, heads, head, stride(width), *addresses, gain, bits(eps))
        made([rotate], spaced(x), {QUERIES: room}).run(positions)
        wanted = x.double().numpy().reshape(rows, heads, head).copy()
        for r, h in product(range(rows), range(heads)):
            row = wanted[r, h]
            if normed:
                row *= weight.double().numpy() / math.sqrt((row**2).sum() / head + eps)
            for i in range(head // 2 if turns != "none" else 0):
                one, two = (2 * i, 2 * i + 1) if turns == "interleaved" else (i, i + head // 2)
                turn = float(angles[positions[r], i])
                left, right = row[one], row[two]
                row[one] = left * math.cos(turn) - right * math.sin(turn)
                row[two] = right * math.cos(turn) + left * math.sin(turn)
        close(room[:, :width], wanted.reshape(rows, width))
        assert between(room, width)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shared", ["lists of their own", "lists of a few rows", "one list"])
@pytest.mark.parametrize(("heads", "key_heads", "head"), [(1, 1, 8), (4, 2, 16), (3, 1, 40), (2, 2, 104)])
def test_attend(heads: int, key_heads: int, head: int, shared: str, biased: bool) -> None:
    """Rows alone and rows of one text, which are taken together; spans of any length, and none at all."""
    draw = np.random.default_rng(heads)
    for rows, cells in ((1, 1), (3, 9), (7, 33), (70, 50)):
        width, key_width, scale, longest = heads * head, key_heads * head, 0.3, 40
        q, keys, values = drawn(rows, width), drawn(cells, key_width), drawn(cells, key_width)
        alike = {"lists of their own": 1, "lists of a few rows": 6, "one list": rows}[shared]
        lists = np.stack([draw.permutation(cells) for _ in range(rows)]).astype(np.int32)
        lists = lists[np.arange(rows) // alike * alike]
        which = np.arange(rows) // alike * alike  # rows whose lists are one
        first = draw.integers(0, cells, rows)[which]
        last = np.minimum(first + draw.integers(0, cells + 1, rows), cells)
        positions = draw.integers(0, longest, rows)
        table, reach = drawn(heads, 2 * longest + 100), longest + 50
        fields = (bits(scale), table.data_ptr() if biased else 0, table.size(1), reach)
        *_, all_keys, all_values = isa.keys(0)
        sizes = (heads, key_heads, head, stride(width))
        source, target = spaced(q), spaced(torch.zeros(rows, width))
        attend = isa.Attend(QUERIES, MIXED, all_keys, all_values, *sizes, 1 + isa.MEMORY, *fields)
        buffers = {QUERIES: source, MIXED: target, all_keys: keys, all_values: values}
        job = made([attend], spaced(q), buffers, cells)
        job.sees(1 + isa.MEMORY, at(lists) + 4 * cells * which, first, last)
        job.run(positions)
        wanted = np.zeros((rows, width))
        for r, h in product(range(rows), range(heads)):
            of_query, of_key = slice(head * h, head * (h + 1)), h * key_heads // heads * head
            scores, seen = [], lists[r, first[r] : last[r]]
            for j, cell in enumerate(seen, int(first[r])):
                score = float(q[r, of_query].double() @ keys[cell, of_key : of_key + head].double()) * scale
                scores.append(score + (float(table[h, reach + j - positions[r]]) if biased else 0))
            weights = np.exp(np.array(scores) - max(scores, default=0))
            for weight, cell in zip(weights, seen, strict=True):
                wanted[r, of_query] += weight / weights.sum() * values[cell, of_key : of_key + head].double().numpy()
        close(target[:, :width], wanted)
        assert between(target, width)


PLAIN = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", isa.ACTIVATIONS)
def test_activate(name: str, gated: bool) -> None:
    for width, rows in sizes:
        x, y = drawn(rows, width) * 4, drawn(rows, width)
        x[0, 0] = -30.0
        inner, other = spaced(x), spaced(y)
        activate = isa.Activate(INNER, MIXED if gated else -1, width, stride(width), isa.ACTIVATIONS[name])
        made([activate], spaced(x), {INNER: inner, MIXED: other}).run()
        wanted = np.vectorize(PLAIN[name])(x.double().numpy()) * (y.double().numpy() if gated else 1)
        close(inner[:, :width], wanted)
        assert between(inner, width)
        assert torch.equal(other, spaced(y))


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("sided", [False, True])
@pytest.mark.parametrize("kept", ["floats", "pairs", "quads"])
def test_pick(kept: str, sided: bool, placed: bool) -> None:
    draw = np.random.default_rng(1)
    for width, rows in sizes:
        table, places, side, factor = drawn(37, width), drawn(9, width), drawn(width), 2.5
        ids, positions, int8 = draw.integers(0, 37, rows), draw.integers(0, 9, rows), kept != "floats"
        matrix = Matrix.of(table).arranged(kept == "quads")
        room = torch.full((rows, stride(width)), FILL)
        fields = (matrix.panels.data_ptr(), matrix.scale.data_ptr()) if int8 else (table.data_ptr(), 0)
        fields = (*fields, int(matrix.quads))
        rest = (places.data_ptr() if placed else 0, side.data_ptr() if sided else 0)
        job = made([isa.Pick(*fields, width, stride(width), bits(factor), *rest)], room, {})
        job.ids(ids)
        job.run(positions)
        wanted = np.zeros((rows, stride(width)))  # what fills up a vector is zeros
        for r in range(rows):
            row = matrix.whole[ids[r]].double() * matrix.scale[ids[r]].double() if int8 else table[ids[r]].double()
            wanted[r, :width] = row.numpy() * factor
            wanted[r, :width] += places[positions[r]].double().numpy() * placed + side.double().numpy() * sided
        close(room, wanted)


@pytest.mark.parametrize("limit", [32767, 1000])
def test_quantise_to_shorts(limit: int) -> None:
    for width, rows in sizes:
        x = drawn(rows, width) * 5
        x[-1] = 0
        whole, scales = np.full((rows, stride(width)), 77, dtype=np.int16), np.zeros(rows, dtype=np.float32)
        buffers = {QUANTISED: torch.from_numpy(whole), SCALES: torch.from_numpy(scales)}
        made([isa.Quantise(STATES, width, stride(width), limit, 0)], spaced(x), buffers).run()
        for r in range(rows):
            row = x[r].double().numpy()
            most = abs(row).max()
            close(scales[r], most / limit)
            exact = row * (limit / most if most else 0)
            assert abs(whole[r, :width] - exact).max() <= 0.5 + 1e-2  # the nearest, as far as a float tells
            assert abs(whole[r]).max(where=np.arange(stride(width)) < width, initial=0) == (limit if most else 0)
            filled = -(-width // 16) * 16
            assert not whole[r, width:filled].any()
            assert (whole[r, filled:] == 77).all()


def test_quantise_to_bytes() -> None:
    for width, rows in product((1, 7, 16, 33, 64, 100, 130), ROWS):
        x, groups = drawn(rows, width) * 5, -(-width // isa.GROUP)
        x[-1] = 0
        whole = np.full((rows, stride(width)), 77, dtype=np.int8)
        scales, sums = np.zeros((rows, groups, 2), dtype=np.float32), np.zeros((rows, groups))
        buffers = {QUANTISED: torch.from_numpy(whole), SCALES: torch.from_numpy(scales)}
        made([isa.Quantise(STATES, width, stride(width), 127, 1)], spaced(x), buffers).run()
        sums = scales.view(np.int32)[:, :, 1]
        for r, g in product(range(rows), range(groups)):
            part = slice(isa.GROUP * g, min(isa.GROUP * (g + 1), width))
            row = x[r, part].double().numpy()
            most = abs(row).max()
            close(scales[r, g, 0], most / 127)
            assert abs(whole[r, part] - row * (127 / most if most else 0)).max() <= 0.5 + 1e-4
            assert abs(whole[r, part].astype(int)).max() == (127 if most else 0)
            assert sums[r, g] == -128 * whole[r, part].astype(int).sum()
        filled = -(-width // 16) * 16
        assert not whole[:, width:filled].any()
        assert (whole[:, filled:] == 77).all()


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("inputs", ["floats", "shorts", "bytes"])
def test_linear(inputs: str, more: int) -> None:
    """Tiles of all sizes; panels that are whole and not; inputs that are quantised by hand."""
    draw = np.random.default_rng(2)
    for width, outputs, rows in product((1, 33, 130), (1, 16, 53, 64), (1, 3, 8, 37)):
        w, bias, y = drawn(outputs, width), drawn(outputs), drawn(rows, outputs)
        matrix: Matrix | FloatMatrix = (
            FloatMatrix.of(w) if inputs == "floats" else Matrix.of(w).arranged(inputs == "bytes")
        )
        filled, groups = -(-width // 16) * 16, -(-width // isa.GROUP)
        target, padded_bias = spaced(y), torch.zeros(-(-outputs // 16) * 16)
        padded_bias[:outputs] = bias
        buffers, weight = {NORMED: target}, w.double().numpy()
        scale = torch.zeros(len(padded_bias))
        if isinstance(matrix, FloatMatrix):
            x = drawn(rows, width)
            states, meant = torch.zeros(rows, stride(width)), x.double().numpy()
            states[:, :width] = x
        else:
            scale[:outputs] = matrix.scale
            weight = matrix.whole.double().numpy() * matrix.scale.double().numpy()[:, None]
            states, kind = torch.zeros(rows, stride(width)), np.int16 if inputs == "shorts" else np.int8
            whole = np.zeros((rows, stride(width)), dtype=kind)
            limit = 1000 if inputs == "shorts" else 127
            whole[:, :width] = draw.integers(-limit, limit + 1, (rows, width))
            if inputs == "shorts":
                scales = draw.random(rows).astype(np.float32)
                meant = whole[:, :width] * scales[:, None].astype(np.float64)
            else:
                scales = np.zeros((rows, groups, 2), dtype=np.float32)
                scales[:, :, 0] = draw.random((rows, groups))
                for g in range(groups):
                    part = whole[:, isa.GROUP * g : isa.GROUP * (g + 1)]
                    scales.view(np.int32)[:, g, 1] = -128 * part.sum(1, dtype=np.int64)
                meant = whole[:, :width] * np.repeat(scales[:, :, 0], isa.GROUP, 1)[:, :width].astype(np.float64)
            buffers |= {QUANTISED: torch.from_numpy(whole), SCALES: torch.from_numpy(scales)}
        sizes = (filled, outputs, stride(width), stride(outputs))
        addresses = (matrix.panels.data_ptr(), 0 if inputs == "floats" else scale.data_ptr(), padded_bias.data_ptr())
        linear = isa.Linear(STATES, NORMED, *sizes, *addresses, more, int(inputs == "bytes"))
        made([linear], states, buffers).run()
        wanted = np.zeros((rows, outputs))
        for r, c in product(range(rows), range(outputs)):
            wanted[r, c] = sum(meant[r] * weight[c]) + float(bias[c]) + more * float(y[r, c])
        close(target[:, :outputs] / (1 + abs(meant).max()), wanted / (1 + abs(meant).max()))
        assert between(target, outputs)


def test_store() -> None:
    """A row's numbers go to its cell, and nothing else changes."""
    for width, rows in sizes:
        x, cells = drawn(rows, width), np.random.default_rng(width).permutation(rows + 3)[:rows].astype(np.int32)
        keys, _ = isa.keys(0)
        room = torch.full((rows + 3, width), FILL)
        source = spaced(x)
        job = made([isa.Store(NORMED, keys, width, stride(width))], spaced(x), {NORMED: source})
        job.keys(np.array([[room.data_ptr(), 0]]), cells)
        job.run()
        wanted = torch.full_like(room, FILL)
        for r, cell in enumerate(cells):
            wanted[cell] = x[r]
        assert torch.equal(room, wanted)


def test_scale() -> None:
    for width, rows in sizes:
        x = drawn(rows, width)
        room = spaced(x)
        made([isa.Scale(NORMED, width, stride(width), bits(-0.3))], spaced(x), {NORMED: room}).run()
        close(room[:, :width], x.double().numpy() * -0.3, 1e-6)
        assert between(room, width)


def ranked(row: Array, keep: int) -> list[int]:
    """The places of the largest, of equal ones the first first."""
    return sorted(range(len(row)), key=lambda n: (-row[n], n))[:keep]


@pytest.mark.parametrize("given", ["a matrix", "logits"])
def test_rank(given: str) -> None:
    """Each thread lists the best of its blocks, largest first, and of each block the largest and its sum."""
    for outputs, rows, keep in product((1, 127, 128, 300, 900), (1, 2, 9), (1, 4)):
        x, w = drawn(rows, 24), drawn(outputs, 24)
        matrix, bias, logits = FloatMatrix.of(w), torch.zeros(-(-outputs // 16) * 16), x @ w.T
        states = torch.zeros(rows, stride(24))
        states[:, :24] = x
        addresses = (0, 0, 0) if given == "logits" else (matrix.panels.data_ptr(), 0, bias.data_ptr())
        rank = isa.Rank(STATES, LOGITS, isa.padded(24), outputs, stride(24), outputs, *addresses, 0, 0)
        job, ranked_rows = made([rank], states, {}), (rows + 1) // 2
        heat = np.random.default_rng(rows).uniform(0.5, 2, rows).astype(np.float32)
        lists = Ranking(job, keep, outputs, ranked_rows, heat, whole=given != "logits")
        if given == "logits":
            job.buffers[LOGITS] = logits.data_ptr()
        lists.totals[:] = FILL
        job.run()
        threads = int(job.room.fields[isa.THREADS])  # as many as there were
        blocks, truth = -(-outputs // isa.TOPK_BLOCK), logits.double().numpy()
        if lists.logits is not None:
            close(lists.logits, truth[:ranked_rows])
        for thread, r in product(range(threads), range(ranked_rows)):
            first, last = (isa.TOPK_BLOCK * (blocks * n // threads) for n in (thread, thread + 1))
            best = [n + first for n in ranked(truth[r, first:last], keep)]
            numbers, places = lists.numbers[thread, r], lists.places[thread, r]
            close(numbers[: len(best)], truth[r, best])
            assert [*places[: len(best)]] == best
            assert (numbers[len(best) :] == -np.inf).all()
        for r, block in product(range(ranked_rows), range(blocks)):
            part = truth[r, isa.TOPK_BLOCK * block : isa.TOPK_BLOCK * (block + 1)]
            away = part - part.max()
            close(lists.totals[r, block], np.array([part.max(), np.exp(away).sum(), np.exp(away * heat[r]).sum()]))


def test_merge() -> None:
    """The lists of all threads into the first's, and the sums of all blocks into one."""
    draw = np.random.default_rng(3)
    for outputs, rows, keep in product((100, 900), ROWS, (1, 4)):
        blocks = -(-outputs // isa.TOPK_BLOCK)
        job = made([isa.Merge(outputs)], torch.zeros(rows + 3, 16), {})
        heat = draw.uniform(0.5, 2, rows).astype(np.float32)
        lists = Ranking(job, keep, outputs, rows, heat)
        numbers = -np.sort(-draw.integers(0, 6, lists.numbers.shape).astype(np.float32), axis=2)  # some are equal
        lists.numbers[:], lists.places[:] = numbers, np.arange(lists.places.size).reshape(lists.places.shape)
        places = lists.places.copy()
        totals = draw.random(lists.totals.shape).astype(np.float32)
        lists.totals[:] = totals
        job.run()
        assert lists.totals.shape[1] == blocks
        for r in range(rows):
            threads = int(job.room.fields[isa.THREADS])
            all_numbers, all_places = numbers[:threads, r].flatten(), places[:threads, r].flatten()
            best = ranked(all_numbers, keep)
            assert [*lists.numbers[0, r]] == [*all_numbers[best]]
            assert [*lists.places[0, r]] == [*all_places[best]]
            most = float(all_numbers[best[0]])
            away = totals[r, :, 0].astype(float) - most
            sums = [(totals[r, :, n] * np.exp(away * by)).sum() for n, by in ((1, 1.0), (2, float(heat[r])))]
            close(lists.totals[r, 0], np.array([most, *sums]))


def test_every_operation_has_a_test() -> None:
    names = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    for kind in isa.KINDS:
        assert any(name.startswith(kind.__name__.lower()) for name in names), kind
