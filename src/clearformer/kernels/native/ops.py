"""The machine: ten operations on rows of numbers, which one after the other make a whole stack of blocks.

A program (`isa`) is a table of operations. Every thread runs it from top to bottom on its share of each of them and
waits for the others where the next needs their results. A row is one token of one text. What it may see is a span of a
list of cells, the places of keys and values: texts need no padding, and the hypotheses of a beam share their past.

What is computed for a row depends neither on the rows beside it nor on the number of threads. Those operations that are
about products are in `gemm`. Compiled by `compile`; nothing here allocates, raises or touches Python.
"""

import math
from typing import Any

import numpy as np

from clearformer.kernels.native import isa, processor
from clearformer.kernels.native.gemm import LOWEST, ZERO, exact, reordered, scratch_of
from clearformer.kernels.native.simd import (
    KEYS,
    atomic_add,
    atomic_load,
    bytes_at,
    call,
    dots,
    exponential,
    exponentials,
    floats,
    futex,
    highest,
    ints,
    invoke,
    longs,
    mixed,
    number,
    pause,
    pointer_address,
    scores,
    transposed,
)

HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)
ATTEND_BLOCK = 64  # rows whose heads one thread attends with
FUSED_ROWS = 16  # rows that go through fused operations while they are in the nearest cache
SCORE_ROWS, MIX_ROWS = (2, 4) if processor.has_wide_vectors() else (1, 2)  # rows of a tile
ONE_OP = 8 * isa.WIDTH  # bytes
dots_4, dots_8, mixed_8, mixed_32, mixed_64 = dots(4), dots(8), mixed(8, 1), mixed(32, 1), mixed(64, 1)
scores_of_rows, mixed_rows_8, mixed_rows_32 = scores(SCORE_ROWS), mixed(8, MIX_ROWS), mixed(32, MIX_ROWS)


@exact
def run(job: Any, team: Any, thread: int) -> None:
    """One thread's part of a job."""
    codes, rows, threads = longs(job[isa.CODES]), job[isa.ROWS], job[isa.THREADS]
    first, last = rows * thread // threads, rows * (thread + 1) // threads  # of a thread, where it takes whole rows
    op, end = job[isa.PROGRAM], job[isa.PROGRAM] + ONE_OP * job[isa.OPERATIONS]
    arrived = job[isa.ARRIVED]
    while op < end:
        fused = longs(op)[isa.FUSED_OPS]
        after, step = op + ONE_OP * max(fused, 1), FUSED_ROWS if fused > 1 else max(last - first, 1)
        for start in range(first, max(last, first + 1), step):  # through several, while the rows are near
            for each in range(op, after, ONE_OP):
                invoke(codes[longs(each)[isa.KIND]], job, longs(each), thread, start, min(start + step, last))
        op = after
        if threads > 1 and (op >= end or longs(op - ONE_OP)[isa.WAIT] != 0):
            arrived += threads
            barrier(team, arrived)


@exact
def serve(team: Any, unused: Any, thread: int) -> None:
    """The life of a thread that helps: wait for a job, do a part of it, wait for the next."""
    seen = np.int64(0)
    while True:
        seen += 1
        wait_for(team, isa.GENERATION, seen, team[isa.START_SPINS], 0)
        if team[isa.STOP] != 0:
            return
        run(longs(team[isa.JOB]), team, thread)


@exact
def lead(job: Any, team: Any, thread: int) -> None:
    """What the thread does that leads a team: give the others the job, and do its own part."""
    team[isa.JOB] = pointer_address(job)
    atomic_add(here(team, isa.GENERATION), 1)
    wake(team, isa.GENERATION)
    run(job, team, thread)


@exact
def barrier(team: Any, count: int) -> None:
    """Wait until all threads have come: `count` arrivals of all runs so far."""
    if atomic_add(here(team, isa.ARRIVALS), 1) >= count:
        wake(team, isa.ARRIVALS)
    else:
        wait_for(team, isa.ARRIVALS, count, team[isa.BARRIER_SPINS], team[isa.TIMEOUT])


@exact
def wait_for(team: Any, place: int, count: int, spins: int, timeout: int) -> None:
    """Spin for a moment, then sleep: a thread that spins takes the core that the one it waits for may need."""
    address, turn = here(team, place), 0
    while atomic_load(address) < count:
        if turn < spins:
            pause()
            turn += 1
        elif team[isa.FUTEX] == 0:
            call(team[isa.SYSCALL])
        else:
            atomic_add(here(team, isa.SLEEPERS), 1)
            now = atomic_load(address)
            if now < count:
                atomic_add(here(team, isa.SLEEPS), 1)
                futex(team[isa.SYSCALL], team[isa.FUTEX], address, isa.FUTEX_WAIT, now & 0xFFFFFFFF, timeout)
            atomic_add(here(team, isa.SLEEPERS), -1)


@exact
def wake(team: Any, place: int) -> None:
    if atomic_load(here(team, isa.SLEEPERS)) > 0:
        futex(team[isa.SYSCALL], team[isa.FUTEX], here(team, place), isa.FUTEX_WAKE, 0x7FFFFFFF, 0)


@exact
def here(team: Any, place: int) -> int:
    return pointer_address(team) + 8 * place


@exact
def pick(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    ids, positions = longs(job[isa.IDS]), longs(job[isa.POSITIONS])
    width, step, factor = op[isa.pick.width], op[isa.pick.step], number(op[isa.pick.factor])
    for r in range(first, last):
        y, row = floats(longs(job[isa.BUFFERS])[isa.STATES] + 4 * step * r), ids[r]
        if op[isa.pick.scale] == 0:
            x = floats(op[isa.pick.table] + 4 * width * row)
            for i in range(width):
                y[i] = x[i] * factor
        else:
            panel = 16 * ((width + 15) // 16 * 16)  # bytes
            scale = floats(op[isa.pick.scale])[row]
            lie = 4 if op[isa.pick.quads] != 0 else 2  # side by side
            flip = np.int8(-128 if op[isa.pick.quads] != 0 else 0)
            numbers = bytes_at(op[isa.pick.table] + panel * (row // 16) + lie * (row % 16))
            for i in range(width):
                y[i] = np.float32(np.int8(numbers[16 * (i // lie * lie) + i % lie] ^ flip)) * scale * factor
        if op[isa.pick.positions] != 0:
            place = floats(op[isa.pick.positions] + 4 * width * positions[r])
            for i in range(width):
                y[i] += place[i]
        if op[isa.pick.side] != 0:
            side = floats(op[isa.pick.side])
            for i in range(width):
                y[i] += side[i]
        for i in range(width, step):
            y[i] = ZERO


@reordered
def norm(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers = longs(job[isa.BUFFERS])
    width, step = op[isa.norm.width], op[isa.norm.step]
    weight, bias = floats(op[isa.norm.weight]), floats(op[isa.norm.bias])
    eps, centred, more = number(op[isa.norm.eps]), op[isa.norm.centred], op[isa.norm.more]
    for r in range(first, last):
        x, y = floats(buffers[op[isa.norm.source]] + 4 * step * r), floats(buffers[op[isa.norm.target]] + 4 * step * r)
        mean = ZERO
        if centred != 0:
            for i in range(width):
                mean += x[i]
            mean /= np.float32(width)
        squares = ZERO
        for i in range(width):
            squares += (x[i] - mean) * (x[i] - mean)
        scale = ONE / math.sqrt(squares / np.float32(width) + eps)
        if more != 0:
            for i in range(width):
                y[i] += (x[i] - mean) * scale * weight[i] + bias[i]
        else:
            for i in range(width):
                y[i] = (x[i] - mean) * scale * weight[i] + bias[i]


@reordered
def rotate(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    positions, buffers = longs(job[isa.POSITIONS]), longs(job[isa.BUFFERS])
    heads, head, step = op[isa.rotate.heads], op[isa.rotate.head], op[isa.rotate.step]
    angles, interleaved = op[isa.rotate.angles], op[isa.rotate.interleaved]
    weight, eps = op[isa.rotate.weight], number(op[isa.rotate.eps])
    half = head // 2
    for r in range(first, last):
        for h in range(heads):
            x = floats(buffers[op[isa.rotate.target]] + 4 * (step * r + head * h))
            if weight != 0:
                squares, gain = ZERO, floats(weight)
                for i in range(head):
                    squares += x[i] * x[i]
                scale = ONE / math.sqrt(squares / np.float32(head) + eps)
                for i in range(head):
                    x[i] = x[i] * scale * gain[i]
            if angles != 0:
                turns = angles + 4 * head * positions[r]
                cosines, sines = floats(turns), floats(turns + 4 * half)
                for i in range(half):
                    one, two = (2 * i, 2 * i + 1) if interleaved != 0 else (i, i + half)
                    left, right = x[one], x[two]
                    x[one] = left * cosines[i] - right * sines[i]
                    x[two] = right * cosines[i] + left * sines[i]


@exact
def attend(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    # some neighbours at a time: they see the same keys; threads in turn, for later rows see more. One thread takes all
    # heads of what sees the same, for their keys lie side by side in memory; several share the heads
    rows, heads, spans = job[isa.ROWS], op[isa.attend.heads], longs(job[isa.SPANS + op[isa.attend.spans]])
    room, threads = scratch_of(job, thread), job[isa.THREADS]
    shares = heads if threads > 1 else 1
    for each in range(thread, (rows + ATTEND_BLOCK - 1) // ATTEND_BLOCK * shares, threads):
        row, head = each // shares * ATTEND_BLOCK, each % shares
        first_head, last_head = (head, head + 1) if threads > 1 else (0, heads)
        stop = min(row + ATTEND_BLOCK, rows)
        while row < stop:
            begin, most = row, spans[isa.SPAN * row + 2]
            while row < stop and same_start(spans, begin, row):
                most = max(most, spans[isa.SPAN * row + 2])
                row += 1
            for h in range(first_head, last_head):
                if row - begin >= isa.QUERY_ROWS and most > spans[isa.SPAN * begin + 1]:
                    attend_rows(job, op, begin, row, most, h, room)
                else:
                    for one in range(begin, row):
                        attend_row(job, op, one, h, room)


@exact
def same_start(spans: Any, one: int, other: int) -> bool:
    """Whether two rows see the same list from the same cell on."""
    x, y = isa.SPAN * one, isa.SPAN * other
    return spans[x] == spans[y] and spans[x + 1] == spans[y + 1]


@exact
def attend_row(job: Any, op: Any, row: int, h: int, scratch: int) -> None:
    """One head of one row."""
    room, spans = scratch + 4 * isa.MIN_SCRATCH, longs(job[isa.SPANS + op[isa.attend.spans]])
    head, key_step, keys, values, q, to = addresses(job, op, row, h)
    first, last = spans[isa.SPAN * row + 1], spans[isa.SPAN * row + 2]
    cells, seen = spans[isa.SPAN * row] + 4 * first, last - first
    if seen <= 0:
        for i in range(head):
            floats(to)[i] = ZERO
        return
    eights = seen - seen % 8
    for j in range(0, eights, 8):
        dots_8(room + 4 * j, q, keys, key_step, cells + 4 * j, head, number(op[isa.attend.scale]))
    if eights < seen:  # up to whole vectors, with the last one
        for j in range(8):
            ints(scratch)[j] = ints(cells)[min(eights + j, seen - 1)]
        if seen - eights <= 4:
            dots_4(room + 4 * eights, q, keys, key_step, scratch, head, number(op[isa.attend.scale]))
        else:
            dots_8(room + 4 * eights, q, keys, key_step, scratch, head, number(op[isa.attend.scale]))
    floats(scratch)[0] = softmax(job, op, row, h, first, seen, room)
    done = 0
    while done + 64 <= head:
        mixed_64(to + 4 * done, 0, room, 0, scratch, values + 4 * done, key_step, cells, seen)
        done += 64
    while done + 32 <= head:
        mixed_32(to + 4 * done, 0, room, 0, scratch, values + 4 * done, key_step, cells, seen)
        done += 32
    while done < head:
        mixed_8(to + 4 * done, 0, room, 0, scratch, values + 4 * done, key_step, cells, seen)
        done += 8


@exact
def attend_rows(job: Any, op: Any, begin: int, end: int, most: int, h: int, scratch: int) -> None:
    """One head of some rows that see the same list from the same cell on: its keys are transposed once for all."""
    room, spans = scratch + 4 * isa.MIN_SCRATCH, longs(job[isa.SPANS + op[isa.attend.spans]])
    head, key_step, keys, values, queries, results = addresses(job, op, begin, h)
    first = spans[isa.SPAN * begin + 1]
    cells, seen, step = spans[isa.SPAN * begin] + 4 * first, most - first, 4 * op[isa.attend.step]
    w_step = 4 * ((seen + 15) // 16 * 16)
    panels = room + isa.QUERY_ROWS * w_step
    for j in range(0, seen, KEYS):
        transposed(panels + 4 * head * j, keys, key_step, cells + 4 * j, min(seen - j, KEYS), head)
    for start in range(begin, end, isa.QUERY_ROWS):
        row = min(start, end - isa.QUERY_ROWS)  # the last few may be looked at twice: nothing is changed that is read
        q, to = queries + step * (row - begin), results + step * (row - begin)
        reach = 1  # how many of the cells one of these rows sees
        for r in range(row, row + isa.QUERY_ROWS):
            reach = max(reach, spans[isa.SPAN * r + 2] - first)
        for j in range(0, reach, KEYS):
            for r in range(0, isa.QUERY_ROWS, SCORE_ROWS):
                y, x = room + 4 * j + r * w_step, q + r * step
                scores_of_rows(y, w_step, x, step, panels + 4 * head * j, head, number(op[isa.attend.scale]))
        for r in range(isa.QUERY_ROWS):
            weights, sees = room + r * w_step, max(spans[isa.SPAN * (row + r) + 2] - first, 0)
            floats(scratch)[r] = softmax(job, op, row + r, h, first, sees, weights) if sees > 0 else ZERO
            for j in range(sees, reach):
                floats(weights)[j] = ZERO
        for r in range(0, isa.QUERY_ROWS, MIX_ROWS):
            y, weights, shares, done = to + r * step, room + r * w_step, scratch + 4 * r, 0
            while done + 32 <= head:
                mixed_rows_32(y + 4 * done, step, weights, w_step, shares, values + 4 * done, key_step, cells, reach)
                done += 32
            while done < head:
                mixed_rows_8(y + 4 * done, step, weights, w_step, shares, values + 4 * done, key_step, cells, reach)
                done += 8


@exact
def addresses(job: Any, op: Any, row: int, h: int) -> Any:
    """A head's width, the step of its keys, and where keys, values, the row's queries and its results begin."""
    buffers, heads = longs(job[isa.BUFFERS]), op[isa.attend.heads]
    key_heads, head = op[isa.attend.key_heads], op[isa.attend.head]
    of_head, at = 4 * head * (h * key_heads // heads), 4 * (op[isa.attend.step] * row + head * h)
    return (
        head,
        4 * key_heads * head,
        buffers[op[isa.attend.keys]] + of_head,
        buffers[op[isa.attend.values]] + of_head,
        buffers[op[isa.attend.queries]] + at,
        buffers[op[isa.attend.target]] + at,
    )


@reordered
def softmax(job: Any, op: Any, row: int, h: int, first: int, seen: int, room: int) -> Any:
    """e to each score less the largest, with the bias of distances, and 1 / their sum."""
    weights, vectors = floats(room), (seen + 7) // 8 * 8
    if op[isa.attend.bias] != 0:
        distance = first - longs(job[isa.POSITIONS])[row]
        of_head = op[isa.attend.bias_step] * h + op[isa.attend.bias_centre]
        shift = floats(op[isa.attend.bias] + 4 * (of_head + distance))
        for j in range(seen):
            weights[j] += shift[j]
    for j in range(seen, vectors):  # which is not there: e to this is nothing
        weights[j] = LOWEST
    return ONE / exponentials(room, highest(room, LOWEST, vectors), vectors)


@reordered
def activate(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers = longs(job[isa.BUFFERS])
    width, step, which = op[isa.activate.width], op[isa.activate.step], op[isa.activate.which]
    for r in range(first, last):
        x = floats(buffers[op[isa.activate.target]] + 4 * step * r)
        if which == isa.RELU:
            for i in range(width):
                x[i] = max(x[i], ZERO)
        elif which == isa.GELU:
            for i in range(width):
                x[i] = HALF * x[i] * (ONE + erf(x[i] * np.float32(0.7071067811865476)))
        elif which == isa.GELU_TANH:
            for i in range(width):
                inner = np.float32(0.7978845608028654) * (x[i] + np.float32(0.044715) * x[i] * x[i] * x[i])
                x[i] = x[i] / (ONE + exponential(-TWO * inner))  # ½ (1 + tanh z) = 1 / (1 + e^−2z)
        elif which == isa.SILU:
            for i in range(width):
                x[i] = x[i] / (ONE + exponential(-x[i]))
        else:
            for i in range(width):
                x[i] = TWO / (ONE + exponential(-TWO * x[i])) - ONE
        if op[isa.activate.other] >= 0:
            other = floats(buffers[op[isa.activate.other]] + 4 * step * r)
            for i in range(width):
                x[i] *= other[i]


@exact
def erf(x: float) -> Any:
    """A fraction of polynomials, exact to 5e-7; the factors are those of Eigen's erf for floats."""
    x = min(max(x, np.float32(-4.0)), np.float32(4.0))
    z = x * x
    above = np.float32(-2.72614225801306e-10)
    above = above * z + np.float32(2.77068142495902e-08)
    above = above * z + np.float32(-2.10102402082508e-06)
    above = above * z + np.float32(-5.69250639462346e-05)
    above = above * z + np.float32(-7.34990630326855e-04)
    above = above * z + np.float32(-2.95459980854025e-03)
    above = above * z + np.float32(-1.60960333262415e-02)
    below = np.float32(-1.45660718464996e-05)
    below = below * z + np.float32(-2.13374055278905e-04)
    below = below * z + np.float32(-1.68282697438203e-03)
    below = below * z + np.float32(-7.37332916720468e-03)
    below = below * z + np.float32(-1.42647390514189e-02)
    return x * above / below


@exact
def scale(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    for r in range(first, last):
        x = floats(longs(job[isa.BUFFERS])[op[isa.scale.target]] + 4 * op[isa.scale.step] * r)
        for i in range(op[isa.scale.width]):
            x[i] *= number(op[isa.scale.factor])


@exact
def store(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers, cells = longs(job[isa.BUFFERS]), ints(job[isa.CELLS])
    width, step = op[isa.store.width], op[isa.store.step]
    for r in range(first, last):
        x, y = (
            floats(buffers[op[isa.store.source]] + 4 * step * r),
            floats(buffers[op[isa.store.target]] + 4 * width * cells[r]),
        )
        for i in range(width):
            y[i] = x[i]
