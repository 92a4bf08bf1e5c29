"""The machine: the compiled code in memory (`code_cache` has it), run on PyTorch's own threads."""

import ctypes
import os
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from clearformer.kernels.native import code_cache, isa
from clearformer.kernels.native.compile import PARTS, symbol, target_machine
from clearformer.kernels.native.processor import cores

SPINS = 10_000  # turns that a thread waits at a barrier before it lets someone else have its core


class Machine:
    """The code, and PyTorch's way to start threads and let them wait for each other."""

    forked = False  # whether this process is the copy of another

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
        self.run, self.lock, self.at_work = found["run"], Lock(), 0  # and how many threads are, of all jobs
        self.codes = np.array([found[kind.__name__.lower()] for kind in isa.KINDS], dtype=np.int64)
        self.alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.run)
        self.team = _openmp()
        if self.team is not None:
            self.team.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            self.team.GOMP_parallel.restype = None
        # the addresses of the functions with which a thread lets others run, and that tell it its number and theirs
        self.yield_fn = _address(ctypes.CDLL(None), "sched_yield") if self.team is not None else _NOTHING_AT
        self.thread = _NOTHING_AT if self.team is None else _address(self.team, "omp_get_thread_num")
        self.count = _ONE_AT if self.team is None else _address(self.team, "omp_get_num_threads")

    @property
    def threads(self) -> int:
        return 1 if self.team is None or self.forked else torch.get_num_threads()

    def start(self, fields: np.ndarray[Any, Any], job: int, threads: int) -> None:
        """Run the job of these fields, which are at an address."""
        if self.team is None or threads == 1:
            self.alone(job)
            return
        with self.lock:
            self.at_work += threads
            fields[isa.SPINS] = SPINS if self.at_work <= cores() else 0
        try:
            self.team.GOMP_parallel(self.run, job, threads, 0)
        finally:
            with self.lock:
                self.at_work -= threads


@cache
def machine() -> Machine:
    """The machine of this process; ImportError without a compiler, OSError where it fails."""
    return Machine(code_cache.objects())


def _after_fork() -> None:
    """The threads of OpenMP do not come along into a process that is a copy, and it would wait for them for ever."""
    Machine.forked = True
    torch.set_num_threads(1)  # PyTorch's own operations would wait as well


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _openmp() -> ctypes.CDLL | None:
    """The library that PyTorch runs its threads with, or None where it is not GNU's: then there is one thread."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*")):
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    return None


def _address(library: ctypes.CDLL, name: str) -> int:
    found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert found
    return found


_NOTHING = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
_NOTHING_AT = ctypes.cast(_NOTHING, ctypes.c_void_p).value or 0
_ONE = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)
_ONE_AT = ctypes.cast(_ONE, ctypes.c_void_p).value or 0
