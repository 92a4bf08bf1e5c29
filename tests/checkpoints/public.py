"""Our parameter names beside those in the files that Hugging Face's classes save, family by family.

A row pairs names; `{}` stands for the number of a block, and a row that names modules covers their weight and bias.
Several names of ours, separated by spaces, are joined in one public tensor. Both directions read the same rows:

    rows = table("gpt2", spec)
    fill(model, to_ours(rows, public_weights))
    to_public(rows, weights(model))
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearformer import spec

Weights = dict[str, Tensor]


class Change(NamedTuple):
    """How a tensor differs on the two sides, both ways."""

    to_ours: Callable[[Tensor], Tensor]
    to_public: Callable[[Tensor], Tensor]


SAME = Change(lambda x: x, lambda x: x)
TRANSPOSED = Change(torch.t, torch.t)  # leaves a bias as it is
LEADING_ONE = Change(lambda x: x[0], lambda x: x[None])


def squares(channels: int, patch: int) -> Change:
    """A convolution whose kernel is as large as its stride is a matrix over flattened squares."""
    return Change(lambda x: x.flatten(1), lambda x: x.unflatten(1, (channels, patch, patch)))


class Row(NamedTuple):
    ours: str
    public: str
    change: Change = SAME


def _under(ours: str, public: str, *rows: tuple[str, str] | tuple[str, str, Change]) -> list[Row]:
    """Rows with a prefix for either side."""
    return [Row(" ".join(f"{ours}.{one}" for one in row[0].split()), f"{public}.{row[1]}", *row[2:]) for row in rows]


# --- encoder-only -----------------------------------------------------------------------------------------

BERT = [
    *_under(
        "stack.embed",
        "bert.embeddings",
        ("table", "word_embeddings.weight"),
        ("positions.table", "position_embeddings.weight"),
        ("segments", "token_type_embeddings.weight"),
        ("norm", "LayerNorm"),
    ),
    *_under(
        "stack.blocks.{}.branches.self",
        "bert.encoder.layer.{}.attention",
        ("layer.query", "self.query"),
        ("layer.key", "self.key"),
        ("layer.value", "self.value"),
        ("layer.output", "output.dense"),
        ("after", "output.LayerNorm"),
    ),
    *_under(
        "stack.blocks.{}.branches.feedforward",
        "bert.encoder.layer.{}",
        ("layer.up", "intermediate.dense"),
        ("layer.down", "output.dense"),
        ("after", "output.LayerNorm"),
    ),
]
BERT_HEADS = {
    "states": [],
    "vector": [Row("head.dense", "bert.pooler.dense")],
    "classes": [Row("head.vector.dense", "bert.pooler.dense"), Row("head.output", "classifier")],
    "token_classes": [Row("head.output", "classifier")],
    "spans": [Row("head.output", "qa_outputs")],
    "masked_token": _under(
        "head",
        "cls.predictions",
        ("dense", "transform.dense"),
        ("norm", "transform.LayerNorm"),
        ("bias", "bias"),
    ),
}

DISTILBERT = [
    *_under(
        "stack.embed",
        "distilbert.embeddings",
        ("table", "word_embeddings.weight"),
        ("positions.table", "position_embeddings.weight"),
        ("norm", "LayerNorm"),
    ),
    *_under(
        "stack.blocks.{}.branches.self",
        "distilbert.transformer.layer.{}",
        ("layer.query", "attention.q_lin"),
        ("layer.key", "attention.k_lin"),
        ("layer.value", "attention.v_lin"),
        ("layer.output", "attention.out_lin"),
        ("after", "sa_layer_norm"),
    ),
    *_under(
        "stack.blocks.{}.branches.feedforward",
        "distilbert.transformer.layer.{}",
        ("layer.up", "ffn.lin1"),
        ("layer.down", "ffn.lin2"),
        ("after", "output_layer_norm"),
    ),
]
DISTILBERT_HEADS = {
    "states": [],
    "classes": [Row("head.vector.dense", "pre_classifier"), Row("head.output", "classifier")],
    "token_classes": [Row("head.output", "classifier")],
    "spans": [Row("head.output", "qa_outputs")],
    "masked_token": [
        Row("head.dense", "vocab_transform"),
        Row("head.norm", "vocab_layer_norm"),
        Row("head.bias", "vocab_projector.bias"),
    ],
}

# --- decoder-only -----------------------------------------------------------------------------------------

GPT2 = [
    Row("stack.embed.table", "transformer.wte.weight"),
    Row("stack.embed.positions.table", "transformer.wpe.weight"),
    *_under(
        "stack.blocks.{}.branches.self",
        "transformer.h.{}",
        ("before", "ln_1"),
        ("layer.query layer.key layer.value", "attn.c_attn", TRANSPOSED),
        ("layer.output", "attn.c_proj", TRANSPOSED),
    ),
    *_under(
        "stack.blocks.{}.branches.feedforward",
        "transformer.h.{}",
        ("before", "ln_2"),
        ("layer.up", "mlp.c_fc", TRANSPOSED),
        ("layer.down", "mlp.c_proj", TRANSPOSED),
    ),
    Row("stack.final", "transformer.ln_f"),
]

LLAMA = [
    Row("stack.embed.table", "model.embed_tokens.weight"),
    *_under(
        "stack.blocks.{}.branches.self",
        "model.layers.{}",
        ("before", "input_layernorm"),
        ("layer.query", "self_attn.q_proj"),
        ("layer.key", "self_attn.k_proj"),
        ("layer.value", "self_attn.v_proj"),
        ("layer.output", "self_attn.o_proj"),
        ("layer.query_norm", "self_attn.q_norm"),
        ("layer.key_norm", "self_attn.k_norm"),
    ),
    *_under(
        "stack.blocks.{}.branches.feedforward",
        "model.layers.{}",
        ("before", "post_attention_layernorm"),
        ("layer.gate", "mlp.gate_proj"),
        ("layer.up", "mlp.up_proj"),
        ("layer.down", "mlp.down_proj"),
    ),
    Row("stack.final", "model.norm"),
    Row("head.weight", "lm_head.weight"),
]

# --- encoder–decoder --------------------------------------------------------------------------------------

T5_INNER = {
    "plain": [("layer.up", "wi"), ("layer.down", "wo")],
    "gated": [("layer.gate", "wi_0"), ("layer.up", "wi_1"), ("layer.down", "wo")],
}


def _t5_stack(stack: str, attentions: dict[str, str], feedforward: str) -> list[Row]:
    rows = [
        Row(f"{stack}.blocks.0.branches.self.layer.relative.table",
            f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
        Row(f"{stack}.final", f"{stack}.final_layer_norm"),
    ]  # fmt: skip
    for number, (branch, layer) in enumerate(attentions.items()):
        rows += _under(
            f"{stack}.blocks.{{}}.branches.{branch}",
            f"{stack}.block.{{}}.layer.{number}",
            ("before", "layer_norm"),
            ("layer.query", f"{layer}.q"),
            ("layer.key", f"{layer}.k"),
            ("layer.value", f"{layer}.v"),
            ("layer.output", f"{layer}.o"),
        )
    branch, last = f"{stack}.blocks.{{}}.branches.feedforward", f"{stack}.block.{{}}.layer.{len(attentions)}"
    rows += _under(branch, last, ("before", "layer_norm"))
    return rows + [Row(f"{branch}.{ours}", f"{last}.DenseReluDense.{public}") for ours, public in T5_INNER[feedforward]]


def _t5(feedforward: str) -> list[Row]:
    return [
        Row("encoder.embed.table", "shared.weight"),
        *_t5_stack("encoder", {"self": "SelfAttention"}, feedforward),
        *_t5_stack("decoder", {"self": "SelfAttention", "cross": "EncDecAttention"}, feedforward),
        Row("head.weight", "lm_head.weight"),
    ]


def _marian_attention(stack: str, branch: str, public: str) -> list[Row]:
    return _under(
        f"{stack}.blocks.{{}}.branches.{branch}",
        f"model.{stack}.layers.{{}}",
        ("layer.query", f"{public}.q_proj"),
        ("layer.key", f"{public}.k_proj"),
        ("layer.value", f"{public}.v_proj"),
        ("layer.output", f"{public}.out_proj"),
        ("after", f"{public}_layer_norm"),
    )


def _marian_feedforward(stack: str) -> list[Row]:
    return _under(
        f"{stack}.blocks.{{}}.branches.feedforward",
        f"model.{stack}.layers.{{}}",
        ("layer.up", "fc1"),
        ("layer.down", "fc2"),
        ("after", "final_layer_norm"),
    )


MARIAN = [
    Row("encoder.embed.table", "model.shared.weight"),
    *_marian_attention("encoder", "self", "self_attn"),
    *_marian_feedforward("encoder"),
    *_marian_attention("decoder", "self", "self_attn"),
    *_marian_attention("decoder", "cross", "encoder_attn"),
    *_marian_feedforward("decoder"),
    Row("head.bias", "final_logits_bias", LEADING_ONE),
]

# --- vision -----------------------------------------------------------------------------------------------


def _vit(embed: spec.Patches) -> list[Row]:
    return [
        Row("stack.embed.summary", "vit.embeddings.cls_token"),
        Row("stack.embed.positions.table", "vit.embeddings.position_embeddings", LEADING_ONE),
        Row("stack.embed.project.weight", "vit.embeddings.patch_embeddings.projection.weight",
            squares(embed.channels, embed.patch)),
        Row("stack.embed.project.bias", "vit.embeddings.patch_embeddings.projection.bias"),
        *_under(
            "stack.blocks.{}.branches.self",
            "vit.encoder.layer.{}",
            ("before", "layernorm_before"),
            ("layer.query", "attention.attention.query"),
            ("layer.key", "attention.attention.key"),
            ("layer.value", "attention.attention.value"),
            ("layer.output", "attention.output.dense"),
        ),
        *_under(
            "stack.blocks.{}.branches.feedforward",
            "vit.encoder.layer.{}",
            ("before", "layernorm_after"),
            ("layer.up", "intermediate.dense"),
            ("layer.down", "output.dense"),
        ),
        Row("stack.final", "vit.layernorm"),
        Row("head.output", "classifier"),
    ]  # fmt: skip


def table(family: str, what: spec.Transformer | spec.EncoderDecoder) -> list[Row]:
    """The rows of a family; a model that is only a body and perhaps a pooler has no prefix in public."""
    match family:
        case "bert":
            return _bare(BERT + BERT_HEADS[what.head.kind], "bert.", what.head.kind)
        case "distilbert":
            return _bare(DISTILBERT + DISTILBERT_HEADS[what.head.kind], "distilbert.", what.head.kind)
        case "gpt2":
            return GPT2
        case "llama":
            return LLAMA
        case "t5":
            return _t5("plain")
        case "flan_t5":
            return _t5("gated")
        case "marian":
            return MARIAN
        case "vit":
            return _vit(what.stack.embed)
    raise KeyError(family)


def _bare(rows: list[Row], prefix: str, head: str) -> list[Row]:
    if head not in ("states", "vector"):
        return rows
    return [row._replace(public=row.public.removeprefix(prefix)) for row in rows]


# --- both directions --------------------------------------------------------------------------------------


def to_ours(rows: list[Row], public: Mapping[str, Tensor]) -> Weights:
    ours: Weights = {}
    for row in _spelled_out(rows, public, "public"):
        names = row.ours.split()
        ours |= zip(names, row.change.to_ours(public[row.public]).chunk(len(names)), strict=True)
    return ours


def to_public(rows: list[Row], ours: Mapping[str, Tensor]) -> Weights:
    return {
        row.public: row.change.to_public(torch.cat([ours[name] for name in row.ours.split()])).contiguous()
        for row in _spelled_out(rows, ours, "ours")
    }


def _spelled_out(rows: list[Row], given: Mapping[str, Tensor], side: str) -> Iterator[Row]:
    """The rows that the given names ask for, with block numbers and `.weight` or `.bias` in place; none may be over."""
    numbers = range(1 + max(int(number) for name in given for number in re.findall(r"\.(\d+)\.", name)))
    left = set(given)
    for row in rows:
        for number in numbers if "{}" in row.public else [0]:
            for suffix in ("", ".weight", ".bias"):
                found = Row(*(_spell(names, number, suffix) for names in row[:2]), row.change)
                asked = set(getattr(found, side).split())
                if asked <= left:
                    left -= asked
                    yield found
    if left:
        raise KeyError(f"no row for {', '.join(sorted(left))}")


def _spell(names: str, number: int, suffix: str) -> str:
    return " ".join(name.replace("{}", str(number)) + suffix for name in names.split())


def weights(model: nn.Module) -> Weights:
    """Every parameter once, however many modules share it."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def fill(model: nn.Module, given: Mapping[str, Tensor]) -> None:
    own = weights(model)
    if own.keys() != given.keys():
        raise KeyError(f"names differ: {', '.join(sorted(own.keys() ^ given.keys()))}")
    for name, tensor in given.items():
        if own[name].shape != tensor.shape:
            raise ValueError(f"{name}: {tuple(tensor.shape)} given for {tuple(own[name].shape)}")
        own[name].copy_(tensor)
