"""The microkernels of GEMM: tiles of products, kept in registers, of some rows of an input with a panel of a matrix.

A panel is sixteen rows of a matrix, a … p, in the order in which a tile reads them, from one end to the other:

    the matrix, row by row       a panel of floats,           a panel of int8, two numbers of each row
                                 a line of 64 bytes each      side by side, 32 bytes each
    a0 a1 a2 a3 …                a0 b0 c0 … p0                a0 a1 b0 b1 c0 c1 … p0 p1
    b0 b1 b2 b3 …                a1 b1 c1 … p1                a2 a3 b2 b3 c2 c3 … p2 p3
    …                            a2 b2 c2 … p2                a4 a5 …
    p0 p1 p2 p3 …                …                            or four, a line of 64 bytes: a0 a1 a2 a3 b0 b1 b2 b3 …

A tile of floats, at number i of its rows x, y, z … of the input; every word in a box is one register, or two where
vectors have eight floats:

                                  ┌───────────────────┐
                                  │ ai  bi  ci  …  pi │       a line of the panel, read once for all rows
                                  └───────────────────┘
       ┌───────────────────┐                ×                 ┌───────────────────┐
       │ xi  xi  xi  …  xi │         one fma a row            │ x·a x·b x·c … x·p │
       │ yi  yi  yi  …  yi │  ──────────────────────────►   + │ y·a y·b y·c … y·p │   the sums so far
       │ zi  zi  zi  …  zi │                                  │ z·a z·b z·c … z·p │
       └───────────────────┘                                  └───────────────────┘
       a number of each row, spread                           stay until the panel is at its end

With vectors of sixteen floats a tile takes two panels side by side, so that a number that was spread serves twice:
memory gives two vectors while two products are made. FLOAT_TILES says how many rows a tile may have: 12 times 2 sums,
2 lines and what is spread fill AVX-512's 32 registers well. Bytes need sums of whole numbers and of floats.

Each product has a sum of its own, so its value depends on nothing that is computed beside it: a row's results are the
same, bit for bit, alone and among others.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from clearformer.kernels.native import processor
from clearformer.kernels.native.isa import GROUP
from clearformer.kernels.native.simd import (
    F32,
    I8,
    I16,
    I32,
    I64,
    Builder,
    address_of,
    declared,
    fma,
    loop,
    shuffled,
    spread,
    steps,
    zeros,
)

COLUMNS = 16  # of a panel
LINE = 64  # bytes that memory gives at a time
PAIR = 32  # bytes of a panel of int8: two numbers of each of its rows
PREFETCH_BYTES = 2048  # of a panel, asked for ahead of use
PART = 4096  # floats of a row that are one sum, so that errors of long ones stay small
FLOATS, INTS = ir.VectorType(F32, COLUMNS), ir.VectorType(I32, COLUMNS)

# how many rows a tile may have, most first, and panels: as many as there are registers for their sums
Sizes = tuple[tuple[int, int, int], int]
WIDE = processor.has_wide_vectors()
FLOAT_TILES: Sizes = ((12, 4, 1), 2) if WIDE else ((6, 3, 1), 1)
SHORT_TILES: Sizes = ((8, 4, 1), 1) if WIDE else ((4, 2, 1), 1)
BYTE_TILES: Sizes = ((6, 4, 1), 2) if WIDE else ((4, 2, 1), 1)
TEST_TILES: Sizes = ((2, 1, 1), 1)  # what is used in tests alone is not worth a second of compiling
if processor.multiplies_bytes():
    SHORT_TILES = TEST_TILES
else:
    BYTE_TILES = TEST_TILES


Write = Callable[[Builder, list[Any]], None]


def _tile(write: Write) -> Any:
    """A function of addresses, steps and sizes that writes a tile."""

    def written(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        write(b, args)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any, a: Any, a_step: Any, a_scale: Any, w: Any, length: Any, w_scale: Any, bias: Any, y: Any,
        y_step: Any, more: Any,
    ) -> Any:  # fmt: skip
        return types.void(*[types.int64] * 10), written

    return tile


def float_tile(rows: int, panels: int) -> Any:
    """y[r, c] = a[r] · w[c] + bias[c] for the sixteen c of each of some panels of floats, or added to y if `more`; the
    length is even. Sums are taken from the first product to the last, part by part."""

    def write(b: Builder, args: list[Any]) -> None:
        a, a_step, _, w, length, _, bias, y, y_step, more = args
        left, beside = steps(b, a, a_step, rows), steps(b, w, b.mul(length, I64(LINE)), panels)

        def part(n: Any, totals: list[Any]) -> list[Any]:
            first, count = _part(b, n, PART, length)

            def body(i: Any, sums: list[Any]) -> list[Any]:
                for place in (b.add(first, i), b.add(first, b.add(i, I64(1)))):
                    lines = [b.add(panel, b.mul(place, I64(LINE))) for panel in beside]
                    columns = [_load(b, _prefetched(b, line), FLOATS) for line in lines]
                    inputs = [spread(b, b.load(address_of(b, row, place, 4, F32), align=4), COLUMNS) for row in left]
                    pairs = zip(product(inputs, columns), sums, strict=True)
                    sums = [fma(b, x, column, total) for (x, column), total in pairs]
                return sums

            sums = loop(b, count, 2, [zeros(FLOATS)] * (rows * panels), body)
            return [b.fadd(total, found) for total, found in zip(totals, sums, strict=True)]

        totals = loop(b, _parts(b, PART, length), 1, [zeros(FLOATS)] * (rows * panels), part)
        places = product(steps(b, y, y_step, rows), range(panels))
        for total, (place, n) in zip(totals, places, strict=True):
            aside = I64(LINE * n)
            _finish(b, total, b.add(bias, aside), b.add(place, aside), more)

    return _tile(write)


def short_tile(rows: int, panels: int) -> Any:
    """For one panel of int8 and rows of int16: y[r, c] = a[r] · w[c] · (scale a[r] · scale w[c]) + bias[c], or added to
    y if `more`; `a_scale` is the scale of each row, and the length a multiple of four.

    Two numbers of a row are multiplied with two of each row of the matrix and added, in one instruction where there
    is one (`vpmaddwd`). Sums are of whole numbers, so their order is free.
    """
    narrow, short, wide = (ir.VectorType(kind, 2 * COLUMNS) for kind in (I8, I16, I32))

    def write(b: Builder, args: list[Any]) -> None:
        a, a_step, a_scale, w, length, w_scale, bias, y, y_step, more = args
        left = steps(b, a, a_step, rows)

        def body(i: Any, sums: list[Any]) -> list[Any]:
            line = b.add(w, b.mul(i, I64(COLUMNS)))
            _prefetched(b, line)
            for n in range(2):
                column = b.sext(_load(b, b.add(line, I64(n * PAIR)), narrow), wide)
                new = []
                for row, total in zip(left, sums, strict=True):
                    two = b.load(address_of(b, row, b.add(i, I64(2 * n)), 2, I32), align=2)
                    products = b.mul(b.sext(b.bitcast(spread(b, two, COLUMNS), short), wide), column)
                    even, odd = (shuffled(b, products, products, range(n, 2 * COLUMNS, 2)) for n in (0, 1))
                    new.append(b.add(total, b.add(even, odd)))
                sums = new
            return sums

        sums = loop(b, length, 4, [zeros(INTS)] * rows, body)
        for r, (total, place) in enumerate(zip(sums, steps(b, y, y_step, rows), strict=True)):
            own = spread(b, b.load(address_of(b, a_scale, I64(r), 4, F32), align=4), COLUMNS)
            found = b.fmul(b.sitofp(total, FLOATS), b.fmul(_load(b, w_scale, FLOATS), own))
            _finish(b, found, bias, place, more)

    return _tile(write)


def byte_tile(rows: int, panels: int) -> Any:
    """The same for rows of int8 in groups of GROUP numbers and panels of quads, so many of them side by side;
    `a_scale` is, for each row and group, its scale and −128 times its sum: the matrix has 128 added, for the
    instruction wants bytes without a sign there.

    Sums of a group are whole numbers, those of groups are taken from the first to the last.
    """

    def write(b: Builder, args: list[Any]) -> None:
        a, a_step, a_scale, w, length, w_scale, bias, y, y_step, more = args
        left = steps(b, a, a_step, rows)
        beside = steps(b, w, b.mul(length, I64(COLUMNS)), panels)
        groups = _parts(b, GROUP, length)
        scales = steps(b, a_scale, b.mul(groups, I64(8)), rows)

        def group(n: Any, totals: list[Any]) -> list[Any]:
            first, count = _part(b, n, GROUP, length)

            def body(i: Any, sums: list[Any]) -> list[Any]:
                place = b.add(first, i)
                lines = [b.add(panel, b.mul(place, I64(COLUMNS))) for panel in beside]
                columns = [_load(b, _prefetched(b, line), INTS) for line in lines]
                inputs = [spread(b, b.load(address_of(b, row, place, 1, I32), align=1), COLUMNS) for row in left]
                pairs = zip(product(inputs, columns), sums, strict=True)
                return [_dots(b, total, column, x) for (x, column), total in pairs]

            shifts = [spread(b, _at(b, scale, n, 4, I32), COLUMNS) for scale in scales for _ in beside]
            sums = loop(b, count, 4, shifts, body)
            factors = [spread(b, _at(b, scale, n, 0, F32), COLUMNS) for scale in scales for _ in beside]
            return [
                fma(b, b.sitofp(found, FLOATS), factor, total)
                for found, factor, total in zip(sums, factors, totals, strict=True)
            ]

        totals = loop(b, groups, 1, [zeros(FLOATS)] * (rows * panels), group)
        places = product(steps(b, y, y_step, rows), range(panels))
        for total, (place, n) in zip(totals, places, strict=True):
            scale, shift, to = (b.add(each, I64(LINE * n)) for each in (w_scale, bias, place))
            _finish(b, b.fmul(total, _load(b, scale, FLOATS)), shift, to, more)

    return _tile(write)


def _parts(b: Builder, size: int, length: Any) -> Any:
    return b.sdiv(b.add(length, I64(size - 1)), I64(size))


def _part(b: Builder, n: Any, size: int, length: Any) -> tuple[Any, Any]:
    """Where part n of a length begins, and how long it is."""
    first = b.mul(n, I64(size))
    rest = b.sub(length, first)
    return first, b.select(b.icmp_signed("<", rest, I64(size)), rest, I64(size))


def _dots(b: Builder, totals: Any, columns: Any, x: Any) -> Any:
    """totals + the sums of four products each, of bytes without a sign with bytes that have one."""
    if processor.has_wide_vectors() and "avx512vnni" in processor.features():
        return b.call(declared(b, "llvm.x86.avx512.vpdpbusd.512", INTS, INTS, INTS, INTS), [totals, columns, x])
    if "avxvnni" in processor.features():
        half = ir.VectorType(I32, COLUMNS // 2)
        one = declared(b, "llvm.x86.avx512.vpdpbusd.256", half, half, half, half)
        parts = [range(COLUMNS // 2), range(COLUMNS // 2, COLUMNS)]
        halves = [b.call(one, [shuffled(b, each, each, part) for each in (totals, columns, x)]) for part in parts]
        return shuffled(b, *halves, range(COLUMNS))
    bytes_, wide = (ir.VectorType(kind, LINE) for kind in (I8, I32))
    products = b.mul(b.zext(b.bitcast(columns, bytes_), wide), b.sext(b.bitcast(x, bytes_), wide))
    for n in range(4):
        totals = b.add(totals, shuffled(b, products, products, range(n, LINE, 4)))
    return totals


def _prefetched(b: Builder, address: Any) -> Any:
    """The same address; the line of memory that is PREFETCH_BYTES further on is asked for."""
    fetch = declared(b, "llvm.prefetch.p0", ir.VoidType(), I8.as_pointer(), I32, I32, I32)
    place = b.inttoptr(b.add(address, I64(PREFETCH_BYTES)), I8.as_pointer())
    b.call(fetch, [place, I32(0), I32(3), I32(1)])  # to read, to be kept near, data
    return address


def _finish(b: Builder, found: Any, bias: Any, place: Any, more: Any) -> None:
    """Store the results of one row with the bias, or add them to what is there."""
    target, total = b.inttoptr(place, FLOATS.as_pointer()), b.fadd(found, _load(b, bias, FLOATS))
    with b.if_else(b.icmp_signed("!=", more, I64(0))) as (adds, sets):
        with adds:
            b.store(b.fadd(total, b.load(target, align=4)), target, align=4)
        with sets:
            b.store(total, target, align=4)


def _load(b: Builder, address: Any, kind: Any) -> Any:
    return b.load(b.inttoptr(address, kind.as_pointer()), align=1 if kind.element is I8 else 4)


def _at(b: Builder, pairs: Any, n: Any, offset: int, kind: Any) -> Any:
    """The first or second number of pair n."""
    return b.load(address_of(b, b.add(pairs, I64(offset)), n, 8, kind), align=4)
