"""Labels and captions are those of Hugging Face's models; a patch is worth what the label loses without it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import clearformer as cf
from clearformer import presets
from clearformer.core.model import EncoderDecoder
from clearformer.errors import CheckpointError, DataError
from clearformer.spec import Spans
from clearformer.tasks import heatmap
from clearformer.tasks.load import load
from clearformer.tasks.see import Captioner, Seen, Seer, without_patches
from tests.data.test_images import noise
from tests.laws.cases import loud

IMAGES = [Image.fromarray(noise(30, 40, seed=n)) for n in range(3)]
LABELS = ["cat", "dog", "tree", "house", "car"]
VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
VIT |= {"image_size": 12, "patch_size": 4, "initializer_range": 0.3}
WORDS = ["<|endoftext|>", *(f"Ġ{word}" for word in "a the cat dog tree sees on under old red and".split()), "."]  # noqa: SIM905


def processor(folder: Path) -> ViTImageProcessorPil:
    made = ViTImageProcessorPil(size={"height": 12, "width": 12}, resample=3, image_mean=[0.4, 0.5, 0.6])
    made.save_pretrained(folder)
    return made


def save_seer(folder: Path) -> tuple[Any, ViTImageProcessorPil]:
    torch.manual_seed(4)
    config = transformers.ViTConfig(**VIT, id2label=dict(enumerate(LABELS)))
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    return model, processor(folder)


def save_captioner(folder: Path, **generation: Any) -> tuple[Any, ViTImageProcessorPil]:
    torch.manual_seed(18)  # some captions end, some do not
    sizes = {"vocab_size": len(WORDS), "n_positions": 24, "n_embd": 32, "n_layer": 2, "n_head": 4}
    decoder = transformers.GPT2Config(
        **sizes, initializer_range=0.3, add_cross_attention=True, is_decoder=True, bos_token_id=0, eos_token_id=0
    )
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(**VIT), decoder
    )
    model = transformers.VisionEncoderDecoderModel(config=config).eval()
    ids = {"decoder_start_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    model.generation_config = transformers.GenerationConfig(**{"max_length": 16, **ids, **generation})
    model.config.decoder_start_token_id = model.config.pad_token_id = 0
    model.save_pretrained(folder)
    engine = Engine(models.BPE(vocab={word: n for n, word in enumerate(WORDS)}, merges=[]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel()
    engine.decoder = decoders.ByteLevel()
    names = {"bos_token": WORDS[0], "eos_token": WORDS[0], "unk_token": WORDS[0]}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **names).save_pretrained(folder)
    return model, processor(folder)


@pytest.fixture(scope="module")
def seer(tmp_path_factory: pytest.TempPathFactory) -> Seer:
    folder = tmp_path_factory.mktemp("seer")
    save_seer(folder)
    return load(folder, precision="float32")


@pytest.fixture(scope="module")
def small() -> Seer:
    """Grey images of 8 × 12, two rows of three patches."""
    what = presets.vit("tiny", channels=1)
    embed = what.stack.embed.replace(image=(8, 12), patch=4)  # type: ignore[union-attr]
    return Seer(loud(cf.build(what.replace({"stack.embed": embed}), seed=1)).eval(), None, {})  # type: ignore[arg-type]


# --- labels -----------------------------------------------------------------------------------------------


def test_labels_are_those_of_the_public_model(tmp_path: Path) -> None:
    model, ready = save_seer(tmp_path)
    seer = load(tmp_path, precision="float32")
    assert isinstance(seer, Seer)
    with torch.inference_mode():
        logits = model(**ready(IMAGES, return_tensors="pt")).logits
    for expected, found in zip(logits.softmax(-1), seer.see(IMAGES, top=9), strict=True):
        assert sum(chance for _, chance in found.labels) == pytest.approx(1, abs=1e-12)
        assert [name for name, _ in found.labels] == [LABELS[n] for n in expected.argsort(descending=True).tolist()]
        assert [chance for _, chance in found.labels] == pytest.approx(
            expected.sort(descending=True).values.tolist(), abs=1e-5
        )
        assert (found.label, found.probability) == found.labels[0]


def test_images_in_any_form(seer: Seer, tmp_path: Path) -> None:
    IMAGES[0].save(tmp_path / "a.png")
    values = np.asarray(IMAGES[0])
    expected = seer.see(IMAGES[0])
    for given in (
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        values,
        torch.tensor(values),
        [values],
        values[None],
    ):
        assert seer.see(given) == expected
    assert len(seer.see(IMAGES, top=2)) == 3
    assert all(len(one.labels) == 2 for one in seer.see(IMAGES, top=2))


def test_an_image_of_one_pixel_is_an_image(seer: Seer) -> None:
    found = seer.see(Image.new("RGB", (1, 1), "red"), patches=True)[0]
    assert np.isfinite(np.array(found.patches)).all()
    # all patches of one colour are the mean patch
    assert np.abs(np.array(found.patches)).max() < 1e-6


def test_what_cannot_be_seen_is_said(seer: Seer, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    for given, said in (
        (tmp_path / "text.png", r"text\.png is not an image"),
        (tmp_path / "none.png", "there is no file"),
        (tmp_path, "is a folder; give an image file"),
        ([], "no images were given"),
        ([IMAGES[0], 3], "image 2 is a int; give a path"),
        (None, "image 1 is a NoneType; give a path"),
        (np.zeros((4, 4)), "image 1 is float64"),
    ):
        with pytest.raises(DataError, match=said):
            seer.see(given)
    with pytest.raises(DataError, match="top must be at least 1"):
        seer.see(IMAGES, top=0)
    with pytest.raises(DataError, match=r"cannot answer: .*; it can see"):
        seer.answer("Who?", "a")


def test_models_and_facts_that_do_not_fit() -> None:
    bert = cf.build(presets.bert("tiny", head=Spans()))
    with pytest.raises(CheckpointError, match="needs patches of images"):
        Seer(bert, None, {})  # type: ignore[arg-type]
    vit: Any = cf.build(presets.vit("tiny"))
    with pytest.raises(CheckpointError, match="5 classes and names for 2"):
        Seer(vit, None, {"labels": ["a", "b"]})
    with pytest.raises(CheckpointError, match=r"takes images of 12 × 12 .* makes them of 10 × 10"):
        Seer(vit, None, {"image": {"size": [10, 10]}})
    with pytest.raises(CheckpointError, match="images would differ"):
        Seer(vit, None, {"image": {"size": [12, 12], "shortest": True}})
    with pytest.raises(CheckpointError, match="an encoder of images"):
        Captioner(vit, None, {})  # type: ignore[arg-type]
    assert Seer(vit, None, {}).see(IMAGES[0])[0].label.startswith("LABEL_")


# --- patches ----------------------------------------------------------------------------------------------


def test_without_a_patch_means_the_mean_in_its_place() -> None:
    image = torch.arange(8.0 * 12).view(1, 8, 12)
    mean = (
        image[:, :4, :4]
        + image[:, :4, 4:8]
        + image[:, :4, 8:]
        + image[:, 4:, :4]
        + image[:, 4:, 4:8]
        + image[:, 4:, 8:]
    ) / 6
    expected = image.clone()
    expected[:, 4:, 4:8] = mean
    found = without_patches(image, 4, [(0, 1), (1, 1)])
    assert found.shape == (2, 1, 8, 12)
    assert torch.equal(found[1], expected)


def test_a_patch_is_worth_what_the_label_loses(small: Seer) -> None:
    """One by one, from pixels, against all at once."""
    image = noise(8, 12, 1)
    found = small.see(image, patches=True)[0]
    assert found.patches is not None
    assert (len(found.patches), {len(row) for row in found.patches}) == (2, {3})
    pixels = image.astype(np.float32) / 255
    squares = [pixels[r : r + 4, c : c + 4] for r in (0, 4) for c in (0, 4, 8)]
    label = int(found.label.removeprefix("LABEL_"))
    for row in (0, 1):
        for column in (0, 1, 2):
            without = pixels.copy()
            without[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = np.mean(squares, 0)
            with torch.inference_mode():
                chance = small.model(torch.tensor(without)[None, None])[0].softmax(-1)[label]
            assert found.patches[row][column] == pytest.approx(found.probability - float(chance), abs=1e-5)


def test_the_patch_that_matters_stands_out() -> None:
    """A model that looks at one patch alone."""
    what = presets.vit("tiny", channels=1)

    class Corner(torch.nn.Module):
        spec = what
        dummy = torch.nn.Parameter(torch.zeros(1))

        def parameters(self, recurse: bool = True) -> Any:
            return iter([self.dummy])

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            bright = images[:, 0, 8:, :4].mean((1, 2))
            return torch.stack([5 * bright, *[torch.zeros_like(bright)] * 4], -1)

    image = np.zeros((12, 12), np.uint8)
    image[8:, :4] = 255
    found = Seer(Corner(), None, {}).see(image, patches=True)[0]  # type: ignore[arg-type]
    worth = np.array(found.patches)
    assert worth.argmax() == 6  # third row, first column
    assert worth[2, 0] > 0.5
    assert np.abs(np.delete(worth.flatten(), 6)).max() < 1e-9


def test_patches_taken_away_in_squares(small: Seer) -> None:
    """Rows of 2 and columns of 3 in squares of 2: the left square has four patches, the right one two."""
    image = noise(8, 12, 1)
    found = small.see(image, patches=True, square=2)[0]
    assert found.patches is not None
    assert found.square == 2
    assert found.patches[0] == found.patches[1]
    assert found.patches[0][0] == found.patches[0][1] != found.patches[0][2]
    pixels = torch.from_numpy(image.astype(np.float32) / 255)
    mean = torch.stack([pixels[r : r + 4, c : c + 4] for r in (0, 4) for c in (0, 4, 8)]).mean(0)
    pixels[:, 8:] = mean.repeat(2, 1)
    with torch.inference_mode():
        chance = small.model(pixels[None, None])[0].softmax(-1)[int(found.label.removeprefix("LABEL_"))]
    assert found.patches[0][2] == pytest.approx(found.probability - float(chance), abs=1e-5)
    with pytest.raises(DataError, match="square must be at least 1"):
        small.see(image, patches=True, square=0)


@pytest.mark.parametrize(("side", "square", "runs"), [(32, 1, 64), (36, 2, 25), (56, 2, 49), (104, 4, 49)])
def test_so_many_runs_at_most(side: int, square: int, runs: int) -> None:
    seer = Seer(cf.build(presets.vit("tiny", image=side)).eval(), None, {})  # type: ignore[arg-type]
    seen: list[int] = []
    found = seer.see(IMAGES[0], patches=True, done=lambda now, total: seen.append(total))[0]
    assert (found.square, seen[-1]) == (square, runs + 1)
    assert np.array(found.patches).shape == (side // 4, side // 4)


def test_progress_counts_every_run(small: Seer) -> None:
    seen: list[tuple[int, int]] = []
    small.see([noise(8, 12, 1)] * 2, patches=True, done=lambda now, total: seen.append((now, total)))
    assert seen[-1] == (14, 14)


def test_a_picture_of_what_mattered(small: Seer) -> None:
    found = small.see(noise(8, 12, 1), patches=True)[0]
    picture = heatmap.draw(small.view(noise(8, 12, 1)), found)
    assert picture.size == (12 * 56, 8 * 56 + heatmap.STRIP)
    assert picture.mode == "RGB"
    grey = Image.new("L", (2, 2), 128)
    shown = heatmap.draw(grey, Seen((("cat", 0.9),), ((0.5, -0.5), (0.0, 0.25))))
    red, blue, plain, half = (shown.getpixel(place) for place in ((9, 9), (440, 9), (9, 440), (440, 440)))
    assert plain == (128, 128, 128)
    assert red[0] > half[0] > 128 > half[1] > red[1]
    assert blue[2] > 128 > blue[0]
    flat = heatmap.draw(grey, Seen((("cat", 0.9),), ((0.0, 0.0), (0.0, 0.0))))
    assert flat.getpixel((9, 9)) == (128, 128, 128)
    with pytest.raises(ValueError, match="patches=True"):
        heatmap.draw(grey, Seen((("cat", 0.9),)))


def test_json_holds_what_was_asked_for(small: Seer) -> None:
    assert set(small.see(noise(8, 12, 1))[0].to_dict()) == {"labels"}
    full = json.loads(json.dumps(small.see(noise(8, 12, 1), top=1, patches=True)[0].to_dict()))
    assert set(full["labels"][0]) == {"label", "probability"}
    assert (len(full["patches"]), len(full["patches"][0])) == (2, 3)


# --- captions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beams", "rules"),
    [
        (1, {}),
        (1, {"no_repeat_ngram_size": 2, "min_length": 6}),
        (4, {}),
        (4, {"no_repeat_ngram_size": 2, "early_stopping": True}),
        (4, {"min_length": 6, "length_penalty": 2.0}),
    ],
)
def test_captions_are_those_of_the_public_model(tmp_path: Path, beams: int, rules: dict[str, Any]) -> None:
    model, ready = save_captioner(tmp_path, num_beams=beams, **rules)
    pixels = ready(IMAGES, return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        expected = model.generate(pixels)
    captioner = load(tmp_path, precision="float32")
    assert isinstance(captioner, Captioner)
    assert isinstance(captioner.model, EncoderDecoder)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    found = captioner.see(IMAGES)
    for ids, one in zip(expected.tolist(), found, strict=True):
        ids = ids[1:]
        ended = 0 in ids
        ids = ids[: ids.index(0)] if ended else ids
        assert list(one.tokens) == words.convert_ids_to_tokens(ids)
        assert one.text == words.decode(ids).strip()
        assert one.finish == ("end" if ended else "limit")
    for image, one in zip(IMAGES, found, strict=True):
        assert captioner.see(image)[0].tokens == one.tokens


def test_a_caption_s_score_is_its_probability(tmp_path: Path) -> None:
    model, ready = save_captioner(tmp_path)
    captioner = load(tmp_path, precision="float32")
    for image, one in zip(IMAGES, captioner.see(IMAGES, num_beams=3), strict=True):
        ids = [WORDS.index(token) for token in one.tokens] + [0] * (one.finish == "end")
        with torch.inference_mode():
            start = torch.tensor([[0, *ids[:-1]]])
            logits = model(**ready(image, return_tensors="pt"), decoder_input_ids=start).logits[0].log_softmax(-1)
        assert one.score == pytest.approx(float(logits[range(len(ids)), ids].sum()), abs=1e-4)
        assert set(one.to_dict()) == {"text", "score", "tokens", "finish"}


def test_captions_as_asked_for(tmp_path: Path) -> None:
    save_captioner(tmp_path)
    captioner = load(tmp_path, precision="float32")
    assert all(len(one.tokens) <= 3 for one in captioner.see(IMAGES, max_new_tokens=3))
    drawn = captioner.see(IMAGES, temperature=2.0, seed=7)
    assert drawn == captioner.see(IMAGES, temperature=2.0, seed=7)
    assert drawn[1].tokens == captioner.see(IMAGES[1], temperature=2.0, seed=7)[0].tokens
    assert drawn != captioner.see(IMAGES, temperature=2.0, seed=8)
    assert all(len(one.tokens) <= 23 for one in captioner.see(IMAGES, max_new_tokens=500))  # all positions there are
    one = captioner.see(IMAGES[0], num_beams=3, num_return_sequences=2)[0]
    assert one.tokens == captioner.see(IMAGES[0], num_beams=3)[0].tokens
    assert [each.tokens != one.tokens for each in one.others] == [True]
    assert one.to_dict()["others"] == [one.others[0].to_dict()]
    with pytest.raises(DataError, match="stop is for completions"):
        captioner.see(IMAGES, stop="cat")
    seen: list[tuple[int, int]] = []
    captioner.see(IMAGES, done=lambda now, total: seen.append((now, total)))
    assert seen == [(3, 3)]


def test_a_body_without_a_head_says_so(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        image_size=12, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "body")
    with pytest.raises(CheckpointError, match="has no head to tell of them; clearformer finetune see gives it one"):
        load(tmp_path / "body", precision="float32")
