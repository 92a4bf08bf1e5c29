"""What a text may not become, by hand."""

import math

import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.errors import DataError
from clearformer.generate.logits_rules import FREE, Controls
from clearformer.generate.search import keep_likeliest
from tests.laws.cases import loud


def small() -> torch.nn.Module:
    return loud(cf.build(presets.gpt2("tiny", vocabulary=12), seed=1))


def test_nothing_asked_changes_nothing() -> None:
    logits = torch.randn(2, 5)
    assert FREE(logits, [[], [1]], (0,)) is logits


def test_used_tokens_become_less_likely_on_both_sides_of_zero() -> None:
    logits = torch.tensor([[4.0, -2.0, 3.0]])
    found = Controls(repetition=2.0)(logits, [[0, 1, 0]])
    assert found.tolist() == [[2.0, -4.0, 3.0]]
    assert logits.tolist() == [[4.0, -2.0, 3.0]]


def test_no_two_tokens_in_a_row_come_twice() -> None:
    found = Controls(no_repeat=2)(torch.zeros(2, 4), [[1, 2, 3, 1], [1]])
    assert found.tolist() == [[0, 0, -math.inf, 0], [0, 0, 0, 0]]
    assert Controls(no_repeat=1)(torch.zeros(1, 3), [[2]]).tolist() == [[0, 0, -math.inf]]


def test_an_end_waits_for_the_shortest_length() -> None:
    rule = Controls(shortest=3)
    assert rule(torch.zeros(1, 2), [[1]], (0,))[0, 0] == -math.inf
    assert rule(torch.zeros(1, 2), [[1, 1]], (0,))[0, 0] == 0


def test_forbidden_tokens_never_come() -> None:
    prompt = torch.tensor([[1], [2]])
    free = cf.greedy(small(), prompt, limit=8)
    banned = free[0].tokens[0]
    for found in (
        cf.greedy(small(), prompt, limit=8, controls=Controls(forbidden=(banned,))),
        cf.sample(small(), prompt, limit=8, seed=1, controls=Controls(forbidden=(banned,))),
        [row[0] for row in cf.beam(small(), prompt, limit=8, end=0, controls=Controls(forbidden=(banned,)))],
    ):
        assert all(banned not in each.tokens for each in found)


def test_a_forbidden_word_is_not_ended() -> None:
    rules = Controls(forbidden_words=((4, 5), (1, 2, 3)))
    logits = torch.zeros(1, 9)
    assert rules(logits, [[1, 2]])[0].isneginf().nonzero().flatten().tolist() == [3]
    assert rules(logits, [[2, 4]])[0].isneginf().nonzero().flatten().tolist() == [5]
    assert not rules(logits, [[2]])[0].isneginf().any()
    with pytest.raises(DataError, match=r"forbidden_words must have two or more tokens of the vocabulary, 0 to 8"):
        Controls(forbidden_words=((4, 9),)).check(9)


def test_a_beam_obeys_the_same_rules_as_greedy() -> None:
    prompt, rule = torch.tensor([[1], [2], [3]]), Controls(no_repeat=2, shortest=4)
    for each in cf.beam(small(), prompt, limit=12, end=0, size=3, controls=rule):
        for found in each:
            couples = list(zip(found.tokens, found.tokens[1:], strict=False))
            assert len(couples) == len(set(couples))
            assert len(found.tokens) >= 4
    one = [row[0] for row in cf.beam(small(), prompt, limit=12, end=0, size=1, controls=rule)]
    assert [each.tokens for each in one] == [
        each.tokens for each in cf.greedy(small(), prompt, limit=12, end=0, controls=rule)
    ]


def test_min_p_keeps_what_is_near_the_likeliest() -> None:
    logits = torch.tensor([[0.5, 0.26, 0.24]]).log()
    kept = keep_likeliest(logits, None, None, 0.5)
    assert torch.isinf(kept).tolist() == [[False, False, True]]
    assert keep_likeliest(logits, None, None, 0.0) is logits


@pytest.mark.parametrize("wrong", [{"repetition": 0.0}, {"no_repeat": -1}, {"shortest": -2}])
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(DataError, match=next(iter(wrong))):
        Controls(**wrong)  # type: ignore[arg-type]


def test_the_watcher_sees_every_hypothesis_that_is_kept() -> None:
    seen: list[tuple[int, ...]] = []
    found = cf.beam(
        small(),
        torch.tensor([[1]]),
        limit=5,
        end=0,
        size=3,
        watch=lambda row, step, tokens, score: seen.append(tuple(tokens)),
    )[0]
    assert {tuple(each.tokens) for each in found} <= set(seen)
    assert all(tokens[:-1] in seen or len(tokens) == 1 for tokens in seen)


def test_forced_tokens_are_certain() -> None:
    rule = Controls(forced_first=1, forced_last=2, forbidden=(0,))
    found = rule(torch.ones(3, 4), [[], [3], [3]], (2,), limits=[5, 5, 2])
    assert found.tolist() == [
        [-math.inf, 0, -math.inf, -math.inf],
        [-math.inf, 1, 1, 1],
        [-math.inf, -math.inf, 0, -math.inf],
    ]


def test_the_whole_text_counts_only_where_asked() -> None:
    logits, prompts = torch.tensor([[4.0, -2.0, 3.0]]), [[0, 1]]
    whole = Controls(repetition=2.0, no_repeat=2, whole=True)(logits, [[0]], (), prompts)
    assert whole.tolist() == [[2.0, -math.inf, 3.0]]
    added = Controls(repetition=2.0, no_repeat=2)(logits, [[0]], (), prompts)
    assert added.tolist() == [[2.0, -2.0, 3.0]]


def test_each_of_several_ends_waits() -> None:
    assert Controls(shortest=2)(torch.zeros(1, 3), [[]], (0, 2)).tolist() == [[-math.inf, 0, -math.inf]]


def test_rules_that_leave_nothing_say_so() -> None:
    everything = Controls(forbidden=tuple(range(12)))
    for search in (cf.greedy, cf.beam):
        with pytest.raises(DataError, match="leave no token"):
            search(small(), torch.tensor([[1]]), limit=2, end=0, controls=everything)
    with pytest.raises(DataError, match="forced_last must be of the vocabulary"):
        cf.greedy(small(), torch.tensor([[1]]), limit=2, controls=Controls(forced_last=12))
