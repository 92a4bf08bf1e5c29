"""Every key of a configuration is accounted for; what is unknown or unfit is told, all of it at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearformer import spec
from clearformer.assemble import count_parameters
from clearformer.checkpoints.families import FAMILIES
from clearformer.checkpoints.huggingface import describe, is_public
from clearformer.errors import CheckpointError
from tests.checkpoints.configs import BERT, GPT2, LLAMA, PUBLIC, QWEN, T5, VIT


def folder(tmp_path: Path, config: dict[str, Any], **files: Any) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize("name", PUBLIC)
def test_public_configurations_are_read_whole(name: str, tmp_path: Path) -> None:
    config, parameters = PUBLIC[name]
    public = describe(folder(tmp_path, config))
    assert public.family == config["model_type"]
    assert count_parameters(public.spec) == parameters
    flat = {key for key in config if not isinstance(config[key], dict) or key not in ("encoder", "decoder")}
    flat |= {f"{side}.{key}" for side in ("encoder", "decoder") if side in config for key in config[side]}
    assert {remark.key for remark in public.remarks} == flat
    assert len(public.remarks) == len(flat)  # each once
    assert all(remark.why for remark in public.remarks)


def fault(tmp_path: Path, config: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(CheckpointError) as error:
        describe(folder(tmp_path, {**config, **changes}))
    return str(error.value)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    told = fault(
        tmp_path,
        {key: value for key, value in BERT.items() if key != "hidden_size"},
        num_atention_heads=4,
        num_hidden_layers="six",
        hidden_act="quick_gelu",
        position_embedding_type="relative_key",
        layer_norm_eps=True,
    )
    for line in (
        "hidden_size: missing; a whole number from 1",
        'num_hidden_layers: a whole number from 1 to 1,000 is needed (number of blocks), given "six"',
        "hidden_act: one of gelu, ",
        'given "quick_gelu"',
        'position_embedding_type: "relative_key" given, only "absolute" is read: other kinds of positions',
        "layer_norm_eps: a number is needed",
        "num_atention_heads: unknown, and it may change what the model computes; did you mean 'num_attention_heads'",
    ):
        assert line in told, told


@pytest.mark.parametrize(
    ("config", "changes", "told"),
    [
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: true given, only false"),
        (GPT2, {"architectures": ["GPT2ForSequenceClassification"]}, "is not read; known: GPT2LMHeadModel, GPT2Model"),
        (GPT2, {"add_cross_attention": True}, "add_cross_attention: true given, only false"),
        (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'rope scaling: "dynamic" is not read; known'),
        (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 'rope scaling: "yarn" is not read; known'),
        (LLAMA, {"rope_scaling": {"type": "linear"}}, "rope scaling: factor must be a number above 0, given null"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2, "x": 1}}, "rope scaling: unknown x"),
        (LLAMA, {"rope_theta": -1}, "rope_theta: -1.0 given, a number above 0 is needed"),
        (LLAMA, {"rope_scaling": 3}, "rope_scaling: an object is needed, given 3"),
        (LLAMA, {"pretraining_tp": 2}, "pretraining_tp: 2 given, only 1 is read"),
        (LLAMA, {"sliding_window": 9}, "sliding_window: 9 given, only null is read"),
        (LLAMA, {"quantization_config": {"bits": 4}}, "quantised weights are not read"),
        (LLAMA, {"num_key_value_heads": 5}, "key_heads (5) must divide heads (32)"),
        (QWEN, {"layer_types": ["full_attention"]}, "layer_types: 24 of full_attention or sliding_attention"),
        (QWEN, {"layer_types": ["sliding_attention"] * 24}, "it names windows, but"),
        (T5, {"feed_forward_proj": "gated-what"}, 'feed_forward_proj: "gated-what" is not read'),
        (VIT, {"image_size": [224]}, "image_size: a number, or height and width, is needed"),
        (VIT, {"patch_size": 15}, "patch_size: 15 does not divide"),
        (PUBLIC["opus-mt-en-de"][0], {"decoder_vocab_size": 7}, "decoder_vocab_size: 7 given beside vocab_size 58101"),
        (PUBLIC["opus-mt-en-de"][0], {"normalize_before": True}, "normalize_before: true given, only false"),
        (PUBLIC["roberta-base"][0], {"max_position_embeddings": 2}, "2 rows leave none beyond the 2"),
        (BERT, {"num_hidden_layers": 10**9}, "a whole number from 1 to 1,000"),
    ],
)
def test_what_is_not_read_is_told_by_name(
    config: dict[str, Any], changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    assert told in fault(tmp_path, config, **changes)


CROSS = {**BERT, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
CAPTIONS = PUBLIC["nlpconnect/vit-gpt2-image-captioning"][0]


@pytest.mark.parametrize(
    ("config", "more"),
    [
        (QWEN, {"use_mrope": False, "is_causal": True, "_flash_attn_2_enabled": True, "loss_type": None}),
        (CROSS, {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity", "xla_device": None}),
        (CROSS, {"sentence_transformers": {"activation_fn": "torch.nn.Sigmoid", "version": "4.1.0"}}),
        (PUBLIC["roberta-base"][0], {"language": "english", "name": "Roberta", "eos_token_ids": None}),
        (LLAMA, {"max_sequence_length": 4096, "pad_token_id": -1, "_attn_implementation_internal": "sdpa"}),
        (PUBLIC["opus-mt-en-de"][0], {"do_blenderbot_90_layernorm": False}),
        (CAPTIONS, {"processor_class": "TrOCRProcessor", "is_composition": True, "_auto_class": None}),
        (GPT2, {"custom_pipelines": {}, "_output_attentions": False, "min_p": 0.1}),
    ],
)
def test_keys_that_public_folders_carry_besides(config: dict[str, Any], more: dict[str, Any], tmp_path: Path) -> None:
    plain = describe(folder(tmp_path, config))
    public = describe(folder(tmp_path, {**config, **more}))
    assert public.spec == plain.spec
    assert public.metadata.longest == plain.metadata.longest
    assert all(remark.why for remark in public.remarks if remark.key in more)
    assert {remark.key for remark in public.remarks} - {remark.key for remark in plain.remarks} == more.keys()


def test_what_such_keys_must_equal(tmp_path: Path) -> None:
    assert "use_mrope: true given, only false is read" in fault(tmp_path, QWEN, use_mrope=True)
    assert "is_causal: false given, only true is read" in fault(tmp_path, QWEN, is_causal=False)


def test_private_keys_are_left_with_a_reason(tmp_path: Path) -> None:
    public = describe(folder(tmp_path, {**BERT, "_model_name_or_path": "x", "_whatever": {"a": 1}}))
    found = {remark.key: remark for remark in public.remarks}
    for key in ("_model_name_or_path", "_whatever"):
        assert (found[key].use, found[key].why) == ("ignored", "a private note of the program that saved the file")


def test_an_unknown_key_is_left_where_the_caller_says_so(tmp_path: Path) -> None:
    odd = {**BERT, "quiet_mode": 7, "louder": True}
    told = fault(tmp_path, odd)
    assert "--ignore quiet_mode, or load(..., ignore=['quiet_mode'])" in told
    assert "--ignore louder" in told
    with pytest.raises(CheckpointError, match="louder: unknown") as error:
        describe(folder(tmp_path, odd), ignore=["quiet_mode"])
    assert "quiet_mode" not in str(error.value)
    public = describe(folder(tmp_path, odd), ignore=["quiet_mode", "louder", "not_there"])
    assert public.spec == describe(folder(tmp_path, BERT)).spec
    found = {remark.key: remark for remark in public.remarks}
    assert (found["quiet_mode"].use, found["quiet_mode"].value) == ("ignored", 7)
    assert found["louder"].why == "unknown, and ignored as the caller asked"
    with pytest.raises(CheckpointError, match="hidden_size: it is known, and cannot be ignored"):
        describe(folder(tmp_path, BERT), ignore="hidden_size")
    config = PUBLIC["nlpconnect/vit-gpt2-image-captioning"][0]
    inner = {**config, "decoder": {**config["decoder"], "n_haed": 1}}
    assert "--ignore decoder.n_haed" in fault(tmp_path, inner)
    assert describe(folder(tmp_path, inner), ignore=["decoder.n_haed"]).family == "vision-encoder-decoder"


def test_the_first_llamas_say_their_length_by_another_key(tmp_path: Path) -> None:
    first = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    assert describe(folder(tmp_path, {**first, "max_sequence_length": 512})).metadata.longest == 512


def test_captions_need_a_vit_and_a_gpt2_of_one_width(tmp_path: Path) -> None:
    config = PUBLIC["nlpconnect/vit-gpt2-image-captioning"][0]
    wide = {**config["decoder"], "n_embd": 1024, "n_head": 16}
    told = fault(tmp_path, config, decoder=wide)
    assert "768 and 1024 wide, so a projection (enc_to_dec_proj) stands between them" in told
    swin = fault(tmp_path, config, encoder={"model_type": "swin", "depths": [1, 2]})
    assert 'encoder.model_type: "swin" is not read here, only vit' in swin
    assert "depths" not in swin
    assert "decoder.n_haed: unknown" in fault(tmp_path, config, decoder={**config["decoder"], "n_haed": 1})


def test_an_unknown_family_is_told_with_those_known(tmp_path: Path) -> None:
    told = fault(tmp_path, {"model_type": "mamba"})
    assert "model_type 'mamba' is not read" in told
    assert all(family in told for family in FAMILIES)
    assert "did you mean 'roberta'" in fault(tmp_path, {"model_type": "robert"})
    assert "names no model_type" in fault(tmp_path, {"hidden_size": 4})


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        describe(tmp_path)
    with pytest.raises(CheckpointError, match="there is no folder"):
        describe(tmp_path / "nowhere")
    assert not is_public(tmp_path)
    assert is_public(folder(tmp_path, BERT))
    (tmp_path / "task.json").write_text("{}")
    assert not is_public(tmp_path)


def test_newer_rotary_parameters_mean_the_same(tmp_path: Path) -> None:
    older = {**LLAMA, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    newer = {key: value for key, value in LLAMA.items() if not key.startswith("rope")}
    newer["rope_parameters"] = {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}
    one = describe(folder(tmp_path, older)).spec
    assert one == describe(folder(tmp_path, newer)).spec
    assert one.at("stack.blocks.0.self.positions") == spec.Rotary(base=5e5, scaling=spec.Linear(factor=2.0))


def test_windows_of_some_layers_only(tmp_path: Path) -> None:
    what = describe(folder(tmp_path, {**QWEN, "use_sliding_window": True, "sliding_window": 64})).spec
    kinds = [block.branches[0].layer.pattern for block in what.stack.blocks]
    assert kinds == [spec.Causal()] * 21 + [spec.Window(size=64)] * 3


def test_kinds_of_layers_that_say_what_is_so_anyway(tmp_path: Path) -> None:
    mistral = {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 64}
    del mistral["pretraining_tp"]
    layers = LLAMA["num_hidden_layers"]
    for config, kind in [(LLAMA, "full"), (mistral, "sliding"), ({**mistral, "sliding_window": None}, "full")]:
        public = describe(folder(tmp_path, {**config, "layer_types": [f"{kind}_attention"] * layers}))
        assert public.spec == describe(folder(tmp_path, config)).spec
        assert {remark.use for remark in public.remarks if remark.key == "layer_types"} == {"must equal"}
        other = {"full": "sliding", "sliding": "full"}[kind]
        mixed = [f"{other}_attention"] + [f"{kind}_attention"] * (layers - 1)
        assert "layer_types: " in fault(tmp_path, config, layer_types=mixed)


def test_a_body_alone_completes_where_its_head_is_its_table(tmp_path: Path) -> None:
    assert isinstance(describe(folder(tmp_path, {**GPT2, "architectures": ["GPT2Model"]})).spec.head, spec.NextToken)
    bare = {**LLAMA, "architectures": ["LlamaModel"]}
    public = describe(folder(tmp_path, bare))
    assert isinstance(public.spec.head, spec.States)
    assert (public.metadata.task, public.metadata.pool) == ("embed", "last")


@pytest.mark.parametrize("config", [GPT2, LLAMA, QWEN], ids=["gpt2", "llama", "qwen2"])
def test_a_decoder_with_a_pooling_embeds(config: dict[str, Any], tmp_path: Path) -> None:
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    public = describe(folder(tmp_path, {**config, "tie_word_embeddings": True}, modules=modules))
    assert isinstance(public.spec.head, spec.States)
    assert public.metadata.task == "embed"
    assert {remark.use for remark in public.remarks if remark.key == "eos_token_id"} == {"ignored"}
