"""Ranking the numbers of rows by the machine, in one go over each row."""

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


def ranked(x: Tensor, keep: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The `keep` largest of each row and their places; the largest, and the sum of e to each minus the largest."""
    best, places, totals = (
        x.new_empty(len(x), keep),
        x.new_empty(len(x), keep, dtype=torch.int32),
        x.new_empty(len(x), 2),
    )
    job = Job(_program(x.size(1), keep), x)
    job.buffers[FIRST_KEYS : FIRST_KEYS + 3] = best.data_ptr(), places.data_ptr(), totals.data_ptr()
    job.run()
    return best, places.long(), totals[:, :1], totals[:, 1:]
