"""The recurrent model: its equations by hand, the laws every model here obeys, and what is counted of it."""

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer import presets
from clearformer.assemble import build
from clearformer.errors import DataError, SpecError
from clearformer.notes.measure_recurrent import Recall, recall, sequential_steps
from clearformer.notes.recurrent import Encoded, Recurrent, Step

VOCABULARY, WIDTH = 11, 5
PADDED = {  # where three tokens are among five places
    "right": [True, True, True, False, False],
    "left": [False, False, True, True, True],
    "middle": [True, False, True, False, True],
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Hundreds of tiny operations in a row: on a busy machine two threads spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(attention: bool = True) -> Recurrent:
    """In float64, with every parameter drawn: a bias of 0 would hide a forgotten bias."""
    model = Recurrent(VOCABULARY, WIDTH, attention=attention).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.7, generator=generator)
    return model


def ids(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def gru(cell: nn.GRUCell, x: Tensor, h: Tensor) -> Tensor:
    """Cho et al. 2014, one number at a time."""

    def gate(i: int) -> tuple[float, float]:
        own = sum(float(cell.weight_ih[i, j] * x[j]) for j in range(len(x))) + float(cell.bias_ih[i])
        past = sum(float(cell.weight_hh[i, j] * h[j]) for j in range(len(h))) + float(cell.bias_hh[i])
        return own, past

    new = []
    for i in range(len(h)):
        reset = 1 / (1 + math.exp(-sum(gate(i))))
        update = 1 / (1 + math.exp(-sum(gate(len(h) + i))))
        own, past = gate(2 * len(h) + i)
        new.append((1 - update) * math.tanh(own + reset * past) + update * float(h[i]))
    return torch.tensor(new, dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("attention", [True, False])
def test_the_equations_word_by_word(attention: bool) -> None:
    model, source, target = make(attention), ids(4), ids(3, seed=2)
    x, zero = model.embed.weight[source], torch.zeros(WIDTH).double()

    right, left = [zero], [zero]
    for j in range(4):
        right.append(gru(model.rightward, x[j], right[-1]))
        left.append(gru(model.leftward, x[3 - j], left[-1]))
    h = [torch.cat([right[j + 1], left[4 - j]]) for j in range(4)]

    s = torch.tanh(model.first.weight @ h[3] + model.first.bias)
    expected, expected_weights = [], []
    for token in target:
        if attention:
            attend = model.attend
            e = [
                math.exp(
                    attend.score.weight[0]
                    @ torch.tanh(attend.query.weight @ s + attend.query.bias + attend.key.weight @ h_j)
                )
                for h_j in h
            ]
            a = [e_j / sum(e) for e_j in e]
        else:
            a = [0.0, 0.0, 0.0, 1.0]
        c = sum(a_j * h_j for a_j, h_j in zip(a, h, strict=True))
        s = gru(model.decoder, torch.cat([model.embed.weight[token], c]), s)
        expected.append(model.output.weight @ torch.cat([s, c]) + model.output.bias)
        expected_weights.append(a)

    torch.testing.assert_close(model(source[None], target[None])[0], torch.stack(expected), rtol=0, atol=1e-12)
    alignment = model.alignment(source[None], target[None])[0]
    torch.testing.assert_close(alignment, torch.tensor(expected_weights, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("side", PADDED)
def test_padded_equals_unpadded_in_values_and_gradients(side: str, attention: bool) -> None:
    there = torch.tensor([PADDED[side], [True] * 5])
    source, target = ids(2, 5), ids(2, 5, seed=2)  # what stands on padding is a word like any other
    grade = torch.randn(2, 5, VOCABULARY, generator=torch.Generator().manual_seed(3)).double()

    padded = make(attention)
    together = padded(source, target, there, there)
    (together * grade)[there].sum().backward()

    alone = make(attention)
    for row in range(2):
        kept = there[row]
        logits = alone(source[row, kept][None], target[row, kept][None])
        torch.testing.assert_close(together[row, kept], logits[0], rtol=0, atol=1e-12)
        (logits[0] * grade[row, kept]).sum().backward()
    for (name, a), b in zip(padded.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-10, msg=name)


def test_step_by_step_equals_teacher_forcing() -> None:
    model, source, target = make(), ids(2, 6), ids(2, 4, seed=2)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    encoded = model.encode(source, mask)
    state, logits, weights = encoded.first, [], []
    for i in range(4):
        made = model.step(target[:, i], state, encoded)
        state = made.state
        logits.append(made.logits)
        weights.append(made.weights)
    torch.testing.assert_close(model(source, target, mask), torch.stack(logits, 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(model.alignment(source, target, mask), torch.stack(weights, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", [True, False])
def test_weights_sum_to_one_over_real_tokens_and_are_zero_on_padding(attention: bool) -> None:
    mask = torch.tensor([*PADDED.values(), [False] * 5])  # the last row has nothing to look at
    said = torch.tensor([[True, True]] * 2 + [[True, False]] + [[True, True]])
    weights = make(attention).alignment(ids(4, 5), ids(4, 2), mask, said)  # b t s
    assert weights.sum(2).round(decimals=12).tolist() == [[1, 1], [1, 1], [1, 0], [0, 0]]
    assert (weights.masked_select(~mask[:, None]) == 0).all()
    if not attention:  # all weight on each row's last word
        assert weights[:3, 0].argmax(1).tolist() == [2, 4, 4]


def test_a_source_without_a_token_gives_numbers_and_gradients_not_nan() -> None:
    model = make()
    logits = model(ids(1, 3), ids(1, 2), torch.zeros(1, 3, dtype=torch.bool))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_the_future_changes_nothing_in_the_past() -> None:
    model, source, target = make(), ids(1, 4), ids(1, 5, seed=2)
    changed = target.clone()
    changed[0, 3] = (changed[0, 3] + 1) % VOCABULARY
    before, after = model(source, target), model(source, changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])


def train_to_copy(model: Recurrent, start: int, end: int, steps: int) -> None:
    """Sentences of 1 to 4 words out of 2 … 7, padded, each to be written out and ended."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        words = torch.randint(2, 8, (32, 4), generator=generator)
        length = torch.randint(1, 5, (32, 1), generator=generator)
        mask = torch.arange(4) < length
        target = F.pad(words, (1, 0), value=start)
        answer = F.pad(words, (0, 1)).scatter(1, length, end)
        counted = torch.arange(5) <= length
        logits = model(words, target, mask, counted)
        optimiser.zero_grad()
        F.cross_entropy(logits[counted], answer[counted]).backward()
        optimiser.step()


def test_learns_to_copy_and_stops_at_the_end() -> None:
    model = Recurrent(8, 24, seed=0)
    train_to_copy(model, start=0, end=1, steps=150)
    source = torch.tensor([[2, 3, 4, 5], [7, 7, 6, 0], [5, 0, 0, 0]])
    mask = torch.tensor([[True] * 4, [True] * 3 + [False], [True] + [False] * 3])
    assert model.greedy(source, start=0, end=1, limit=10, mask=mask) == [[2, 3, 4, 5], [7, 7, 6], [5]]
    assert model.greedy(source, start=0, end=1, limit=2, mask=mask) == [[2, 3], [7, 7], [5]]


def test_greedy_ends_each_row_at_its_own_end_and_then_all(monkeypatch: pytest.MonkeyPatch) -> None:
    model, end = make(), 1
    script = iter([[4, end], [5, 6], [end, 7], [8, 8]])  # what is likeliest at each step, for two rows
    said = []

    def step(token: Tensor, state: Tensor, encoded: Encoded) -> Step:
        said.append(token.tolist())
        return Step(F.one_hot(torch.tensor(next(script)), VOCABULARY), state, encoded.mask)

    monkeypatch.setattr(model, "step", step)
    assert model.greedy(ids(2, 3), start=3, end=end, limit=9) == [[4, 5], []]
    assert said == [[3, 3], [4, end], [5, 6]]  # and no fourth step


def test_recurrent_steps_grow_with_length() -> None:
    model = Recurrent(VOCABULARY, WIDTH)
    cells: list[object] = []
    for module in model.modules():
        if isinstance(module, nn.GRUCell):
            module.register_forward_hook(lambda *given: cells.append(given))
    chain = sequential_steps(model, source=7, target=5)
    assert chain.steps == 7 + 5  # the two directions of the encoder run side by side
    assert chain.calls == len(cells) == 2 * 7 + 5
    short, middle, long = (sequential_steps(model, n, n).operations for n in (5, 10, 20))
    assert long - middle == 2 * (middle - short) > 0


def test_transformer_steps_do_not_grow_with_length() -> None:
    model = build(presets.original("tiny"), kernel="reference")
    chains = {sequential_steps(model, source, target) for source, target in [(2, 3), (7, 5), (40, 60)]}
    assert len(chains) == 1
    assert next(iter(chains)).steps == 2 + 2  # its blocks: encoder's and decoder's


def test_what_runs_side_by_side_is_one_step() -> None:
    class SideBySide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(1, 1)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            return torch.stack([self.cell(word[:, None].float()) for word in source.unbind(1)]).sum(0)

    chain = sequential_steps(SideBySide(), source=6, target=1)
    assert (chain.steps, chain.calls) == (1, 6)


@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_recall_is_by_place_in_the_source(task: str) -> None:
    class Forgets(nn.Module):
        """Knows the task, but not the first two words of any source (it says 0 for them)."""

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            known = source.clone()
            known[:, :2] = 0
            return F.one_hot(known if task == "copy" else known.flip(1), 17)

    (found,) = recall(Forgets(), task, [5], name="forgets", sentences=4)
    assert found == Recall("forgets", task, 5, (0.0, 0.0, 1.0, 1.0, 1.0))
    assert (found.first(4), found.last(3)) == (0.5, 1.0)


def test_the_seed_decides_the_weights() -> None:
    one, same, other = (Recurrent(VOCABULARY, WIDTH, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["decoder.weight_hh"], other["decoder.weight_hh"])


def test_wrong_inputs_are_explained() -> None:
    model = Recurrent(VOCABULARY, WIDTH)
    with pytest.raises(SpecError, match=r"dropout 1\.0"):
        Recurrent(VOCABULARY, WIDTH, dropout=1.0)
    with pytest.raises(DataError, match="source ids must be integers"):
        model(torch.rand(1, 3), ids(1, 3))
    with pytest.raises(DataError, match="outside the vocabulary of 11"):
        model(ids(1, 3), torch.tensor([[1, 11]]))
    with pytest.raises(DataError, match="start ids run from -1"):
        model.greedy(ids(1, 3), start=-1, end=1, limit=2)
    with pytest.raises(DataError, match="target mask must be bool"):
        model(ids(1, 3), ids(1, 3), None, torch.ones(1, 3))
    with pytest.raises(DataError, match="1 target rows given for 2 sources"):
        model(ids(2, 3), ids(1, 3))
