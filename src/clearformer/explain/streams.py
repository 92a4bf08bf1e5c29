"""The residual stream of a run: where it begins, what each branch adds, and the norms on its way.

A stream is what `x + branch(x)` leaves behind: the embedding and everything that was added to it. In models with norms
after each branch the stream goes through them, so that what was added before is scaled on the way.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from clearformer.core.block import LayerNorm, Residual, RMSNorm
from clearformer.core.model import EncoderDecoder, Stack
from clearformer.errors import TraceError
from clearformer.explain.tape import Tape

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace


class Writer(NamedTuple):
    """A stack that the head reads, module by module, and its name in addresses."""

    name: str
    stack: Stack
    head: nn.Module


class Branch(NamedTuple):
    name: str  # decoder.2.cross
    residual: Residual


def writer(trace: "Trace") -> Writer:
    """The stack whose stream becomes the answer."""
    return stacked(trace, "decoder" if isinstance(trace.ran.model, EncoderDecoder) else "stack")


def stacked(trace: "Trace", name: str) -> Writer:
    """The stack of this name: encoder, decoder or stack."""
    model = trace.ran.plain
    return Writer(name, getattr(model, name), model.head)


def branches(of: Writer) -> Iterator[Branch]:
    """In the order they ran."""
    for number, block in enumerate(of.stack.blocks):
        for name, residual in block.branches.items():
            yield Branch(f"{of.name}.{number}.{name}", residual)


def first(trace: "Trace", of: Writer) -> Tensor:
    """b t m: the stream before the first branch."""
    name = next(branches(of)).name
    return summands(trace.tape, f"{name}.sum")[0]


def layers(trace: "Trace", of: Writer) -> Iterator[tuple[str, Tensor]]:
    """The stream before the first block and behind each one, with its address."""
    start = first(trace, of)
    named = trace.tape.named.get(id(start))
    yield (named.name if named is not None else f"{of.name}.embed"), start
    for number, block in enumerate(of.stack.blocks):
        *_, last = block.branches
        name = f"{of.name}.{number}.{last}"
        step = "after" if f"{name}.after" in trace.tape.records else "sum"
        yield f"{name}.{step}", trace.tape.records[f"{name}.{step}"].value


def summands(tape: Tape, name: str) -> tuple[Tensor, Tensor]:
    """The two tensors that a `sum` added."""
    with tape.lock:
        tape.open(tape.records[name])
        operation = tape.operations[id(tape.records[name].value)]
        while operation.name in ("clone", "view_as"):  # a change was made, or the result kept under another name
            operation = tape.operations[id(operation.args[0])]
        return operation.args[0], operation.args[1]


def is_norm(module: nn.Module) -> bool:
    """Whether a place for a norm has one; where it has none there is an identity."""
    if isinstance(module, nn.Identity):
        return False
    if not isinstance(module, LayerNorm | RMSNorm):
        raise TraceError(f"a norm of the kind {type(module).__name__} cannot be taken apart")
    return True


def single(trace: "Trace", what: str) -> None:
    """Refuse a batch: a question about a word is about one text."""
    if trace.ran.inputs[0].size(0) != 1:
        raise TraceError(f"{what}: trace one text at a time; this trace has {trace.ran.inputs[0].size(0)}")
