"""Training steps per second: ours, Hugging Face's Marian and torch.nn.Transformer, in one run on the same shapes.

    python bench/train_step.py [--rounds 4] [--same-memory] [--bfloat16]

Encoder–decoder, width 256, 3 + 3 layers, inner 1,024, vocabulary 8,000, 64 × 20 tokens, dropout .1, Adam, label
smoothing .1, two threads. Each contender runs in a process of its own, in turns; the best step of all rounds counts.
The matrix-product peak is measured between the steps. With --same-memory the peers get our memory setting too, with
--bfloat16 all run under autocast.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import clearformer as cf
from clearformer.core.model import Context
from clearformer.kernels.linear import use_onednn
from clearformer.kernels.malloc import keep_freed_memory
from clearformer.training.loss import next_token_loss
from clearformer.training.machine import choose_gemm

WIDTH, LAYERS, HEADS, INNER, WORDS, BATCH, LENGTH = 256, 3, 4, 1024, 8_000, 64, 20
Step = Callable[[], None]


def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    source, target, label = (torch.randint(4, WORDS, (BATCH, LENGTH), generator=generator) for _ in range(3))
    return source, target, label


def ours() -> Step:
    keep_freed_memory()
    use_onednn(choose_gemm("auto", torch.device("cpu"))[0] == "onednn")  # as a run of the trainer chooses
    model = cf.build(cf.presets.original("small", vocabulary=WORDS), seed=0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    source, target, label = batch()

    def step() -> None:
        encoded = model.encode(source)
        context = Context(model.decoder, encoded)
        places = model.decoder.places(target, None)
        loss, count = next_token_loss(model.head, model.decoder(target, places, context), label, smoothing=0.1)
        (loss / count).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def hugging_face() -> Step:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=WORDS,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        dropout=0.1,
        activation_function="relu",
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=2,
        scale_embedding=True,
    )
    model = MarianMTModel(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    source, target, label = batch()

    def step() -> None:
        logits = model(input_ids=source, decoder_input_ids=target).logits
        F.cross_entropy(logits.flatten(0, 1), label.flatten(), label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class TorchTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.core = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, INNER, 0.1, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("waves", torch.randn(LENGTH, WIDTH))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = (self.drop(self.table(ids) * math.sqrt(WIDTH) + self.waves) for ids in (source, target))
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return F.linear(self.core(x, y, tgt_mask=mask, tgt_is_causal=True), self.table.weight)


def torch_transformer() -> Step:
    model = TorchTransformer().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    source, target, label = batch()

    def step() -> None:
        logits = model(source, target)
        F.cross_entropy(logits.flatten(0, 1), label.flatten(), label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def matrix_product() -> tuple[Step, float]:
    """One large product, the machine's peak, and its operations."""
    a, b = torch.randn(1280, 1024), torch.randn(1024, 1024)
    out = torch.empty(1280, 1024)

    def step() -> None:
        for _ in range(20):
            torch.mm(a, b, out=out)

    return step, 20 * 2 * 1280 * 1024 * 1024


def operations() -> float:
    """Multiplications and additions of the linear layers and attention in one step (backward is twice forward)."""
    tokens = BATCH * LENGTH
    encoder = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * INNER)
    decoder = LAYERS * (8 * WIDTH**2 + 2 * WIDTH * INNER)
    attention = 3 * LAYERS * 2 * LENGTH * WIDTH  # per token: scores and mixing
    return 3 * 2 * tokens * (encoder + decoder + WIDTH * WORDS + attention)


def alone(name: str, inner: int, half: bool) -> None:
    """Measure one contender in this process and print its best seconds, and the matrix product's, as JSON."""
    torch.set_num_threads(2)
    product, product_operations = matrix_product()
    plain = CONTENDERS[name]()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            plain()

    for each in (step, step, product):
        each()
    best, best_product = math.inf, math.inf
    for _ in range(inner):
        start = time.perf_counter()
        step()
        middle = time.perf_counter()
        product()
        best = min(best, middle - start)
        best_product = min(best_product, time.perf_counter() - middle)
    print(json.dumps({"seconds": best, "gflops": product_operations / best_product / 1e9}))


CONTENDERS = {"clearformer": ours, "transformers Marian": hugging_face, "torch.nn.Transformer": torch_transformer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="every contender once a round, each in its own process")
    parser.add_argument("--inner", type=int, default=8, help="steps a round; the best counts")
    parser.add_argument("--same-memory", action="store_true", help="give the peers our memory setting too")
    parser.add_argument("--bfloat16", action="store_true", help="all of them under autocast")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    if options.one:
        if options.same_memory:
            keep_freed_memory()
        alone(options.one, options.inner, options.bfloat16)
        return
    best, peak = dict.fromkeys(CONTENDERS, math.inf), 0.0
    for _ in range(options.rounds):
        for name in CONTENDERS:
            command = [sys.executable, __file__, "--one", name, "--inner", str(options.inner)]
            command += ["--same-memory"] if options.same_memory else []
            command += ["--bfloat16"] if options.bfloat16 else []
            found = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            )
            best[name], peak = min(best[name], found["seconds"]), max(peak, found["gflops"])
    print(
        f"matrix-product peak {peak:.0f} GFLOP/s; a step is {operations() / 1e9:.1f} GFLOP; torch {torch.__version__}"
    )
    figures = {}
    for name, seconds in best.items():
        reached = operations() / seconds / 1e9
        figures[name] = {"seconds": seconds, "target_tokens_per_second": BATCH * LENGTH / seconds, "gflops": reached}
        print(
            f"{name:22} {seconds * 1e3:5.0f} ms  {BATCH * LENGTH / seconds:6.0f} target tokens/s  "
            f"{reached:4.0f} GFLOP/s = {reached / peak:3.0%} of peak   "
            f"clearformer is {seconds / best['clearformer']:.2f} ×"
        )
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"peak_gflops": peak, **figures}, indent=1))


if __name__ == "__main__":
    main()
