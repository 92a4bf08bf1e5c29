"""Running contenders, each time in a fresh process: its memory and its threads are then its own."""

import json
import os
import subprocess
import sys
from typing import Any

from clearformer.bench.workloads import Job
from clearformer.errors import DataError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}


def alone(job: Job) -> dict[str, Any]:
    """What the contender measured; a DataError with its last words where it failed."""
    environment = {**os.environ, **QUIET, **dict.fromkeys(THREADS, str(job.threads))}
    command = [sys.executable, "-P", "-m", "clearformer.bench.contender"]  # -P: nothing of the working folder is run
    told = json.dumps(job.to_dict())
    done = subprocess.run(command, input=told, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise DataError(words[-1].removeprefix("clearformer.errors."))
    return json.loads(done.stdout.splitlines()[-1])


def merged(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Two rounds as one: the runs of both, the shorter times to load, the higher limits and the larger peaks."""
    if old is None:
        return new
    both: dict[str, Any] = dict(new)
    for name in ("import", "load", "answer"):
        if name in new:
            both[name] = min(old[name], new[name])
    for name in ("gflops", "int8_gops", "gigabytes", "peak", "grown"):
        if name in new:
            both[name] = max(old[name], new[name])
    if "seconds" in new:
        both["seconds"] = {name: [*old["seconds"][name], *runs] for name, runs in new["seconds"].items()}
    return both
