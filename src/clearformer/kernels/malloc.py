"""Keeping freed memory: a training step frees and takes the same tens of megabytes again and again.

The C library gives large pieces back to the system when they are freed, and the system hands them out again zeroed,
page by page. Told to keep them, a training step is 5–16 % faster on a CPU (bench/train_step.py); the price is that
the process stays at its peak size. Only glibc can be told; elsewhere this does nothing and says so.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # malloc.h


def keep_freed_memory() -> bool:
    """Keep freed memory for reuse by this process, whatever its size; False where that cannot be asked for."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(mallopt(name, value) == 1 for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1)))
