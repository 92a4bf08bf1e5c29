"""Marian as OPUS-MT ships it, `model_type` marian: the original Transformer with SiLU and a bias on the logits."""

from collections.abc import Callable, Collection
from typing import Any

from clearformer import spec
from clearformer.arrangements import Place, block_of
from clearformer.checkpoints.config import Config
from clearformer.checkpoints.families.common import Family, public_activation
from clearformer.checkpoints.name_map import LEADING_ONE, Row, Rules, under

KINDS = {"MarianMTModel": "both"}
LENGTH = 512  # rows of a table of sinusoids, where nobody says how long texts are
SINUSOIDS = {r"(encoder|decoder)\.embed_positions\.weight": "sinusoids, which are computed"}


def guess(names: Collection[str]) -> str:
    return "both"


def read(config: Config) -> spec.EncoderDecoder:
    config.architecture(KINDS, guess)
    vocabulary = config.whole("vocab_size", "rows of the source's token table", 58101)
    shared = config.flag("share_encoder_decoder_embeddings", "whether both stacks use one token table", True)
    target = config.whole("decoder_vocab_size", "rows of the target's token table", vocabulary)
    if shared and target != vocabulary:
        config.fault(f"decoder_vocab_size: {target} given beside vocab_size {vocabulary}, and one table serves both")
    tied = config.flag("tie_word_embeddings", "whether logits use the target's token table", True)
    stack = read_stacks(config, "after")
    config.must("static_position_embeddings", True, why="positions are sinusoids")
    config.must("normalize_before", False, why="norms come after")
    config.must("add_final_layer_norm", False, why="there is no final norm")
    leave(config)
    config.settle()
    return spec.EncoderDecoder(
        encoder=stack("encoder", vocabulary),
        decoder=stack("decoder", target),
        head=spec.NextToken(tied=tied, bias=True),
        shared=shared,
    )


def read_stacks(config: Config, place: Place) -> Callable[[str, int], spec.Stack]:
    """Reads all keys of both stacks at once and gives what makes one, by its name and vocabulary, to be called when
    all are known to be right."""
    width = config.whole("d_model", "width of the states", 1024)
    scaled = config.flag("scale_embedding", "whether embeddings are multiplied by √width", False)
    activation = config.activation("activation_function", "gelu")
    dropout = config.share("dropout", "dropout of states, in training", 0.1)
    weight_dropout = config.share("attention_dropout", "dropout of attention weights, in training", 0.0)
    inner_dropout = config.share("activation_dropout", "dropout within the feed-forward layers, in training", 0.0)
    initial = config.number("init_std", "spread of fresh weights", 0.02)
    sides = {side: _read_side(config, side) for side in ("encoder", "decoder")}
    config.whole("max_position_embeddings", "the longest text; sinusoids have no end", 1024)

    def stack(name: str, rows: int) -> spec.Stack:
        (layers, heads, inner), cross = sides[name], name == "decoder"
        same: dict[str, Any] = {"heads": heads, "weight_dropout": weight_dropout}
        pattern = spec.Causal() if cross else spec.Everyone()
        branches: dict[str, Any] = {"self": spec.SelfAttention(**same, pattern=pattern)}
        if cross:
            branches["cross"] = spec.CrossAttention(**same)
        branches["feedforward"] = spec.Plain(inner=inner, activation=activation, inner_dropout=inner_dropout)
        positions = spec.Sinusoid(layout="halves")
        embed = spec.Tokens(vocabulary=rows, scaled=scaled, positions=positions, dropout=dropout)
        block = block_of(spec.LayerNorm(), place, dropout, **branches)
        final = spec.LayerNorm() if place == "before" else None
        return spec.Stack(width=width, embed=embed, blocks=(block,) * layers, final=final, initial=initial or None)

    return stack


def _read_side(config: Config, side: str) -> tuple[int, int, int]:
    layers = config.whole(f"{side}_layers", f"blocks of the {side}", 12, most=1000)
    heads = config.whole(f"{side}_attention_heads", f"heads of the {side}'s attentions", 16)
    inner = config.whole(f"{side}_ffn_dim", f"inner width of the {side}'s feed-forward layers", 4096)
    return layers, heads, inner


def leave(config: Config) -> None:
    """What Marian and Pegasus leave alike."""
    config.must("normalize_embedding", False, why="embeddings have no norm")
    config.must("do_blenderbot_90_layernorm", False, why="norms come after")
    config.must("is_encoder_decoder", True, why="there are two stacks")
    config.must("is_decoder", False, why="there are two stacks")
    config.ignore("the public class has the bias in any case", "add_bias_logits")
    config.ignore("of training only", "encoder_layerdrop", "decoder_layerdrop", "save_step")
    config.ignore("of another head", "classif_dropout", "classifier_dropout")
    config.ignore("encoder_layers says it", "num_hidden_layers")
    config.ignore("sinusoids need no rows", "extra_pos_embeddings")
    config.ignore("forced tokens say it", "force_bos_token_to_be_generated")


def write(what: spec.EncoderDecoder) -> dict[str, Any]:
    # padding is the last token in public vocabularies, and one number for both sides
    last = min(stack.at("embed.vocabulary") for stack in (what.encoder, what.decoder)) - 1
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        **sizes(what),
        "decoder_vocab_size": what.decoder.at("embed.vocabulary"),
        "share_encoder_decoder_embeddings": what.shared,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "pad_token_id": last,
        "decoder_start_token_id": last,
        "eos_token_id": 0,
        "bos_token_id": None,
        "forced_eos_token_id": None,
    }


def sizes(what: spec.EncoderDecoder) -> dict[str, Any]:
    """The numbers of both stacks, in the words that Marian and Pegasus share."""
    sides: dict[str, Any] = {}
    for name, stack in (("encoder", what.encoder), ("decoder", what.decoder)):
        sides[f"{name}_layers"] = len(stack.blocks)
        sides[f"{name}_attention_heads"] = stack.at("blocks.0.self.heads")
        sides[f"{name}_ffn_dim"] = stack.at("blocks.0.feedforward.layer.inner")
    return {
        "vocab_size": what.encoder.at("embed.vocabulary"),
        "d_model": what.encoder.width,
        **sides,
        "scale_embedding": what.encoder.at("embed.scaled"),
        "max_position_embeddings": LENGTH,
        "activation_function": public_activation(what.encoder.at("blocks.0.feedforward.layer.activation")),
        "dropout": what.encoder.at("embed.dropout"),
        "attention_dropout": what.encoder.at("blocks.0.self.weight_dropout"),
        "activation_dropout": what.encoder.at("blocks.0.feedforward.layer.inner_dropout"),
        "init_std": what.encoder.initial or 0.02,
        "tie_word_embeddings": what.head.tied,
    }


def _attention(stack: str, branch: str, public: str, place: Place) -> list[Row]:
    return under(
        f"{stack}.blocks.{{}}.branches.{branch}",
        f"model.{stack}.layers.{{}}",
        ("layer.query", f"{public}.q_proj"),
        ("layer.key", f"{public}.k_proj"),
        ("layer.value", f"{public}.v_proj"),
        ("layer.output", f"{public}.out_proj"),
        (place, f"{public}_layer_norm"),
    )


def _feedforward(stack: str, place: Place) -> list[Row]:
    return under(
        f"{stack}.blocks.{{}}.branches.feedforward",
        f"model.{stack}.layers.{{}}",
        ("layer.up", "fc1"),
        ("layer.down", "fc2"),
        (place, "final_layer_norm"),
    )


def body(place: Place) -> list[Row]:
    return [
        *_attention("encoder", "self", "self_attn", place),
        *_feedforward("encoder", place),
        *_attention("decoder", "self", "self_attn", place),
        *_attention("decoder", "cross", "encoder_attn", place),
        *_feedforward("decoder", place),
        Row("head.weight", "lm_head.weight"),
        Row("head.bias", "final_logits_bias", LEADING_ONE),
    ]


def rules(what: spec.EncoderDecoder) -> Rules:
    tables = [Row("encoder.embed.table", "model.shared.weight")]
    target = "shared.weight"
    copies = {"encoder.embed_tokens.weight": target, "decoder.embed_tokens.weight": target}
    if not what.shared:
        tables = [
            Row("encoder.embed.table", "model.encoder.embed_tokens.weight"),
            Row("decoder.embed.table", "model.decoder.embed_tokens.weight"),
        ]
        target, copies = "decoder.embed_tokens.weight", {}
    return Rules(
        [*tables, *body("after")],
        base="model.",
        left=SINUSOIDS,
        copies={**copies, "lm_head.weight": target},
    )


MARIAN = Family("marian", read, write, rules, writes=True)
