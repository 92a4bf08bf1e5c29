"""The likeliest tokens of each row and their log-probabilities."""

import torch
from torch import Tensor

from clearformer.kernels.pack import missing


def best_chances(logits: Tensor, keep: int, native: bool | None = None) -> tuple[Tensor, Tensor]:
    """b keep: the largest log-probabilities of each row of logits, best first, and their tokens."""
    fits = logits.device.type == "cpu" and logits.dtype == torch.float32 and not torch.is_grad_enabled()
    if native is None:
        native = fits and missing() is None
    if native:
        from clearformer.kernels.native.rank import ranked

        best, which, largest, total = ranked(logits.contiguous(), keep)
        return best - largest - total.log(), which
    best, which = logits.topk(keep)
    return best - logits.logsumexp(-1, keepdim=True), which
