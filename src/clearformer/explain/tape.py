"""What a run leaves behind: named tensors, and the operations that made them.

A long text through a large model leaves more than fits. So the inside of a block may be forgotten: its input and output
stay, and when something inside is asked for, the block is run again, with the same numbers. `Tape.most` bytes of
insides are kept, those that were asked for last. A block that has more than that alone is open while one looks inside,
and no other block of its kind in the whole process is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from clearformer.core.places import Places


@dataclass(frozen=True, eq=False)
class Operation:
    """One call of a PyTorch function."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    part: int | None = None  # which tensor of a tuple of results

    def replay(self, args: Any, kwargs: Any) -> Tensor:
        result = self.function(*args, **kwargs)
        return result if self.part is None else result[self.part]


class Record:
    """A named tensor of the run."""

    def __init__(self, name: str, axes: list[str], value: Tensor, changed: bool = False):
        self.name, self.axes, self.shape, self.changed = name, axes, value.shape, changed
        self.operands: list[str] | None = None  # their names, once the block it is in was forgotten
        self.block: Block | None = None  # that it is inside of
        self.kept: Tensor | None = value

    @property
    def value(self) -> Tensor:
        found = self.kept
        if found is None:
            assert self.block is not None
            found = self.block.value(self)
        return found

    @property
    def later(self) -> bool:
        """Whether it is computed again when it is asked for."""
        return self.kept is None


class Block:
    """One block of a stack, and how to run it again."""

    def __init__(self, tape: "Tape", run: Callable[[], Tensor]):
        self.tape, self.run = tape, run
        self.records: list[Record] = []
        self.alive: list[Any] = []  # all tensors of its inside; empty once they are forgotten
        self.output: Tensor | None = None
        self.bytes = 0

    def first(self) -> Tensor:
        """Run it while its operations are noted anyway."""
        self.output = self._recorded(nullcontext())
        self.tape.alive.append(self.output)
        self.tape.trim()
        if self.large:
            self.close()
        return self.output

    def open(self) -> None:
        """Have its inside, run again where it was forgotten."""
        with self.tape.lock:
            if self.alive:
                self.tape.opened.remove(self)
                self.tape.opened.append(self)
                return
            if self.large:
                _alone(self)
            with torch.no_grad(), _threads(self.tape.threads):
                again = self._recorded(self.tape.recorder())
            assert self.output is not None
            if id(again) in self.tape.operations:  # what follows knows the output of the first run, which is the same
                self.tape.operations[id(self.output)] = self.tape.operations[id(again)]

    def value(self, record: Record) -> Tensor:
        with self.tape.lock:
            self.open()
            found = record.kept
            assert found is not None
            self.tape.trim()
            return found

    def _recorded(self, noting: Any) -> Tensor:
        tape, mark = self.tape, len(self.tape.alive)
        tape.block = self
        try:
            with noting:
                result = self.run()
        finally:
            tape.block = None
        self.alive = tape.alive[mark:]
        del tape.alive[mark:]
        self.bytes = tape.size(self.alive)
        tape.opened.append(self)
        return result

    @property
    def large(self) -> bool:
        return self.bytes > self.tape.most

    def close(self) -> None:
        """Forget its inside, where it is there."""
        if self in self.tape.opened:
            self.tape.opened.remove(self)
            self.forget()

    def forget(self) -> None:
        tape = self.tape
        for record in self.records:
            if record.operands is None:
                record.operands = tape.operands(record)
        for each in self.alive:
            operation = tape.operations.pop(id(each), None)
            if operation is not None:
                tape.moves.pop(operation, None)
            if each is not self.output:
                tape.named.pop(id(each), None)
        for record in self.records:
            if record.kept is not self.output:
                record.kept = None
        tape.operations.pop(id(self.output), None)
        self.alive = []


_LARGE: list[ref[Block]] = []  # large blocks that are open; more than one where another thread looks into it just now
_CHOOSING = Lock()


def _alone(block: Block) -> None:
    """Close all other large blocks that nobody is looking into."""
    with _CHOOSING:
        others = [each for each in _LARGE if each() not in (None, block)]
        _LARGE[:] = [ref(block)]
        for each in others:
            other = each()
            if other is None:
                continue
            if not other.tape.lock.acquire(blocking=False):
                _LARGE.append(each)
                continue
            try:
                other.close()
            finally:
                other.tape.lock.release()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with so many threads: sums are split among them, so that another number may round otherwise."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Tape:
    """All that a run left behind."""

    most: float = float("inf")  # bytes of the insides of blocks that are kept
    records: dict[str, Record] = field(default_factory=dict)
    named: dict[int, Record] = field(default_factory=dict)  # by id of the tensor
    operations: dict[int, Operation] = field(default_factory=dict)  # by id of the result
    alive: list[Any] = field(default_factory=list)  # keeps ids from being used again
    moves: dict[Operation, Any] = field(default_factory=dict)  # where cells came from, once asked
    given: set[str] = field(default_factory=set)  # the names of what no step made: parameters, inputs, positions
    places: dict[str, Places] = field(default_factory=dict)  # where the tokens of each stack are
    recorder: Callable[[], Any] = lambda: None  # notes operations while it is entered
    block: Block | None = None  # that is run just now
    opened: list[Block] = field(default_factory=list)  # those whose insides are there, the last asked for at the end
    lock: RLock = field(default_factory=RLock)
    threads: int = field(default_factory=torch.get_num_threads)  # that it was made with

    def give(self, record: Record) -> None:
        self.given.add(record.name)
        self.keep(record)

    def keep(self, record: Record) -> None:
        before = self.records.get(record.name)
        if self.block is not None and before is not None and before.block is self.block:  # it is run again
            before.kept = record.kept if before.kept is None else before.kept
            record, value = before, record.kept
        else:
            self.records[record.name], value = record, record.kept
            if self.block is not None:
                record.block = self.block
                self.block.records.append(record)
        self.named.setdefault(id(value), record)
        self.alive.append(value)

    def trim(self) -> None:
        """Forget the insides that were asked for longest ago; the last one stays."""
        with self.lock:
            while len(self.opened) > 1 and sum(block.bytes for block in self.opened) > self.most:
                self.opened.pop(0).forget()

    def open(self, record: Record) -> None:
        """Have the operations that made a tensor."""
        if record.block is not None:
            record.block.open()
            self.trim()

    def size(self, things: list[Any]) -> int:
        """Bytes of tensors, each storage counted once, without those of parameters."""
        stored = (each.untyped_storage() for each in things if isinstance(each, Tensor))
        sizes = {each.data_ptr(): each.nbytes() for each in stored}
        weights = {self.records[name].value.untyped_storage().data_ptr() for name in self.given}
        return sum(size for pointer, size in sizes.items() if pointer not in weights)

    @property
    def bytes(self) -> int:
        """Of all that is kept, or may be, without the model."""
        with self.lock:
            return self.size(self.alive) + sum(block.bytes for block in self.opened)

    def operands(self, found: Record) -> list[str]:
        """The named tensors that a step was computed from, nearest first."""
        if found.operands is not None:
            return found.operands
        names: list[str] = []
        seen: set[int] = set()

        def walk(thing: Any, top: bool) -> None:
            if isinstance(thing, tuple | list):
                for each in thing:
                    walk(each, False)
            if not isinstance(thing, Tensor) or id(thing) in seen:
                return
            seen.add(id(thing))
            named, operation = self.named.get(id(thing)), self.operations.get(id(thing))
            if named is not None and not top:
                names.append(named.name)
            elif operation is not None:
                walk(operation.args, False)

        walk(found.kept, True)
        return names
