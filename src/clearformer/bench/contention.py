"""A machine that is not idle: other processes at work beside a benchmark, and fewer cores to run on."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clearformer.errors import DataError

# It spins until its parent is gone: one that was killed cannot end it.
SPIN = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy(count: int) -> Iterator[list[int]]:
    """So many processes that do nothing but count, pinned nowhere; they end with the block, however that ends."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            command = [sys.executable, "-I", "-S", "-c", SPIN, str(os.getpid())]
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield [process.pid for process in started]
    finally:
        for process in started:
            with suppress(OSError):
                process.kill()
        for process in started:
            process.wait()


@contextmanager
def confined(count: int | None) -> Iterator[None]:
    """This process and those it starts on so many of its cores; all of them again afterwards."""
    if count is None:
        yield
        return
    if not hasattr(os, "sched_setaffinity"):
        raise DataError("this system cannot keep a process to some of its cores; leave --cores out")
    before = os.sched_getaffinity(0)
    if not 1 <= count <= len(before):
        raise DataError(f"{count} cores asked for, and this process may use {len(before)}; give 1 to {len(before)}")
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
