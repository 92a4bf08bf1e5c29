"""The likeliest tokens of each row, found by the machine while the row is near."""

from functools import cache

import torch
from torch import Tensor

from clearformer.kernels.native import layout
from clearformer.kernels.native.compose import Program
from clearformer.kernels.native.job import Job
from clearformer.kernels.native.layout import FIRST_KEYS


@cache
def _program(width: int, keep: int) -> Program:
    program = Program()
    program.add(layout.Rank(width, keep, FIRST_KEYS, FIRST_KEYS + 1, FIRST_KEYS + 2))
    return program


def best(logits: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """b keep: the largest log-probabilities of each row, best first, and their tokens."""
    rows = logits.size(0)
    largest, tokens = logits.new_empty(rows, keep), logits.new_empty(rows, keep, dtype=torch.int64)
    totals = logits.new_empty(rows, 2)  # the largest, and the sum of e to each minus the largest
    job = Job(_program(logits.size(1), keep), logits)
    job.buffers[FIRST_KEYS : FIRST_KEYS + 3] = largest.data_ptr(), tokens.data_ptr(), totals.data_ptr()
    job.run()
    return largest - totals[:, :1] - totals[:, 1:].log(), tokens
