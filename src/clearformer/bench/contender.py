"""One contender in a process of its own: a job comes as JSON on stdin, figures go as the last line of stdout.

Each column is run once to warm up and then several times. Memory is what is resident at the peak, mapped files
included.
"""

import gc
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from clearformer.bench.limits import best, limits, times
from clearformer.bench.workloads import COMPARED, FIRST, Job, Said

MOST, SECONDS = 5, 1.5  # runs of a column, and no more when they have taken so long
TRIES, TRIED = 2, 0.5  # the same where configurations are tried
STATUS = Path("/proc/self/status")


def held(field: str) -> int:
    """Bytes resident: VmRSS now, VmHWM at the peak; elsewhere than on Linux the peak for both."""
    if STATUS.exists():
        found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
        return int(found[1]) * 1024 if found else 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(job: Job) -> dict[str, Any]:
    """What the job asks for: the machine's limits, the seconds of every configuration, or the figures of a row."""
    if job.contender == "limits":
        found = limits(job.threads)
        return {"gflops": found.gflops, "int8_gops": found.int8_gops, "gigabytes": found.gigabytes}
    start = time.perf_counter()
    contender = kind_of(job.contender)(job)
    imported = time.perf_counter() - start
    return {"tried": tried(contender, job)} if job.trial else {"import": imported, **figures(contender, job)}


def tried(contender: Any, job: Job) -> dict[str, dict[str, float]]:
    """The seconds of every column in every configuration that has it."""
    found: dict[str, dict[str, float]] = {}
    for way in contender.ways(job):
        for name, run in contender.load(job, way).items():
            run()
            found.setdefault(name, {})[way] = best(run, TRIES, TRIED)
    return found


def figures(contender: Any, job: Job) -> dict[str, Any]:
    """Seconds of every run of every column, of loading and of the first answer; bytes; and what was answered.

    Columns that have their best configuration in common are run together; loading and memory are those of the one
    that gives the first token."""
    before = held("VmRSS")
    ways = list(dict.fromkeys([job.ways[FIRST], *job.ways.values()])) if FIRST in job.ways else [contender.ways(job)[0]]
    made: dict[str, Any] = {"seconds": {}, "tokens": {}, "said": None}
    for way in ways:
        start = time.perf_counter()
        runs = contender.load(job, way)
        loaded = time.perf_counter() - start
        names = [name for name in runs if job.ways.get(name, way) == way]
        if FIRST in names:
            runs[FIRST]()
            made["answer"] = time.perf_counter() - start
        for name in names:
            answer = runs[name]()
            made["seconds"][name] = times(runs[name], MOST, SECONDS)
            if isinstance(answer, Said):
                made["tokens"][name] = answer.tokens
            if name in COMPARED:
                made["said"] = answer.texts if isinstance(answer, Said) else answer
        if way == ways[0]:
            peak = held("VmHWM")
            made |= {"load": loaded, "peak": peak, "grown": peak - before}
        del runs
        gc.collect()
    return made


def kind_of(name: str) -> Any:
    if name == "clearformer":
        from clearformer.bench.ours import Clearformer

        return Clearformer
    from clearformer.bench.peers import PEERS

    return PEERS[name]


if __name__ == "__main__":
    print(json.dumps(measure(Job(**json.load(sys.stdin)))))
