"""Keeping freed memory: a training step frees and takes the same tens of megabytes again and again.

The C library gives large pieces back to the system when they are freed, and the system hands them out again zeroed,
page by page. Told to keep them, a training step is 5–10 % faster on a CPU (bench/train_step.py); the price is that
the process stays at its peak size. Only glibc can be told; elsewhere this does nothing and says so.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed_memory(largest: int = 2**30) -> bool:
    """Keep freed pieces of up to `largest` bytes for reuse by this process; False where that cannot be asked for."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, largest)) and bool(mallopt(_TRIM_THRESHOLD, largest))
