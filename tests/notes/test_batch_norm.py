"""Layer norm and batch norm on a padded batch, with the numbers worked by hand.

The words' features are the z of the notes' table: s_1 = 7 5 4, s_2 = 2 3 4, s_3 = 1 2 3, s_4 = 7 5 6, s_5 = 3 3 4.
"""

import math

import pytest
import torch
from torch import nn

from clearformer.errors import DataError
from clearformer.notes.batch_norm import compare

# A sentence of three words and one of two, padded with a word that must not count.
X = torch.tensor([[[7.0, 5, 4], [2, 3, 4], [1, 2, 3]], [[7, 5, 6], [3, 3, 4], [9, 9, 9]]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_the_numbers_of_one_cell() -> None:
    found = compare(X, MASK, (0, 0, 0), eps=0.0)

    layer = found.entered_layer
    assert layer.numbers == (7, 5, 4)
    assert layer.padding == (False, False, False)
    assert layer.mean == pytest.approx(16 / 3)
    assert layer.variance == pytest.approx((25 + 1 + 16) / 27)  # (5/3)², (1/3)², (4/3)², a third of their sum
    assert layer.result == pytest.approx((7 - 16 / 3) / math.sqrt(42 / 27))

    batch = found.entered_batch
    assert batch.numbers == (7, 2, 1, 7, 3, 0)
    assert batch.padding == (False, False, False, False, False, True)
    assert batch.mean == pytest.approx(20 / 6)
    assert batch.mean_of_tokens == pytest.approx(20 / 5)
    assert batch.variance == pytest.approx((49 + 4 + 1 + 49 + 9) / 6 - (20 / 6) ** 2)
    assert batch.result == pytest.approx((7 - 20 / 6) / math.sqrt(112 / 6 - 400 / 36))


def test_both_results_are_those_of_pytorchs_norms() -> None:
    found = compare(X, MASK, (1, 1, 2))
    zeroed = X * MASK[..., None]
    batch = nn.BatchNorm1d(3, affine=False).double()
    torch.testing.assert_close(found.layer, nn.LayerNorm(3, elementwise_affine=False)(zeroed))
    torch.testing.assert_close(found.batch, batch(zeroed.transpose(1, 2)).transpose(1, 2))
    assert found.entered_layer.result == found.layer[1, 1, 2].item()
    assert found.entered_batch.result == found.batch[1, 1, 2].item()


def test_a_hundred_places_of_padding_move_batch_norm_and_not_layer_norm() -> None:
    """The notes: "a sentence with 3 words & >100 trailing zeros"."""
    words, mask = X[:1], torch.ones(1, 3, dtype=torch.bool)
    short = compare(words, mask, (0, 0, 0))
    padded = compare(nn.functional.pad(words, (0, 0, 0, 100)), nn.functional.pad(mask, (0, 100)), (0, 0, 0))
    torch.testing.assert_close(padded.layer[:, :3], short.layer, rtol=0, atol=0)
    assert padded.entered_layer == short.entered_layer
    assert short.entered_batch.mean == pytest.approx(10 / 3)
    assert padded.entered_batch.mean == pytest.approx(10 / 103)
    assert padded.entered_batch.mean_of_tokens == pytest.approx(10 / 3)
    assert sum(padded.entered_batch.padding) == 100


def test_wrong_inputs_are_explained() -> None:
    with pytest.raises(DataError, match=r"outside the batch of shape \(2, 3, 3\)"):
        compare(X, MASK, (0, 3, 0))
    with pytest.raises(DataError, match=r"is padding; choose a token that is there: .*\[0, 1\]"):
        compare(X, MASK, (1, 2, 0))
    with pytest.raises(DataError, match="mask must be bool"):
        compare(X, MASK.float(), (0, 0, 0))
    with pytest.raises(DataError, match="x must be floating-point"):
        compare(X[0], MASK, (0, 0, 0))
