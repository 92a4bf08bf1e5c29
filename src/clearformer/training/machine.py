"""What this machine does well: which number format, measured rather than looked up."""

import time

import torch


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


def _product_seconds(kind: torch.dtype) -> float:
    a = torch.ones(256, 256, dtype=kind)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - start)
        if best > 0.02:
            break
    return best
