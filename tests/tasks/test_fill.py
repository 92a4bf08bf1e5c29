"""Candidates for masks, compared with Hugging Face's fill-mask pipeline on the same folders."""

from typing import Any

import numpy as np
import pytest
import transformers

import clearformer as cf
from clearformer.errors import CheckpointError, DataError
from clearformer.spec import MaskedToken
from clearformer.tasks.fill import Filler
from clearformer.text.learn import learn
from clearformer.text.tokenizer import PublicTokenizer
from tests.laws.cases import loud
from tests.tasks.encoders import TEXTS, long_text, save

Each = tuple[Filler, Any]


@pytest.fixture(scope="module", params=["BertForMaskedLM", "DistilBertForMaskedLM", "RobertaForMaskedLM"])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Each:
    folder, model, tokenizer = save(tmp_path_factory.mktemp("fill") / "model", request.param)
    return cf.load(folder, precision="float32"), transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def filler(tmp_path_factory: pytest.TempPathFactory) -> Filler:
    return cf.load(save(tmp_path_factory.mktemp("one") / "model", "BertForMaskedLM")[0], precision="float32")


def test_candidates_are_the_pipeline_s(each: Each) -> None:
    ours, pipeline = each
    texts = [f"Paris is the {ours.mask} of France.", f"{ours.mask} rains.", f"It {ours.mask}"]
    for text, found in zip(texts, ours.fill(texts, top=7), strict=True):
        wanted = pipeline(text, top_k=7)
        (mask,) = found.masks
        assert [each.id for each in mask] == [each["token"] for each in wanted]
        np.testing.assert_allclose([each.probability for each in mask], [each["score"] for each in wanted], atol=1e-5)


def test_several_masks_are_filled_each_by_itself(each: Each) -> None:
    ours, pipeline = each
    text = f"The {ours.mask} sat on {ours.mask} mat{ours.mask}"
    found = ours.fill([TEXTS[3].replace("capital", ours.mask), text], top=3)[1]
    assert len(found.masks) == 3
    for mask, wanted in zip(found.masks, pipeline(text, top_k=3), strict=True):
        assert [each.id for each in mask] == [each["token"] for each in wanted]
        np.testing.assert_allclose([each.probability for each in mask], [each["score"] for each in wanted], atol=1e-5)


def test_either_spelling_is_the_model_s_mask(each: Each) -> None:
    ours, _ = each
    texts = ["It [MASK] in Paris.", "It <mask> in Paris."]
    found = ours.fill(texts)
    assert found[0] == found[1]


def piece(filler: Filler, token: str) -> int:
    return filler.tokenizer.engine.token_to_id(token)


@pytest.mark.parametrize(
    ("text", "tokens", "wanted"),
    [
        ("Paris is the [MASK] of France.", ["film"], "Paris is the film of France."),
        ("  [MASK] rains", ["film"], "  film rains"),
        ("The ([MASK]) Mess", ["film"], "The (film) Mess"),
        ("the fil [MASK]!", ["##m"], "the film!"),
        ("It [MASK] in [MASK].", ["is", "berlin"], "It is in berlin."),
        ("the [MASK][MASK]", ["f", "##i"], "the fi"),
        ("It rains [MASK]", ["."], "It rains."),
    ],
)
def test_tokens_take_their_places_in_the_text(filler: Filler, text: str, tokens: list[str], wanted: str) -> None:
    """Nothing but the masks changes: case and spaces stay, and a piece that continues a word joins it."""
    ids = [piece(filler, token) for token in tokens]
    assert None not in ids, "not in the small vocabulary"
    clean = filler.tokenizer.clean
    filler.tokenizer.clean = True
    assert filler._text(text, ids, filler.tokenizer.encode(text)) == wanted
    filler.tokenizer.clean = clean


@pytest.mark.parametrize(
    ("text", "token", "wanted"),
    [
        ("Paris is the <mask> of", "Ġis", "Paris is the is of"),
        ("the<mask>!", "Ġis", "the is!"),
        ("re <mask>", "s", "res"),
    ],
)
def test_spaces_that_pieces_carry(tmp_path_factory: Any, text: str, token: str, wanted: str) -> None:
    filler = cf.load(save(tmp_path_factory.mktemp("round") / "model", "RobertaForMaskedLM")[0], precision="float32")
    assert filler._text(text, [piece(filler, token)], filler.tokenizer.encode(text)) == wanted


def test_a_tokenizer_that_reads_masks_as_characters() -> None:
    """Ours does, so that no text can hold special tokens by accident; a mask that is asked for is still one."""
    learned = learn(TEXTS, "bpe", 300)
    engine = PublicTokenizer.of(learned).engine
    engine.add_special_tokens(["<mask>"])
    words = PublicTokenizer(
        engine, {**PublicTokenizer.of(learned).roles, "mask": engine.token_to_id("<mask>")}, plain=True
    )
    model = loud(cf.build(cf.presets.bert("tiny", vocabulary=len(words), length=30, head=MaskedToken()), seed=3))
    filler = Filler(model, words, {})  # type: ignore[arg-type]
    found = filler.fill("Paris is the [MASK] of France.", top=2)[0]
    assert len(found.masks) == 1
    ids = [words.start, *words.encode("Paris is the ", special=False).ids, words.mask]
    ids += [*words.encode(" of France.", special=False).ids, words.end]
    import torch

    rows = model.eval()(torch.tensor([ids]))[0, ids.index(words.mask)].softmax(-1).topk(2)  # type: ignore[arg-type]
    assert [each.id for each in found.masks[0]] == rows.indices.tolist()
    assert found.text.startswith("Paris is the")
    assert found.text.endswith(" of France.")


def test_a_filler_embeds_too(filler: Filler) -> None:
    assert filler.can == ("fill", "embed")
    assert filler.embed(TEXTS).shape == (len(TEXTS), 32)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["It [MASK].", "It rains."], r"text 2 has no \[MASK\] to fill"),
        ([""], "text 1 is empty"),
        ([["It", "[MASK]"]], "text 1 is of type list"),
        (["[MASK] " + long_text()], "text 1 is too long: this model takes 24 tokens"),
    ],
)
def test_bad_texts(filler: Filler, texts: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        filler.fill(texts)


def test_other_misuse(filler: Filler) -> None:
    with pytest.raises(DataError, match="top must be at least 1"):
        filler.fill("[MASK]", top=0)
    assert len(filler.fill("It [MASK].", top=10**6)[0].masks[0]) == len(filler.tokenizer)
    with pytest.raises(CheckpointError, match="has no mask token"):
        Filler(filler.model, PublicTokenizer(filler.tokenizer.engine, {}), {})
    with pytest.raises(DataError, match="it can fill and embed"):
        filler.tag("It rains.")


def test_json(filler: Filler) -> None:
    found = filler.fill("It [MASK].", top=1)[0].to_dict()
    assert set(found) == {"text", "masks"}
    assert set(found["masks"][0][0]) == {"token", "probability", "id"}


@pytest.mark.parametrize("text", ["we like tea, please.", "tea is it?", "a cup of tea", "I drink tea (or milk)."])
def test_a_mask_is_read_as_the_word_that_it_hides(text: str) -> None:
    """In training a token is masked in its place: with the space before it, and nothing else moves."""
    tokenizer = PublicTokenizer.of(learn([text] * 20, "bpe", 400, extra=["<mask>"]))
    whole = tokenizer.encode(text).ids
    (word,) = (i for i in whole if tokenizer.pieces([i]) == ["▁tea"])
    model = cf.build(cf.presets.bert("tiny", vocabulary=len(tokenizer), length=30, head=MaskedToken()), seed=3)
    read = Filler(model, tokenizer).encode_all([text.replace("tea", "<mask>")])[0].ids
    assert read == [tokenizer.mask if i == word else i for i in whole]
