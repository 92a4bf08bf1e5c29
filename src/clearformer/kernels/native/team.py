"""Threads that run one job together, on a machine that others use too.

The thread that leads calls compiled code with the job; the others sleep in compiled code until there is one. At a
barrier they spin for microseconds and then sleep (a futex): a thread that spins on takes the core from the one that it
waits for. Where the leader finds that it had to wait all the same, it works alone for a while: one thread that runs is
faster than two of which one does not.
"""

import ctypes
import os
import platform
import sys
import threading
import time
from typing import Any

import numpy as np

from clearformer.kernels.native import isa
from clearformer.kernels.native.contention import Contention

FUTEX = {"x86_64": 202, "aarch64": 98}  # Linux' number of the system call
START_SPINS, BARRIER_SPINS = 4_000, 1_000  # pauses of about 50 ns: between two steps there is some Python


class Team:
    """A leader and its helpers. Only the thread that made it may use it."""

    def __init__(self, lead: int, serve: int, threads: int):
        self.threads, self.process = threads, os.getpid()
        self.memory = np.zeros(isa.TEAM + 8, dtype=np.int64)
        self.shared = self.memory[-self.memory.__array_interface__["data"][0] % 64 // 8 :][: isa.TEAM]
        self.at = self.shared.__array_interface__["data"][0]
        self.timeout = np.array([0, 1_000_000], dtype=np.int64)  # a millisecond; whoever waits looks again
        libc = ctypes.CDLL(None)
        number = FUTEX.get(platform.machine(), 0) if sys.platform == "linux" else 0
        waits = libc.syscall if number else libc.sched_yield
        self.shared[isa.SYSCALL] = ctypes.cast(waits, ctypes.c_void_p).value or 0
        self.shared[isa.FUTEX], self.shared[isa.TIMEOUT] = number, self.timeout.__array_interface__["data"][0]
        self.shared[isa.START_SPINS], self.shared[isa.BARRIER_SPINS] = START_SPINS, BARRIER_SPINS
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        self.lead, served = kind(lead), kind(serve)
        self.contention = Contention()
        for n in range(1, threads):
            name = f"clearformer-helper-{n}"
            arguments = (served, self.memory, self.timeout, self.at, n)
            threading.Thread(target=_serve, args=arguments, name=name, daemon=True).start()

    def process_changed(self) -> bool:
        """After a fork there are no helpers."""
        return self.process != os.getpid()

    def size(self) -> int:
        """How many threads the next run should have: all, or one while others use the cores."""
        return 1 if self.contention.alone() else self.threads

    def run(self, job: int) -> None:
        """A job for all threads; how much of the time the leader had no core is learnt on the way."""
        wall, cpu = time.perf_counter(), time.thread_time()
        self.lead(job, self.at, 0)
        self.contention.saw(time.perf_counter() - wall, time.thread_time() - cpu)

    def arrivals(self) -> int:
        return int(self.shared[isa.ARRIVALS])

    def __del__(self) -> None:
        if getattr(self, "shared", None) is not None and not self.process_changed():
            self.shared[isa.STOP] = 1
            self.shared[isa.GENERATION] += 1
            if self.shared[isa.FUTEX]:
                ctypes.CDLL(None).syscall(
                    ctypes.c_long(int(self.shared[isa.FUTEX])), ctypes.c_void_p(self.at), ctypes.c_int(isa.FUTEX_WAKE),
                    ctypes.c_int(0x7FFFFFFF), None, None, ctypes.c_int(0),
                )  # fmt: skip


def _serve(serve: Any, memory: Any, timeout: Any, at: int, number: int) -> None:
    """A helper's life; the memory is kept for as long as it looks at it."""
    serve(at, None, number)
