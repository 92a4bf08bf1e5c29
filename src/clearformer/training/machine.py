"""What this machine does well: which number format, and which library for products, measured rather than looked up."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from clearformer.kernels.linear import has_onednn, onednn_linear
from clearformer.training.settings import Machine

SHAPE = (1024, 512, 1024)  # rows, inputs, outputs: as in the layers of a small model
RUNS, SECONDS = 8, 0.2  # of each contender at most, after two to warm up


def choose(asked: Machine, device: torch.device) -> tuple[dict[str, str], list[str]]:
    """What `auto` comes to, as settings by their path, and plain words about it."""
    precision, remark = choose_precision(asked.precision, device)
    gemm, other = choose_gemm(asked.gemm, device) if precision == "float32" else ("mkl", "")
    return {"machine.precision": precision, "machine.gemm": gemm}, [each for each in (remark, other) if each]


def choose_precision(asked: str, device: torch.device) -> tuple[str, str]:
    """The format to compute in, and a plain word about it."""
    if asked == "float32":
        return "float32", ""
    if device.type == "cuda":
        best = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        return (best if asked == "auto" else asked), ""
    half = torch.float16 if asked == "float16" else torch.bfloat16
    times = _product_seconds(half) / _product_seconds(torch.float32)
    name = str(half).removeprefix("torch.")
    if asked == "auto":
        if times < 0.8:
            return "bfloat16", f"bfloat16, {1 / times:.1f} × as fast as float32 in products on this machine"
        return "float32", ""
    if times > 1:
        return asked, f"{name} is {times:.0f} × slower than float32 on this machine; float32 would be the better choice"
    return asked, ""


def choose_gemm(asked: str, device: torch.device) -> tuple[str, str]:
    """The library for products of float32, and a plain word about it: oneDNN only where it is clearly faster."""
    if asked != "auto":
        return asked, ""
    if device.type != "cpu" or not has_onednn():
        return "mkl", ""
    times = _product_seconds(torch.float32, onednn_linear) / _product_seconds(torch.float32)
    if times < 0.8:
        return "onednn", f"float32 products by oneDNN, {1 / times:.1f} × as fast as by MKL on this machine"
    return "mkl", ""


def _product_seconds(
    kind: torch.dtype, product: Callable[[Tensor, Tensor], Tensor] = torch.nn.functional.linear
) -> float:
    """The best of some warm products of such a shape as a model has."""
    rows, inputs, outputs = SHAPE
    x, weight = torch.ones(rows, inputs, dtype=kind), torch.ones(outputs, inputs, dtype=kind)
    best, began = float("inf"), time.perf_counter()
    for n in range(2 + RUNS):
        start = time.perf_counter()
        product(x, weight)
        now = time.perf_counter()
        best = min(best, now - start)
        if n >= 2 and now - began > SECONDS:
            break
    return best
