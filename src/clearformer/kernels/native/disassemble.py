"""A program as text: `str(program)`, one line an operation, and a line where the threads wait for each other.

    0 ┌ norm      STATES → NORMED           512         LayerNorm
    1 └ quantise  NORMED → QUANTISED        512         int8 in groups of 64
        ─ barrier ─
    2   linear    QUANTISED → QUERIES       512 → 512   int8
    3   linear    QUANTISED → NEW_KEYS      512 → 128   int8

Operations in one bracket are fused: a thread takes some of its rows through all of them before it goes on to others.
Keys and values have the number of their attention; NEW_KEYS and NEW_VALUES are those of this run's tokens.
"""

import struct
from typing import TYPE_CHECKING, NamedTuple

from clearformer.core.model import EncoderDecoder, Stack, Transformer
from clearformer.kernels.native import isa

if TYPE_CHECKING:
    from clearformer.kernels.native.program import Program

BUFFERS = (
    "STATES", "NORMED", "QUERIES", "MIXED", "INNER", "GATES", "NEW_KEYS", "NEW_VALUES", "QUANTISED", "SCALES", "LOGITS",
    "NUMBERS", "PLACES", "TOTALS",
)  # fmt: skip
BARRIER = "─ barrier ─"


class Line(NamedTuple):
    """What is read and written, how large it is, and what else there is to say."""

    flow: str
    size: str
    flags: list[str]


def listings(model: Transformer | EncoderDecoder) -> dict[str, str]:
    """The programs of a packed model's stacks by their names; why a stack has none where it has none."""
    from clearformer.kernels.native.stack import NativeStack
    from clearformer.kernels.pack import choice

    why, found = dict(choice(model).paths), {}
    for name, stack in model.named_children():
        if isinstance(stack, NativeStack) and stack.reason is None:
            found[name] = str(stack.program)
            if stack.memories.operations:
                found[f"{name}, keys and values of its memory"] = str(stack.memories)
        elif isinstance(stack, Stack):
            found[name] = f"no program: {why[name] or 'it was packed without'}"
    return found


def listing(program: "Program") -> str:
    """All operations of a program."""
    operations, rows = program.operations, isa.table(program.operations)
    waits = sum(row[isa.WAIT] for row in rows)
    grown = {number for each in program.growing.values() for number in each.operations}
    lines = [f"operations: {len(rows)}, barriers: {waits}"]
    if program.widths:
        lines.append("buffers: " + ", ".join(f"{buffer(n)} {width}" for n, width in sorted(program.widths.items())))
    if 0 < program.given < len(rows):
        lines.append(f"with vectors given instead of tokens: from {program.given} on")
    for number, (operation, row) in enumerate(zip(operations, rows, strict=True)):
        fused = (number > 0 and rows[number - 1][isa.FUSED_OPS] > 1, row[isa.FUSED_OPS] > 1)
        bracket = {(False, True): "┌", (True, True): "│", (True, False): "└"}.get(fused, " ")
        flow, size, flags = line(operation, program, number in grown)
        name = type(operation).__name__.lower()
        lines.append(f"{number:4} {bracket} {name:9} {flow:42} {size:15} {', '.join(flags)}".rstrip())
        if row[isa.WAIT]:
            lines.append(f"{'':7}{BARRIER}")
    return "\n".join(lines)


def line(operation: isa.Operation, program: "Program", grown: bool = False) -> Line:
    """One operation; `grown` says that it points at a table that is made when the length of the texts is known."""
    match operation:
        case isa.Rank(weight=0):
            return Line("LOGITS → NUMBERS, PLACES, TOTALS", f"{operation.outputs}", [])
        case isa.Linear():
            ranked = isinstance(operation, isa.Rank)
            source = "QUANTISED" if operation.scale else buffer(operation.source)
            target = "NUMBERS, PLACES, TOTALS" if ranked else buffer(operation.target)
            flags = ["int8" if operation.scale else "float32"] + ["added"] * operation.more
            return Line(f"{source} → {target}", f"{operation.inputs} → {operation.outputs}", flags)
        case isa.Quantise():
            kind = f"int8 in groups of {isa.GROUP}" if operation.grouped else f"int16 up to ±{operation.limit}"
            return Line(f"{buffer(operation.source)} → QUANTISED", f"{operation.width}", [kind])
        case isa.Norm():
            kind = "LayerNorm" if operation.centred else "RMSNorm"
            flow = f"{buffer(operation.source)} → {buffer(operation.target)}"
            return Line(flow, f"{operation.width}", [kind, *["added"] * operation.more])
        case isa.Attend():
            return _attend(operation, program, grown)
        case isa.Rotate():
            flags = ["RMSNorm"] * bool(operation.weight)
            if grown or operation.angles:
                flags.append("rotary, interleaved" if operation.interleaved else "rotary, by halves")
            return Line(buffer(operation.target), f"{operation.heads} × {operation.head}", flags)
        case isa.Activate():
            names = {number: name for name, number in isa.ACTIVATIONS.items()}
            gated = [] if operation.other < 0 else [f"times {buffer(operation.other)}"]
            return Line(buffer(operation.target), f"{operation.width}", [names[operation.which], *gated])
        case isa.Pick():
            flags = ["int8"] * bool(operation.scale) + [f"times {_float(operation.factor):g}"]
            flags += ["positions"] * bool(grown or operation.positions) + ["segment 0"] * bool(operation.side)
            return Line("tokens → STATES", f"{operation.width}", flags)
        case isa.Scale():
            return Line(buffer(operation.target), f"{operation.width}", [f"times {_float(operation.factor):g}"])
        case isa.Store():
            flow = f"{buffer(operation.source)} → {buffer(operation.target)}"
            return Line(flow, f"{operation.width}", ["each row to its cell"])
        case isa.Merge():
            return Line("NUMBERS, PLACES, TOTALS", f"{operation.outputs}", ["of all threads"])
    # one that has no words yet
    return Line(", ".join(f"{name}={value}" for name, value in operation._asdict().items()), "", [])


def _attend(operation: isa.Attend, program: "Program", grown: bool) -> Line:
    pattern = "memory" if operation.spans == isa.MEMORY else program.patterns[operation.spans - 1 - isa.MEMORY].kind
    flags = [pattern, f"scale {_float(operation.scale):g}"]
    if operation.key_heads < operation.heads:
        flags.append(f"{operation.key_heads} key heads (GQA)")
    flags += ["bias of distances"] * bool(grown or operation.bias)
    read = ", ".join(buffer(number) for number in (operation.queries, operation.keys, operation.values))
    return Line(f"{read} → {buffer(operation.target)}", f"{operation.heads} × {operation.head}", flags)


def buffer(number: int) -> str:
    """The name of a buffer."""
    if number < isa.FIRST_KEYS:
        return BUFFERS[number]
    layer, part = divmod(number - isa.FIRST_KEYS, 2)
    return f"{('keys', 'values')[part]} {layer}"


def _float(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<i", bits))[0]
