"""The machine: the compiled code in memory (`code_cache` has it), and the threads that run it (`team`)."""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch

from clearformer.kernels.native import code_cache, isa
from clearformer.kernels.native.compile import PARTS, symbol, target_machine
from clearformer.kernels.native.processor import threads
from clearformer.kernels.native.team import Team


class Machine:
    """The code, and for every thread that runs it the team that it leads."""

    def __init__(self, objects: list[bytes]):
        from llvmlite import binding

        for name in ("memset", "memcpy", "memmove"):
            binding.add_symbol(name, _address(ctypes.CDLL(None), name))
        self.engines: list[Any] = []  # one each: of several objects in one, only the first finds its constants
        found: dict[str, int] = {}
        for code, functions in zip(objects, PARTS, strict=True):
            engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target_machine())
            engine.add_object_file(binding.ObjectFileRef.from_data(code))
            engine.finalize_object()
            found |= {name: engine.get_function_address(symbol(name)) for name in functions}
            self.engines.append(engine)
        self.codes = np.array([found[kind.__name__.lower()] for kind in isa.KINDS], dtype=np.int64)
        self.run, self.lead, self.serve = (found[name] for name in ("run", "lead", "serve"))
        self.alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self.run)
        self.own = threading.local()

    @property
    def threads(self) -> int:
        """How many a run of the calling thread may have: PyTorch's number, and no more than there are cores for."""
        return min(getattr(self.own, "most", 1 << 16), threads())

    def team(self, threads: int) -> Team:
        """The team that the calling thread leads."""
        team = getattr(self.own, "team", None)
        if team is None or team.threads != threads or team.process_changed():
            team = self.own.team = Team(self.lead, self.serve, threads)
        return team


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """Runs that the calling thread starts in here have so many threads at most."""
    own = machine().own
    before = getattr(own, "most", 1 << 16)
    own.most = threads
    try:
        yield
    finally:
        own.most = before


@cache
def machine() -> Machine:
    """The machine of this process; ImportError without a compiler, OSError where it fails."""
    return Machine(code_cache.objects())


def _after_fork() -> None:
    """Threads do not come along into a process that is a copy: a team is made anew (`Team.process_changed`), but
    PyTorch's own operations would wait for theirs for ever."""
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _address(library: ctypes.CDLL, name: str) -> int:
    found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert found
    return found
