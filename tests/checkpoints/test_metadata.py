"""What is read besides the spec: tasks, labels, lengths, pooling, images, prompts, and how texts are written."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearformer.checkpoints import generation_config
from clearformer.checkpoints.huggingface import describe, load_public, save_public
from clearformer.checkpoints.metadata import FILE, Metadata, numbered, read_metadata
from clearformer.errors import CheckpointError
from clearformer.generate.options import GenerationOptions, plan
from clearformer.tasks.load import BUNDLED, bundled
from tests.checkpoints.cases import pair
from tests.checkpoints.configs import BERT, GPT2, LLAMA, PROMPTS, PUBLIC, T5, VIT
from tests.checkpoints.test_config import folder

TASKS = {
    "bert-base-uncased": ("fill", 512),
    "distilbert-base-uncased-finetuned-sst-2-english": ("classify", 512),
    "roberta-base": ("fill", 512),
    "gpt2": ("complete", 1024),
    "TinyLlama-1.1B": ("complete", 2048),
    "t5-small": ("write", 512),
    "opus-mt-en-de": ("write", 512),
    "google/vit-base-patch16-224": ("see", None),
    "nlpconnect/vit-gpt2-image-captioning": ("caption", 1024),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_task_and_the_longest_input(name: str, tmp_path: Path) -> None:
    metadata = describe(folder(tmp_path, PUBLIC[name][0])).metadata
    assert (metadata.task, metadata.longest) == TASKS[name]


def test_labels(tmp_path: Path) -> None:
    config = PUBLIC["distilbert-base-uncased-finetuned-sst-2-english"][0]
    metadata = describe(folder(tmp_path, config)).metadata
    assert (metadata.labels, metadata.several) == (("NEGATIVE", "POSITIVE"), False)
    many = {**config, "id2label": None, "num_labels": 3, "problem_type": "multi_label_classification"}
    metadata = describe(folder(tmp_path, many)).metadata
    assert (metadata.labels, metadata.several) == (("LABEL_0", "LABEL_1", "LABEL_2"), True)
    with pytest.raises(CheckpointError, match="id2label must name the labels 0 to 1"):
        describe(folder(tmp_path, {**config, "id2label": {"1": "a", "2": "b"}}))


# --- sentence encoders ------------------------------------------------------------------------------------


def sentences(tmp_path: Path, modes: dict[str, Any], *kinds: str, longest: int | None = None) -> Path:
    modules = [{"path": "" if kind == "Transformer" else "1_Pooling", "type": f"x.y.{kind}"} for kind in kinds]
    files: dict[str, Any] = {"modules": modules}
    if longest:
        files["sentence_bert_config"] = {"max_seq_length": longest, "do_lower_case": False}
    made = folder(tmp_path, BERT, **files)
    (made / "1_Pooling").mkdir(exist_ok=True)
    (made / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    return made


@pytest.mark.parametrize(
    ("modes", "pool"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls"}, "first"),
    ],
)
def test_sentence_encoders_say_how_they_pool(modes: dict[str, Any], pool: str, tmp_path: Path) -> None:
    metadata = describe(sentences(tmp_path, modes, "Transformer", "Pooling", longest=128)).metadata
    assert metadata.to_dict() == {"task": "embed", "family": "bert", "longest": 128, "pool": pool, "normalise": False}
    metadata = describe(sentences(tmp_path, modes, "Transformer", "Pooling", "Normalize", longest=9999)).metadata
    assert (metadata.normalise, metadata.longest) == (True, 512)


def test_sentence_encoders_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"asks for pooling_mode_max_tokens; one of mean, first \(cls\) and last"):
        describe(sentences(tmp_path, {"pooling_mode_max_tokens": True}, "Transformer", "Pooling"))
    with pytest.raises(CheckpointError, match="names a module 'Dense', which is not read"):
        describe(sentences(tmp_path, {"pooling_mode": "mean"}, "Transformer", "Pooling", "Dense"))
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "Pooling", "path": "../elsewhere"}]))
    with pytest.raises(CheckpointError, match="is no plain name of a folder"):
        describe(tmp_path)


def test_a_default_prompt_is_read(tmp_path: Path) -> None:
    made = sentences(tmp_path, {"pooling_mode": "mean", "include_prompt": False}, "Transformer", "Pooling")
    path = made / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": {"query": "query: ", "passage": ""}, "default_prompt_name": "query"}))
    metadata = describe(made).metadata
    assert (metadata.prompt, metadata.skips_prompt) == ("query: ", True)
    path.write_text(json.dumps({"prompts": {"query": "query: "}, "default_prompt_name": None}))
    assert "prompt" not in describe(made).metadata.to_dict()
    path.write_text(json.dumps({"prompts": {"query": "query: "}, "default_prompt_name": "passage"}))
    with pytest.raises(CheckpointError, match="default_prompt_name 'passage' is none of its prompts"):
        describe(made)


def test_a_body_alone_embeds_by_its_mean(tmp_path: Path) -> None:
    metadata = describe(folder(tmp_path, {**BERT, "architectures": ["BertModel"]})).metadata
    assert (metadata.task, metadata.pool, metadata.normalise) == ("embed", "mean", False)


# --- images -----------------------------------------------------------------------------------------------

PLAIN = {
    "size": [224, 224],
    "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5],
    "scale": 1 / 255,
    "resample": "bilinear",
    "crop": None,
    "shortest": False,
    "channels": 3,
}


@pytest.mark.parametrize(
    ("said", "different"),
    [
        ({}, {}),
        ({"size": 224, "resample": 3, "image_mean": [0.1, 0.2, 0.3]}, {"resample": "bicubic", "mean": [0.1, 0.2, 0.3]}),
        ({"size": {"height": 224, "width": 224}, "do_rescale": False}, {"scale": 1.0}),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224},
            {"size": [256, 256], "shortest": True, "crop": [224, 224]},
        ),
        ({"size": {"shortest_edge": 224}}, {"shortest": True, "crop": [224, 224]}),
        ({"do_normalize": False}, {"mean": [0.0] * 3, "std": [1.0] * 3}),
    ],
)
def test_images_are_made_as_the_folder_says(said: dict[str, Any], different: dict[str, Any], tmp_path: Path) -> None:
    made = folder(tmp_path, {**VIT, "architectures": ["ViTForImageClassification"]}, preprocessor_config=said)
    assert describe(made).metadata.to_dict()["image"] == {**PLAIN, **different}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"size": 256}, r"makes images of \[256, 256\], and the model takes \[224, 224\]"),
        ({"size": "large"}, "a size must be a number, height and width, or shortest_edge"),
        ({"resample": 9}, "resample 9 is not read; known: 0 "),
        ({"image_std": [1, 0, 1]}, "image_std divides, and holds a 0"),
        ({"image_mean": [1, 2]}, "image_mean must be 3 numbers"),
        ({"rescale_factor": "x"}, "rescale_factor must be a number"),
    ],
)
def test_images_that_cannot_be_made_are_refused(said: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=told):
        describe(folder(tmp_path, VIT, preprocessor_config=said))


# --- writing ----------------------------------------------------------------------------------------------


def test_prompts_of_t5(tmp_path: Path) -> None:
    metadata = describe(folder(tmp_path, T5)).metadata
    assert metadata.prompts.summarize == "summarize: "
    assert metadata.prompts.translate["de"] == PROMPTS["translation_en_to_de"]["prefix"]
    assert metadata.to == ("de", "fr", "ro")
    wanted = {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "no_repeat_ngram_size": 3}
    assert metadata.ways["summarize"] == {**wanted, "max_length": 200, "min_length": 30}
    assert metadata.ways["translate"]["max_length"] == 300
    damaged = {**T5, "task_specific_params": {"summarization": {"prefix": "s: ", "num_beams": "many"}}}
    with pytest.raises(
        CheckpointError, match=r"task_specific_params cannot be used:\n  num_beams must be a whole number from 1"
    ):
        describe(folder(tmp_path, damaged))


def test_marian_s_language(tmp_path: Path) -> None:
    config = PUBLIC["opus-mt-en-de"][0]
    metadata = describe(folder(tmp_path, config, tokenizer_config={"source_lang": "en", "target_lang": "de"})).metadata
    assert (metadata.prompts.to_dict(), metadata.to) == ({}, ("de",))


def test_old_configurations_say_how_to_write(tmp_path: Path) -> None:
    said = describe(folder(tmp_path, PUBLIC["opus-mt-en-de"][0])).metadata.generation
    assert said == {
        "do_sample": False,
        "decoder_start_token_id": 58100,
        "eos_token_id": [0],
        "pad_token_id": 58100,
        "num_beams": 6,
        "max_length": 512,
        "bad_words_ids": [[58100]],
        "forced_eos_token_id": 0,
    }


def test_a_generation_config_counts_alone_but_for_ids(tmp_path: Path) -> None:
    said = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [2, 7], "max_length": 99, "_x": None}
    public = describe(folder(tmp_path, {**LLAMA, "max_length": 20}, generation_config=said))
    assert public.metadata.generation == {
        "bos_token_id": 1,
        "eos_token_id": [2, 7],
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.9,
        "max_length": 99,
    }
    why = {remark.key: remark.why for remark in public.remarks}
    assert why["max_length"] == "generation_config.json counts"


def test_words_of_several_tokens_are_forbidden_and_ends_are_not(tmp_path: Path) -> None:
    said = {"bad_words_ids": [[5], [6, 7], [2], [8, 9, 10]], "eos_token_id": 2, "min_new_tokens": 4, "min_p": 0.1}
    facts = describe(folder(tmp_path, LLAMA, generation_config={**said, "stop_strings": "###"})).metadata.generation
    ways = plan(GenerationOptions.of(facts), 1)
    assert (ways.suppress, ways.bad_words) == ((5,), ((6, 7), (8, 9, 10)))
    assert (facts["min_new_tokens"], facts["min_p"], facts["stop"]) == (4, 0.1, ["###"])
    for wrong in ([[6, 99999]], [[]], ["word"], [3]):
        with pytest.raises(CheckpointError, match=r"generation_config.json cannot be used:\n.*bad_words_ids must be"):
            describe(folder(tmp_path, LLAMA, generation_config={"bad_words_ids": wrong}))
    with pytest.raises(CheckpointError, match="stop must be texts"):
        describe(folder(tmp_path, LLAMA, generation_config={"stop_strings": [3]}))


def test_every_key_of_a_generation_config_is_accounted_for(tmp_path: Path) -> None:
    said = {"min_new_tokens": 4, "typical_p": 0.9, "stop_strings": ["x"], "transformers_version": "4.4"}
    for config, stops in ((LLAMA, "used"), (T5, "ignored")):
        public = describe(folder(tmp_path, config, generation_config=said))
        remarks = {remark.key.removeprefix("generation_config.json: "): remark for remark in public.remarks}
        assert [remarks[key].use for key in said] == ["used", "ignored", stops, "ignored"]
        assert ("stop" in public.metadata.generation) == (stops == "used")


@pytest.mark.parametrize("config", [LLAMA, T5], ids=["llama", "t5"])
def test_an_id_below_zero_is_none(config: dict[str, Any], tmp_path: Path) -> None:
    said = describe(folder(tmp_path, {**config, "pad_token_id": -1})).metadata.generation
    assert "pad_token_id" not in said


def test_captions_start_as_the_whole_says(tmp_path: Path) -> None:
    config = PUBLIC["nlpconnect/vit-gpt2-image-captioning"][0]
    said = describe(folder(tmp_path, config)).metadata.generation
    assert said == {
        "do_sample": False,
        "decoder_start_token_id": 50256,
        "eos_token_id": [50256],
        "pad_token_id": 50256,
    }


def test_writing_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    for name, value, told in (
        ("eos_token_id", 99999, "eos_token_id must be of the vocabulary, 0 to 50256, given 99999"),
        ("pad_token_id", 99999, "pad_token_id must be of the vocabulary, 0 to 50256, given 99999"),
        ("eos_token_id", "2", "eos_token_id must be token ids"),
        ("num_beams", 0, "num_beams must be a whole number from 1"),
        ("temperature", "hot", "temperature must be a number"),
        ("early_stopping", 3, "early_stopping must be true, false or never"),
        ("top_k", 1.5, "top_k must be a whole number"),
        ("do_sample", "yes", "do_sample must be true or false"),
    ):
        with pytest.raises(CheckpointError, match=f"generation_config.json cannot be used:\n  {told}"):
            describe(folder(tmp_path, GPT2, generation_config={name: value}))


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("draws", [True, False])
def test_generation_options_go_out_and_come_back(two: bool, draws: bool, tmp_path: Path) -> None:
    drawn = {"do_sample": True, "temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.1}
    searched = {"do_sample": False, "num_beams": 4, "early_stopping": "never", "length_penalty": 2.0}
    options = GenerationOptions(
        eos_token_id=(2, 3), pad_token_id=0, no_repeat_ngram_size=3, max_length=50, min_length=5, max_new_tokens=7,
        min_new_tokens=2, bad_words_ids=((4, 6),), repetition_penalty=1.2, suppress_tokens=(9, 3),
        forced_bos_token_id=4, forced_eos_token_id=5, **(drawn if draws else searched),
        **({"decoder_start_token_id": 1} if two else {"bos_token_id": 1, "stop": "x"}),
    )  # fmt: skip
    said = generation_config.write(options.to_dict(), two_stacks=two)
    (tmp_path / generation_config.FILE).write_text(json.dumps(said))
    assert generation_config.read(tmp_path, {}, two_stacks=two, vocabulary=100) == options.to_dict()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bert classes", {"labels": ["a", "b", "c"], "several": True}),
        ("bert pooler", {"pool": "first", "normalise": False, "longest": 33}),
        ("bert pooler", {"prompt": "query: ", "skips_prompt": True}),
        ("t5", {"prompts": {"summarize": "sum up: ", "translate": {"de": "to German: "}}, "to": ["de"], "longest": 64}),
        (
            "llama",
            {"longest": 128, "generation": {"bos_token_id": 3, "eos_token_id": [4], "do_sample": True}},
        ),
        ("vit", {"labels": list("abcde"), "image": {**PLAIN, "size": [12, 12], "resample": "lanczos"}}),
        (
            "captions",
            {"generation": {"decoder_start_token_id": 7, "eos_token_id": [9], "num_beams": 4, "do_sample": False}},
        ),
    ],
)
def test_facts_travel_with_the_model(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model, public = load_public(pair(name)[2])
    metadata = public.metadata.replace(**changes)
    save_public(model, tmp_path / "out", metadata=metadata)
    assert describe(tmp_path / "out").metadata == metadata


# --- task.json ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", bundled())
def test_what_the_bundled_models_say_comes_back_as_it_was(name: str) -> None:
    kept = json.loads((BUNDLED / name / FILE).read_text())
    found = read_metadata(BUNDLED / name)
    if found.task == "translate":
        assert (found.source, found.to) == ("en", (name[3:],))
    assert json.loads(found.to_json()) == kept


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"task": "classify", "labels": ["a", "b"], "longest": 512, "several": False},
        {"task": "tag", "labels": ["N"], "longest": 9, "trees": True},
        {"task": "embed", "longest": 512, "pool": "mean", "normalise": True, "prompt": "q: ", "skips_prompt": True},
        {"task": "complete", "longest": None, "generation": {"bos_token_id": 1, "eos_token_id": [2]}},
        {"task": "see", "labels": numbered(2), "image": {"size": [8, 8], "scale": 1, "crop": None, "shortest": False}},
        {"task": "write", "family": "t5", "to": ["de"], "prompts": {"translate": {"de": "x: "}}, "ways": {"a": {}}},
        {"task": "translate", "from": None, "to": [], "longest": 3, "usual": 2, "growth": 2, "length_penalty": 1.0},
    ],
)
def test_only_what_was_said_is_written(kept: dict[str, Any]) -> None:
    assert Metadata.of(kept).to_dict() == kept
    assert Metadata.of(Metadata.of(kept).to_dict()) == Metadata.of(kept)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"task": "classify", "lables": []}, "lables: unknown field; did you mean 'labels'"),
        ({"task": "see", "image": {"sizes": [1, 1]}}, r"image\.sizes: unknown field; did you mean 'size'"),
        ({"task": "write", "prompts": {"sumarize": ""}}, r"prompts\.sumarize: unknown field"),
        ({"task": "sing"}, "task: Input should be 'translate', .* given 'sing'"),
        ({"task": "embed", "longest": "512"}, "longest: .* given '512'"),
        ({"task": "embed", "longest": True}, "longest: .* given True"),
        ({"task": "embed", "longest": 0}, "longest: .* given 0"),
        ({"task": "embed", "pool": "max"}, "pool: .* given 'max'"),
        ({"task": "tag", "labels": ["a", 1]}, r"labels\.1: .* given 1"),
        ({"task": "see", "image": {"size": [8, "8"]}}, r"image\.size\.1: .* given '8'"),
        ({"labels": []}, "names no task"),
        ({"task": "translate", "to": []}, "needs longest and to"),
    ],
)
def test_a_task_file_that_is_wrong_is_named_with_its_path(wrong: dict[str, Any], told: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(wrong))
    with pytest.raises(CheckpointError, match=rf"task\.json cannot be used: .*{told}") as caught:
        read_metadata(tmp_path)
    assert caught.value.path == tmp_path / FILE


def test_metadata_is_frozen_and_changed_by_a_copy() -> None:
    found = Metadata.of({"task": "classify", "labels": ["a"]})
    with pytest.raises(ValueError, match="frozen"):
        found.task = "embed"  # type: ignore[misc]
    assert found.replace(labels=["b"]).labels == ("b",)
    assert found.labels == ("a",)
    with pytest.raises(CheckpointError, match="JSON cannot"):
        Metadata.of({"labels": [object()]})
