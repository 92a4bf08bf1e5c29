"""The recurrent encoder–decoder with attention (Bahdanau, Cho and Bengio 2015): what the Transformer is set against.

    →h_j = GRU(x_j, →h_{j−1})              ←h_j = GRU(x_j, ←h_{j+1})      h_j = [→h_j ; ←h_j]
    e_tj = v · tanh(W s_{t−1} + U h_j)     a_t = softmax(e_t)             c_t = Σ_j a_tj h_j
    s_t  = GRU([y_{t−1} ; c_t], s_{t−1})   logits_t = O [s_t ; c_t]       s_0 = tanh(I h_last)

Each s_t needs the one before it, so the steps of a sentence cannot run side by side. Two departures from the paper:
O is one matrix instead of a maxout layer, and s_0 comes from the last word's state, so that without attention that
one vector is all the decoder ever has of the source. Masks are True where a token is, on any side.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearformer.errors import DataError, SpecError


class Encoded(NamedTuple):
    states: Tensor  # b s 2m
    keys: Tensor  # b s m for `Additive`, b s for `Last`: what either makes of the states once for all target words
    mask: Tensor  # b s
    first: Tensor  # b m, the state the decoder starts from


class Step(NamedTuple):
    logits: Tensor  # b v
    state: Tensor  # b m
    weights: Tensor  # b s


class Additive(nn.Module):
    """softmax_j(v · tanh(W s + U h_j)) over the real tokens; a row without any gets zeros."""

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(2 * width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def keys(self, states: Tensor, mask: Tensor) -> Tensor:
        return self.key(states)  # b s m

    def forward(self, state: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        scores = self.score(torch.tanh(self.query(state)[:, None] + keys)).squeeze(2)  # b s
        # The lowest number rather than −∞, and zeros afterwards: a row of padding is then zeros, not NaN.
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(1).masked_fill(~mask, 0.0)


class Last(nn.Module):
    """No attention: all weight on the last word, for every target word."""

    def keys(self, states: Tensor, mask: Tensor) -> Tensor:
        return last_word(mask).to(states.dtype)  # b s

    def forward(self, state: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        return keys


class Recurrent(nn.Module):
    """Called like `core.model.EncoderDecoder`; `attention=False` is the encoder–decoder from before attention."""

    def __init__(
        self, vocabulary: int, width: int, dropout: float = 0.0, attention: bool = True, *, seed: int | None = None
    ):
        super().__init__()
        if vocabulary < 1 or width < 1 or not 0.0 <= dropout < 1.0:
            raise SpecError(
                f"vocabulary and width must be at least 1 and dropout from 0 up to but not 1;"
                f" given vocabulary {vocabulary}, width {width}, dropout {dropout}"
            )
        self.embed = nn.Embedding(vocabulary, width)
        self.rightward, self.leftward = nn.GRUCell(width, width), nn.GRUCell(width, width)
        self.attend = Additive(width) if attention else Last()
        self.first = nn.Linear(2 * width, width)
        self.decoder = nn.GRUCell(3 * width, width)
        self.output = nn.Linear(3 * width, vocabulary)
        self.drop = nn.Dropout(dropout)
        self._initialise(seed)
        self.eval()  # as `build` returns its models

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Encoded:
        mask = self._checked("source", source, mask)
        x = self.drop(self.embed(source))
        order = range(source.size(1))
        rightward, leftward = _sweep(self.rightward, x, mask, order), _sweep(self.leftward, x, mask, order[::-1])
        states = torch.cat([rightward, leftward], 2)  # b s 2m
        final = (last_word(mask).to(x.dtype)[:, None] @ states).squeeze(1)  # b 2m
        return Encoded(states, self.attend.keys(states, mask), mask, torch.tanh(self.first(final)))

    def step(self, token: Tensor, state: Tensor, encoded: Encoded) -> Step:
        """One target word: the token before it (b) and the state before it (b m) give its logits."""
        weights = self.attend(state, encoded.keys, encoded.mask)
        context = (weights[:, None] @ encoded.states).squeeze(1)  # b 2m
        state = self.decoder(torch.cat([self.drop(self.embed(token)), context], 1), state)
        return Step(self.output(self.drop(torch.cat([state, context], 1))), state, weights)

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Teacher forcing, b t v: the target is given, and still its words must be taken one after another."""
        steps, _ = self._read(source, target, source_mask, target_mask)
        return torch.stack([step.logits for step in steps], 1)

    def alignment(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """b t s: how much of each source word went into predicting what follows each target word."""
        steps, mask = self._read(source, target, source_mask, target_mask)
        return torch.stack([step.weights for step in steps], 1).masked_fill(~mask[..., None], 0.0)

    @torch.no_grad()
    def greedy(self, source: Tensor, start: int, end: int, limit: int, mask: Tensor | None = None) -> list[list[int]]:
        """The likeliest token at each step, for each row, until `end` (left out, like `start`) or the limit."""
        encoded = self.encode(source, mask)
        state, token = encoded.first, torch.full_like(source[:, 0], start)
        self._checked("start", token[:, None], None)
        ended = torch.zeros_like(token, dtype=torch.bool)
        written: list[list[int]] = [[] for _ in token]
        for _ in range(limit):
            logits, state, _ = self.step(token, state, encoded)
            token = logits.argmax(1)
            ended |= token == end
            if ended.all():
                break
            for row in (~ended).nonzero().flatten().tolist():
                written[row].append(int(token[row]))
        return written

    def _read(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None, target_mask: Tensor | None
    ) -> tuple[Sequence[Step], Tensor]:
        encoded, mask = self.encode(source, source_mask), self._checked("target", target, target_mask)
        if len(source) != len(target):
            raise DataError(f"{len(target)} target rows given for {len(source)} sources; give one for each")
        state, steps = encoded.first, []
        for i in range(target.size(1)):
            steps.append(self.step(target[:, i], state, encoded))
            state = torch.where(mask[:, i, None], steps[-1].state, state)
        return steps, mask

    def _checked(self, side: str, ids: Tensor, mask: Tensor | None) -> Tensor:
        """The mask, or one for ids that are all real; the border at which inputs are checked."""
        if ids.dim() != 2 or ids.size(1) == 0 or ids.dtype not in (torch.int64, torch.int32):
            raise DataError(f"{side} ids must be integers of shape batch × length, given {_kind(ids)}")
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.embed.num_embeddings:
            raise DataError(
                f"{side} ids run from {int(ids.min())} to {int(ids.max())}, outside the vocabulary of"
                f" {self.embed.num_embeddings}; was this text encoded with another model's tokenizer?"
            )
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        if mask.shape != ids.shape or mask.dtype != torch.bool:
            raise DataError(
                f"{side} mask must be bool, True where a token is, and of the ids' shape {tuple(ids.shape)};"
                f" given {_kind(mask)}"
            )
        return mask

    def _initialise(self, seed: int | None) -> None:
        """Matrices by Glorot's rule, each gate's recurrence orthogonal, the table normal, biases 0."""
        generator = torch.Generator().manual_seed(seed) if seed is not None else None
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                nn.init.zeros_(parameter)
            elif name == "embed.weight":
                nn.init.normal_(parameter, generator=generator)
            elif name.endswith("weight_hh"):
                for gate in parameter.chunk(3):
                    nn.init.orthogonal_(gate, generator=generator)
            else:
                nn.init.xavier_uniform_(parameter, generator=generator)


def last_word(mask: Tensor) -> Tensor:
    """b s: True at each row's last real token, and nowhere in a row without one."""
    return mask & (mask.flip(1).cumsum(1).flip(1) == 1)


def _sweep(cell: nn.GRUCell, x: Tensor, mask: Tensor, order: range) -> Tensor:
    """b s m: the state after each token, in this order. Padding passes the state on, so it need not be on one side."""
    states = [state := x.new_zeros(len(x), cell.hidden_size)] * len(order)
    for i in order:
        states[i] = state = torch.where(mask[:, i, None], cell(x[:, i], state), state)
    return torch.stack(states, 1)


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
