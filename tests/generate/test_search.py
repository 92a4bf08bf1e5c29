"""Decoding against exhaustive search and the model's own probabilities."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clearformer as cf
from clearformer import presets
from clearformer.errors import DataError
from clearformer.generate.options import GenerationOptions, plan
from clearformer.generate.requests import Request
from clearformer.generate.search import stream
from clearformer.generate.searches import BeamSearch, Best, advance_beams, search_for
from tests.laws.cases import loud, padded

END = 0


def small(vocabulary: int = 4) -> torch.nn.Module:
    return loud(cf.build(presets.gpt2("tiny", vocabulary=vocabulary), seed=1))


def varied(vocabulary: int = 30) -> torch.nn.Module:
    """One that does not say the same token again and again."""
    return loud(cf.build(presets.llama("tiny", vocabulary=vocabulary), seed=4))


def log_probability(model: torch.nn.Module, prompt: list[int], added: tuple[int, ...]) -> float:
    ids = torch.tensor([[*prompt, *added]])
    chances = model(ids)[0].log_softmax(-1)
    return sum(float(chances[len(prompt) - 1 + n, token]) for n, token in enumerate(added))


def test_a_wide_beam_finds_the_best_of_all_texts() -> None:
    """Four tokens, at most four steps: every text that ends can be listed and scored without the beam."""
    model, prompt, limit = small(), [1, 2], 4
    with torch.no_grad():
        texts = [(*middle, END) for length in range(limit) for middle in itertools.product(range(1, 4), repeat=length)]
        scored = sorted(((log_probability(model, prompt, text), text) for text in texts), reverse=True)
    # wider than the 40 texts that end and the 81 that do not; sum of log-probabilities
    found = cf.beam(
        model, torch.tensor([prompt]), max_new_tokens=limit, eos_token_id=END, num_beams=200, length_penalty=0.0
    )[0]
    ended = [each for each in found if each.finish == "end"]
    assert [tuple(each.tokens) for each in ended] == [text for _, text in scored]
    for each, (score, _) in zip(ended, scored, strict=True):
        assert each.score == pytest.approx(score, abs=1e-4)


def test_greedy_takes_the_likeliest_and_stops_at_the_end() -> None:
    model = small(30)
    prompt = padded([3, 1], "left")
    ids = prompt.ids % 30
    for row, found in enumerate(cf.greedy(model, ids, mask=prompt.mask, max_new_tokens=12, eos_token_id=END)):
        text = (prompt.rows[row] % 30).tolist()
        for n, token in enumerate(found.tokens):
            with torch.no_grad():
                logits = model(torch.tensor([text + found.tokens[:n]]))[0, -1]
            assert int(logits.argmax()) == token
        assert found.finish == ("end" if found.tokens[-1] == END else "limit")
        assert END not in found.tokens[:-1]


def test_the_length_penalty_orders_by_score_over_length() -> None:
    model, prompt = small(8), torch.tensor([[1, 2]])
    for penalty in (0.0, 1.0, 3.0):
        found = cf.beam(model, prompt, max_new_tokens=8, eos_token_id=END, num_beams=6, length_penalty=penalty)[0]
        normal = [each.score / len(each.tokens) ** penalty for each in found]
        assert normal == sorted(normal, reverse=True)
    lengths = [
        len(cf.beam(model, prompt, max_new_tokens=8, eos_token_id=END, num_beams=6, length_penalty=p)[0][0].tokens)
        for p in (0.0, 3.0)
    ]
    assert lengths[0] < lengths[1]


def test_a_finished_row_does_not_run_on() -> None:
    """A row of eight tokens ends at once while another goes on for six: it must not run off the table of ten."""
    model = loud(cf.build(presets.gpt2("tiny", vocabulary=4, length=10), seed=1))
    prompts = padded([8, 2], "left")
    together = cf.beam(model, prompts.ids % 4, mask=prompts.mask, max_new_tokens=6, eos_token_id=END, num_beams=1)
    assert [(each.tokens[-1], each.finish) for (each,) in together] == [(END, "end"), (1, "limit")]
    for row, found in enumerate(together):
        single = cf.beam(model, (prompts.rows[row] % 4)[None], max_new_tokens=6, eos_token_id=END, num_beams=1)[0]
        assert [each.tokens for each in found] == [each.tokens for each in single]


def test_a_tree_encoder_decodes() -> None:
    from clearformer.spec import TreeDistance

    what = presets.original("tiny").replace({"encoder.blocks.*.self.positions": TreeDistance(reach=3)})
    model = cf.build(what, seed=0)
    source, start = torch.tensor([[5, 6, 7]]), torch.tensor([[1]])
    one, other = (
        cf.greedy(model, start, source=source, max_new_tokens=4, source_trees=[heads])[0]
        for heads in ([0, 1, 2], [3, 3, 0])
    )
    assert one.score != other.score


def test_gradients_flow_through_a_context() -> None:
    model, ids = small(30), torch.tensor([[1, 2, 3, 4]])
    whole = torch.autograd.grad(model(ids)[:, -1].sum(), list(model.parameters()))
    context = model.context()
    model(ids[:, :2], context=context)
    stepped = torch.autograd.grad(model(ids[:, 2:], context=context)[:, -1].sum(), list(model.parameters()))
    for a, b in zip(stepped, whole, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_beam_rows_do_not_depend_on_their_batch() -> None:
    model = small(30)
    prompts = padded([4, 2, 3], "left")
    ids = prompts.ids % 30
    together = cf.beam(model, ids, mask=prompts.mask, max_new_tokens=6, eos_token_id=END, num_beams=3)
    for row, found in enumerate(together):
        single = cf.beam(model, (prompts.rows[row] % 30)[None], max_new_tokens=6, eos_token_id=END, num_beams=3)[0]
        assert [each.tokens for each in found] == [each.tokens for each in single]


def test_sampling_follows_the_probabilities_and_the_seed() -> None:
    model = small(5)
    prompt = torch.tensor([[1, 2]]).expand(4000, 2)
    with torch.no_grad():
        expected = model(prompt[:1])[0, -1].softmax(-1)
    first = [each.tokens for each in cf.sample(model, prompt, max_new_tokens=1, seed=1)]
    found = torch.bincount(torch.tensor(first)[:, 0], minlength=5) / 4000
    assert float((found - expected).abs().max()) < 0.03
    assert first == [each.tokens for each in cf.sample(model, prompt, max_new_tokens=1, seed=1)]
    assert first != [each.tokens for each in cf.sample(model, prompt, max_new_tokens=1, seed=9000)]


def test_layers_share_the_places_of_the_cache() -> None:
    model, prompt = small(30), padded([4, 2], "left")
    context = model.context()
    with torch.no_grad():
        model(prompt.ids % 30, prompt.mask, context=context)
        model(torch.tensor([[1], [2]]), context=context)
        context.select(torch.tensor([1, 0, 1]))
        model(torch.tensor([[1], [2], [3]]), context=context)
    first, second = (keys["self"].places for keys in context.keys)
    assert first is second
    assert first.index.tolist() == [[-1, -1, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [-1, -1, 0, 1, 2, 3]]


def test_tokens_come_one_by_one_as_they_are_chosen() -> None:
    model, prompt = varied(), padded([4, 2], "left")
    for ways in ({}, {"seed": 5, "temperature": 1.5}):
        steps = list(stream(model, prompt.ids % 30, mask=prompt.mask, max_new_tokens=[6, 3], eos_token_id=END, **ways))
        whole = cf.sample if ways else cf.greedy
        found = whole(model, prompt.ids % 30, mask=prompt.mask, max_new_tokens=[6, 3], eos_token_id=END, **ways)
        for row, one in enumerate(found):
            mine = [step for step in steps if step.row == row]
            assert [step.token for step in mine] == one.tokens
            assert sum(step.score for step in mine) == pytest.approx(one.score)
            assert [step.finish for step in mine] == [None] * (len(mine) - 1) + [one.finish]


def test_a_row_can_be_stopped_while_others_go_on() -> None:
    model, prompt = varied(), torch.tensor([[1, 2], [3, 4]])
    free = cf.greedy(model, prompt, max_new_tokens=6)
    found = cf.greedy(model, prompt, max_new_tokens=6, stop_at=lambda row, tokens: row == 0 and len(tokens) == 2)
    assert found[0].tokens == free[0].tokens[:2]
    assert [each.finish for each in found] == ["stop", "limit"]
    assert found[1].tokens == free[1].tokens
    assert found[1].score == pytest.approx(free[1].score)


def test_any_of_several_ends_ends() -> None:
    model, prompt = varied(), torch.tensor([[1, 2]])
    free = cf.greedy(model, prompt, max_new_tokens=8)[0].tokens
    place = next(n for n, token in enumerate(free) if token not in free[:n] and n)
    found = cf.greedy(model, prompt, max_new_tokens=8, eos_token_id=[29 if free[place] != 29 else 28, free[place]])[0]
    assert (found.tokens, found.finish) == (free[: place + 1], "end")
    with pytest.raises(DataError, match="given 30"):
        cf.greedy(model, prompt, max_new_tokens=8, eos_token_id=[1, 30])


def test_a_beam_that_is_not_early_finds_texts_at_least_as_good() -> None:
    model, prompt = varied(12), torch.tensor([[1, 2]])
    better = 0
    for end in range(12):
        for penalty in (1.0, 2.0):
            best = [
                cf.beam(
                    model,
                    prompt,
                    max_new_tokens=10,
                    eos_token_id=end,
                    num_beams=2,
                    length_penalty=penalty,
                    early_stopping=early,
                )[0][0]
                for early in (True, False, "never")
            ]
            normal = [each.score / len(each.tokens) ** penalty for each in best]
            assert normal == sorted(normal)
            better += normal[0] < normal[2]
    assert better


def best_of(scores: np.ndarray) -> Best:
    """Scores as a search is told them: rows of logits, best first."""
    order = np.argsort(-scores, axis=1, kind="stable")
    highest = np.zeros(len(scores), dtype=np.float32)
    one = np.ones(len(scores), dtype=np.float32)  # so that logits are log-probabilities
    return Best(np.take_along_axis(scores, order, 1), order, highest, one, one, lambda row: scores[row])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(2, 6), st.integers(0, 2), st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_a_beam_keeps_the_best_extensions(counts: list[int], words: int, ends: int, seed: int) -> None:
    """Several beams of different sizes in one step, each against all of its extensions, sorted."""
    random = np.random.default_rng(seed)
    gains = random.integers(-3, 1, (sum(counts), words)).astype(np.float32)  # many are equal
    gains[random.random(gains.shape) < 0.2] = -math.inf
    ways = plan(GenerationOptions(num_beams=4, max_new_tokens=9, eos_token_id=tuple(range(min(ends, words)))), 1)
    beams, first = [], 0
    for count in counts:
        made = search_for(Request([0], ways), words)
        assert isinstance(made, BeamSearch)
        scores = sorted(random.integers(-3, 1, count).tolist(), reverse=True)
        made.go_on([float(score) for score in scores], [0] * count, list(range(count)))
        made.asked = made.wanted()
        beams.append((made, first, count))
        first += count
    before = [list(made.growing) for made, _, _ in beams]
    steps = advance_beams(beams, best_of(gains))
    for (made, at, _), old, step in zip(beams, before, steps, strict=True):
        every = [
            (score + float(gains[at + n, token]), n, token)
            for n, (score, _) in enumerate(old)
            for token in np.argsort(-gains[at + n], kind="stable").tolist()
        ]
        every = [each for each in sorted(every, key=lambda each: -each[0]) if each[0] > -math.inf][: ways.keep]
        kept = [each for each in every if each[2] not in ways.ends][: ways.beams]
        over = [each for rank, each in enumerate(every) if each[2] in ways.ends and rank < ways.beams]
        if isinstance(step, BaseException):
            assert not kept
            assert not over
            continue
        assert made.growing == [(score, [*old[n][1], token]) for score, n, token in kept]
        assert {(each.score, tuple(each.tokens)) for each in made.ended} <= {(s, (*old[n][1], t)) for s, n, t in over}
        assert step == (([], []) if made.done() else ([n for _, n, _ in kept], [token for _, _, token in kept]))


def test_what_is_no_number_wins_no_beam() -> None:
    model = varied()
    with torch.no_grad():
        model.stack.final.weight.fill_(math.nan)
    with pytest.raises(DataError, match="no token that could come next"):
        cf.beam(model, torch.tensor([[1, 2]]), max_new_tokens=3, eos_token_id=END)
