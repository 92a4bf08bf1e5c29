"""Busy processes end for certain, and cores are given back."""

import os
import signal
import subprocess
import sys
import time

import pytest

from clearformer.bench.contention import busy, confined
from clearformer.errors import DataError

BOUND = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")


def runs(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def gone(pid: int) -> bool:
    for _ in range(1000):
        if not runs(pid):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_busy_processes_end_with_the_block(error: type[BaseException] | None) -> None:
    pids: list[int] = []
    try:
        with busy(2) as started:
            pids = list(started)
            assert all(map(runs, pids))
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    assert len(pids) == 2
    assert not any(map(runs, pids))


def test_none_are_started_where_none_are_asked_for() -> None:
    with busy(0) as started:
        assert started == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_busy_processes_end_when_their_parent_is_killed() -> None:
    code = "\n".join(
        (
            "import time",
            "from clearformer.bench.contention import busy",
            "with busy(1) as pids:",
            "    print(*pids, flush=True)",
            "    time.sleep(60)",
        )
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert runs(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    ended = gone(pid)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    assert ended


@BOUND
def test_cores_are_given_back() -> None:
    before = os.sched_getaffinity(0)

    def fails() -> None:
        with confined(1):
            assert len(os.sched_getaffinity(0)) == 1
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fails()
    assert os.sched_getaffinity(0) == before
    with confined(None):
        assert os.sched_getaffinity(0) == before


@BOUND
def test_cores_that_are_not_there() -> None:
    with pytest.raises(DataError, match=r"4096 cores asked for, and this process may use \d+"), confined(4096):
        pass
