"""Products of rows with matrices, and the ranking of what the last of them gives.

Compiled by `compile`; nothing here allocates, raises or touches Python.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from clearformer.kernels.native import isa
from clearformer.kernels.native.microkernels import (
    BYTE_TILES,
    FLOAT_TILES,
    SHORT_TILES,
    Sizes,
    byte_tile,
    float_tile,
    short_tile,
)
from clearformer.kernels.native.simd import (
    amax,
    bytes_at,
    exponential,
    floats,
    highest_wide,
    ints,
    longs,
    lowest_bit,
    nearest,
    shorts,
    sum_of_exponentials,
    which_above,
)

L2_BYTES = 2**18  # of rows, which stay in the nearer caches while a matrix goes by
ZERO, ONE, BYTE = np.float32(0), np.float32(1), np.float32(127)
MIN_AMAX = np.float32(1e-30)  # what is smaller is nothing, and could not be divided by
LOWEST, MINUS_INFINITY = np.float32(-3.4e38), np.float32(-np.inf)

plain: dict[str, Any] = {"error_model": "numpy", "_nrt": False}  # no exceptions, no memory of its own
inner = {**plain, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
exact = njit(**inner)
reordered = njit(**inner, fastmath={"reassoc", "nsz", "contract", "arcp"})  # sums in another order, always the same


@exact
def scratch_of(job: Any, thread: int) -> int:
    """Where a thread may write what it needs for a moment."""
    return job[isa.SCRATCH] + 4 * job[isa.SCRATCH_STEP] * thread


@exact
def linear(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers, rows, threads = longs(job[isa.BUFFERS]), job[isa.ROWS], job[isa.THREADS]
    pairs = (op[isa.linear.outputs] + 31) // 32  # of panels
    begin, end = 32 * (pairs * thread // threads), 32 * (pairs * (thread + 1) // threads)
    y, y_step = buffers[op[isa.linear.target]], 4 * op[isa.linear.target_step]
    outputs(op, buffers, 0, rows, begin, end, y, y_step, scratch_of(job, thread))


@exact
def outputs(
    op: Any, buffers: Any, row: int, rows: int, first: int, last: int, y: int, y_step: int, scratch: int
) -> None:
    """Some outputs, of whole panels, of a linear map, for some rows from `row` on, whose outputs begin at y."""
    x_step = row * op[isa.linear.source_step]
    if op[isa.linear.scale] == 0:
        of_floats(op, buffers[op[isa.linear.source]] + 4 * x_step, 0, 0, rows, first, last, y, y_step, scratch)
        return
    x, scales = buffers[isa.QUANTISED], buffers[isa.SCALES]
    if op[isa.linear.grouped] == 0:
        of_shorts(op, x + 2 * x_step, scales + 4 * row, 4, rows, first, last, y, y_step, scratch)
    else:
        step = 8 * ((op[isa.linear.inputs] + isa.GROUP - 1) // isa.GROUP)
        of_bytes(op, x + x_step, scales + row * step, step, rows, first, last, y, y_step, scratch)


def _panels(tile: Callable[[int, int], Any], sizes: Sizes, size: int, of_weight: int) -> Any:
    """Rows of numbers of so many bytes with a matrix of such of so many, in the largest tiles that fit."""
    (most, fewer, _), beside = counts, _ = sizes
    many, some, one = (tile(count, beside) for count in counts)
    single, columns = tile(1, 1) if beside > 1 else one, 16 * beside

    @exact
    def panels(
        op: Any, x: int, scales: int, s_step: int, rows: int, first: int, last: int, y: int, y_step: int, scratch: int
    ) -> None:
        length, x_step, more = op[isa.linear.inputs], size * op[isa.linear.source_step], op[isa.linear.more]
        near, end = max(L2_BYTES // (size * length) // most * most, most), min(last, op[isa.linear.outputs])
        for start in range(0, rows, near):
            stop, c = min(start + near, rows), first
            while c + columns <= end:
                w, w_scale = op[isa.linear.weight] + of_weight * c * length, op[isa.linear.scale] + 4 * c
                bias, to, r = op[isa.linear.bias] + 4 * c, y + 4 * c, start
                while r + most <= stop:
                    s, t = scales + r * s_step, to + r * y_step
                    many(x + r * x_step, x_step, s, w, length, w_scale, bias, t, y_step, more)
                    r += most
                while r + fewer <= stop:
                    s, t = scales + r * s_step, to + r * y_step
                    some(x + r * x_step, x_step, s, w, length, w_scale, bias, t, y_step, more)
                    r += fewer
                while r < stop:
                    s, t = scales + r * s_step, to + r * y_step
                    one(x + r * x_step, x_step, s, w, length, w_scale, bias, t, y_step, more)
                    r += 1
                c += columns
            while c < end:  # panels that are left, of which the last may have fewer than sixteen outputs
                w, w_scale = op[isa.linear.weight] + of_weight * c * length, op[isa.linear.scale] + 4 * c
                bias, whole = op[isa.linear.bias] + 4 * c, c + 16 <= end
                for r in range(start, stop):
                    to, s = y + 4 * c + r * y_step, scales + r * s_step
                    t, adds = to if whole else scratch, more if whole else 0
                    single(x + r * x_step, x_step, s, w, length, w_scale, bias, t, y_step, adds)
                    if not whole:
                        found, target = floats(scratch), floats(to)
                        for i in range(end - c):
                            target[i] = found[i] + (target[i] if more != 0 else ZERO)
                c += 16

    return panels


of_floats = _panels(float_tile, FLOAT_TILES, 4, 4)
of_shorts = _panels(short_tile, SHORT_TILES, 2, 1)
of_bytes = _panels(byte_tile, BYTE_TILES, 1, 1)


@reordered
def quantise(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers = longs(job[isa.BUFFERS])
    width, step = op[isa.quantise.width], op[isa.quantise.step]
    filled, groups = (width + 15) // 16 * 16, (width + isa.GROUP - 1) // isa.GROUP
    for r in range(first, last):
        x, to, scales = buffers[op[isa.quantise.source]] + 4 * step * r, buffers[isa.QUANTISED], buffers[isa.SCALES]
        if op[isa.quantise.grouped] == 0:
            to_shorts(x, to + 2 * step * r, scales + 4 * r, width, filled, np.float32(op[isa.quantise.limit]))
        else:
            for group in range(groups):
                start = isa.GROUP * group
                count, room = min(width - start, isa.GROUP), min(filled - start, isa.GROUP)
                to_bytes(x + 4 * start, to + step * r + start, scales + 8 * (groups * r + group), count, room)


@reordered
def to_shorts(x: int, y: int, scale: int, width: int, room: int, limit: float) -> None:
    """Whole numbers up to ± limit and their scale; zeros for what is beyond the width."""
    most = row_amax(x, width)
    floats(scale)[0] = most / limit
    back = limit / most if most > MIN_AMAX else ZERO
    for i in range(width):
        shorts(y)[i] = np.int16(np.int32(nearest(floats(x)[i] * back)))
    for i in range(width, room):
        shorts(y)[i] = 0


@reordered
def to_bytes(x: int, y: int, scale: int, width: int, room: int) -> None:
    """Whole numbers up to ± 127, their scale, and after it −128 times their sum."""
    most, total = row_amax(x, width), np.int32(0)
    floats(scale)[0] = most / BYTE
    back = BYTE / most if most > MIN_AMAX else ZERO
    for i in range(width):
        whole = np.int32(nearest(floats(x)[i] * back))
        bytes_at(y)[i] = np.int8(whole)
        total += whole
    for i in range(width, room):
        bytes_at(y)[i] = 0
    ints(scale)[1] = -128 * total


@exact
def row_amax(x: int, width: int) -> Any:
    """The largest |x_i|."""
    eights = width - width % 8
    most = amax(x, ZERO, eights) if eights > 0 else ZERO
    for i in range(eights, width):
        most = max(most, abs(floats(x)[i]))
    return most


@exact
def rank(job: Any, op: Any, thread: int, first: int, last: int) -> None:
    buffers, rows, threads, keep = longs(job[isa.BUFFERS]), job[isa.RANKED], job[isa.THREADS], job[isa.KEEP]
    before = keep * rows * thread  # what the threads before this one list
    numbers, places = buffers[isa.NUMBERS] + 4 * before, buffers[isa.PLACES] + 8 * before
    for n in range(rows * keep):
        floats(numbers)[n], longs(places)[n] = MINUS_INFINITY, 0
    blocks, scratch = (op[isa.linear.outputs] + isa.TOPK_BLOCK - 1) // isa.TOPK_BLOCK, scratch_of(job, thread)
    room, room_step = scratch + 4 * isa.MIN_SCRATCH, 4 * isa.TOPK_BLOCK
    for block in range(blocks * thread // threads, blocks * (thread + 1) // threads):
        begin, end = isa.TOPK_BLOCK * block, min(isa.TOPK_BLOCK * (block + 1), op[isa.linear.outputs])
        for start in range(0, rows, isa.TOPK_ROWS):  # so many that their numbers stay in the nearest cache
            stop = min(start + isa.TOPK_ROWS, rows)
            if op[isa.linear.weight] != 0:
                y, whole = room - 4 * begin, (end + 15) // 16 * 16
                outputs(op, buffers, start, stop - start, begin, whole, y, room_step, scratch)
            for r in range(start, stop):
                x = room + room_step * (r - start)
                rank_block(job, op, r, block, begin, end, x, numbers + 4 * keep * r, places + 8 * keep * r)


@exact
def rank_block(job: Any, op: Any, r: int, block: int, begin: int, end: int, x: int, best: int, which: int) -> None:
    """The numbers of one row in one block, which are at x or, without a weight, among the LOGITS."""
    buffers, keep, heat = longs(job[isa.BUFFERS]), job[isa.KEEP], job[isa.HEAT]
    blocks = (op[isa.linear.outputs] + isa.TOPK_BLOCK - 1) // isa.TOPK_BLOCK
    given, count = buffers[isa.LOGITS] + 4 * (op[isa.linear.target_step] * r + begin), end - begin
    if op[isa.linear.weight] == 0:
        if count == isa.TOPK_BLOCK:
            x = given
        else:
            for i in range(count):
                floats(x)[i] = floats(given)[i]
    elif buffers[isa.LOGITS] != 0:
        for i in range(count):
            floats(given)[i] = floats(x)[i]
    for i in range(count, isa.TOPK_BLOCK):  # up to a block, with what e to it is nothing
        floats(x)[i] = LOWEST
    of_block = floats(buffers[isa.TOTALS] + 12 * (blocks * r + block))
    most = highest_wide(x, LOWEST, isa.TOPK_BLOCK)
    total = sum_of_exponentials(x, most, isa.TOPK_BLOCK)
    of_block[0], of_block[1], of_block[2] = most, total, total
    if heat != 0 and floats(heat)[r] != 1:
        of_block[2] = tempered(x, most, floats(heat)[r])
    if most > floats(best)[keep - 1]:
        for start in range(0, isa.TOPK_BLOCK, 64):
            above = which_above(x + 4 * start, floats(best)[keep - 1])
            while above != 0:
                i = start + lowest_bit(above)
                if i < count:
                    insert(best, which, keep, floats(x)[i], begin + i)
                above &= above - 1


@reordered
def tempered(x: int, most: float, heat: float) -> Any:
    """Σ e^((x_i − most) · heat) over a block."""
    total = ZERO
    for i in range(isa.TOPK_BLOCK):
        total += exponential((floats(x)[i] - most) * heat)
    return total


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
    buffers, rows, keep, heat = longs(job[isa.BUFFERS]), job[isa.RANKED], job[isa.KEEP], job[isa.HEAT]
    blocks = (op[isa.merge.outputs] + isa.TOPK_BLOCK - 1) // isa.TOPK_BLOCK
    for r in range(first, min(last, rows)):
        best, which = buffers[isa.NUMBERS] + 4 * keep * r, buffers[isa.PLACES] + 8 * keep * r
        for other in range(1, job[isa.THREADS]):
            numbers, places = floats(best + 4 * keep * rows * other), longs(which + 8 * keep * rows * other)
            for n in range(keep):
                insert(best, which, keep, numbers[n], places[n])
        totals, most, total, warm = floats(buffers[isa.TOTALS] + 12 * blocks * r), floats(best)[0], ZERO, ZERO
        by = floats(heat)[r] if heat != 0 else ONE
        for block in range(blocks):
            away = totals[3 * block] - most
            total += totals[3 * block + 1] * exponential(away)
            if by != ONE:
                warm += totals[3 * block + 2] * exponential(away * by)
        totals[0], totals[1], totals[2] = most, total, warm if by != ONE else total
