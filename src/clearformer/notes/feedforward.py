"""The position-wise feed-forward layer (N2–N4): local, where attention is global."""

import torch
from torch import Tensor

from clearformer import presets
from clearformer.assemble import build
from clearformer.core.attention import Attention
from clearformer.core.feedforward import Plain
from clearformer.core.places import Places
from clearformer.notes.layers import furthest, part
from clearformer.notes.parts import Check, Equation, Heading, Ours, Prose, Section, Table, tiny

WORDS = ["How", "are", "You"]


def local() -> list[Section]:
    base = presets.original("base", vocabulary=10, dropout=0.0)
    one = base.replace(encoder=base.encoder.replace(blocks=base.encoder.blocks[:1]))
    one = one.replace(decoder=base.decoder.replace(blocks=base.decoder.blocks[:1]))
    model = build(one, kernel="reference", seed=0).double()
    branches = "encoder.blocks.0.branches"
    feed = part(model, f"{branches}.feedforward.layer", Plain)
    attend = part(model, f"{branches}.self.layer", Attention)
    x = torch.randn(1, 3, base.encoder.width, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        return [*_shapes(feed, x), *_local_and_global(feed, attend, x)]


def _shapes(feed: Plain, x: Tensor) -> list[Section]:
    inner = feed.inner(x)
    active = feed.active(inner)
    out = feed.out(active)
    up, down = feed.up, feed.down
    count = sum(p.numel() for p in feed.parameters())
    zeros = float((active == 0).double().mean())
    steps = (
        ("x", _shape(x), ""),
        ("x W₁ + b₁", _shape(inner), f"{_shape(x)} · {_shape(up.weight.T)}"),
        ("max(0, ·)", _shape(active), f"{zeros:.0%} of the numbers are now 0"),
        ("· W₂ + b₂", _shape(out), f"{_shape(active)} · {_shape(down.weight.T)}"),
    )
    a, b = up.in_features, up.out_features
    return [
        Heading("512 → 2048 → 512"),
        Equation("FFN(x) = max(0, x W₁ + b₁) W₂ + b₂"),
        Table("How are You, three words through the base model's layer", ("step", "shape", ""), steps),
        Check(
            "its parameters",
            count == 2 * a * b + a + b,
            f"2 · {a} · {b} + {b} + {a} = {count:,}",
        ),
        Prose("The max is the non-linearity: without it two matrices would be one, W₁ W₂."),
    ]


def _local_and_global(feed: Plain, attend: Attention, x: Tensor) -> list[Section]:
    places = Places.span(0, 3)
    turned = torch.tensor([2, 0, 1])
    moved = furthest(feed(x)[:, turned], feed(x[:, turned]))
    other = x.clone()
    other[:, 0] += 1.0
    by_feed = (feed(other) - feed(x)).abs().amax(-1)[0]
    by_attention = (attend(other, places) - attend(x, places)).abs().amax(-1)[0]
    rows = tuple(
        (word, f"{float(a):.4f}", f"{float(b):.4f}") for word, a, b in zip(WORDS, by_feed, by_attention, strict=True)
    )
    return [
        Heading("Local and global"),
        Check("the words in another order: the same outputs in that order", moved < 1e-12, f"differ by {tiny(moved)}"),
        Ours("now change only the first word's vector and see which outputs move."),
        Table("Largest change of each word's output", ("", "feed-forward", "attention"), rows),
        Check(
            "feed-forward is local: only the changed word moves",
            bool(by_feed[0] > 0 and (by_feed[1:] == 0).all()),
            f"{int((by_feed > 0).sum())} of 3",
        ),
        Check(
            "attention is global: every word moves",
            bool((by_attention > 0).all()),
            f"{int((by_attention > 0).sum())} of 3",
        ),
        Prose("N4's classroom: attention is the discussion, feed-forward each student's own exam."),
    ]


def _shape(x: Tensor) -> str:
    return " × ".join(str(n) for n in x.shape[-2:])
