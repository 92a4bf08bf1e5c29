"""What the machine allows: operations a second in a large matrix product (GEMM), of floats and of bytes, and bytes read
from memory a second."""

import time
from collections.abc import Callable
from dataclasses import dataclass

SIDE = 2048  # of the matrices
BUFFER = 512 * 2**20  # bytes, far beyond any cache
REPEATS = 5


@dataclass(frozen=True)
class Limits:
    gflops: float
    int8_gops: float
    gigabytes: float


def limits(threads: int) -> Limits:
    """All three with so many threads; the best of several."""
    import torch

    torch.set_num_threads(threads)
    a, b, out = (torch.rand(SIDE, SIDE) for _ in range(3))
    product = best(lambda: torch.mm(a, b, out=out))
    small = product
    whole = torch.randint(-127, 128, (SIDE, SIDE), dtype=torch.int8)
    multiply = getattr(torch, "_int_mm", None)  # where PyTorch has none, or a slow one, float's is what is known
    if multiply is not None:
        small = min(small, best(lambda: multiply(whole, whole.T)))
    buffer = torch.ones(BUFFER // 4)
    read = min(best(buffer.sum), best(buffer.amax))
    return Limits(2 * SIDE**3 / product / 1e9, 2 * SIDE**3 / small / 1e9, BUFFER / read / 1e9)


def times(run: Callable[[], object], most: int = REPEATS, seconds: float = float("inf")) -> list[float]:
    """The seconds of several runs; no new one begins when they have taken so long together."""
    found: list[float] = []
    while len(found) < most and sum(found) <= seconds:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


def best(run: Callable[[], object], most: int = REPEATS, seconds: float = float("inf")) -> float:
    """The fastest of several runs, in seconds."""
    return min(times(run, most, seconds))
