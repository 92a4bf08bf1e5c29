"""Products of rows with matrices, and the ranking of what the last of them gives.

Compiled by `compile`; nothing here allocates, raises or touches Python.
"""

from typing import Any

import numpy as np
from numba import njit

from clearformer.kernels.native import layout
from clearformer.kernels.native.simd import (
    exponential,
    float_panel,
    floats,
    furthest,
    highest,
    int8_panel,
    longs,
    nearest,
    shorts,
    sum_of_exponentials,
)

NEAR = 2**17  # numbers of rows of int16, half as many of floats, that stay in the nearer caches while a matrix goes by
PART = 4096  # floats of a row at a time, so that errors of long sums stay small
GLANCE = 32  # numbers
ZERO = np.float32(0)
LOWEST, NOTHING = np.float32(-3.4e38), np.float32(-np.inf)
float_1, float_3, float_6 = float_panel(1), float_panel(3), float_panel(6)
int8_1, int8_4 = int8_panel(1), int8_panel(4)

plain: dict[str, Any] = {"error_model": "numpy", "_nrt": False}  # no exceptions, no memory of its own
inner = {**plain, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
exact = njit(**inner)
reordered = njit(**inner, fastmath={"reassoc", "nsz", "contract", "arcp"})  # sums in another order, always the same


@exact
def own(job: Any, thread: int) -> int:
    """Where a thread may write what it needs for a moment."""
    return job[layout.SCRATCH] + 4 * job[layout.SCRATCH_STEP] * thread


@exact
def linear(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers, rows, threads = longs(job[layout.BUFFERS]), job[layout.ROWS], job[layout.THREADS]
    panels = (op[5] + 15) // 16
    begin, end = 16 * (panels * thread // threads), 16 * (panels * (thread + 1) // threads)
    outputs(op, buffers, rows, begin, end, buffers[op[3]], 4 * op[7], own(job, thread))


@exact
def outputs(op: Any, buffers: Any, rows: int, first: int, last: int, y: int, y_step: int, scratch: int) -> None:
    """Some outputs, of whole panels, of a linear map, for rows that begin at y."""
    if op[9] == 0:
        float_linear(op, buffers, rows, first, last, y, y_step, scratch)
    else:
        int8_linear(op, buffers, rows, first, last, y, y_step, scratch)


@exact
def float_linear(op: Any, buffers: Any, rows: int, first: int, last: int, y: int, y_step: int, scratch: int) -> None:
    a, length, a_step = buffers[op[2]], op[4], 4 * op[6]
    w, bias, more = op[8], op[10], op[11]
    together = max(NEAR // 2 // length // 6 * 6, 6)
    for start in range(0, rows, together):
        stop = min(start + together, rows)
        for c in range(first, last, 16):
            whole = c + 16 <= op[5]
            sixes = stop - (stop - start) % 6 if whole else start
            threes = stop - (stop - start) % 3 if whole else start
            for part in range(0, length, PART):
                x, at, count = a + 4 * part, w + 4 * (c * length + 16 * part), min(PART, length - part)
                shift, to, adds = bias + 4 * c, y + 4 * c, more
                if part > 0:  # to be added to the first
                    shift, adds = op[12], 1
                for r in range(start, sixes, 6):
                    float_6(x + r * a_step, a_step, at, count, shift, to + r * y_step, y_step, adds)
                for r in range(sixes, threes, 3):
                    float_3(x + r * a_step, a_step, at, count, shift, to + r * y_step, y_step, adds)
                for r in range(threes, stop):
                    if whole:
                        float_1(x + r * a_step, a_step, at, count, shift, to + r * y_step, y_step, adds)
                    else:  # a panel of fewer than sixteen outputs
                        float_1(x + r * a_step, a_step, at, count, shift, scratch, y_step, 0)
                        found, target = floats(scratch), floats(to + r * y_step)
                        for i in range(op[5] - c):
                            target[i] = found[i] + (target[i] if adds != 0 else ZERO)


@exact
def int8_linear(op: Any, buffers: Any, rows: int, first: int, last: int, y: int, y_step: int, scratch: int) -> None:
    a, length, a_step = buffers[layout.QUANTISED], op[4], 2 * op[6]
    w, scales, bias, more, own = op[8], op[9], op[10], op[11], buffers[layout.SCALES]
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
def quantise(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers = longs(job[layout.BUFFERS])
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


@exact
def rank(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers, rows, threads, keep = longs(job[layout.BUFFERS]), job[layout.ROWS], job[layout.THREADS], job[layout.KEEP]
    before = keep * rows * thread  # what the threads before this one list
    numbers, places = buffers[layout.NUMBERS] + 4 * before, buffers[layout.PLACES] + 8 * before
    for n in range(rows * keep):
        floats(numbers)[n], longs(places)[n] = NOTHING, 0
    blocks, scratch = (op[5] + layout.BLOCK - 1) // layout.BLOCK, own(job, thread)
    room, room_step = scratch + 4 * layout.LEAST_SCRATCH, 4 * layout.BLOCK
    for block in range(blocks * thread // threads, blocks * (thread + 1) // threads):
        begin, end = layout.BLOCK * block, min(layout.BLOCK * (block + 1), op[5])
        whole = end - begin == layout.BLOCK
        if op[8] != 0:
            outputs(op, buffers, rows, begin, (end + 15) // 16 * 16, room - 4 * begin, room_step, scratch)
        for r in range(rows):
            given, x = buffers[layout.LOGITS] + 4 * (op[7] * r + begin), room + room_step * r
            if not whole:  # up to a block, with what e to it is nothing
                for i in range(layout.BLOCK):
                    if i >= end - begin:
                        floats(x)[i] = LOWEST
                    elif op[8] == 0:
                        floats(x)[i] = floats(given)[i]
            elif op[8] == 0:
                x = given
            of_block = floats(buffers[layout.TOTALS] + 8 * (blocks * r + block))
            of_block[0] = highest(x, LOWEST, layout.BLOCK)
            of_block[1] = sum_of_exponentials(x, of_block[0], layout.BLOCK)
            best, which = numbers + 4 * keep * r, places + 8 * keep * r
            if of_block[0] > floats(best)[keep - 1]:
                for start in range(0, layout.BLOCK, GLANCE):
                    # most have nothing that counts: a look at many at once is enough
                    if highest(x + 4 * start, LOWEST, GLANCE) > floats(best)[keep - 1]:
                        for i in range(start, min(start + GLANCE, end - begin)):
                            insert(best, which, keep, floats(x)[i], begin + i)


@exact
def insert(best: int, places: int, keep: int, x: float, place: int) -> None:
    """Put a number in its place among those that were best so far; of equal ones the first stays before."""
    numbers, which, n = floats(best), longs(places), keep
    while n > 0 and x > numbers[n - 1]:
        if n < keep:
            numbers[n], which[n] = numbers[n - 1], which[n - 1]
        n -= 1
    if n < keep:
        numbers[n], which[n] = x, place


@exact
def merge(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers = longs(job[layout.BUFFERS])
    rows, keep, blocks = job[layout.ROWS], job[layout.KEEP], (op[2] + layout.BLOCK - 1) // layout.BLOCK
    for r in range(first, last):
        best, which = buffers[layout.NUMBERS] + 4 * keep * r, buffers[layout.PLACES] + 8 * keep * r
        for other in range(1, job[layout.THREADS]):
            numbers, places = floats(best + 4 * keep * rows * other), longs(which + 8 * keep * rows * other)
            for n in range(keep):
                insert(best, which, keep, numbers[n], places[n])
        totals, most, total = floats(buffers[layout.TOTALS] + 8 * blocks * r), floats(best)[0], ZERO
        for block in range(blocks):
            total += totals[2 * block + 1] * exponential(totals[2 * block] - most)
        totals[0], totals[1] = most, total
