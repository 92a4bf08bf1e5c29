"""How cost grows with the length of a text: BigBird and Linformer encoders against full attention.

    python bench/long_texts.py [--lengths 2048 4096 8192 16384]

Encoders of width 256, 4 heads, 4 layers, inner 1,024, one text, forward and backward, two threads. Every measurement
is a process of its own, so that its peak memory is its own. The exponent is the slope of log cost over log length.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

import clearformer as cf
from clearformer import presets, spec
from clearformer.kernels.malloc import keep_freed_memory

HEAD = spec.TokenClasses(count=2)


def model(kind: str, length: int) -> torch.nn.Module:
    if kind == "bigbird":
        what = presets.bigbird("small", head=HEAD, dropout=0.0)
    elif kind == "linformer":
        what = presets.linformer("small", length=length, rank=256, head=HEAD, dropout=0.0)
    else:
        what = presets.bigbird("small", head=HEAD, dropout=0.0, pattern=spec.Everyone())
    return cf.build(what, seed=0)


def alone(kind: str, length: int, repeats: int) -> None:
    torch.set_num_threads(2)
    keep_freed_memory()
    encoder = model(kind, length)
    ids = torch.randint(0, 8_000, (1, length))

    def step() -> None:
        encoder(ids).sum().backward()

    encoder(ids[:, :64]).sum().backward()
    for parameter in encoder.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": best, "megabytes": peak / 1024}))


def slope(lengths: list[int], costs: list[float]) -> float:
    x, y = [math.log(n) for n in lengths], [math.log(c) for c in costs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--longest-full", type=int, default=8192, help="full attention is measured up to here")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "LENGTH"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    if options.one:
        alone(options.one[0], int(options.one[1]), options.repeats)
        return
    found: dict[str, dict[int, dict[str, float]]] = {"full": {}, "bigbird": {}, "linformer": {}}
    for length in options.lengths:
        for kind in found:
            if kind == "full" and length > options.longest_full:
                continue
            command = [sys.executable, __file__, "--one", kind, str(length), "--repeats", str(options.repeats)]
            found[kind][length] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"{'tokens':>8}" + "".join(f"{kind:>12} s {'MB':>8}" for kind in found))
    for length in options.lengths:
        cells = [found[kind].get(length) for kind in found]
        print(
            f"{length:8,}"
            + "".join(f"{c['seconds']:14.3f} {c['megabytes']:8.0f}" if c else f"{'–':>23}" for c in cells)
        )
    for kind, by_length in found.items():
        long = [n for n in by_length if n >= 2048]
        if len(long) > 1:
            time_slope = slope(long, [by_length[n]["seconds"] for n in long])
            memory_slope = slope(long, [by_length[n]["megabytes"] for n in long])
            grows = f"time ∝ n^{time_slope:.2f}, memory ∝ n^{memory_slope:.2f}"
            print(f"{kind:10} from {min(long):,} to {max(long):,} tokens: {grows}")
    for kind in ("bigbird", "linformer"):
        faster = [n for n in found["full"] if found[kind][n]["seconds"] < found["full"][n]["seconds"]]
        print(
            f"{kind} is faster than full attention "
            + (f"from {min(faster):,} tokens on" if faster else "at none of these lengths")
        )
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
