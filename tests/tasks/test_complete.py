"""Completions: the same alone and together, as their parts say, never cut in silence."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st

import clearformer as cf
from clearformer import presets
from clearformer.errors import CheckpointError, DataError
from clearformer.generate.options import GenerationOptions, merge
from clearformer.tasks.complete import Completer, Completion
from clearformer.tasks.text_stream import Telling
from tests.tasks.encoders import byte_pieces
from tests.tasks.writers import POSITIONS, TEMPLATE, TEXTS, completer, words, writer

PROMPTS = ["one two", "Do you know him?", "", "seven, eight", "I see three of them. four five six."]
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "top_p": 0.9, "seed": 4},
    {"num_beams": 3},
    {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
]


@cache
def tiny() -> Completer:
    return completer()


@cache
def spelt() -> Completer:
    """One that says no single bytes, for those that spell nothing are read anew with each that follows."""
    return completer(suppress_tokens=list(range(260)))


def ids(one: Completion) -> list[int]:
    return [tiny().tokenizer.engine.token_to_id(token) for token in one.tokens]


@settings(max_examples=15)
@given(st.lists(st.sampled_from(PROMPTS), max_size=5), st.sampled_from(WAYS))
def test_any_batch_equals_its_prompts_one_by_one(prompts: list[str], ways: dict[str, Any]) -> None:
    together = tiny().complete(prompts, max_new_tokens=12, **ways)
    assert [one.prompt for one in together] == prompts
    alone = [tiny().complete(prompt, max_new_tokens=12, **ways)[0] for prompt in prompts]
    assert [(one.text, one.tokens, one.finish) for one in together] == [(a.text, a.tokens, a.finish) for a in alone]


def test_the_likeliest_tokens_and_their_probabilities_are_the_models_own() -> None:
    one = tiny().complete("one two", max_new_tokens=8, scores=True)[0]
    row = [*tiny().tokenizer.encode("one two").ids[:-1], *ids(one)]
    assert one.probabilities is not None
    with torch.no_grad():
        chances = tiny().model(torch.tensor([row]))[0].softmax(-1)
    allowed = chances.clone()
    allowed[:, [0, 1, 3]] = 0
    first = len(row) - len(one.tokens)
    assert allowed[first - 1 : -1].argmax(-1).tolist() == ids(one)
    for place, found in enumerate(one.probabilities):
        assert found == pytest.approx(float(chances[first - 1 + place, row[first + place]]), abs=1e-5)
    if one.finish == "limit":
        assert one.score == pytest.approx(sum(map(math.log, one.probabilities)), abs=1e-3)


def test_drawing_follows_the_seed_and_a_temperature_of_0_is_greedy() -> None:
    drawn = [tiny().complete("one", max_new_tokens=10, temperature=1.0, seed=seed)[0].tokens for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    greedy = tiny().complete("one", max_new_tokens=10)[0]
    assert tiny().complete("one", max_new_tokens=10, temperature=0)[0] == greedy
    assert tiny().complete("one", max_new_tokens=10, top_k=1)[0].tokens == greedy.tokens


def test_why_a_text_stopped() -> None:
    limited = tiny().complete("one two", max_new_tokens=3)[0]
    assert (limited.finish, len(limited.tokens)) == ("limit", 3)
    model = completer(suppress_tokens=[0, 1, 2, 3])  # no end
    full = model.complete("one two", max_new_tokens=500)[0]
    prompt = len(model.tokenizer.encode("one two").ids) - 1
    assert (full.finish, len(full.tokens)) == ("full", POSITIONS - prompt)
    free = tiny().complete("one two", max_new_tokens=30)[0]
    place = next(n for n, token in enumerate(free.tokens) if token != free.tokens[0])
    ended = completer(eos_token_id=[2, ids(free)[place]]).complete("one two", max_new_tokens=30)[0]
    assert (ended.finish, ended.tokens) == ("end", free.tokens[:place])


def test_learned_positions_are_a_limit_too() -> None:
    model = cf.build(presets.gpt2("tiny", vocabulary=len(words()), length=9))
    one = Completer(model, words(), {}).complete("one", max_new_tokens=50, min_new_tokens=50)[0]  # type: ignore[arg-type]
    assert (one.finish, len(one.tokens)) == ("full", 9 - (len(words().encode("one").ids) - 1))


def test_a_prompt_without_room_is_an_error() -> None:
    with pytest.raises(DataError, match=r"prompt 2 has \d+ tokens and this model has 48 positions"):
        tiny().complete(["one", "one two three. " * 20])


@settings(max_examples=20)
@given(st.integers(0, 20), st.integers(1, 6), st.integers(0, 30))
def test_a_text_to_stop_at_is_never_told(start: int, length: int, seed: int) -> None:
    ways: dict[str, Any] = {"max_new_tokens": 14, "temperature": 1.0, "seed": seed}
    free = spelt().complete("one", **ways)[0]
    stop = free.text[start : start + length]
    if not stop:
        return
    pieces: list[str] = []
    one = spelt().complete("one", stop=stop, on_token=lambda number, piece: pieces.append(piece), **ways)[0]
    assert one.text == free.text[: free.text.index(stop)]
    assert one.finish == "stop"
    assert "".join(pieces) == one.text == "".join(spelt().stream("one", stop=stop, **ways))
    assert len(one.tokens) <= len(free.tokens)


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*range(4, 380)]), min_size=60, max_size=90), st.integers(0, 80), st.integers(1, 4))
def test_a_stop_is_seen_at_the_token_that_completes_it(tokens: list[int], start: int, length: int) -> None:
    """In the last of a long text as in all of it."""
    text = Telling(words(), words().encode("Do").ids[:-1], []).whole(tokens)[0]
    stop = text[start : start + length].strip("\ufffd")
    if not stop:
        return
    told = Telling(words(), words().encode("Do").ids[:-1], [stop])
    for n in range(1, len(tokens) + 1):
        assert told.stops(tokens[:n]) == (stop in told._text(tokens[:n]).rstrip("\ufffd"))
        if told.whole(tokens[:n])[1]:
            break


def test_the_beginning_of_a_text_to_stop_at_waits() -> None:
    told = Telling(words(), words().encode("Do").ids[:-1], ["two th", "see"])
    tokens = words().encode("one two two three", special=False).ids
    pieces = [told.add(token, last=False) for token in tokens]
    assert "".join(pieces) == " one two "
    assert told.whole(tokens) == (" one two ", True)
    assert [told.stops(tokens[:n]) for n in (3, len(tokens))] == [False, True]


@settings(max_examples=20)
@given(st.sampled_from([*PROMPTS, "😀", "Do you\n"]), st.integers(0, 5))
def test_what_is_streamed_is_what_is_returned(prompt: str, seed: int) -> None:
    ways: dict[str, Any] = {"max_new_tokens": 16, "temperature": 1.5, "seed": seed}
    told: dict[int, str] = {0: "", 1: ""}

    def tell(number: int, piece: str) -> None:
        told[number] += piece

    found = tiny().complete([prompt, "seven"], on_token=tell, **ways)
    assert [one.text for one in found] == [told[0], told[1]]
    assert "".join(tiny().stream(prompt, **ways)) == found[0].text
    assert (
        "".join(tiny().stream(prompt, max_new_tokens=6, num_beams=2))
        == tiny().complete(prompt, max_new_tokens=6, num_beams=2)[0].text
    )


def test_an_empty_prompt_goes_on_from_the_start_token_if_there_is_one() -> None:
    assert tiny().complete("", max_new_tokens=4)[0].tokens
    model = completer(bos_token_id=None)
    bare = Completer(model.model, words(start=False), model.metadata)
    bare.tokenizer.start, kept = None, bare.tokenizer.start
    bare.tokenizer.engine.post_processor, before = None, bare.tokenizer.engine.post_processor
    try:
        with pytest.raises(DataError, match="prompt 1 is empty"):
            bare.complete("")
    finally:
        bare.tokenizer.start, bare.tokenizer.engine.post_processor = kept, before


def test_a_conversation_goes_through_the_template() -> None:
    with pytest.raises(DataError, match="no chat template"):
        tiny().chat([{"role": "user", "content": "one"}])
    model = completer(TEMPLATE)
    one = model.chat([{"role": "user", "content": "one two"}], max_new_tokens=5)[0]
    assert one.prompt == "user: one two\nassistant:"
    encoded = model.tokenizer.encode(one.prompt, special=False).ids
    again = model._complete([one.prompt], [encoded], GenerationOptions(max_new_tokens=5))[0]
    assert again == one
    assert len(model.chat([[{"role": "user", "content": text}] for text in ("one", "two")], max_new_tokens=2)) == 2


def test_an_answer_is_one_line() -> None:
    found = tiny().answer(["one?", "two?"], "Do you know him?", max_new_tokens=5)
    assert len(found) == 2
    assert found[0].prompt == "Do you know him?\n\nQuestion: one?\nAnswer:"
    assert all("\n" not in one.text and one.text == one.text.strip() for one in found)
    with pytest.raises(DataError, match="2 questions and 3 contexts"):
        tiny().answer(["a", "b"], ["c", "d", "e"])


def test_a_score_is_the_sum_over_the_texts_tokens() -> None:
    for text, one in zip(TEXTS[:2], tiny().score(TEXTS[:2]), strict=True):
        row = tiny().tokenizer.encode(text).ids
        with torch.no_grad():
            chances = tiny().model(torch.tensor([row]))[0].log_softmax(-1)
        expected = sum(float(chances[n - 1, row[n]]) for n in range(1, len(row)))
        assert one.score == pytest.approx(expected, abs=1e-3)
        assert one.tokens == len(row) - 1
        assert one.perplexity == pytest.approx(math.exp(-expected / one.tokens), rel=1e-4)


@settings(max_examples=12)
@given(st.integers(4, 20), st.integers(1, 3))
def test_a_long_text_is_scored_through_windows_each_token_once(window: int, stride: int) -> None:
    text = " ".join(TEXTS[:2])
    row = tiny().tokenizer.encode(text).ids
    expected, behind, start = 0.0, 1, 0
    while behind < len(row):  # by hand: each window adds the tokens that no window before it had
        part = row[start : start + window]
        with torch.no_grad():
            chances = tiny().model(torch.tensor([part]))[0].log_softmax(-1)
        expected += sum(float(chances[n - 1, part[n]]) for n in range(behind - start, len(part)))
        behind, start = start + len(part), start + stride
    one = tiny().score(text, window=window, stride=stride)[0]
    assert one.tokens == len(row) - 1
    assert one.score == pytest.approx(expected, abs=1e-2)


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(DataError, match="cannot move on by 9"):
        tiny().score("one", window=8, stride=9)


# --- what the checkpoint says and what is asked ----------------------------------------------------------


def test_the_checkpoint_decides_what_is_not_asked() -> None:
    drawn = completer(do_sample=True, temperature=0.7, top_k=5, seed=3)
    for asked, as_if in (
        ({}, {"temperature": 0.7, "top_k": 5, "seed": 3}),
        ({"temperature": 0}, {}),
        ({"num_beams": 2}, {"num_beams": 2}),
        ({"top_k": 0, "temperature": 2.0, "seed": 1}, {"temperature": 2.0, "seed": 1}),
        ({"seed": 9}, {"temperature": 0.7, "top_k": 5, "seed": 9}),
    ):
        assert drawn.complete("one", max_new_tokens=8, **asked) == tiny().complete("one", max_new_tokens=8, **as_if)
    searched = completer(num_beams=4)
    for asked, as_if in (({}, {"num_beams": 4}), ({"temperature": 0}, {}), ({"top_p": 0.5}, {"top_p": 0.5})):
        assert searched.complete("one", max_new_tokens=8, **asked) == tiny().complete("one", max_new_tokens=8, **as_if)
    assert merge(drawn.own, GenerationOptions()) == drawn.own


def test_several_results_of_a_prompt_are_the_others_of_the_first() -> None:
    one = tiny().complete("one", max_new_tokens=6, num_beams=4, num_return_sequences=3)[0]
    assert one.tokens == tiny().complete("one", max_new_tokens=6, num_beams=4)[0].tokens
    assert len({each.tokens for each in (one, *one.others)}) == 3
    assert [each["text"] for each in one.to_dict()["others"]] == [each.text for each in one.others]
    drawn = tiny().complete("one", max_new_tokens=6, temperature=1.0, seed=1, num_return_sequences=3)[0]
    assert len(drawn.others) == 2
    assert drawn.tokens == tiny().complete("one", max_new_tokens=6, temperature=1.0, seed=1)[0].tokens
    assert "others" not in tiny().complete("one", max_new_tokens=2)[0].to_dict()


def test_a_least_length_of_the_checkpoint_counts_the_prompt() -> None:
    end = ids(tiny().complete("one two", max_new_tokens=3)[0])[1]  # what would otherwise end it at once
    model = completer(eos_token_id=[end], min_length=12)
    for prompt, one in zip(PROMPTS[:2], model.complete(PROMPTS[:2], max_new_tokens=20), strict=True):
        whole = len(model.tokenizer.encode(prompt).ids) - 1 + len(one.tokens)
        assert whole >= 12


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number from 1"),
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"num_beams": 2, "temperature": 1.0}, "give one of them"),
        ({"seed": -1}, "seed must be"),
        ({"stop": [""]}, "empty text cannot stop"),
        ({"top_p": 1.5}, "top_p must be"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        tiny().complete("one", **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_beams": "four"},
        {"eos_token_id": ["a"]},
        {"colour": 3},
        {"repetition_penalty": 0},
        {"early_stopping": "soon"},
    ],
)
def test_facts_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="generation cannot be used"):
        completer(**wrong)


def test_a_model_says_what_it_can_do() -> None:
    with pytest.raises(DataError, match=r"cannot translate.*it can complete and answer"):
        tiny().translate(["one"])
    with pytest.raises(CheckpointError, match="next_token"):
        Completer(writer().model, words(), {})  # type: ignore[arg-type]
    with pytest.raises(DataError, match="not text"):
        tiny().complete([3])  # type: ignore[list-item]


# --- what a public folder says of writing -----------------------------------------------------------------


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A folder, its model and its tokenizer, as Hugging Face's library saved them."""
    folder, tokenizer = tmp_path_factory.mktemp("public"), byte_pieces()
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = hf.LlamaConfig(vocab_size=len(tokenizer), **sizes, bos_token_id=0, eos_token_id=2, pad_token_id=1)
    model = hf.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(float(parameter.dim() == 1), 0.35)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


def both(public: tuple[Path, Any, Any], **said: Any) -> tuple[list[list[str]], list[Completion]]:
    """The tokens that their library adds to some prompts, and what ours does, by the same generation_config.json."""
    folder, model, tokenizer = public
    said = {"max_new_tokens": 12, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, **said}
    (folder / "generation_config.json").write_text(json.dumps(said))
    model.generation_config = hf.GenerationConfig.from_pretrained(folder)
    ours, theirs = cf.load(folder, precision="float32"), []
    for prompt in PROMPTS[:2]:
        given = torch.tensor([ours.prompt_ids(prompt, 1)])
        mask = torch.ones_like(given)
        new = model.generate(given, attention_mask=mask, tokenizer=tokenizer)[0, given.size(1) :].tolist()
        ends = {said["eos_token_id"]}
        theirs.append(tokenizer.convert_ids_to_tokens([token for token in new if token not in ends]))
    return theirs, ours.complete(PROMPTS[:2])


def test_what_a_folder_says_of_writing_is_done(public: tuple[Path, Any, Any]) -> None:
    theirs, free = both(public)
    assert [list(one.tokens) for one in free] == theirs
    _, _, tokenizer = public
    first = tokenizer.convert_tokens_to_ids(free[0].tokens)

    theirs, found = both(public, eos_token_id=first[0])
    assert [list(one.tokens) for one in found] == theirs
    assert found[0].tokens == ()
    theirs, found = both(public, eos_token_id=first[0], min_new_tokens=4, min_length=30)
    assert [list(one.tokens) for one in found] == theirs
    assert len(found[0].tokens) >= 4

    theirs, found = both(public, bad_words_ids=[first[:2], first[3:4]])
    assert [list(one.tokens) for one in found] == theirs
    assert found[0].tokens[:2] != free[0].tokens[:2]

    theirs, found = both(public, do_sample=True, min_p=1.0, top_k=0)  # none but the likeliest is left to be drawn
    assert [one.tokens for one in found] == [one.tokens for one in free]
    assert [list(one.tokens) for one in found] == theirs


def test_a_folder_says_where_to_stop(public: tuple[Path, Any, Any]) -> None:
    free = both(public)[1]
    stop = free[0].text[4:7]
    theirs, found = both(public, stop_strings=[stop])
    assert [list(one.tokens) for one in found] == theirs
    assert (found[0].text, found[0].finish) == (free[0].text[: free[0].text.index(stop)], "stop")
    ours = cf.load(public[0], precision="float32")
    assert "".join(ours.stream(PROMPTS[0])) == found[0].text
    assert ours.complete(PROMPTS[0], stop=())[0].text == free[0].text
