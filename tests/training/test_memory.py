"""Asking the C library to keep freed memory: an answer either way, and fewer fresh pages where it can."""

import subprocess
import sys

CODE = """
import resource, sys, torch
from clearformer.kernels.malloc import keep_freed_memory
asked = keep_freed_memory() if sys.argv[1] == "keep" else None
torch.zeros(16_000_000).sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(16_000_000)
print(asked, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> tuple[str, int]:
    done = subprocess.run([sys.executable, "-c", CODE, mode], capture_output=True, text=True, check=True)
    asked, count = done.stdout.split()
    return asked, int(count)


def test_kept_memory_is_not_fetched_again() -> None:
    asked, kept = faults("keep")
    _, plain = faults("plain")
    if asked == "True":
        assert kept < plain / 2, (kept, plain)
    else:
        assert asked == "False"
