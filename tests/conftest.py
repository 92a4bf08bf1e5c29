"""Settings for all tests: one thread (more only wait for each other on tiny models), no network, no deadlines."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hypothesis
import pytest
import torch

from clearformer.kernels.native import processor

hypothesis.settings.register_profile("clearformer", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("clearformer")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _alike() -> None:
    """Every test begins with the same seed and one thread, whatever the one before has set."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    processor._asked.clear()


def _children() -> set[int]:
    """The processes that this one has started and that still run, where the system tells."""
    found: set[int] = set()
    for each in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended since
            found |= {int(number) for number in each.read_text().split()}
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """What a failed test has started ends with it: one that ran out of time would leave a run behind."""
    before = _children()
    try:
        return (yield)
    except BaseException:
        for number in _children() - before:
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)
        raise
