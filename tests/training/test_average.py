"""Averages of weights, in numbers by hand."""

import pytest
import torch

from clearformer.training.average import Last, Moving, average
from clearformer.training.settings import Averaging


def one(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([value])}


def test_a_moving_average_by_hand() -> None:
    """Every fourth step, with the decay of four: early ones are min(decay, (1 + step) / (10 + step)); before the
    fourth, the weights themselves."""
    live = one(0.0)
    mean = Moving(live, decay=0.5)
    for step in range(1, 13):
        live["w"].fill_(step)
        mean.after_step(step)
    four = 3 * (5 / 14) ** 4 + 4 * (1 - (5 / 14) ** 4)  # (1 + 4) / (10 + 4) is below one half; before it, the last
    eight = four / 16 + 8 * 15 / 16  # and at step 8, 9 / 18 is one half
    twelve = eight / 16 + 12 * 15 / 16
    assert mean.weights()["w"].item() == pytest.approx(twelve)


def test_a_moving_average_is_of_the_past_only() -> None:
    live = one(1.0)
    mean = Moving(live, decay=0.9)
    live["w"].fill_(5.0)
    assert mean.weights()["w"].item() == 1.0  # no step was made yet


def test_the_last_ones_by_hand() -> None:
    live = one(0.0)
    mean = Last(live, 3)
    assert mean.weights()["w"].item() == 0.0  # nothing was validated: the weights themselves
    for value, wanted in ((3.0, 3.0), (5.0, 4.0), (10.0, 6.0), (30.0, 15.0)):  # the mean of 5, 10 and 30 is 15
        live["w"].fill_(value)
        mean.at_validation()
        live["w"].fill_(-100.0)  # what comes after does not count
        assert mean.weights()["w"].item() == pytest.approx(wanted)


def test_none_is_the_weights() -> None:
    live = one(2.0)
    kept = average(live, Averaging(kind="none"))
    live["w"].fill_(7.0)
    kept.after_step(4)
    assert kept.weights()["w"].item() == 7.0
    assert kept.state() == {}


@pytest.mark.parametrize("kind", ["ema", "last", "none"])
def test_an_average_goes_on_from_its_state(kind: str) -> None:
    settings = Averaging(kind=kind, decay=0.8, last=2)

    def fed(first: int, last: int, live: dict[str, torch.Tensor], mean: object) -> None:
        for step in range(first, last):
            live["w"].fill_(step * 0.37)
            mean.after_step(step)  # type: ignore[attr-defined]
            if step % 3 == 0:
                mean.at_validation()  # type: ignore[attr-defined]

    whole = one(0.0)
    through = average(whole, settings)
    fed(1, 20, whole, through)

    early, late = one(0.0), one(0.0)
    before = average(early, settings)
    fed(1, 10, early, before)
    after = average(late, settings)
    after.load({name: tensor.clone() for name, tensor in before.state().items()})
    fed(10, 20, late, after)
    assert torch.equal(after.weights()["w"], through.weights()["w"])
