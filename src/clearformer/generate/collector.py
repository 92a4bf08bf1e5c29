"""Python's cycle collector goes through all objects of the process: with PyTorch loaded 50 ms and more, in which no
thread runs Python. Thousands of requests make it do so again and again, and nothing they are made of has cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_paused = Lock()


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection of cycles meanwhile. Where another thread pauses it already, it is on again when that one ends, so
    that runs which overlap do not keep it off for ever."""
    if not gc.isenabled() or not _paused.acquire(blocking=False):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _paused.release()
