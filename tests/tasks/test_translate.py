"""Raw text in, typed results out: in order, alike alone and together, never cut in silence."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearformer.errors import DataError
from clearformer.generate.options import GenerationOptions
from clearformer.tasks.load import load
from clearformer.tasks.translate import Translator
from tests.tasks.conftest import TEXTS, save

LONG = "one two three. four five six. " * 8
WORDS = "seven " * 60  # and no place to split it but spaces


def test_results_come_in_order_and_are_the_same_alone(translator: Translator) -> None:
    together = translator.translate([*TEXTS, "", *reversed(TEXTS)])
    assert [one.text for one in together[: len(TEXTS)]] == [one.text for one in reversed(together[len(TEXTS) + 1 :])]
    for text, one in zip(TEXTS, together, strict=False):
        alone = translator.translate(text)[0]
        assert alone.tokens == one.tokens
        assert alone.score == pytest.approx(one.score, abs=1e-4)


@given(st.lists(st.sampled_from([*TEXTS, "", " ", "10 😀"]), max_size=9), st.integers(1, 3))
def test_any_batch_equals_its_texts_one_by_one(texts: list[str], beam: int) -> None:
    translator = _cached()
    many = translator.translate(texts, num_beams=beam)
    assert [one.text for one in many] == [translator.translate(text, num_beams=beam)[0].text for text in texts]


_made: list[Translator] = []


def _cached() -> Translator:
    if not _made:
        import tempfile

        _made.append(load(save(Path(tempfile.mkdtemp()) / "m"), precision="float32"))
    return _made[0]


def test_a_blank_text_is_blank(translator: Translator) -> None:
    one = translator.translate(["   "])[0]
    assert (one.text, one.score, one.tokens, one.finish) == ("", 0.0, (), "end")
    assert translator.translate([]) == []


def test_the_score_is_the_log_probability_of_the_tokens(translator: Translator) -> None:
    one = translator.translate(TEXTS[0])[0]
    tokenizer = translator.tokenizer
    ids = [tokenizer.engine.token_to_id(token) for token in one.tokens]
    labels = [*ids, tokenizer.end] if one.finish == "end" else ids
    target = torch.tensor([[tokenizer.start, *labels[:-1]]])
    with torch.no_grad():
        logits = translator.model(torch.tensor([translator.sides.encode(TEXTS[0])]), target)[0]
    assert one.score == pytest.approx(float(logits.log_softmax(-1)[range(len(labels)), labels].sum()), abs=1e-3)


def test_the_best_come_first_and_differ(translator: Translator) -> None:
    one = translator.translate(TEXTS[1], num_beams=5, num_return_sequences=4)[0]
    found = [one, *one.others]
    assert len({each.tokens for each in found}) == 4
    normal = [each.score / (len(each.tokens) + (each.finish == "end")) for each in found]
    assert normal == sorted(normal, reverse=True)
    assert one.tokens == translator.translate(TEXTS[1], num_beams=5)[0].tokens


def test_long_texts_are_refused_split_or_cut_but_never_in_silence(translator: Translator) -> None:
    with pytest.raises(DataError, match=r"text 2 has \d+ tokens.*40"):
        translator.translate(["one", LONG], by_sentence=False)
    with pytest.raises(DataError, match=r"text 2 has a sentence of \d+ tokens.*40.*split or truncate it with on_long"):
        translator.translate(["one", f"one two. {WORDS}."])
    split = translator.translate([LONG], on_long="split", by_sentence=False)[0]
    parts = translator.translate(["one two three. four five six."] * 8, on_long="split", by_sentence=False)
    assert split.finish in ("end", "limit")
    assert len(split.source_tokens) > 40
    assert split.text == " ".join(part.text for part in parts)
    cut = translator.translate([LONG], on_long="truncate", by_sentence=False)[0]
    assert cut.finish == "truncated"
    assert len(cut.source_tokens) == 40
    cut = translator.translate([f"one two. {WORDS}. six"], on_long="truncate")[0]
    assert cut.finish == "truncated"
    assert translator.translate(["x" * 500], on_long="split")[0].source_tokens.count("</s>") > 12  # a word, in parts


def test_a_text_that_was_split_is_joined_rank_by_rank_and_word_by_word(tmp_path: Path) -> None:
    both = load(save(tmp_path / "both", ("de", "hi")), precision="float32")
    both.usual = 8
    text = "one two three. four five six."
    parts = both.translate(["one two three.", "four five six."], to="de", num_return_sequences=2, alignments=True)
    whole = both.translate(text, to="de", num_return_sequences=2, alignments=True, on_long="split")[0]
    assert len(both.sides.encode(text, "de")) > both.usual
    assert whole.others[0].text == f"{parts[0].others[0].text} {parts[1].others[0].text}"
    assert parts[0].alignment is not None
    assert parts[1].alignment is not None
    assert whole.alignment is not None
    said = len(parts[0].alignment)  # one link a word
    moved = [(link.source + 3, link.target + said) for link in parts[1].alignment]
    assert [(link.source, link.target) for link in whole.alignment[said:]] == moved
    assert both.translate("", to="de", alignments=True)[0].alignment == ()
    with pytest.raises(DataError, match="a prefix cannot begin every part"):
        both.translate(text, to="de", on_long="split", prefix="one")


def test_a_prefix_is_what_a_translation_begins_with(translator: Translator) -> None:
    for beam in (1, 3):
        one = translator.translate(TEXTS[0], prefix="four five", num_beams=beam)[0]
        assert one.text.startswith("four five")


def test_rules_reach_the_search(translator: Translator) -> None:
    one = translator.translate(TEXTS[2], num_beams=2, no_repeat_ngram_size=1)[0]
    assert len(set(one.tokens)) == len(one.tokens)


def test_sampling_is_repeatable_and_differs_by_seed(translator: Translator) -> None:
    drawn = [translator.translate(TEXTS, temperature=1.0, seed=seed)[0].tokens for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_what_a_text_draws_does_not_depend_on_its_batch(translator: Translator) -> None:
    together = translator.translate(TEXTS, temperature=1.0, seed=5)
    assert [one.tokens for one in together] == [
        translator.translate(text, temperature=1.0, seed=5)[0].tokens for text in TEXTS
    ]


def test_progress_counts_every_text_once(translator: Translator) -> None:
    counted: list[int] = []
    translator.translate([*TEXTS, "", LONG], on_long="split", done=counted.append)
    assert sum(counted) == len(TEXTS) + 2


def test_a_language_the_model_lacks_is_refused(translator: Translator) -> None:
    assert translator.translate("one", to="xx")[0].text == translator.translate("one")[0].text
    with pytest.raises(DataError, match=r"does not translate to 'fr'; it translates to xx"):
        translator.translate("one", to="fr")


def test_a_model_of_several_languages_is_told_which(tmp_path: Path) -> None:
    both = load(save(tmp_path / "both", ("de", "hi")), precision="float32")
    with pytest.raises(DataError, match="say which"):
        both.translate("one")
    german, hindi = both.translate("one two", to="de")[0], both.translate("one two", to="hi")[0]
    assert german.source_tokens[0] == "<2de>"
    assert hindi.source_tokens[0] == "<2hi>"
    assert german.score != hindi.score
    assert not any(token.startswith("<2") for token in (*german.tokens, *hindi.tokens))


@pytest.mark.parametrize(
    "wrong", [{"num_beams": 0}, {"num_return_sequences": 0}, {"num_return_sequences": 5, "num_beams": 4}]
)
def test_searches_that_make_no_sense_are_refused(translator: Translator, wrong: dict[str, int]) -> None:
    with pytest.raises(DataError):
        translator.translate("one", **wrong)


def test_what_cannot_be_done_is_not_ignored(translator: Translator) -> None:
    with pytest.raises(DataError, match="stop is for completions"):
        translator.translate("one", stop="two")
    with pytest.raises(DataError, match=r"'beam' is no option of generation.*num_beams"):
        translator.translate("one", beam=2)


def test_options_are_one_object_or_keywords(translator: Translator) -> None:
    options = GenerationOptions(num_beams=2, max_new_tokens=3)
    found = translator.translate(TEXTS, options=options)
    assert found == translator.translate(TEXTS, num_beams=2, max_new_tokens=3)
    assert translator.translate(TEXTS, options=options, num_beams=1) == translator.translate(
        TEXTS, num_beams=1, max_new_tokens=3
    )


def test_json_holds_what_was_asked_for(translator: Translator) -> None:
    one = translator.translate(TEXTS[0], num_return_sequences=2, alignments=True)[0]
    facts = one.to_dict()
    assert facts["text"] == one.text
    assert set(facts["alignment"][0]) == {"source", "target", "weight"}
    assert len(facts["others"]) == 1
    assert "alignment" not in replace(one, alignment=None).to_dict()
