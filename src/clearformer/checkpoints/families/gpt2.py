"""GPT-2 (Radford et al. 2019), `model_type` gpt2.

Its public matrices are stored transposed, and those of queries, keys and values are joined in one.
"""

from collections.abc import Collection
from typing import Any

from clearformer import spec
from clearformer.arrangements import block_of
from clearformer.checkpoints.config import Config
from clearformer.checkpoints.families.common import UNUSED, Family, public_activation
from clearformer.checkpoints.name_map import TRANSPOSED, Row, Rules, under

KINDS = {"GPT2LMHeadModel": "causal", "GPT2Model": "base"}


def guess(names: Collection[str]) -> str:
    return "causal"


def read(config: Config) -> spec.Transformer:
    kind = config.architecture(KINDS, guess)
    tied = config.flag("tie_word_embeddings", "whether logits use the token table", True)
    config.must("add_cross_attention", False, why="a decoder alone has nothing to look across at")
    config.must("is_decoder", False, True, why="it is a decoder either way")
    stack = read_stack(config, cross=False)
    completes = kind == "causal" or (tied and not config.pooled)
    return spec.Transformer(stack=stack(), head=spec.NextToken(tied=tied) if completes else spec.States())


def read_stack(config: Config, *, cross: bool) -> Any:
    """Reads all keys at once and gives what makes the stack, to be called when all are known to be right."""
    width = config.whole("n_embd", "width of the states", 768)
    layers = config.whole("n_layer", "number of blocks", 12, most=1000)
    heads = config.whole("n_head", "heads of every attention", 12)
    inner = config.maybe_whole("n_inner", "inner width of the feed-forward layers; null is four times the width")
    length = config.whole("n_positions", "rows of the position table; no longer text fits", 1024)
    vocabulary = config.whole("vocab_size", "rows of the token table", 50257)
    activation = config.activation("activation_function", "gelu_new")
    norm = spec.LayerNorm(eps=config.number("layer_norm_epsilon", "eps of the norms", 1e-5))
    dropout = config.share("resid_pdrop", "dropout of states, in training", 0.1)
    embed_dropout = config.share("embd_pdrop", "dropout of embeddings, in training", 0.1)
    weight_dropout = config.share("attn_pdrop", "dropout of attention weights, in training", 0.1)
    initial = config.number("initializer_range", "spread of fresh weights", 0.02)
    config.must("scale_attn_weights", True, why="scores are scaled by 1/√d")
    config.must("scale_attn_by_inverse_layer_idx", False, why="scores are scaled alike in all layers")
    config.must("is_encoder_decoder", False, why="there is one stack")
    config.ignore("the same as n_positions", "n_ctx")
    config.ignore("a way of computing in half precision, with the same result", "reorder_and_upcast_attn")
    config.ignore("of another head", *(key for key in config.values if key.startswith("summary_")))
    config.ignore("of a first version, without effect", "n_special", "predict_special_tokens")
    config.settle()

    def made() -> spec.Stack:
        attention = {"heads": heads, "weight_dropout": weight_dropout}
        branches: dict[str, Any] = {"self": spec.SelfAttention(**attention, pattern=spec.Causal())}
        if cross:
            branches["cross"] = spec.CrossAttention(**attention)
        branches["feedforward"] = spec.Plain(inner=inner or 4 * width, activation=activation)
        embed = spec.Tokens(vocabulary=vocabulary, positions=spec.Learned(length=length), dropout=embed_dropout)
        block = block_of(norm, "before", dropout, **branches)
        return spec.Stack(width=width, embed=embed, blocks=(block,) * layers, final=norm, initial=initial or None)

    return made


def write(what: spec.Transformer) -> dict[str, Any]:
    headed = isinstance(what.head, spec.NextToken)
    return {
        "architectures": ["GPT2LMHeadModel" if headed else "GPT2Model"],
        "model_type": "gpt2",
        **sizes(what.stack),
        "tie_word_embeddings": headed and what.head.tied,  # type: ignore[union-attr]
    }


def sizes(stack: spec.Stack) -> dict[str, Any]:
    return {
        "vocab_size": stack.at("embed.vocabulary"),
        "n_embd": stack.width,
        "n_layer": len(stack.blocks),
        "n_head": stack.at("blocks.0.self.heads"),
        "n_inner": stack.at("blocks.0.feedforward.layer.inner"),
        "n_positions": stack.at("embed.positions.length"),
        "activation_function": public_activation(stack.at("blocks.0.feedforward.layer.activation")),
        "layer_norm_epsilon": stack.at("final.eps"),
        "resid_pdrop": stack.at("blocks.0.self.dropout"),
        "embd_pdrop": stack.at("embed.dropout"),
        "attn_pdrop": stack.at("blocks.0.self.weight_dropout"),
        "initializer_range": stack.initial or 0.02,
        "scale_attn_weights": True,
        "bos_token_id": None,  # the library's own would be those of another vocabulary
        "eos_token_id": None,
    }


def body(ours: str, public: str) -> list[Row]:
    """A stack of ours under `ours`, one of theirs under `public`."""
    return [
        Row(f"{ours}.embed.table", f"{public}.wte.weight"),
        Row(f"{ours}.embed.positions.table", f"{public}.wpe.weight"),
        *under(
            f"{ours}.blocks.{{}}.branches.self",
            f"{public}.h.{{}}",
            ("before", "ln_1"),
            ("layer.query layer.key layer.value", "attn.c_attn", TRANSPOSED),
            ("layer.output", "attn.c_proj", TRANSPOSED),
        ),
        *under(
            f"{ours}.blocks.{{}}.branches.cross",
            f"{public}.h.{{}}",
            ("before", "ln_cross_attn"),
            ("layer.query", "crossattention.q_attn", TRANSPOSED),
            ("layer.key layer.value", "crossattention.c_attn", TRANSPOSED),
            ("layer.output", "crossattention.c_proj", TRANSPOSED),
        ),
        *under(
            f"{ours}.blocks.{{}}.branches.feedforward",
            f"{public}.h.{{}}",
            ("before", "ln_2"),
            ("layer.up", "mlp.c_fc", TRANSPOSED),
            ("layer.down", "mlp.c_proj", TRANSPOSED),
        ),
        Row(f"{ours}.final", f"{public}.ln_f"),
    ]


TRIANGLES = r"h\.\d+\.(cross)?att(entio)?n\.(bias|masked_bias)"
MASKS = "the triangle of who sees whom, no weight"


def rules(what: spec.Transformer) -> Rules:
    rows, left = body("stack", "transformer"), {TRIANGLES: MASKS}
    if isinstance(what.head, spec.States):
        left |= {r"lm_head\.weight": UNUSED}
        rows = [row._replace(public=row.public.removeprefix("transformer.")) for row in rows]
    return Rules(
        [*rows, Row("head.weight", "lm_head.weight")],
        base="transformer.",
        left=left,
        copies={"lm_head.weight": "wte.weight"},
    )


GPT2 = Family("gpt2", read, write, rules, writes=True)
