"""What a beam costs beside the arithmetic of its rows: beam search over some texts against as many single rows.

    python bench/beam.py [--precision int8] [--rounds 5]

Both decode 32 tokens with a Transformer-base of random weights from sources of 20 tokens, which are encoded before the
clock starts: `texts` with beams of 4, and 4 × `texts` greedily. The bar: 1.15 times.
"""

import argparse
import sys
import time
from collections.abc import Callable

import torch

import clearformer as cf
from clearformer.core.model import EncoderDecoder
from clearformer.generate import search
from clearformer.kernels.pack import pack

BEAM, SOURCE, TARGET, MOST = 4, 20, 32, 1.15


def fastest(run: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def measured(model: EncoderDecoder, texts: int, rounds: int) -> tuple[float, float]:
    """Seconds of a beam search and of its rows one by one, without the encoder."""
    source = torch.randint(4, 31_000, (texts, SOURCE), generator=torch.Generator().manual_seed(0))
    many, start = source.repeat_interleave(BEAM, 0), torch.full((BEAM * texts, 1), 3)
    options = {"max_new_tokens": TARGET, "num_beams": BEAM, "early_stopping": False}
    runs = [
        lambda: search.beam(model, start[:texts], source=source, **options),
        lambda: model.context(model.encode(source)),
        lambda: search.greedy(model, start, max_new_tokens=TARGET, source=many),
        lambda: model.context(model.encode(many)),
    ]
    with torch.inference_mode():
        beam, encoding, rows, encoding_many = (fastest(run, rounds + 1) for run in runs)
    return beam - encoding, rows - encoding_many


def main(precision: str, rounds: int) -> bool:
    model = pack(cf.build(cf.presets.original("base", vocabulary=32_000), seed=0).eval(), precision)
    print(f"{precision}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    met = True
    for texts in (1, 32):
        beam, rows = measured(model, texts, rounds)
        print(f"{texts:>3} texts: beam {beam:.3f} s, {BEAM * texts} rows {rows:.3f} s: {beam / rows:.2f} ×")
        met &= beam <= MOST * rows
    print(f"bar ({MOST} ×): {'met' if met else 'missed'}")
    return met


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["float32", "int8"], default="int8")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    sys.exit(0 if main(asked.precision, asked.rounds) else 1)
