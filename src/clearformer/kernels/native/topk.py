"""The likeliest tokens of each row, found by the machine while the row is near."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from clearformer.kernels.native import isa
from clearformer.kernels.native.launch import Job, at
from clearformer.kernels.native.program import Program


class Ranking:
    """The lists that a job with a ranking writes, of its first `ranked` rows; all logits too, if `whole`."""

    def __init__(
        self, job: Job, keep: int, width: int, ranked: int, heat: np.ndarray | None = None, whole: bool = False
    ):
        threads = job.room.threads
        self.numbers = np.empty((threads, ranked, keep), dtype=np.float32)
        self.places = np.empty((threads, ranked, keep), dtype=np.int64)
        self.totals = np.empty((ranked, -(-width // isa.TOPK_BLOCK), 3), dtype=np.float32)
        self.logits = np.empty((ranked, width), dtype=np.float32) if whole else None
        job.buffers[isa.NUMBERS : isa.TOTALS + 1] = at(self.numbers), at(self.places), at(self.totals)
        job.buffers[isa.LOGITS] = 0 if self.logits is None else at(self.logits)
        job.ranks(ranked, keep, heat)

    def best(self) -> tuple[Tensor, Tensor]:
        """b keep: the largest log-probabilities of each row, best first, and their tokens."""
        most, total = self.totals[:, 0, :1], self.totals[:, 0, 1:2]  # the largest, and Σ e^(x − largest)
        return torch.from_numpy(self.numbers[0] - most - np.log(total)), torch.from_numpy(self.places[0])


def scratch(rows: int) -> int:
    """The floats that a thread needs to rank so many rows."""
    return min(rows, isa.TOPK_ROWS) * isa.TOPK_BLOCK


@cache
def _program(width: int) -> Program:
    program = Program()
    nothing = isa.Linear(**dict.fromkeys(isa.Linear._fields, 0))
    program.rank(nothing._replace(outputs=width, target_step=width))
    return program


def best(logits: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """b keep: the largest log-probabilities of each row, best first, and their tokens."""
    job = Job(_program(logits.size(1)), logits, scratch=scratch(logits.size(0)))
    ranking = Ranking(job, keep, logits.size(1), logits.size(0))
    job.buffers[isa.LOGITS] = logits.data_ptr()
    job.run()
    return ranking.best()
