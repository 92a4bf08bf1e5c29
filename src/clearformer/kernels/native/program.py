"""The machine: seven operations on rows of numbers, which one after the other make a whole stack of blocks.

A program (`layout`) is a table of operations. Every thread runs it from top to bottom on its share of each of them and
waits for the others where the next needs their results. A row is one token of one text. What it may see is a span of a
list of cells, the places of keys and values: texts need no padding, and the hypotheses of a beam share their past.

What is computed for a row depends neither on the rows beside it nor on the number of threads.
Compiled by `compile`; nothing here allocates, raises or touches Python.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from clearformer.kernels.native import layout
from clearformer.kernels.native.simd import (
    call,
    dots,
    exponential,
    exponentials,
    float_dots,
    floats,
    furthest,
    highest,
    int8_panel,
    invoke,
    longs,
    mixed,
    nearest,
    number,
    shorts,
    sum_of_exponentials,
)

TOGETHER = 64  # rows of floats at a time, so that they stay in the nearer caches while the matrix goes by
NEAR = 2**17  # numbers of rows of int16, for the same reason
PART = 768  # floats of a row at a time, so that four rows of a matrix stay in the nearest
ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
float_1, float_3, float_rest = float_dots(1, 4), float_dots(3, 4), float_dots(1, 1)
int8_1, int8_4 = int8_panel(1), int8_panel(4)

plain: dict[str, Any] = {"error_model": "numpy", "_nrt": False}  # no exceptions, no memory of its own
inner = {**plain, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
dots_1, dots_4, mixed_1, mixed_4 = dots(1), dots(4), mixed(1), mixed(4)
NEIGHBOURS = 32  # rows
GLANCE = 64  # numbers
LOWEST = np.float32(-3.4e38)
exact = njit(**inner)
reordered = njit(**inner, fastmath={"reassoc", "nsz", "contract", "arcp"})  # sums in another order, always the same


@exact
def run(job: Any) -> None:
    codes, thread = longs(job[layout.CODES]), np.int64(call(job[layout.THREAD]))
    for n in range(job[layout.OPERATIONS]):
        op = job[layout.PROGRAM] + 8 * layout.WIDTH * n
        invoke(codes[longs(op)[0]], job, longs(op), thread)
        if longs(op)[1] != 0:
            call(job[layout.BARRIER])


@exact
def share(job: Any, thread: int) -> tuple[int, int]:
    """The rows of a thread, where it takes whole ones: the first, and the first of the next."""
    rows, threads = job[layout.ROWS], job[layout.THREADS]
    return rows * thread // threads, rows * (thread + 1) // threads


@exact
def own(job: Any, thread: int) -> int:
    """Where a thread may write what it needs for a moment."""
    return job[layout.SCRATCH] + 4 * job[layout.SCRATCH_STEP] * thread


@exact
def linear(job: Any, op: Any, thread: int) -> None:
    buffers, rows, threads = longs(job[layout.BUFFERS]), job[layout.ROWS], job[layout.THREADS]
    panels = (op[5] + 15) // 16
    first, last = 16 * (panels * thread // threads), 16 * (panels * (thread + 1) // threads)
    if op[10] == 0:
        float_linear(op, buffers, rows, first, min(last, op[5]))
    else:
        int8_linear(op, buffers, rows, first, last, own(job, thread))


@exact
def float_linear(op: Any, buffers: Any, rows: int, first: int, last: int) -> None:
    a, y, a_step, y_step = buffers[op[2]], buffers[op[3]], 4 * op[6], 4 * op[7]
    w, w_step = op[8], 4 * op[9]
    for start in range(0, rows, TOGETHER):
        stop = min(start + TOGETHER, rows)
        threes = stop - (stop - start) % 3
        for c in range(first, last - 3, 4):
            to, shift, more = y + 4 * c, op[11] + 4 * c, op[12]
            for part in range(0, op[4], PART):
                x, at, length = a + 4 * part, w + c * w_step + 4 * part, min(PART, op[4] - part)
                for r in range(start, threes, 3):
                    float_3(x + r * a_step, a_step, at, w_step, length, shift, to + r * y_step, y_step, more)
                for r in range(threes, stop):
                    float_1(x + r * a_step, a_step, at, w_step, length, shift, to + r * y_step, y_step, more)
                shift, more = op[13], 1  # the other parts are added to the first
        for c in range(last - last % 4, last):
            at, shift, to = w + c * w_step, op[11] + 4 * c, y + 4 * c
            for r in range(start, stop):
                float_rest(a + r * a_step, a_step, at, w_step, op[4], shift, to + r * y_step, y_step, op[12])


@exact
def int8_linear(op: Any, buffers: Any, rows: int, first: int, last: int, scratch: int) -> None:
    a, y, length, a_step, y_step = buffers[layout.QUANTISED], buffers[op[3]], op[4], 2 * op[6], 4 * op[7]
    w, scales, bias, more, own = op[8], op[10], op[11], op[12], buffers[layout.SCALES]
    together = max(NEAR // length // 4 * 4, 4)
    for start in range(0, rows, together):
        stop = min(start + together, rows)
        for c in range(first, last, 16):
            at, scale, shift, to = w + c * length, scales + 4 * c, bias + 4 * c, y + 4 * c
            whole = c + 16 <= op[5]
            fours = stop - (stop - start) % 4 if whole else start
            for r in range(start, fours, 4):
                x, mine = a + r * a_step, own + 4 * r
                int8_4(x, a_step, mine, at, length // 2, scale, shift, to + r * y_step, y_step, more)
            for r in range(fours, stop):
                x, mine = a + r * a_step, own + 4 * r
                if whole:
                    int8_1(x, a_step, mine, at, length // 2, scale, shift, to + r * y_step, y_step, more)
                else:  # a panel of fewer than sixteen outputs
                    int8_1(x, a_step, mine, at, length // 2, scale, shift, scratch, y_step, 0)
                    found, target = floats(scratch), floats(to + r * y_step)
                    for i in range(op[5] - c):
                        target[i] = found[i] + (target[i] if more != 0 else ZERO)


@reordered
def quantise(job: Any, op: Any, thread: int) -> None:
    buffers, (first, last) = longs(job[layout.BUFFERS]), share(job, thread)
    width, step, limit = op[3], op[4], np.float32(op[5])
    for r in range(first, last):
        x, y = floats(buffers[op[2]] + 4 * step * r), shorts(buffers[layout.QUANTISED] + 2 * step * r)
        eights = width - width % 8
        most = furthest(buffers[op[2]] + 4 * step * r, ZERO, eights) if eights > 0 else ZERO
        for i in range(eights, width):
            most = max(most, abs(x[i]))
        floats(buffers[layout.SCALES])[r] = most / limit
        back = limit / most if most > ZERO else ZERO
        for i in range(width):
            y[i] = np.int16(np.int32(nearest(x[i] * back)))
        for i in range(width, step):
            y[i] = 0


@reordered
def norm(job: Any, op: Any, thread: int) -> None:
    buffers, (first, last) = longs(job[layout.BUFFERS]), share(job, thread)
    width, step, weight, bias = op[4], op[5], floats(op[6]), floats(op[7])
    eps, centred, more = number(op[8]), op[9], op[10]
    for r in range(first, last):
        x, y = floats(buffers[op[2]] + 4 * step * r), floats(buffers[op[3]] + 4 * step * r)
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
def rotate(job: Any, op: Any, thread: int) -> None:
    positions, buffers, (first, last) = longs(job[layout.POSITIONS]), longs(job[layout.BUFFERS]), share(job, thread)
    heads, head, step, angles, interleaved, weight, eps = op[3], op[4], op[5], op[6], op[7], op[8], number(op[9])
    half = head // 2
    for r in range(first, last):
        for h in range(heads):
            x = floats(buffers[op[2]] + 4 * (step * r + head * h))
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


@reordered
def attend(job: Any, op: Any, thread: int) -> None:
    buffers, positions = longs(job[layout.BUFFERS]), longs(job[layout.POSITIONS])
    spans, scratch = longs(job[layout.SPANS + op[10]]), own(job, thread)
    rows, threads = job[layout.ROWS], job[layout.THREADS]
    heads, key_heads, head, step = op[6], op[7], op[8], op[9]
    scale, bias, bias_step, centre = number(op[11]), op[12], op[13], op[14]
    weights, key_step = floats(scratch), 4 * key_heads * head
    # some rows, head by head: neighbours see the same keys, which stay near; threads in turn: later rows see more
    for each in range(thread, rows * heads, threads):
        block = each // (NEIGHBOURS * heads) * NEIGHBOURS
        together = min(NEIGHBOURS, rows - block)
        h, r = (each - block * heads) // together, block + (each - block * heads) % together
        first, last = spans[layout.SPAN * r + 1], spans[layout.SPAN * r + 2]
        cells = spans[layout.SPAN * r] + 4 * first
        q, to = buffers[op[2]] + 4 * (step * r + head * h), buffers[op[3]] + 4 * (step * r + head * h)
        of_head = 4 * head * (h * key_heads // heads)
        keys, values = buffers[op[4]] + of_head, buffers[op[5]] + of_head
        seen, y = last - first, floats(to)
        for i in range(head):
            y[i] = ZERO
        if seen <= 0:
            continue
        fours = seen - seen % 4
        for j in range(0, fours, 4):
            dots_4(scratch + 4 * j, q, keys, key_step, cells + 4 * j, head, scale)
        for j in range(fours, seen):
            dots_1(scratch + 4 * j, q, keys, key_step, cells + 4 * j, head, scale)
        if bias != 0:
            shift = floats(bias + 4 * (bias_step * h + centre + first - positions[r]))
            for j in range(seen):
                weights[j] += shift[j]
        whole = (seen + 7) // 8 * 8
        for j in range(seen, whole):  # up to whole vectors, with what e to it is nothing
            weights[j] = LOWEST
        share = ONE / exponentials(scratch, highest(scratch, LOWEST, whole), whole)
        for j in range(0, fours, 4):
            mixed_4(to, scratch + 4 * j, values, key_step, cells + 4 * j, head)
        for j in range(fours, seen):
            mixed_1(to, scratch + 4 * j, values, key_step, cells + 4 * j, head)
        for i in range(head):
            y[i] *= share


@reordered
def activate(job: Any, op: Any, thread: int) -> None:
    buffers, (first, last) = longs(job[layout.BUFFERS]), share(job, thread)
    width, step, which = op[4], op[5], op[6]
    for r in range(first, last):
        x = floats(buffers[op[2]] + 4 * step * r)
        if which == layout.RELU:
            for i in range(width):
                x[i] = max(x[i], ZERO)
        elif which == layout.GELU:
            for i in range(width):
                x[i] = HALF * x[i] * (ONE + erf(x[i] * np.float32(0.7071067811865476)))
        elif which == layout.GELU_TANH:
            for i in range(width):
                inner = np.float32(0.7978845608028654) * (x[i] + np.float32(0.044715) * x[i] * x[i] * x[i])
                x[i] = x[i] / (ONE + exponential(-TWO * inner))  # ½ (1 + tanh z) = 1 / (1 + e^−2z)
        elif which == layout.SILU:
            for i in range(width):
                x[i] = x[i] / (ONE + exponential(-x[i]))
        else:
            for i in range(width):
                x[i] = TWO / (ONE + exponential(-TWO * x[i])) - ONE
        if op[3] >= 0:
            other = floats(buffers[op[3]] + 4 * step * r)
            for i in range(width):
                x[i] *= other[i]


@reordered
def rank(job: Any, op: Any, thread: int) -> None:
    buffers, (first, last) = longs(job[layout.BUFFERS]), share(job, thread)
    width, keep = op[2], op[3]
    for r in range(first, last):
        address = buffers[layout.STATES] + 4 * width * r
        x, totals = floats(address), floats(buffers[op[6]] + 8 * r)
        best, places = floats(buffers[op[4]] + 4 * keep * r), longs(buffers[op[5]] + 8 * keep * r)
        for n in range(keep):
            best[n], places[n] = -np.float32(np.inf), 0
        for start in range(0, width, GLANCE):
            stop = min(start + GLANCE, width)
            # most have nothing that counts: a look at many at once is enough
            if stop - start < GLANCE or highest(address + 4 * start, best[keep - 1], GLANCE) > best[keep - 1]:
                for i in range(start, stop):
                    if x[i] > best[keep - 1]:  # put in its place among those that were best so far
                        n = keep - 1
                        while n > 0 and x[i] > best[n - 1]:
                            best[n], places[n] = best[n - 1], places[n - 1]
                            n -= 1
                        best[n], places[n] = x[i], i
        eights = width - width % 8
        total = sum_of_exponentials(address, best[0], eights) if eights > 0 else ZERO
        for i in range(eights, width):
            total += exponential(x[i] - best[0])
        totals[0], totals[1] = best[0], total


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
