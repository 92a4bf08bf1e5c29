"""A public Llama or GPT-2 folder as a GGUF file, the format of llama.cpp, in single precision or as Q8_0.

Only what a benchmark needs: there is no vocabulary, tokens are numbers.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from clearformer.errors import DataError

LLAMA = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GPT2 = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
LLAMA_ENDS = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
BLOCK = 32  # numbers of a row that share a scale in Q8_0; other rows stay as they are
GPT2_ENDS = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output"}


def write(folder: Path, to: Path, precision: str) -> Path:
    """The file of a folder's model; a model that it cannot hold is an error that says why."""
    from safetensors.torch import load_file

    library: Any = import_module("gguf")
    kinds = library.GGMLQuantizationType

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    family = config["model_type"]
    if family not in ("llama", "gpt2") or not (folder / "model.safetensors").is_file():
        raise DataError(f"only llama and gpt2 in one file are written for it, not {family}")
    if family == "llama" and (config.get("attention_bias") or config.get("mlp_bias")):
        raise DataError("biases are not written for it")
    writer = library.GGUFWriter(to, family)
    (_llama if family == "llama" else _gpt2)(writer, config)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    tied = config.get("tie_word_embeddings", family == "gpt2")
    for name, tensor in load_file(folder / "model.safetensors").items():
        place = _place(name, family)
        if place == "output.weight" and tied:
            continue
        array = _turned(place, tensor.float().numpy(), family, config)
        fits = array.ndim == 2 and array.shape[1] % BLOCK == 0 and place != "position_embd.weight"
        small = precision == "Q8_0" and fits
        kind = kinds.Q8_0 if small else kinds.F32
        writer.add_tensor(place, library.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


def _llama(writer: Any, config: dict[str, Any]) -> None:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    head = config.get("head_dim") or width // heads
    writer.add_context_length(config.get("max_position_embeddings", 2048))
    writer.add_embedding_length(width)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(rotary_base(config))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def rotary_base(config: dict[str, Any]) -> float:
    """`rope_theta`, at the top of older files and under `rope_parameters` in newer ones."""
    parts = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = parts.get("rope_type", parts.get("type", "default"))
    if kind != "default":
        raise DataError(f"rotary angles scaled by {kind!r} are not written for it")
    return float(parts.get("rope_theta", config.get("rope_theta", 10_000.0)))


def _gpt2(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])


def _place(name: str, family: str) -> str:
    """The tensor's name there."""
    parts, ends, blocks = (LLAMA, LLAMA_ENDS, "layers.") if family == "llama" else (GPT2, GPT2_ENDS, "h.")
    path, kind = name.removeprefix("model.").removeprefix("transformer.").rsplit(".", 1)
    if not path.startswith(blocks):
        return f"{ends[path]}.{kind}"
    number, part = path.removeprefix(blocks).split(".", 1)
    return f"blk.{number}.{parts[part]}.{kind}"


def _turned(place: str, array: Any, family: str, config: dict[str, Any]) -> Any:
    """GPT-2's matrices are kept the other way round; llama.cpp turns neighbours, where the public layout turns the
    two halves of a head."""
    if family == "gpt2":
        return array.T.copy() if array.ndim == 2 and place.startswith("blk.") else array
    part = place.split(".")[-2]
    if part not in ("attn_q", "attn_k"):
        return array
    heads = config["num_attention_heads"]
    count = heads if part == "attn_q" else config.get("num_key_value_heads", heads)
    return array.reshape(count, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
