"""Models learn: copy, reverse and sort to 99 % exact match, and the cheap encoders too."""

import math

import pytest
import torch
from torch import Tensor

import clearformer as cf
from clearformer import presets, spec
from clearformer.core.model import Context
from clearformer.training.loss import next_token_loss

START, FIRST, LETTERS, LENGTH = 1, 2, 8, 6
TASKS = {"copy": lambda x: x, "reverse": lambda x: x.flip(1), "sort": lambda x: x.sort(1).values}


def batch(task: str, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    source = torch.randint(FIRST, FIRST + LETTERS, (count, LENGTH), generator=generator)
    return source, TASKS[task](source)


@pytest.mark.parametrize("task", TASKS)
def test_an_encoder_decoder_learns(task: str) -> None:
    what = presets.original("tiny", vocabulary=FIRST + LETTERS, norm="before", dropout=0.0)
    model = cf.build(what.replace({"encoder.width": 64, "decoder.width": 64}), seed=0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), fused=True)
    generator = torch.Generator().manual_seed(0)
    steps = 700
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 60) * 0.5 * (1 + math.cos(math.pi * step / steps))
        source, target = batch(task, 64, generator)
        given = torch.cat([torch.full((64, 1), START), target[:, :-1]], 1)
        places = model.decoder.places(given, None)
        states = model.decoder(given, places, Context(model.decoder, model.encode(source)))
        loss, count = next_token_loss(model.head, states, target)
        (loss / count).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    source, target = batch(task, 500, torch.Generator().manual_seed(99))
    found = cf.greedy(model, torch.full((500, 1), START), source=source, max_new_tokens=LENGTH)
    right = sum(each.tokens == row for each, row in zip(found, target.tolist(), strict=True))
    assert right >= 495, f"{right} of 500"


@pytest.mark.parametrize("family", ["bigbird", "linformer"])
def test_a_cheap_encoder_learns(family: str) -> None:
    """Each token says whether the first letter of the text occurs at its place too: it has to be looked up afar."""
    options = (
        {"pattern": spec.BigBird(block=4, radius=2, count=1, first=1)}
        if family == "bigbird"
        else {"length": 32, "rank": 16}
    )
    head = spec.TokenClasses(count=2)
    what = presets.FAMILIES[family]("tiny", vocabulary=6, head=head, dropout=0.0, **options)
    model = cf.build(what.replace({"stack.initial": None}), seed=0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
    generator = torch.Generator().manual_seed(0)

    def examples(count: int) -> tuple[Tensor, Tensor]:
        ids = torch.randint(0, 6, (count, 32), generator=generator)
        return ids, (ids == ids[:, :1]).long()

    for _ in range(400):
        ids, wanted = examples(32)
        torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), wanted.flatten()).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    ids, wanted = examples(200)
    accuracy = float((model.eval()(ids).argmax(-1) == wanted).float().mean())
    assert accuracy >= 0.99, accuracy
