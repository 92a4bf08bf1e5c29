"""Skip-gram with negative sampling (Mikolov et al. 2013): which words stand beside which.

Every word c has a vector v_c as the centre and a vector u_c as a neighbour. For each pair of a centre c and a word o in
its window, the loss is

    − log σ(u_o · v_c) − k · mean over n of log σ(−u_n · v_c)

with n drawn from P(n) ∝ count(n)^¾. In the paper each pair draws k words of its own; here 64 centres share 32 draws, as
in Ji et al. 2016, which is the same in the mean and makes the work products of matrices. A step subtracts rate ×
gradient, written out by hand below: autograd would make a gradient for every word there is.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 16  # centres whose neighbours are one product
GROUP, DRAWS = 64, 32  # centres that share draws, and how many


@dataclass(frozen=True)
class Batch:
    """n words that stand in a row; n is a multiple of `GROUP`."""

    ids: Tensor  # n
    line: Tensor  # n: the text each stands in; words of different texts do not see each other
    reach: Tensor  # n: how far each looks; 0: it is padding and sees nothing
    drawn: Tensor  # n/GROUP DRAWS


@dataclass(frozen=True)
class Scored:
    """c: centres in a block, s: the words of a block and `window` more to either side."""

    v: Tensor  # n d
    u: Tensor  # n/c s d
    un: Tensor  # n/GROUP DRAWS d
    near: Tensor  # n/c s, ids
    sees: Tensor  # n/c c s
    there: Tensor  # n/c c s: u_o · v_c
    drawn: Tensor  # n/GROUP GROUP DRAWS: u_n · v_c
    weight: Tensor  # n/GROUP GROUP 1: how often each draw counts for a centre: k/DRAWS for each of its pairs


def score(centres: Tensor, neighbours: Tensor, batch: Batch, window: int, negatives: int) -> Scored:
    """All products of a batch; the two tables are words × width."""
    width, size = centres.size(1), BLOCK + 2 * window
    near = F.pad(batch.ids, (window, window)).unfold(0, size, BLOCK)  # n/c s
    line = F.pad(batch.line, (window, window), value=-1).unfold(0, size, BLOCK)
    distance = (torch.arange(size) - window - torch.arange(BLOCK)[:, None]).abs()  # c s
    sees = (distance > 0) & (distance <= batch.reach.view(-1, BLOCK, 1))
    sees &= line[:, None, :] == batch.line.view(-1, BLOCK, 1)
    v = centres.index_select(0, batch.ids)
    u = neighbours.index_select(0, near.reshape(-1)).view(-1, size, width)
    un = neighbours.index_select(0, batch.drawn.view(-1)).view(-1, DRAWS, width)
    there = torch.bmm(v.view(-1, BLOCK, width), u.transpose(1, 2))
    drawn = torch.bmm(v.view(-1, GROUP, width), un.transpose(1, 2))
    weight = sees.sum(2).view(-1, GROUP, 1) * (negatives / DRAWS)
    return Scored(v, u, un, near, sees, there, drawn, weight)


def loss(scored: Scored) -> Tensor:
    """The sum over all pairs."""
    pairs = torch.where(scored.sees, F.logsigmoid(scored.there), 0.0).sum()
    return -pairs - (scored.weight * F.logsigmoid(-scored.drawn)).sum()


def step(centres: Tensor, neighbours: Tensor, scored: Scored, batch: Batch, rate: float) -> None:
    """Subtract rate × the gradient of `loss` from both tables, in place."""
    width = centres.size(1)
    pull = torch.where(scored.sees, torch.sigmoid(-scored.there), 0.0).mul_(rate)  # −∂/∂(u_o · v_c)
    push = torch.sigmoid(scored.drawn).mul_(scored.weight).mul_(-rate)  # −∂/∂(u_n · v_c)
    blocks, groups = scored.v.view(-1, BLOCK, width), scored.v.view(-1, GROUP, width)
    dv = torch.bmm(pull, scored.u).view(-1, width) + torch.bmm(push, scored.un).view(-1, width)
    _add(centres, batch.ids, dv)
    _add(neighbours, scored.near, torch.bmm(pull.transpose(1, 2), blocks))
    _add(neighbours, batch.drawn, torch.bmm(push.transpose(1, 2), groups))


def _add(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Add a row to the table for each id; an id may come more than once."""
    width = table.size(1)
    table.scatter_add_(0, ids.reshape(-1, 1).expand(-1, width), rows.reshape(-1, width))
