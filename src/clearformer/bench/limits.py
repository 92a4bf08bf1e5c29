"""What the machine allows: operations a second in a large matrix product, and bytes read from memory a second."""

import time
from collections.abc import Callable
from dataclasses import dataclass

SIDE = 2048  # of the matrices
BUFFER = 512 * 2**20  # bytes, far beyond any cache
REPEATS = 5


@dataclass(frozen=True)
class Limits:
    gflops: float
    gigabytes: float


def limits(threads: int) -> Limits:
    """Both, in single precision, with so many threads; the best of several."""
    import torch

    torch.set_num_threads(threads)
    a, b, out = (torch.rand(SIDE, SIDE) for _ in range(3))
    product = best(lambda: torch.mm(a, b, out=out))
    buffer = torch.ones(BUFFER // 4)
    read = min(best(buffer.sum), best(buffer.amax))
    return Limits(2 * SIDE**3 / product / 1e9, BUFFER / read / 1e9)


def best(run: Callable[[], object], most: int = REPEATS, seconds: float = float("inf")) -> float:
    """The fastest of several runs, in seconds; no new one begins when they have taken so long together."""
    fastest, begun = float("inf"), time.perf_counter()
    for _ in range(most):
        start = time.perf_counter()
        run()
        end = time.perf_counter()
        fastest = min(fastest, end - start)
        if end - begun > seconds:
            break
    return fastest
