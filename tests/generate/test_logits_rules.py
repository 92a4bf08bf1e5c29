"""What a text may not become, by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clearformer as cf
from clearformer import presets
from clearformer.errors import DataError
from clearformer.generate.logits_rules import LogitsRules, top
from clearformer.generate.options import GenerationOptions, check_tokens, plan
from tests.laws.cases import loud


def small() -> torch.nn.Module:
    return loud(cf.build(presets.gpt2("tiny", vocabulary=12), seed=1))


def rules(vocabulary: int = 9, prompt: tuple[int, ...] = (), **options: Any) -> LogitsRules:
    return LogitsRules(plan(GenerationOptions(**options), len(prompt)), prompt, vocabulary)


def left(made: LogitsRules, scores: list[float], so_far: list[int]) -> list[float]:
    """The scores as the rules leave them, asked both ways."""
    given = np.array(scores, dtype=np.float32)
    found = made.all(given, so_far)
    few, tokens = made.few(*top(given, len(given)), so_far)
    again = np.full_like(given, -math.inf)
    again[tokens] = few
    assert again.tolist() == found.tolist()
    assert given.tolist() == np.array(scores, dtype=np.float32).tolist()
    return found.tolist()


def test_nothing_asked_changes_nothing() -> None:
    assert left(rules(3), [1.0, 3.0, 2.0], [1]) == [1.0, 3.0, 2.0]
    assert rules(3).more([1]) == 0
    assert rules(3).simple(0)


def test_used_tokens_become_less_likely_on_both_sides_of_zero() -> None:
    assert left(rules(3, repetition_penalty=2.0), [4.0, -2.0, 3.0], [0, 1, 0]) == [2.0, -4.0, 3.0]


def test_penalties_count_what_was_written_and_not_the_prompt() -> None:
    both = rules(4, prompt=(2, 2), presence_penalty=0.5, frequency_penalty=1.0)
    assert left(both, [4.0, 3.0, 2.0, 1.0], [0, 0, 1]) == [1.5, 1.5, 2.0, 1.0]
    assert left(both, [4.0, 3.0, 2.0, 1.0], []) == [4.0, 3.0, 2.0, 1.0]
    assert left(rules(2, frequency_penalty=-1.0), [0.0, 0.0], [1, 1]) == [0.0, 2.0]
    assert both.needs_all


def test_a_bias_is_added() -> None:
    assert left(rules(3, logit_bias={0: -100.0, 2: 5.0}), [1.0, 3.0, 2.0], [1]) == [-99.0, 3.0, 7.0]
    for wrong in ({-1: 1.0}, {0: math.nan}, {"0": 1.0}, 3):
        with pytest.raises(DataError, match="logit_bias"):
            rules(3, logit_bias=wrong)
    with pytest.raises(DataError, match="vocabulary"):
        check_tokens(plan(GenerationOptions(logit_bias=((9, 1.0),)), 0), 3)


def test_no_two_tokens_in_a_row_come_twice() -> None:
    twice = rules(4, no_repeat_ngram_size=2)
    assert left(twice, [0, 0, 0, 0], [1, 2, 3, 1]) == [0, 0, -math.inf, 0]
    assert left(twice, [0, 0, 0, 0], [1]) == [0, 0, 0, 0]
    assert left(rules(3, no_repeat_ngram_size=1), [0, 0, 0], [2]) == [0, 0, -math.inf]


def test_an_end_waits_for_the_least_length() -> None:
    made = rules(3, min_new_tokens=2, eos_token_id=(0, 2))
    assert left(made, [0, 0, 0], [1]) == [-math.inf, 0, -math.inf]
    assert left(made, [0, 0, 0], [1, 1]) == [0, 0, 0]


def test_forbidden_tokens_never_come() -> None:
    prompt = torch.tensor([[1], [2]])
    banned = cf.greedy(small(), prompt, max_new_tokens=8)[0].tokens[0]
    ways: dict[str, Any] = {"max_new_tokens": 8, "suppress_tokens": (banned,)}
    for found in (
        cf.greedy(small(), prompt, **ways),
        cf.sample(small(), prompt, seed=1, **ways),
        cf.sample(small(), prompt, seed=1, top_p=0.9, **ways),
        [row[0] for row in cf.beam(small(), prompt, eos_token_id=0, **ways)],
    ):
        assert all(banned not in each.tokens for each in found)


def test_a_forbidden_word_is_not_ended() -> None:
    made = rules(9, bad_words_ids=((4, 5), (1, 2, 3)))
    for so_far, banned in (([1, 2], [3]), ([2, 4], [5]), ([2], [])):
        assert [n for n, score in enumerate(left(made, [0.0] * 9, so_far)) if score == -math.inf] == banned
    with pytest.raises(DataError, match=r"bad_words_ids must be of the vocabulary, 0 to 11, given 12"):
        cf.greedy(small(), torch.tensor([[1]]), bad_words_ids=((4, 12),))
    with pytest.raises(DataError, match=r"bad_words_ids must be lists of token ids"):
        GenerationOptions(bad_words_ids=((),))


def test_a_forbidden_word_of_one_token_is_a_forbidden_token_unless_it_ends() -> None:
    """As in transformers, which leaves ends out of what is forbidden."""
    made = rules(4, bad_words_ids=((1,), (3,)), eos_token_id=3)
    assert left(made, [0, 0, 0, 0], []) == [0, -math.inf, 0, 0]


def test_a_beam_obeys_the_same_rules_as_greedy() -> None:
    prompt = torch.tensor([[1], [2], [3]])
    ways: dict[str, Any] = {
        "max_new_tokens": 12, "eos_token_id": 0, "no_repeat_ngram_size": 2, "min_new_tokens": 3,
    }  # fmt: skip
    for each in cf.beam(small(), prompt, num_beams=3, **ways):
        for found in each:
            couples = list(zip(found.tokens, found.tokens[1:], strict=False))
            assert len(couples) == len(set(couples))
            assert len(found.tokens) >= 4
    one = [row[0] for row in cf.beam(small(), prompt, num_beams=1, **ways)]
    assert [each.tokens for each in one] == [each.tokens for each in cf.greedy(small(), prompt, **ways)]


def test_the_watcher_sees_every_hypothesis_that_is_kept() -> None:
    seen: list[tuple[int, ...]] = []
    over: list[tuple[int, ...]] = []

    def watch(row: int, tokens: list[int], score: float, ended: bool) -> None:
        assert row == 0
        (over if ended else seen).append(tuple(tokens))

    ways: dict[str, Any] = {"max_new_tokens": 5, "eos_token_id": 0, "num_beams": 3}
    found = cf.beam(small(), torch.tensor([[1]]), watch=watch, **ways)[0]
    assert {tuple(each.tokens) for each in found} <= set(over)
    assert all(tokens[:-1] in seen or len(tokens) == 1 for tokens in seen + over)


def test_forced_tokens_are_certain() -> None:
    made = rules(4, forced_bos_token_id=1, forced_eos_token_id=2, suppress_tokens=(0,), max_new_tokens=5)
    assert left(made, [1, 1, 1, 1], []) == [-math.inf, 0, -math.inf, -math.inf]
    assert left(made, [1, 1, 1, 1], [3]) == [-math.inf, 1, 1, 1]
    assert left(made, [1, 1, 1, 1], [3] * 4) == [-math.inf, -math.inf, 0, -math.inf]


def test_repetitions_count_the_prompt() -> None:
    made = rules(3, prompt=(0, 1), repetition_penalty=2.0, no_repeat_ngram_size=2)
    assert left(made, [4.0, -2.0, 3.0], [0]) == [2.0, -math.inf, 3.0]


def test_only_what_is_allowed_comes() -> None:
    made = LogitsRules(plan(GenerationOptions(), 1), [0], 4, lambda so_far: [1, 3] if len(so_far) == 1 else None)
    assert made.needs_all
    assert made.all(np.ones(4, dtype=np.float32), [2]).tolist() == [-math.inf, 1, -math.inf, 1]
    assert made.all(np.ones(4, dtype=np.float32), []).tolist() == [1, 1, 1, 1]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_few_best_are_enough(data: st.DataObject) -> None:
    """With as many more of the best as could be struck out, what is left is the best of all."""
    size = data.draw(st.integers(4, 12))
    token = st.integers(0, size - 1)
    texts = data.draw(st.lists(token, max_size=8))
    options = GenerationOptions(
        suppress_tokens=data.draw(st.lists(token, max_size=2)),
        eos_token_id=data.draw(st.lists(token, max_size=2, unique=True)),
        min_new_tokens=data.draw(st.integers(0, 9)),
        max_new_tokens=data.draw(st.integers(9, 12)),
        no_repeat_ngram_size=data.draw(st.integers(0, 3)),
        repetition_penalty=data.draw(st.sampled_from([1.0, 1.3, 4.0])),
        bad_words_ids=data.draw(st.lists(st.lists(token, min_size=1, max_size=3), max_size=2)),
        forced_bos_token_id=data.draw(st.none() | token),
        forced_eos_token_id=data.draw(st.none() | token),
    )
    made = LogitsRules(plan(options, 1), [0], size)
    scores = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=size, max_size=size)), dtype=np.float32)
    wanted = data.draw(st.integers(1, 4))
    expected = top(made.all(scores, texts), wanted)
    few, tokens = made.few(*top(scores, min(size, wanted + made.more(texts))), texts)
    for found, right in ((few[:wanted], expected[0]), (tokens[:wanted], expected[1])):
        possible = expected[0] > -math.inf
        assert found[: possible.sum()].tolist() == right[possible].tolist()


def test_rules_that_leave_nothing_say_so() -> None:
    everything = tuple(range(12))
    for search in (cf.greedy, cf.beam):
        with pytest.raises(DataError, match="leave no token"):
            search(small(), torch.tensor([[1]]), max_new_tokens=2, eos_token_id=0, suppress_tokens=everything)
    with pytest.raises(DataError, match="forced_eos_token_id must be of the vocabulary"):
        cf.greedy(small(), torch.tensor([[1]]), max_new_tokens=2, forced_eos_token_id=12)
