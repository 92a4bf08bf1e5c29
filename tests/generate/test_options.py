"""One set of options: what is refused, how layers are merged, what they come to."""

from typing import Any

import pytest

from clearformer.errors import DataError
from clearformer.generate.options import GenerationOptions, merge, modern, plan

Made = GenerationOptions


@pytest.mark.parametrize(
    "wrong",
    [
        {"repetition_penalty": 0.0},
        {"no_repeat_ngram_size": -1},
        {"min_new_tokens": -2},
        {"max_new_tokens": 0},
        {"max_new_tokens": 2.0},
        {"num_beams": 0},
        {"num_beams": True},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": "1"},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": 2},
        {"length_penalty": float("inf")},
        {"early_stopping": "sometimes"},
        {"stop": ""},
        {"stop": ["a", ""]},
        {"eos_token_id": [-1]},
        {"suppress_tokens": ["a"]},
        {"seed": -1},
        {"do_sample": "yes"},
        {"bad_words_ids": [3]},
        {"bad_words_ids": "ab"},
        {"suppress_tokens": {"a": 1}},
        {"stop": 3},
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(DataError, match="stop" if name == "stop" else name):
        Made(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"num_beams": 4, "temperature": 0.7}, "num_beams searches"),
        ({"num_beams": 2, "top_p": 0.9}, "num_beams searches"),
        ({"num_beams": 2, "num_return_sequences": 3}, "needs num_beams of at least as many"),
        ({"max_new_tokens": 3, "min_new_tokens": 4}, "min_new_tokens 4 is above max_new_tokens 3"),
    ],
)
def test_what_contradicts_itself_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Made(**wrong)


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(DataError, match=r"'num_beam' is no option of generation.*num_beams"):
        Made.of({"num_beam": 3})


def test_single_ids_and_texts_are_lists_of_one() -> None:
    made = Made(eos_token_id=3, stop="\n", bad_words_ids=[[1, 2]])
    assert (made.eos_token_id, made.stop, made.bad_words_ids) == ((3,), ("\n",), ((1, 2),))
    assert made.to_dict() == {"eos_token_id": (3,), "stop": ("\n",), "bad_words_ids": ((1, 2),)}
    assert Made.of(made.to_dict()) == made


@pytest.mark.parametrize(
    ("options", "draws"),
    [
        ({}, False),
        ({"do_sample": True}, True),
        ({"temperature": 0}, False),
        ({"temperature": 0.7}, True),
        ({"top_p": 0.9}, True),
        ({"top_k": 5}, True),
        ({"top_k": 0}, False),
        ({"do_sample": False, "top_k": 50}, False),
        ({"do_sample": False, "temperature": 0.7}, False),  # as in checkpoints that say how they would draw
    ],
)
def test_what_draws(options: dict[str, Any], draws: bool) -> None:
    assert Made(**options).draws == plan(Made(**options), 1).draws == draws


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([Made(top_k=5), None, Made(top_k=7)], Made(top_k=7)),
        # a caller's way of choosing leaves aside what a checkpoint said of another
        ([Made(num_beams=4, length_penalty=2.0), Made(temperature=0.7)], Made(temperature=0.7, length_penalty=2.0)),
        ([Made(do_sample=True, temperature=0.7, top_k=9), Made(num_beams=2)], Made(num_beams=2)),
        ([Made(do_sample=True, temperature=0.7, top_k=9), Made(temperature=0)], Made(temperature=0)),
        ([Made(do_sample=True, temperature=0.7), Made(top_p=0.5)], Made(temperature=0.7, top_p=0.5)),
        ([Made(do_sample=False, num_beams=1), Made(temperature=0.5)], Made(temperature=0.5)),
        # lengths with and without the prompt
        (
            [Made(max_length=20, min_length=3), Made(max_new_tokens=4, min_new_tokens=1)],
            Made(max_new_tokens=4, min_new_tokens=1),
        ),
        # a beam that someone else chose is as wide as there are results; one's own is not changed
        ([Made(num_beams=4), Made(num_return_sequences=6)], Made(num_beams=6, num_return_sequences=6)),
        ([Made(num_beams=4), Made(num_return_sequences=2)], Made(num_beams=4, num_return_sequences=2)),
        # what one forbids no other allows
        ([Made(suppress_tokens=1), Made(suppress_tokens=[2, 3])], Made(suppress_tokens=(1, 2, 3))),
        ([Made(bad_words_ids=[[1]]), Made(bad_words_ids=[[2, 3]])], Made(bad_words_ids=((1,), (2, 3)))),
    ],
)
def test_layers_are_merged_later_ones_first(layers: list[Made | None], expected: Made) -> None:
    assert merge(*layers) == expected


def test_results_of_a_search_need_as_many_beams() -> None:
    assert plan(Made(num_return_sequences=3), 1).beams == 3
    assert plan(Made(num_return_sequences=3, temperature=1.0), 1).beams == 1
    assert plan(Made(num_return_sequences=3, temperature=1.0), 1).rows == 3


@pytest.mark.parametrize(
    ("options", "limit", "least"),
    [
        ({}, 100, 0),
        ({"max_new_tokens": 7, "min_new_tokens": 2}, 7, 2),
        ({"max_length": 15, "min_length": 12}, 5, 2),
        ({"max_length": 8, "min_length": 8}, 100, 0),  # the prompt is longer already
        ({"max_length": 15, "max_new_tokens": 9}, 9, 0),
        ({"max_new_tokens": 9000}, 40, 0),
    ],
)
def test_lengths_come_to_new_tokens(options: dict[str, Any], limit: int, least: int) -> None:
    room = 40 if options.get("max_new_tokens", 0) > 1000 else None
    found = plan(Made(**options), 10, room=room)
    assert (found.limit, found.least) == (limit, least)


def test_folders_written_with_older_names_are_read() -> None:
    old = {"start": 1, "ends": [2], "new": 9, "beams": 3, "forbidden": [5], "no_repeat": 2, "pad": None, "stop": []}
    found = modern(old, two_stacks=True)
    assert found == {
        "decoder_start_token_id": 1,
        "eos_token_id": [2],
        "max_new_tokens": 9,
        "num_beams": 3,
        "suppress_tokens": [5],
        "no_repeat_ngram_size": 2,
    }
    assert modern(found, two_stacks=True) == found
    assert modern({"start": 1}, two_stacks=False) == {"bos_token_id": 1}
