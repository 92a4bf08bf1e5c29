"""Public text-to-text models: prompts, tags, limits and rules as the checkpoint has them, never cut in silence."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from clearformer.errors import CheckpointError, DataError
from clearformer.generate.options import GenerationOptions
from clearformer.tasks.load import load
from clearformer.tasks.text_to_text import Writer
from tests.tasks.writers import TEXTS, completer, words, writer

hf.logging.set_verbosity_error()
PROMPTS = {"translate": {"de": "translate English to German: ", "fr": "translate English to French: "}}
LONG = "one two three. four five six. " * 10


@cache
def tiny(family: str = "flan_t5", prompts: bool = True) -> Writer:
    return writer(family, PROMPTS | {"summarize": "summarize: "} if prompts else {}, ("de", "fr") if prompts else ())


def test_a_text_is_written_the_same_alone_and_together() -> None:
    many = tiny().write([*TEXTS, ""], max_new_tokens=10)
    assert many[-1].text == ""
    for text, one in zip(TEXTS, many, strict=False):
        assert tiny().write(text, max_new_tokens=10)[0].tokens == one.tokens


def test_prompts_are_put_in_front() -> None:
    model, texts = tiny(), TEXTS[:2]
    german = model.translate(texts, to="de", max_new_tokens=8)
    assert german == model.write([f"translate English to German: {text}" for text in texts], max_new_tokens=8)
    assert german != model.translate(texts, to="fr", max_new_tokens=8)
    assert model.summarize(texts, max_new_tokens=8) == model.write(
        [f"summarize: {text}" for text in texts], max_new_tokens=8
    )
    answer = model.answer("one?", " Do you know him?\n", max_new_tokens=8)
    assert answer == model.write("question: one?  context: Do you know him?", max_new_tokens=8)


def test_without_prompts_of_its_own_a_model_is_asked_in_english() -> None:
    model = tiny(prompts=False)
    assert model.translate("one", to="hi", max_new_tokens=4) == model.write(
        "translate English to Hindi: one", max_new_tokens=4
    )
    assert model.summarize("one", max_new_tokens=4) == model.write("summarize: one", max_new_tokens=4)
    with pytest.raises(DataError, match="say which language"):
        model.translate("one")
    with pytest.raises(DataError, match="no prompt for 'xx'"):
        model.translate("one", to="xx")


def test_a_language_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match="translates to de, fr; say which"):
        tiny().translate("one")
    with pytest.raises(DataError, match="no prompt for 'es'"):
        tiny().translate("one", to="es")


def test_a_model_of_one_language_pair_takes_no_instructions() -> None:
    model = writer("marian", to=("de",))
    assert model.can == ("translate",)
    assert (
        model.translate("one", to="de", max_new_tokens=4)
        == model.translate("one", max_new_tokens=4)
        == model.write("one", max_new_tokens=4)
    )
    with pytest.raises(DataError, match="does not translate to 'fr'; it translates to de"):
        model.translate("one", to="fr")
    with pytest.raises(DataError, match="cannot summarize"):
        model.summarize("one")


def test_tags_of_languages_in_the_vocabulary_are_used() -> None:
    model = writer("marian")
    tagged = Tagged(model.tokenizer)
    both = Writer(model.model, tagged, model.metadata)  # type: ignore[arg-type]
    assert both.sides.languages == {"deu": 300, "fra": 301}
    assert both.sides.encode("one", "fra") == [301, *model.tokenizer.encode("one").ids]
    assert both.translate("one", to="fra", max_new_tokens=3)[0].source_tokens[0] == ">>fra<<"
    with pytest.raises(DataError, match="say which one with to"):
        both.translate("one")


class Tagged:
    """Words in which two pieces are the tags of languages."""

    def __init__(self, inner: Any):
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def pieces(self, ids: Any) -> list[str]:
        tags = {300: ">>deu<<", 301: ">>fra<<"}
        return [tags.get(number, piece) for number, piece in zip(ids, self.inner.pieces(ids), strict=True)]

    def target(self) -> "Tagged":
        return self


def test_long_articles_are_refused_split_or_cut_but_never_in_silence() -> None:
    with pytest.raises(DataError, match=r"text 1 has \d+ tokens.*60"):
        tiny().summarize(LONG)
    split = tiny().summarize(LONG, on_long="split", max_new_tokens=6)[0]
    assert len(split.source_tokens) > 60
    cut = tiny().summarize(LONG, on_long="truncate", max_new_tokens=6)[0]
    assert (cut.finish, len(cut.source_tokens), cut.source_tokens[-1]) == ("truncated", 60, "</s>")
    assert list(cut.source_tokens[:3]) == tiny().tokenizer.pieces(tiny().tokenizer.encode("summarize: ").ids)[:3]
    with pytest.raises(DataError, match="an answer in each part"):
        tiny().answer("one?", LONG, on_long="split")


def test_limits_are_the_checkpoints_unless_asked() -> None:
    ends: dict[str, Any] = {"suppress_tokens": [0, 1, 2, 3]}  # no end
    assert len(writer(max_length=9, **ends).write("one")[0].tokens) == 8  # the start counts
    assert len(writer(max_new_tokens=5, max_length=9, **ends).write("one")[0].tokens) == 5
    assert len(writer(max_new_tokens=5, **ends).write("one", max_new_tokens=7)[0].tokens) == 7
    source = len(tiny().tokenizer.encode("one").ids)
    assert len(writer(**ends).write("one", num_beams=1)[0].tokens) == 2 * source + 20


def test_rules_are_the_checkpoints_unless_asked() -> None:
    model = writer(no_repeat_ngram_size=2, min_length=6, forced_eos_token_id=2)
    own = GenerationOptions(
        do_sample=False, no_repeat_ngram_size=2, min_length=6, forced_eos_token_id=2, suppress_tokens=(0, 1, 3),
        decoder_start_token_id=0, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    assert model.defaults() == own
    twice = model.write("one", max_new_tokens=9, no_repeat_ngram_size=0)[0]
    assert len(set(twice.tokens)) < len(twice.tokens) - 1
    one = model.write("one", max_new_tokens=9)[0]
    assert len(one.tokens) >= 5
    assert one.finish == "end"  # forced at the limit
    drawn = writer(do_sample=True, temperature=2.0)
    assert drawn.write("one", max_new_tokens=6) == drawn.write("one", max_new_tokens=6, temperature=2.0, seed=0)
    assert drawn.write("one", max_new_tokens=6, num_beams=1) != drawn.write("one", max_new_tokens=6)


def test_the_best_come_first_and_begin_as_asked() -> None:
    one = tiny().write("one two", num_beams=4, num_return_sequences=3, max_new_tokens=8, prefix="Do you")[0]
    assert len({each.tokens for each in (one, *one.others)}) == 3
    assert all(each.text.startswith("Do you") for each in (one, *one.others))


def test_a_prompt_is_no_part_of_an_alignment() -> None:
    one = tiny().translate("one two three", to="de", num_beams=1, max_new_tokens=4, alignments=True)[0]
    assert one.alignment is not None
    assert {link.source for link in one.alignment} <= {0, 1, 2}


def test_what_is_no_writer_is_refused() -> None:
    with pytest.raises(CheckpointError, match="an encoder and a decoder"):
        Writer(completer().model, words(), {})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"cannot classify.*it can translate and summarize and answer"):
        tiny().classify(["one"])


def test_a_public_folder_translates_as_its_own_library_does(tmp_path: Path) -> None:
    found = words(start=False)
    torch.manual_seed(3)
    params = {"translation_en_to_de": {"prefix": "translate English to German: "}}
    config = hf.T5Config(
        vocab_size=len(found), d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=2, task_specific_params=params,
    )  # fmt: skip
    theirs = hf.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.3)
    theirs.generation_config = hf.GenerationConfig(
        num_beams=3, max_length=12, no_repeat_ngram_size=2, length_penalty=0.8, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=2, early_stopping=False,
    )  # fmt: skip
    theirs.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(found.engine.to_str())
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>", "eos_token": "</s>"}')
    model = load(tmp_path, precision="float32")
    for text, one in zip(TEXTS[:2], model.translate(TEXTS[:2], to="de"), strict=True):
        source = torch.tensor([found.encode(f"translate English to German: {text}").ids])
        expected = theirs.generate(source)[0, 1:].tolist()
        assert one.text == found.decode(expected)
        assert list(one.tokens) == found.pieces(expected[: len(one.tokens)])


def test_what_a_checkpoint_says_of_one_task_counts_there_alone() -> None:
    own = {"num_beams": 3, "early_stopping": True, "no_repeat_ngram_size": 2, "max_length": 12, "length_penalty": 2.0}
    told, plain, all_over = writer(), writer(), writer(**own)
    told.metadata = told.metadata.replace(ways={"summarize": own})
    text = ["one two three. four five six."]
    assert told.summarize(text) == all_over.summarize(text)
    assert told.summarize(text) != plain.summarize(text)
    assert told.translate(text, to="de") == plain.translate(text, to="de")
    assert (
        told.summarize(text, num_beams=1)[0].tokens == all_over.summarize(text, num_beams=1)[0].tokens
    )  # what is asked wins
