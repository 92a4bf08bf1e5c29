"""What this processor has, as the compiler sees it."""

import os
from functools import cache


@cache
def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def features() -> frozenset[str]:
    from llvmlite import binding

    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


def has_wide_vectors() -> bool:
    """Whether sixteen floats are one vector, and there are registers for 32 of them."""
    return {"avx512f", "avx512bw", "avx512vl"} <= features()


def multiplies_bytes() -> bool:
    """Whether one instruction adds four products of bytes to a sum of 32 bits: then inputs are made bytes."""
    return "avxvnni" in features() or (has_wide_vectors() and "avx512vnni" in features())
