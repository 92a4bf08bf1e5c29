"""Vector instructions for `ops`: small functions that write LLVM's own language.

Everything here is generic (LLVM turns it into AVX2, AVX-512, NEON or what the machine has). Products: `microkernels`.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from clearformer.kernels.native import processor

I8, I16, I32, I64, F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
LANES = 8
KEYS = 16 if processor.has_wide_vectors() else LANES  # that are looked at together
I32S, F32S = ir.VectorType(I32, LANES), ir.VectorType(F32, LANES)
Builder = Any
# of e^r on |r| ≤ ½ ln 2, the highest power first, without its 1: the polynomial whose largest relative error is least
EXPONENTIAL = (0.008290305733680725, 0.0418979749083519, 0.1666763722896576, 0.4999915063381195, 0.9999997019767761)


def _pointer(element: Any, kind: Any) -> Callable[[int], Any]:
    @intrinsic
    def at(typing: Any, address: Any) -> Any:
        def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
            return b.inttoptr(args[0], element.as_pointer())

        return types.CPointer(kind)(types.int64), write

    return at


floats = _pointer(F32, types.float32)  # an address as numbers that can be read and written: floats(address)[i]
shorts = _pointer(I16, types.int16)
bytes_at = _pointer(I8, types.int8)
ints = _pointer(I32, types.int32)
longs = _pointer(I64, types.int64)


@intrinsic
def call(typing: Any, address: Any) -> Any:
    """Call the function without arguments at an address."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return b.call(b.inttoptr(args[0], ir.FunctionType(I32, []).as_pointer()), [])

    return types.int32(types.int64), write


@intrinsic
def pointer_address(typing: Any, pointer: Any) -> Any:
    """Numbers that can be read and written → their address."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return b.ptrtoint(args[0], I64)

    return types.int64(types.CPointer(types.int64)), write


@intrinsic
def atomic_add(typing: Any, address: Any, x: Any) -> Any:
    """Add to the whole number at an address, seen by all threads in one order; the sum."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        before = b.atomic_rmw("add", b.inttoptr(args[0], I64.as_pointer()), args[1], "seq_cst")
        return b.add(before, args[1])

    return types.int64(types.int64, types.int64), write


@intrinsic
def atomic_load(typing: Any, address: Any) -> Any:
    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return b.load_atomic(b.inttoptr(args[0], I64.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), write


@intrinsic
def pause(typing: Any) -> Any:
    """A moment in which the other thread of a core may work."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        if "sse2" in processor.features():
            b.call(declared(b, "llvm.x86.sse2.pause", ir.VoidType()), [])
        return context.get_dummy_value()

    return types.void(), write


@intrinsic
def futex(typing: Any, syscall: Any, number: Any, address: Any, operation: Any, value: Any, timeout: Any) -> Any:
    """Linux' futex: sleep while the 32 bits at an address are `value`, or wake who sleeps there."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        function = b.inttoptr(args[0], ir.FunctionType(I64, [I64], var_arg=True).as_pointer())
        b.call(function, [*args[1:], I64(0), I64(0)])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), write


@intrinsic
def invoke(typing: Any, address: Any, job: Any, op: Any, thread: Any, first: Any, last: Any) -> Any:
    """Call the operation at an address."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64.as_pointer(), I64.as_pointer(), I64, I64, I64])
        b.call(b.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    pointer = types.CPointer(types.int64)
    return types.void(types.int64, pointer, pointer, *[types.int64] * 3), write


@intrinsic
def number(typing: Any, bits: Any) -> Any:
    """The float whose bits a whole number holds."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return b.bitcast(b.trunc(args[0], I32), F32)

    return types.float32(types.int64), write


@intrinsic
def nearest(typing: Any, x: Any) -> Any:
    """The nearest whole number, halves to the even one."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return b.call(declared(b, "llvm.rint.f32", F32, F32), args)

    return types.float32(types.float32), write


@intrinsic
def exponential(typing: Any, x: Any) -> Any:
    """e^x"""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return _exponential(b, args[0])

    return types.float32(types.float32), write


def _most(signed: bool, lanes: int = LANES) -> Callable[..., Any]:
    kind = ir.VectorType(F32, lanes)

    @intrinsic
    def most(typing: Any, x: Any, start: Any, length: Any) -> Any:
        def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
            x, start, length = args
            absolute = declared(b, f"llvm.fabs.v{lanes}f32", kind, kind)

            def greater(one: Any, two: Any) -> Any:
                return b.select(b.fcmp_ordered(">", one, two), one, two)

            def body(i: Any, most: list[Any]) -> list[Any]:
                here = _at(b, x, i, kind)
                return [greater(here if signed else b.call(absolute, [here]), most[0])]

            (most,) = loop(b, length, lanes, [spread(b, start, lanes)], body)
            return _sum(b, most, greater)

        return types.float32(types.int64, types.float32, types.int64), write

    return most


highest = _most(signed=True)  # of `start` and x_i; the length is a multiple of eight
highest_wide = _most(signed=True, lanes=KEYS)  # the length is a multiple of sixteen
amax = _most(signed=False)  # of `start` and |x_i|


@intrinsic
def which_above(typing: Any, x: Any, bound: Any) -> Any:
    """Of 64 numbers those that are greater than a bound, as the bits of a whole number, the first lowest."""
    lanes = 64 // KEYS

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        kind, found = ir.VectorType(F32, KEYS), I64(0)
        bound = spread(b, args[1], KEYS)
        for n in range(lanes):
            above = b.fcmp_ordered(">", _at(b, args[0], I64(n * KEYS), kind), bound)
            bits = b.zext(b.bitcast(above, ir.IntType(KEYS)), I64)
            found = b.or_(found, b.shl(bits, I64(n * KEYS)))
        return found

    return types.int64(types.int64, types.float32), write


@intrinsic
def lowest_bit(typing: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; there is one."""

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return b.call(declared(b, "llvm.cttz.i64", I64, I64, ir.IntType(1)), [args[0], ir.IntType(1)(1)])

    return types.int64(types.int64), write


def _exponentials(kept: bool, lanes: int = LANES) -> Callable[..., Any]:
    kind = ir.VectorType(F32, lanes)

    @intrinsic
    def sum_of(typing: Any, x: Any, less: Any, length: Any) -> Any:
        def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
            x, less, length = args
            away = spread(b, less, lanes)

            def body(i: Any, total: list[Any]) -> list[Any]:
                found = _exponential(b, b.fsub(_at(b, x, i, kind), away))
                if kept:
                    b.store(found, address_of(b, x, i, 4, kind), align=4)
                return [b.fadd(total[0], found)]

            (total,) = loop(b, length, lanes, [zeros(kind)], body)
            return _sum(b, total, b.fadd)

        return types.float32(types.int64, types.float32, types.int64), write

    return sum_of


exponentials = _exponentials(kept=True)  # x_i = e^(x_i − less), and their sum; the length is a multiple of eight
sum_of_exponentials = _exponentials(kept=False, lanes=KEYS)  # a multiple of sixteen


def _exponential(b: Builder, x: Any) -> Any:
    """e^x = 2^n · e^r of a float or a vector of them, n whole and |r| ≤ ½ ln 2, e^r by a polynomial, exact to 2e-7.

    Adding 1.5 · 2^23 leaves the nearest whole number in the last bits of a float: from there it is taken as the
    exponent of 2^n, and as n itself by taking the addend away again.
    """
    vector, floats = isinstance(x.type, ir.VectorType), x.type
    whole = ir.VectorType(I32, floats.count) if vector else I32

    def constant(value: float, kind: Any = floats) -> Any:
        return ir.Constant(kind, [value] * floats.count if vector else value)

    low, high, aside = constant(-87.0), constant(88.0), constant(1.5 * 2**23 + 127)
    x = b.select(b.fcmp_ordered("<", x, low), low, x)
    x = b.select(b.fcmp_ordered(">", x, high), high, x)
    shifted = fma(b, x, constant(1.4426950408889634), aside)
    n = b.fsub(shifted, aside)
    # ln 2 in two parts: r keeps its digits
    r = fma(b, n, constant(2.12194440e-4), fma(b, n, constant(-0.693359375), x))
    series = constant(EXPONENTIAL[0])
    for factor in (*EXPONENTIAL[1:], 1.0):
        series = fma(b, series, r, constant(factor))
    power = b.bitcast(b.shl(b.bitcast(shifted, whole), constant(23, whole)), floats)
    return b.fmul(series, power)


def dots(count: int) -> Callable[..., None]:
    """y_n = a · row n of some keys · scale, for `count` rows, at `cells[n]` steps from the first; whole vectors."""

    @intrinsic
    def tile(typing: Any, y: Any, a: Any, keys: Any, step: Any, cells: Any, length: Any, scale: Any) -> Any:
        def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
            y, a, keys, step, cells, length, scale = args
            rows = _rows(b, keys, step, b.inttoptr(cells, I32.as_pointer()), count)

            def body(i: Any, sums: list[Any]) -> list[Any]:
                x = _at(b, a, i)
                return [fma(b, x, _at(b, row, i), total) for row, total in zip(rows, sums, strict=True)]

            found = _totals(b, loop(b, length, LANES, [zeros(F32S)] * count, body), b.fadd)
            b.store(b.fmul(found, spread(b, scale, count)), b.inttoptr(y, found.type.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6, types.float32), write

    return tile


def mixed(width: int, rows: int) -> Callable[..., None]:
    """y[r] = Σ weights[r, n] · row n of some values · shares[r], `width` numbers of `count` rows, at `cells[n]`."""
    lanes = KEYS if width % KEYS == 0 else LANES
    kind = ir.VectorType(F32, lanes)

    @intrinsic
    def tile(
        typing: Any, y: Any, y_step: Any, weights: Any, w_step: Any, shares: Any, values: Any, step: Any, cells: Any,
        count: Any,
    ) -> Any:  # fmt: skip
        def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
            y, y_step, weights, w_step, shares, values, step, cells, count = args
            chosen, parts = steps(b, weights, w_step, rows), [I64(part) for part in range(0, width, lanes)]

            def body(n: Any, sums: list[Any]) -> list[Any]:
                (value,) = _rows(b, values, step, address_of(b, cells, n, 4, I32), 1)
                found = [_at(b, value, part, kind) for part in parts]
                weight = [spread(b, b.load(address_of(b, row, n, 4, F32), align=4), lanes) for row in chosen]
                pairs = zip(product(weight, found), sums, strict=True)
                return [fma(b, one, two, total) for (one, two), total in pairs]

            sums = loop(b, count, 1, [zeros(kind)] * (rows * len(parts)), body)
            for r, place in enumerate(steps(b, y, y_step, rows)):
                share = spread(b, b.load(address_of(b, shares, I64(r), 4, F32), align=4), lanes)
                for part, total in zip(parts, sums[r * len(parts) : (r + 1) * len(parts)], strict=True):
                    b.store(b.fmul(total, share), address_of(b, place, part, 4, kind), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), write

    return tile


@intrinsic
def transposed(typing: Any, y: Any, keys: Any, step: Any, cells: Any, count: Any, length: Any) -> Any:
    """y[i, n] = number i of row n of some keys, for KEYS rows, the last of `count` again where there are no more.

    the keys of a head, by cell        y, the same transposed        scores of a query q, one vector
    key 0:  a0 a1 a2 a3 …              a0 b0 c0 … p0                   q0 · (a0 b0 c0 … p0)
    key 1:  b0 b1 b2 b3 …              a1 b1 c1 … p1                 + q1 · (a1 b1 c1 … p1)
    …                                  a2 b2 c2 … p2                 + …
    key 15: p0 p1 p2 p3 …              …                             = q·a q·b q·c … q·p
    """

    def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        y, keys, step, cells, count, length = args
        last = b.sub(count, I64(1))
        places = [b.select(b.icmp_signed("<", I64(n), last), I64(n), last) for n in range(KEYS)]
        rows = [_rows(b, keys, step, address_of(b, cells, place, 4, I32), 1)[0] for place in places]

        def body(i: Any, _: list[Any]) -> list[Any]:
            groups = [[_at(b, row, i) for row in rows]]
            if KEYS > LANES:
                groups = [_interleaved(b, groups[0], range(2 * LANES))]
            while len(groups[0]) > 1:
                halves = [range(KEYS), range(KEYS, 2 * KEYS)]
                groups = [_interleaved(b, group, half) for group in groups for half in halves]
            for n, (numbers,) in enumerate(groups):
                b.store(numbers, address_of(b, y, b.add(i, I64(n)), 4 * KEYS, numbers.type), align=4)
            return []

        loop(b, length, LANES, [], body)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), write


def _interleaved(b: Builder, group: list[Any], lanes: range) -> list[Any]:
    """The first half of some vectors with the second: a number of one, a number of the other; some of the lanes."""
    half, width = len(group) // 2, group[0].type.count
    order = [lane // 2 + lane % 2 * width for lane in lanes]
    return [shuffled(b, one, two, order) for one, two in zip(group[:half], group[half:], strict=True)]


def scores(rows: int) -> Callable[..., None]:
    """y[r, n] = a[r] · column n of transposed keys · scale, for KEYS of them, with the sums that `dots` takes."""
    kind = ir.VectorType(F32, KEYS)

    @intrinsic
    def tile(typing: Any, y: Any, y_step: Any, a: Any, a_step: Any, keys: Any, length: Any, scale: Any) -> Any:
        def write(context: Any, b: Builder, signature: Any, args: Any) -> Any:
            y, y_step, a, a_step, keys, length, scale = args
            left = steps(b, a, a_step, rows)

            def body(i: Any, sums: list[Any]) -> list[Any]:
                new = list(sums)
                for lane in range(LANES):
                    place = b.add(i, I64(lane))
                    column = b.load(address_of(b, keys, place, 4 * KEYS, kind), align=4)
                    for r, row in enumerate(left):
                        x = spread(b, b.load(address_of(b, row, place, 4, F32), align=4), KEYS)
                        new[r * LANES + lane] = fma(b, x, column, sums[r * LANES + lane])
                return new

            sums = loop(b, length, LANES, [zeros(kind)] * (rows * LANES), body)
            for r, place in enumerate(steps(b, y, y_step, rows)):
                own = sums[r * LANES : (r + 1) * LANES]
                halves = [b.fadd(one, two) for one, two in zip(own[:4], own[4:], strict=True)]
                total = b.fadd(b.fadd(halves[0], halves[1]), b.fadd(halves[2], halves[3]))
                b.store(b.fmul(total, spread(b, scale, KEYS)), b.inttoptr(place, kind.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6, types.float32), write

    return tile


def _rows(b: Builder, base: Any, step: Any, cells: Any, count: int) -> list[Any]:
    """The addresses of rows whose numbers lie side by side."""
    numbers = [b.sext(b.load(b.gep(cells, [I64(n)]), align=4), I64) for n in range(count)]
    return [b.add(base, b.mul(step, number)) for number in numbers]


Body = Callable[[Any, list[Any]], list[Any]]


def loop(b: Builder, length: Any, step: int, start: list[Any], body: Body) -> list[Any]:
    """for i in range(0, length, step): values = body(i, values), with the values in registers; at least one turn."""
    before, loop, after = b.block, b.append_basic_block("loop"), b.append_basic_block("after")
    b.branch(loop)
    b.position_at_end(loop)
    i, values = b.phi(I64), [b.phi(value.type) for value in start]
    new = body(i, values)
    following = b.add(i, I64(step))
    for phi, first, later in zip([i, *values], [I64(0), *start], [following, *new], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, b.block)
    b.cbranch(b.icmp_signed("<", following, length), loop, after)
    b.position_at_end(after)
    return new


def _totals(b: Builder, sums: list[Any], add: Callable[[Any, Any], Any]) -> Any:
    """The totals of one, two, four or eight vectors of eight lanes, side by side: the same additions for each."""
    if len(sums) == LANES:
        return shuffled(b, _totals(b, sums[:4], add), _totals(b, sums[4:], add), range(LANES))
    if len(sums) == 1:
        return spread(b, _sum(b, sums[0], add), 1)
    halves = [add(shuffled(b, x, x, range(4)), shuffled(b, x, x, range(4, 8))) for x in sums]  # 4 lanes each
    pairs = list(zip(halves[::2], halves[1::2], strict=True))
    quarters = [add(shuffled(b, x, y, (0, 2, 4, 6)), shuffled(b, x, y, (1, 3, 5, 7))) for x, y in pairs]
    x, y = quarters[0], quarters[-1]
    lanes = range(0, 2 * len(sums), 2)
    return add(shuffled(b, x, y, lanes), shuffled(b, x, y, [lane + 1 for lane in lanes]))


def _sum(b: Builder, x: Any, add: Callable[[Any, Any], Any]) -> Any:
    for width in (8, 4, 2, 1)[0 if x.type.count == 16 else 1 :]:
        x = add(shuffled(b, x, x, range(width)), shuffled(b, x, x, range(width, 2 * width)))
    return b.extract_element(x, I32(0))


def shuffled(b: Builder, x: Any, y: Any, lanes: Any) -> Any:
    lanes = list(lanes)
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def spread(b: Builder, x: Any, lanes: int) -> Any:
    one = b.insert_element(ir.Constant(ir.VectorType(x.type, lanes), ir.Undefined), x, I32(0))
    return shuffled(b, one, one, [0] * lanes)


def steps(b: Builder, address: Any, step: Any, count: int) -> list[Any]:
    return [b.add(address, b.mul(step, I64(n))) for n in range(count)]


def address_of(b: Builder, base: Any, index: Any, size: int, kind: Any) -> Any:
    return b.inttoptr(b.add(base, b.mul(index, I64(size))), kind.as_pointer())


def _at(b: Builder, base: Any, index: Any, kind: Any = F32S) -> Any:
    return b.load(address_of(b, base, index, 4, kind), align=4)


def fma(b: Builder, x: Any, y: Any, z: Any) -> Any:
    kind = x.type
    name = f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32"
    return b.call(declared(b, f"llvm.fma.{name}", kind, kind, kind, kind), [x, y, z])


def zeros(kind: Any) -> Any:
    return ir.Constant(kind, [0] * kind.count)


def declared(b: Builder, name: str, result: Any, *args: Any) -> Any:
    found = b.module.globals.get(name)
    return found if found is not None else ir.Function(b.module, ir.FunctionType(result, args), name)
