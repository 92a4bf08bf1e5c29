"""Training steps per second: ours, Hugging Face's Marian and torch.nn.Transformer, in one run on the same shapes.

    python bench/train_step.py [--repeats 5]

Encoder–decoder, width 256, 3 + 3 layers, inner 1,024, vocabulary 8,000, 64 × 20 tokens, dropout .1, Adam, label
smoothing .1, two threads. The matrix-product peak is measured in the same run, with the shapes of the model itself.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import clearformer as cf
from clearformer.core.model import Context
from clearformer.train.loss import next_token_loss

WIDTH, LAYERS, HEADS, INNER, WORDS, BATCH, LENGTH = 256, 3, 4, 1024, 8_000, 64, 20
Step = Callable[[], None]


def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    source, target, label = (torch.randint(4, WORDS, (BATCH, LENGTH), generator=generator) for _ in range(3))
    return source, target, label


def ours() -> Step:
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


def measure(steps: dict[str, Step], repeats: int, inner: int) -> dict[str, float]:
    """Best seconds of each, taken in turns so that a slow moment of the machine hits all alike."""
    for step in steps.values():
        for _ in range(2):
            step()
    best = dict.fromkeys(steps, math.inf)
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(inner):
                step()
            best[name] = min(best[name], (time.perf_counter() - start) / inner)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--inner", type=int, default=3)
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(2)
    product, product_operations = matrix_product()
    steps = {"matrix product": product, "clearformer": ours()}
    if not options.only_ours:
        steps |= {"transformers Marian": hugging_face(), "torch.nn.Transformer": torch_transformer()}
    seconds = measure(steps, options.repeats, options.inner)
    peak = product_operations / seconds.pop("matrix product") / 1e9
    figures = {}
    print(f"matrix-product peak {peak:.0f} GFLOP/s; a step is {operations() / 1e9:.1f} GFLOP")
    for name, spent in seconds.items():
        reached = operations() / spent / 1e9
        figures[name] = {"seconds": spent, "tokens_per_second": BATCH * LENGTH / spent, "gflops": reached}
        print(
            f"{name:22} {spent * 1e3:7.0f} ms  {BATCH * LENGTH / spent:7.0f} target tokens/s  {reached:5.0f} GFLOP/s "
            f"= {reached / peak:4.0%} of peak  clearformer is {spent / seconds['clearformer']:.2f} ×"
        )
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"peak_gflops": peak, **figures}, indent=1))


if __name__ == "__main__":
    main()
