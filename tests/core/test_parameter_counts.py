"""The presets have as many parameters as the published models, to the last one. Nothing is allocated."""

from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from clearformer import presets
from clearformer.assemble import build, count_parameters

PUBLISHED = {
    ("original", "base"): 63_082_496,
    ("marian", "opus-mt"): 73_944_309,
    ("t5", "small"): 60_506_624,
    ("t5", "base"): 222_903_552,
    ("flan_t5", "small"): 76_961_152,
    ("flan_t5", "base"): 247_577_856,
    ("bert", "base"): 109_482_240,
    ("bert", "large"): 335_141_888,
    ("distilbert", "base"): 66_362_880,
    ("gpt2", "124m"): 124_439_808,
    ("gpt2", "355m"): 354_823_168,
    ("gpt2", "774m"): 774_030_080,
    ("gpt2", "1.5b"): 1_557_611_200,
    ("llama", "tinyllama-1.1b"): 1_100_048_384,
    ("llama", "llama-2-7b"): 6_738_415_616,
    ("llama", "llama-3-8b"): 8_030_261_248,
    ("llama", "llama-3.2-1b"): 1_235_814_400,
    ("vit", "b/16"): 86_567_656,
}

T5_11 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
LLAMA_3 = {"vocab_size": 128_256, "num_key_value_heads": 8}
LLAMA_1B = {"hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 8192, "tie_word_embeddings": True}
OPUS_MT = {
    "vocab_size": 58_101,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
}

# The public classes under the published configurations; sizes not named are the defaults of the configuration.
PUBLIC: dict[tuple[str, str], tuple[type[nn.Module], type[hf.PreTrainedConfig], dict[str, Any]]] = {
    ("marian", "opus-mt"): (hf.MarianMTModel, hf.MarianConfig, OPUS_MT),
    ("t5", "small"): (hf.T5ForConditionalGeneration, hf.T5Config, {}),
    ("t5", "base"): (
        hf.T5ForConditionalGeneration,
        hf.T5Config,
        {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    ),
    ("flan_t5", "small"): (
        hf.T5ForConditionalGeneration,
        hf.T5Config,
        {"d_ff": 1024, "num_layers": 8, "num_heads": 6, **T5_11},
    ),
    ("flan_t5", "base"): (
        hf.T5ForConditionalGeneration,
        hf.T5Config,
        {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12, **T5_11},
    ),
    ("bert", "base"): (hf.BertModel, hf.BertConfig, {}),
    ("bert", "large"): (
        hf.BertModel,
        hf.BertConfig,
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    ("distilbert", "base"): (hf.DistilBertModel, hf.DistilBertConfig, {}),
    ("gpt2", "124m"): (hf.GPT2LMHeadModel, hf.GPT2Config, {}),
    ("gpt2", "355m"): (hf.GPT2LMHeadModel, hf.GPT2Config, {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    ("gpt2", "774m"): (hf.GPT2LMHeadModel, hf.GPT2Config, {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    ("gpt2", "1.5b"): (hf.GPT2LMHeadModel, hf.GPT2Config, {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    ("llama", "tinyllama-1.1b"): (
        hf.LlamaForCausalLM,
        hf.LlamaConfig,
        {"hidden_size": 2048, "num_hidden_layers": 22, "num_key_value_heads": 4, "intermediate_size": 5632},
    ),
    ("llama", "llama-2-7b"): (hf.LlamaForCausalLM, hf.LlamaConfig, {}),
    ("llama", "llama-3-8b"): (hf.LlamaForCausalLM, hf.LlamaConfig, {"intermediate_size": 14336, **LLAMA_3}),
    ("llama", "llama-3.2-1b"): (hf.LlamaForCausalLM, hf.LlamaConfig, {**LLAMA_1B, **LLAMA_3}),
    ("vit", "b/16"): (hf.ViTForImageClassification, hf.ViTConfig, {"num_labels": 1000}),
}

hf.logging.set_verbosity_error()


def count(model: nn.Module) -> int:
    assert all(parameter.is_meta for parameter in model.parameters())
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def public_count(family: str, size: str) -> int:
    model, configuration, sizes = PUBLIC[family, size]
    config = configuration(**sizes)
    with torch.device("meta"):
        made = model(config)
        if family == "flan_t5":  # published with two tables; a fresh one has one
            made.lm_head.weight = nn.Parameter(torch.empty_like(made.lm_head.weight))
    if family == "marian":  # the bias on the logits is kept as a buffer, frozen sinusoids as parameters
        return count(made) + made.final_logits_bias.numel()
    return count(made)


@pytest.mark.parametrize(("family", "size"), PUBLISHED, ids=[*map(" ".join, PUBLISHED)])
def test_presets_have_the_published_number_of_parameters(family: str, size: str) -> None:
    what = presets.FAMILIES[family](size)
    assert count_parameters(what) == PUBLISHED[family, size]
    with torch.device("meta"):
        assert count(build(what)) == PUBLISHED[family, size]


@pytest.mark.parametrize(("family", "size"), PUBLIC, ids=[*map(" ".join, PUBLIC)])
def test_public_classes_have_the_same_number(family: str, size: str) -> None:
    assert public_count(family, size) == PUBLISHED[family, size]


def test_a_wrong_size_would_show() -> None:
    assert count_parameters(presets.gpt2("124m", length=1025)) == PUBLISHED["gpt2", "124m"] + 768
