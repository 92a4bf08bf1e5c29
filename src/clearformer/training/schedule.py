"""The learning rate of every step.

The paper's (equation 3) rises linearly for `warmup` steps and then falls with 1/√step; ours is scaled so that the top
is `rate`. `cosine` and `linear` fall to zero at the last step, which is what a run of a known length wants.
"""

import math
from typing import Literal

Kind = Literal["cosine", "linear", "paper", "constant"]


def rate_at(step: int, *, kind: Kind, top: float, warmup: int, steps: int) -> float:
    """The rate of step `step`, counted from 1, of `steps`."""
    if step < warmup:
        return top * step / warmup
    if kind == "constant":
        return top
    if kind == "paper":
        return top * math.sqrt(max(warmup, 1) / step)
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return top * (1 - done if kind == "linear" else (1 + math.cos(math.pi * done)) / 2)
