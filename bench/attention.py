"""Where fused attention overtakes the plain equation: seconds of both by length, and the kernels' threshold.

    python bench/attention.py

Forward and backward, and forward alone, of 1,024 tokens in all, 4 heads of 64, causal, two threads.
"""

import math
import time
from collections.abc import Callable

import torch

from clearformer import spec
from clearformer.core.kernel import Kernel, Reference
from clearformer.core.patterns import Visible
from clearformer.core.places import Places
from clearformer.core.positions import Relative
from clearformer.kernels import fused


def best(run: Callable[[], None], rounds: int = 5, inner: int = 10) -> float:
    run()
    found = math.inf
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(inner):
            run()
        found = min(found, (time.perf_counter() - start) / inner)
    return found


def seconds(kernel: Kernel, length: int, backward: bool) -> float:
    q, k, v = (torch.randn(1024 // length, 4, length, 64, requires_grad=backward) for _ in range(3))
    above, places = torch.randn(q.shape), Places.span(0, length)
    visible = Visible(spec.Causal(), places, places)

    def run() -> None:
        out = kernel(q, k, v, visible, Relative())
        if backward:
            out.backward(above)

    return best(run)


def main() -> None:
    torch.set_num_threads(2)
    threshold, fused.SHORT = math.isqrt(fused.SHORT), 0
    layer = spec.SelfAttention(heads=4, pattern=spec.Causal())
    kernels: list[Kernel] = [Reference(layer, 0.125), fused.Fused(layer, 0.125)]
    print(f"threshold: {threshold} × {threshold}")
    print(f"{'length':>7}  forward and backward: plain, fused ms   forward: plain, fused ms")
    for length in (8, 16, 20, 32, 48, 64, 96, 128, 256):
        train, run = ([1e3 * seconds(kernel, length, way) for kernel in kernels] for way in (True, False))
        print(f"{length:7} {train[0]:27.2f} {train[1]:6.2f} {run[0]:23.2f} {run[1]:6.2f}")


if __name__ == "__main__":
    main()
