"""T5 (Raffel et al. 2020), `model_type` t5: version 1.0, and 1.1 with FLAN-T5, which gate and do not tie."""

from collections.abc import Collection
from typing import Any

from clearformer import spec
from clearformer.arrangements import block_of
from clearformer.checkpoints.config import ACTIVATIONS, PUBLIC_ACTIVATIONS, Config, shown
from clearformer.checkpoints.families.common import Family
from clearformer.checkpoints.name_map import Row, Rules, under

KINDS = {"T5ForConditionalGeneration": "both", "T5WithLMHeadModel": "both"}  # the second is an old name


def guess(names: Collection[str]) -> str:
    return "both"


def read(config: Config) -> spec.EncoderDecoder:
    config.architecture(KINDS, guess)
    width = config.whole("d_model", "width of the states", 512)
    head_width = config.whole("d_kv", "width of a head", 64)
    heads = config.whole("num_heads", "heads of every attention", 8)
    inner = config.whole("d_ff", "inner width of the feed-forward layers", 2048)
    layers = config.whole("num_layers", "blocks of the encoder", 6, most=1000)
    below = config.whole("num_decoder_layers", "blocks of the decoder", layers, most=1000)
    vocabulary = config.whole("vocab_size", "rows of the token table", 32128)
    count = config.whole("relative_attention_num_buckets", "buckets of distances", 32)
    reach = config.whole("relative_attention_max_distance", "the farthest distance with a bucket of its own", 128)
    norm = spec.RMSNorm(eps=config.number("layer_norm_epsilon", "eps of the norms", 1e-6))
    dropout = config.share("dropout_rate", "dropout everywhere, in training", 0.1)
    gated, activation = read_feedforward(config)
    head = read_head(config)
    config.ignore("follows from feed_forward_proj", "dense_act_fn", "is_gated_act")
    config.ignore("of training only", "initializer_factor")
    config.ignore("of another head", "classifier_dropout")
    config.value("n_positions", "the longest text it was trained on; distances have no end")
    config.value("task_specific_params", "what to put before a text for each task")
    config.must("is_encoder_decoder", True, why="there are two stacks")
    config.must("is_decoder", False, why="there are two stacks")
    config.must("add_cross_attention", False, why="the decoder has it in any case")
    config.must("num_hidden_layers", layers, why="the same as num_layers")
    config.must("hidden_size", width, why="the same as d_model")
    config.settle()
    same: dict[str, Any] = {
        "heads": heads,
        "head_width": head_width,
        "bias": False,
        "output_bias": False,
        "scale": 1.0,
        "weight_dropout": dropout,
    }
    buckets = {"count": count, "reach": reach}
    both_ways = spec.SelfAttention(**same, positions=spec.Buckets(**buckets, two_way=True))
    masked = spec.SelfAttention(**same, pattern=spec.Causal(), positions=spec.Buckets(**buckets, two_way=False))
    kind = spec.Gated if gated else spec.Plain
    feedforward = kind(inner=inner, activation=activation, bias=False, inner_dropout=dropout)
    encode = block_of(norm, "before", dropout, self=both_ways, feedforward=feedforward)
    cross = spec.CrossAttention(**same)
    decode = block_of(norm, "before", dropout, self=masked, cross=cross, feedforward=feedforward)
    embed = spec.Tokens(vocabulary=vocabulary, dropout=dropout)
    return spec.EncoderDecoder(
        encoder=spec.Stack(width=width, embed=embed, blocks=(encode,) * layers, final=norm),
        decoder=spec.Stack(width=width, embed=embed, blocks=(decode,) * below, final=norm),
        head=head,
    )


def read_feedforward(config: Config) -> tuple[bool, Any]:
    """`relu`, `gated-gelu` and the like; the gated GELU has always meant its tanh form."""
    words = config.value("feed_forward_proj", "the feed-forward layer", "relu")
    gate, _, name = words.rpartition("-") if isinstance(words, str) else ("", "", "")
    if gate not in ("", "gated") or name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        config.fault(f"feed_forward_proj: {shown(words)} is not read; known, with or without gated-: {known}")
        return False, "relu"
    return gate == "gated", "gelu_tanh" if words == "gated-gelu" else ACTIVATIONS[name]


def read_head(config: Config) -> spec.NextToken:
    """Version 1.0 ties and scales; 1.1 does neither, and newer files say the scaling apart from the tying."""
    said = config.flag("tie_word_embeddings", "whether logits use the token table and are scaled", True)
    scaled = config.flag("scale_decoder_outputs", "whether states are scaled before the logits", said)
    own_table = not said if config.names is None else "lm_head.weight" in config.names
    return spec.NextToken(tied=scaled or not own_table, scaled=scaled)


def write(what: spec.EncoderDecoder) -> dict[str, Any]:
    encoder, first = what.encoder, what.encoder.at("blocks.0.self").layer
    feedforward = encoder.at("blocks.0.feedforward").layer
    name = PUBLIC_ACTIVATIONS[feedforward.activation]
    if isinstance(feedforward, spec.Gated):
        name = {"gelu_new": "gated-gelu", "gelu": "gated-gelu_python"}.get(name, f"gated-{name}")
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": encoder.at("embed.vocabulary"),
        "d_model": encoder.width,
        "d_kv": first.head_width,
        "d_ff": feedforward.inner,
        "num_heads": first.heads,
        "num_layers": len(encoder.blocks),
        "num_decoder_layers": len(what.decoder.blocks),
        "relative_attention_num_buckets": first.positions.count,
        "relative_attention_max_distance": first.positions.reach,
        "layer_norm_epsilon": encoder.at("final.eps"),
        "dropout_rate": encoder.at("blocks.0.self.dropout"),
        "feed_forward_proj": name,
        "tie_word_embeddings": what.head.scaled,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }


def _stack(stack: str, attentions: dict[str, str], gated: bool) -> list[Row]:
    rows = [
        Row(
            f"{stack}.blocks.0.branches.self.layer.relative.table",
            f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        ),
        Row(f"{stack}.final", f"{stack}.final_layer_norm"),
    ]
    for number, (branch, layer) in enumerate(attentions.items()):
        rows += under(
            f"{stack}.blocks.{{}}.branches.{branch}",
            f"{stack}.block.{{}}.layer.{number}",
            ("before", "layer_norm"),
            ("layer.query", f"{layer}.q"),
            ("layer.key", f"{layer}.k"),
            ("layer.value", f"{layer}.v"),
            ("layer.output", f"{layer}.o"),
        )
    inner = [("gate", "wi_0"), ("up", "wi_1"), ("down", "wo")] if gated else [("up", "wi"), ("down", "wo")]
    return rows + under(
        f"{stack}.blocks.{{}}.branches.feedforward",
        f"{stack}.block.{{}}.layer.{len(attentions)}",
        ("before", "layer_norm"),
        *((f"layer.{ours}", f"DenseReluDense.{public}") for ours, public in inner),
    )


def rules(what: spec.EncoderDecoder) -> Rules:
    gated = isinstance(what.encoder.at("blocks.0.feedforward").layer, spec.Gated)
    return Rules(
        [
            Row("encoder.embed.table", "shared.weight"),
            *_stack("encoder", {"self": "SelfAttention"}, gated),
            *_stack("decoder", {"self": "SelfAttention", "cross": "EncDecAttention"}, gated),
            Row("head.weight", "lm_head.weight"),
        ],
        left={
            r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight": (
                "a table of an early version that nothing reads"
            )
        },
        copies={
            "encoder.embed_tokens.weight": "shared.weight",
            "decoder.embed_tokens.weight": "shared.weight",
            "lm_head.weight": "shared.weight",
        },
    )


T5 = Family("t5", read, write, rules, writes=True)
