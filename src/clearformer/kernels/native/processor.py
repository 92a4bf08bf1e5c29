"""What this processor has, as the compiler sees it."""

import os
from functools import cache
from pathlib import Path
from threading import Thread


def cores() -> int:
    """Those that this process may use: by its affinity, and by the CPU quota of its control group."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, _quota()))


@cache
def _quota() -> int:
    """Whole cores that the quotas of the control groups around this process come to (version 2, then version 1)."""
    found = [1 << 16]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found[0]
    for line in lines:
        _, controllers, group = line.split(":", 2)
        own = Path(group.lstrip("/"))
        for folder in (own, *own.parents):
            try:
                if not controllers:
                    quota, period = (Path("/sys/fs/cgroup") / folder / "cpu.max").read_text().split()
                elif "cpu" in controllers.split(","):
                    where = Path("/sys/fs/cgroup/cpu") / folder
                    quota, period = ((where / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                else:
                    break
                if quota.strip() not in ("max", "-1"):
                    found.append(-(-int(quota) // int(period)))
            except (OSError, ValueError):
                continue
    return min(found)


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


_asked: dict[int, int] = {}  # what PyTorch says in a thread that other libraries have set for themselves → its own


def threads() -> int:
    """How many threads a computation may have: PyTorch's number (`torch.set_num_threads`), and no more than cores.

    Other libraries set OpenMP's number for the thread that calls them, and PyTorch then reads theirs as its own. In a
    new thread it goes back to what it was told, so that is where it is asked, whenever what is read here changes.
    """
    import torch

    here = torch.get_num_threads()
    if here not in _asked:
        found: list[int] = []
        asking = Thread(target=lambda: found.append(torch.get_num_threads()))
        asking.start()
        asking.join()
        _asked.clear()
        _asked[here] = found[0]
    return max(1, min(_asked[here], cores()))
