"""One contender in a process of its own: a job comes as JSON on stdin, figures go as the last line of stdout.

Each column is run once to warm up and then several times; the fastest counts. Memory is what is resident at the peak,
mapped files included.
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from clearformer.bench.limits import best, limits
from clearformer.bench.workloads import FIRST, Job

MOST, SECONDS = 5, 1.5  # runs of a column, and no more when they have taken so long
STATUS = Path("/proc/self/status")


def held(field: str) -> int:
    """Bytes resident: VmRSS now, VmHWM at the peak; elsewhere than on Linux the peak for both."""
    if STATUS.exists():
        found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
        return int(found[1]) * 1024 if found else 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(job: Job) -> dict[str, Any]:
    """Seconds of every column, of loading and of the first token; bytes; and what was answered."""
    if job.contender == "limits":
        found = limits(job.threads)
        return {"gflops": found.gflops, "gigabytes": found.gigabytes}
    start = time.perf_counter()
    contender = kind_of(job.contender)(job)
    imported, before = time.perf_counter() - start, held("VmRSS")
    start = time.perf_counter()
    runs = contender.load(job)
    loaded = time.perf_counter() - start
    figures: dict[str, Any] = {"import": imported, "load": loaded}
    if FIRST in runs:
        runs[FIRST]()
        figures["answer"] = time.perf_counter() - start
    seconds, answers = {}, {}
    for name, run in runs.items():
        answers[name] = run()
        seconds[name] = best(run, MOST, SECONDS)
    peak = held("VmHWM")
    compared = [name for name in ("batch 32 greedy", "batch 8", "all texts") if name in answers]
    answer = answers[compared[0]] if compared else None
    return {**figures, "seconds": seconds, "peak": peak, "grown": peak - before, "said": answer}


def kind_of(name: str) -> Any:
    if name == "clearformer":
        from clearformer.bench.ours import Clearformer

        return Clearformer
    from clearformer.bench.peers import PEERS

    return PEERS[name]


if __name__ == "__main__":
    print(json.dumps(measure(Job(**json.load(sys.stdin)))))
