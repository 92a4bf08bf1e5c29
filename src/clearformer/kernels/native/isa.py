"""What a program is made of: the operations and their fields, as `ops` reads them and `lower` writes them.

An operation is a row of WIDTH whole numbers: its kind, whether all threads wait for each other after it, and the fields
below in their order. Buffers are given by number, constants by address; a step is the number of floats from one row to
the next. A field that is a fraction holds the bits of a float.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 16
KIND, WAIT, FIELDS = range(3)  # where a row has its kind, whether threads wait after it, and its fields from here on
FUSED_OPS = WIDTH - 1  # the last: how many operations, from this one on, a thread does to its own rows only
LINEAR, QUANTISE, NORM, ATTEND, ACTIVATE, ROTATE, PICK, SCALE, RANK, MERGE, STORE = range(11)
RELU, GELU, GELU_TANH, SILU, TANH = range(5)
ACTIVATIONS = {"relu": RELU, "gelu": GELU, "gelu_tanh": GELU_TANH, "silu": SILU, "tanh": TANH}
MEMORY = 0  # the list of spans of cross-attention; those of a program's patterns follow

# the numbers of the buffers that every program has; keys and values of the layers follow
STATES, NORMED, QUERIES, MIXED, INNER, GATES, NEW_KEYS, NEW_VALUES, QUANTISED, SCALES = range(10)
LOGITS, NUMBERS, PLACES, TOTALS, FIRST_KEYS = range(10, 15)

# the fields of a job
CODES, ROWS, THREADS, BUFFERS, SCRATCH, SCRATCH_STEP, PROGRAM, OPERATIONS, POSITIONS, IDS = range(10)
CELLS = 10  # the address of the cells that the rows' keys and values are stored in
RANKED, KEEP, HEAT = 11, 12, 13  # how many rows, the first ones, are ranked, how many numbers of each are kept, and
# the address of one over the temperature of each
ARRIVED, SPANS = 14, 15  # what the team's counter says before the run; the spans of the rows

# the memory that a team of threads shares, in lines of eight numbers: what several write has a line of its own
GENERATION, ARRIVALS, SLEEPERS = 0, 8, 16  # of jobs; of threads at barriers, of all runs; who sleeps
SYSCALL, FUTEX, TIMEOUT, START_SPINS, BARRIER_SPINS, JOB, STOP, SLEEPS = range(24, 32)
TEAM = 32
FUTEX_WAIT, FUTEX_WAKE = 128, 129  # of this process only
MIN_SCRATCH = 16  # floats of a thread
QUERY_ROWS = 4  # rows whose queries meet the same keys at once
TOPK_BLOCK, TOPK_ROWS = 128, 48  # numbers of a row that are ranked at a time, and rows
PAGE = 1024  # floats
GROUP = 64  # numbers of a row of bytes that have a scale of their own
SPAN = 3  # of a row: the address of its list of cells, the first it sees, the first it does not


class Norm(NamedTuple):
    """target = (source − mean) / √(variance + eps) · weight + bias, or added to it if more; no mean if not centred"""

    source: int
    target: int
    width: int
    step: int
    weight: int
    bias: int
    eps: int
    centred: int
    more: int


class Quantise(NamedTuple):
    """source → QUANTISED, whole numbers up to ± limit, and SCALES, one a row; if grouped, bytes, with a scale and
    −128 times the sum for every GROUP of them"""

    source: int
    width: int
    step: int
    limit: int
    grouped: int


class Linear(NamedTuple):
    """target = source · weightᵀ + bias, or added to it if more; of QUANTISED if the weight has scales. The weight is in
    panels of sixteen rows: of pairs, or of quads if QUANTISED is grouped"""

    source: int
    target: int
    inputs: int
    outputs: int
    source_step: int
    target_step: int
    weight: int
    scale: int
    bias: int
    more: int
    grouped: int  # whether QUANTISED is


class Rotate(NamedTuple):
    """each head of target: normed if there is a weight, then turned by the angles of the row's position"""

    target: int
    heads: int
    head: int
    step: int
    angles: int  # for each position the cosines and then the sines, head / 2 of each; 0 for no turn
    interleaved: int
    weight: int
    eps: int


class Attend(NamedTuple):
    """target = softmax(queries · keysᵀ · scale + bias) · values over the row's span of cells"""

    queries: int
    target: int
    keys: int
    values: int
    heads: int
    key_heads: int
    head: int
    step: int
    spans: int
    scale: int
    bias: int  # for each head the bias of a distance, key − query
    bias_step: int
    bias_centre: int  # where distance 0 is


class Activate(NamedTuple):
    """target = activation(target), times other if there is one"""

    target: int
    other: int
    width: int
    step: int
    which: int


class Pick(NamedTuple):
    """STATES = the table's row of the token · factor + the row of its position + side, where there are such"""

    table: int
    scale: int  # of the rows of a table of int8, which lie in panels
    quads: int  # whether these are for products of bytes
    width: int
    step: int
    factor: int
    positions: int
    side: int


class Scale(NamedTuple):
    """target = target · factor"""

    target: int
    width: int
    step: int
    factor: int


class Rank(Linear):
    """what Linear says, a block of outputs at a time, and kept is only, of each row: the KEEP largest of a thread's
    blocks, largest first (NUMBERS), their places (PLACES), and of each block the largest, Σ e^(x − largest) and
    Σ e^((x − largest) · HEAT) (TOTALS). Without a weight the numbers are those of LOGITS; with one they are written
    there too, where LOGITS is an address."""


class Store(NamedTuple):
    """the row's numbers → its cell of the paged KV cache"""

    source: int
    target: int
    width: int
    step: int


class Merge(NamedTuple):
    """what the threads have found, into the lists of the first; TOTALS begin with those of the whole row"""

    outputs: int


Operation = Linear | Quantise | Norm | Attend | Activate | Rotate | Pick | Scale | Merge | Store  # and Rank, a Linear
KINDS = {
    Linear: LINEAR, Quantise: QUANTISE, Norm: NORM, Attend: ATTEND, Activate: ACTIVATE, Rotate: ROTATE, Pick: PICK,
    Scale: SCALE, Rank: RANK, Merge: MERGE, Store: STORE,
}  # fmt: skip

# where in its row an operation has each of its fields: op[norm.width]; those of Rank are where Linear has them
linear, quantise, norm, attend, activate, rotate, pick, scale, merge, store = (
    Linear(*range(FIELDS, FIELDS + len(Linear._fields))),
    Quantise(*range(FIELDS, FIELDS + len(Quantise._fields))),
    Norm(*range(FIELDS, FIELDS + len(Norm._fields))),
    Attend(*range(FIELDS, FIELDS + len(Attend._fields))),
    Activate(*range(FIELDS, FIELDS + len(Activate._fields))),
    Rotate(*range(FIELDS, FIELDS + len(Rotate._fields))),
    Pick(*range(FIELDS, FIELDS + len(Pick._fields))),
    Scale(*range(FIELDS, FIELDS + len(Scale._fields))),
    Merge(*range(FIELDS, FIELDS + len(Merge._fields))),
    Store(*range(FIELDS, FIELDS + len(Store._fields))),
)


def table(operations: Sequence[Operation]) -> list[list[int]]:
    """A program: for each operation its kind, whether the threads wait for each other after it, and its fields."""
    rows, since = [], []
    for operation, following in zip(operations, [*operations[1:], None], strict=True):
        since.append(operation)
        wait = following is not None and any(_clash(before, following) for before in since)
        if wait:
            since = []
        row = [KINDS[type(operation)], int(wait), *operation]
        rows.append(row + [0] * (WIDTH - len(row)))
    fused = 0
    for row, operation in zip(reversed(rows), reversed(operations), strict=True):
        fused = 0 if not isinstance(operation, BY_ROWS) else 1 if row[WAIT] else fused + 1
        row[FUSED_OPS] = fused
    return rows


def _clash(before: Operation, after: Operation) -> bool:
    """Whether a thread may not begin the later one while another is still at the earlier one."""
    if isinstance(before, BY_ROWS) and isinstance(after, BY_ROWS):
        return False  # a thread has the same rows in both
    (reads, writes), (reads_after, writes_after) = _touched(before), _touched(after)
    return bool(writes & (reads_after | writes_after) or reads & writes_after)


BY_ROWS = Norm | Quantise | Rotate | Activate | Pick | Scale | Merge | Store


def _touched(operation: Operation) -> tuple[set[int], set[int]]:
    """The buffers that an operation reads and writes."""
    match operation:
        case Rank():
            found = LOGITS if operation.weight == 0 else operation.source if operation.scale == 0 else QUANTISED
            reads, writes = {found, SCALES}, {NUMBERS, PLACES, TOTALS}
        case Linear(scale=0):
            reads, writes = {operation.source}, {operation.target}
        case Linear():
            reads, writes = {QUANTISED, SCALES}, {operation.target}
        case Quantise():
            reads, writes = {operation.source}, {QUANTISED, SCALES}
        case Attend():
            reads, writes = {operation.queries, operation.keys, operation.values}, {operation.target}
        case Rotate() | Scale():
            reads, writes = set(), {operation.target}
        case Pick():
            reads, writes = set(), {STATES}
        case Merge():
            reads, writes = set(), {NUMBERS, PLACES, TOTALS}
        case Activate():
            reads, writes = {operation.other}, {operation.target}
        case _:
            reads, writes = {operation.source}, {operation.target}
    return reads, writes


def keys(layer: int) -> tuple[int, int]:
    """The buffers of a layer's keys and values."""
    return FIRST_KEYS + 2 * layer, FIRST_KEYS + 2 * layer + 1


def bits(x: float) -> int:
    """A float as the whole number that a field holds."""
    return struct.unpack("<i", struct.pack("<f", x))[0]


def padded(width: int) -> int:
    """So many numbers up to whole vectors; what fills them up are zeros."""
    return -(-width // 16) * 16


def stride(width: int) -> int:
    """The step of rows of so many numbers. Caches have few places for what lies at multiples of a page."""
    numbers = padded(width)
    return numbers + 16 if numbers % PAGE == 0 else numbers
