"""The learning rate of every step.

The paper's (equation 3) rises linearly for `warmup` steps and then falls with 1/√step; ours is scaled so that the top
is `rate`. `cosine` and `linear` fall to zero at the last step, which is what a run of a known length wants. `wsd`
(Hu et al. 2024; a trapezoid) stays at the top and falls in a line over the last share of the steps, so that a run can
be lengthened until then without having fallen for nothing.
"""

import math
from typing import Literal

Kind = Literal["cosine", "linear", "paper", "constant", "wsd"]


def rate_at(step: int, *, kind: Kind, top: float, warmup: int, steps: int, decay: float = 0.2) -> float:
    """The rate of step `step`, counted from 1, of `steps`; `decay` is the share of them over which `wsd` falls."""
    if kind == "wsd":
        last = stable_until(steps, warmup, decay)
        if step > last:
            return top * max(0.0, (steps - step) / (steps - last))
    if step < warmup:
        return top * step / warmup
    if kind == "wsd":
        return top
    if kind == "constant":
        return top
    if kind == "paper":
        return top * math.sqrt(max(warmup, 1) / step)
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return top * (1 - done if kind == "linear" else (1 + math.cos(math.pi * done)) / 2)


def stable_until(steps: int, warmup: int, decay: float) -> int:
    """The last step of `wsd` before the rate falls."""
    return min(steps - 1, max(warmup, steps - round(steps * decay)))


def lengthened(
    step: int, before: int, after: int, *, kind: Kind, top: float, warmup: int, decay: float = 0.2
) -> tuple[str, float, float]:
    """What a change of a run's length at a step means for its rate: in words, and the rates of the next step as it
    would have been and as it is now."""
    was, now = (
        rate_at(step + 1, kind=kind, top=top, warmup=warmup, steps=steps, decay=decay) for steps in (before, after)
    )
    said = f"its length changes from {before:,} to {after:,} steps"
    unchanged = all(
        rate_at(n, kind=kind, top=top, warmup=warmup, steps=before, decay=decay)
        == rate_at(n, kind=kind, top=top, warmup=warmup, steps=after, decay=decay)
        for n in range(1, step + 1)
    )
    if unchanged:
        return f"{said}: the rates until now are those of a run that was so long from the start", was, now
    said += f": the rate had been falling towards step {before:,} ({kind}) and goes from {was:.2e} to {now:.2e},"
    said += " so it falls twice" if now > was else " so it falls faster from here"
    hint = "" if kind == "wsd" else "; a run that may be lengthened is one with optimizer.schedule = wsd"
    return said + hint, was, now
