"""ViT (Dosovitskiy et al. 2021), `model_type` vit."""

from collections.abc import Callable, Collection
from typing import Any

from clearformer import spec
from clearformer.arrangements import block_of
from clearformer.checkpoints.config import ACTIVATIONS, Config, shown
from clearformer.checkpoints.families.common import UNUSED, Family, count_labels, public_activation, without_base
from clearformer.checkpoints.name_map import LEADING_ONE, Row, Rules, squares, under

KINDS = {"ViTForImageClassification": "classes", "ViTModel": "base"}


def guess(names: Collection[str]) -> str:
    return "classes" if not names or "classifier.weight" in names else "base"


def read(config: Config) -> spec.Transformer:
    kind = config.architecture(KINDS, guess)
    classes = count_labels(config) if kind == "classes" else 0
    pooler = config.names is None or any("pooler.dense." in name for name in config.names)
    stack = read_stack(config)()
    head: spec.Head = spec.Vector(dense="tanh") if pooler else spec.States()
    return spec.Transformer(stack=stack, head=spec.Classes(count=classes) if classes else head)


def read_stack(config: Config) -> Callable[[], spec.Stack]:
    """Reads all keys at once and gives what makes the stack, to be called when all are known to be right."""
    width = config.whole("hidden_size", "width of the states", 768)
    layers = config.whole("num_hidden_layers", "number of blocks", 12, most=1000)
    heads = config.whole("num_attention_heads", "heads of every attention", 12)
    inner = config.whole("intermediate_size", "inner width of the feed-forward layers", 3072)
    image = _sides(config)
    patch = config.whole("patch_size", "side of the squares that an image is cut into", 16)
    if any(side % patch for side in image):
        config.fault(f"patch_size: {patch} does not divide the image's sides {image[0]} and {image[1]}")
    channels = config.whole("num_channels", "colours of a pixel", 3)
    activation = config.activation("hidden_act", "gelu")
    norm = spec.LayerNorm(eps=config.number("layer_norm_eps", "eps of the norms", 1e-12))
    bias = config.flag("qkv_bias", "biases of queries, keys and values", True)
    dropout = config.share("hidden_dropout_prob", "dropout of states, in training", 0.0)
    weight_dropout = config.share("attention_probs_dropout_prob", "dropout of attention weights, in training", 0.0)
    initial = config.number("initializer_range", "spread of fresh weights", 0.02)
    config.must("pooler_output_size", width, None, why="the pooler keeps the width")
    config.word("pooler_act", "of the pooler, where it is used", "tanh", {"tanh": ACTIVATIONS["tanh"]})
    config.must("is_encoder_decoder", False, why="there is one stack")
    config.must("is_decoder", False, why="this family is read as an encoder")
    config.must("add_cross_attention", False, why="this family is read as an encoder")
    config.ignore("of another head", "encoder_stride")
    config.ignore("an image model has no table of words", "tie_word_embeddings")
    config.settle()

    def made() -> spec.Stack:
        attention = spec.SelfAttention(heads=heads, bias=bias, weight_dropout=weight_dropout)
        feedforward = spec.Plain(inner=inner, activation=activation)
        block = block_of(norm, "before", dropout, self=attention, feedforward=feedforward)
        embed = spec.Patches(image=image, patch=patch, channels=channels, dropout=dropout)
        embed = embed.replace(positions=spec.Learned(length=embed.count))
        return spec.Stack(width=width, embed=embed, blocks=(block,) * layers, final=norm, initial=initial or None)

    return made


def _sides(config: Config) -> tuple[int, int]:
    """`image_size`: one number for a square, or height and width."""
    given = config.value("image_size", "height and width of an image", 224)
    sides = given if isinstance(given, list) else [given, given]
    if len(sides) != 2 or not all(type(side) is int and 0 < side <= 2**14 for side in sides):
        config.fault(f"image_size: a number, or height and width, is needed, given {shown(given)}")
        return 16, 16
    return sides[0], sides[1]


def write(what: spec.Transformer) -> dict[str, Any]:
    headed = isinstance(what.head, spec.Classes)
    architecture = "ViTForImageClassification" if headed else "ViTModel"
    return {"architectures": [architecture], "model_type": "vit", **sizes(what.stack)}


def sizes(stack: spec.Stack) -> dict[str, Any]:
    embed = stack.embed
    assert isinstance(embed, spec.Patches)
    height, width = embed.image
    return {
        "hidden_size": stack.width,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": stack.at("blocks.0.self.heads"),
        "intermediate_size": stack.at("blocks.0.feedforward.layer.inner"),
        "hidden_act": public_activation(stack.at("blocks.0.feedforward.layer.activation")),
        "hidden_dropout_prob": stack.at("blocks.0.self.dropout"),
        "attention_probs_dropout_prob": stack.at("blocks.0.self.weight_dropout"),
        "layer_norm_eps": stack.at("final.eps"),
        "initializer_range": stack.initial or 0.02,
        "image_size": height if height == width else [height, width],
        "patch_size": embed.patch,
        "num_channels": embed.channels,
        "qkv_bias": stack.at("blocks.0.self.bias"),
    }


def body(ours: str, public: str, embed: spec.Patches) -> list[Row]:
    """A stack of ours under `ours`, one of theirs under `public` (which ends in a dot or is empty)."""
    return [
        Row(f"{ours}.embed.summary", f"{public}embeddings.cls_token"),
        Row(f"{ours}.embed.positions.table", f"{public}embeddings.position_embeddings", LEADING_ONE),
        Row(
            f"{ours}.embed.project.weight",
            f"{public}embeddings.patch_embeddings.projection.weight",
            squares(embed.channels, embed.patch),
        ),
        Row(f"{ours}.embed.project.bias", f"{public}embeddings.patch_embeddings.projection.bias"),
        *under(
            f"{ours}.blocks.{{}}.branches.self",
            f"{public}encoder.layer.{{}}",
            ("before", "layernorm_before"),
            ("layer.query", "attention.attention.query"),
            ("layer.key", "attention.attention.key"),
            ("layer.value", "attention.attention.value"),
            ("layer.output", "attention.output.dense"),
        ),
        *under(
            f"{ours}.blocks.{{}}.branches.feedforward",
            f"{public}encoder.layer.{{}}",
            ("before", "layernorm_after"),
            ("layer.up", "intermediate.dense"),
            ("layer.down", "output.dense"),
        ),
        Row(f"{ours}.final", f"{public}layernorm"),
    ]


def rules(what: spec.Transformer) -> Rules:
    embed = what.stack.embed
    assert isinstance(embed, spec.Patches)
    rows = [*body("stack", "vit.", embed), Row("head.output", "classifier"), Row("head.dense", "vit.pooler.dense")]
    left = {r"pooler\.dense\..*": UNUSED}
    if not isinstance(what.head, spec.Classes):
        left |= {r"classifier\..*": UNUSED}
    return Rules(without_base(rows, "vit.", what.head), base="vit.", left=left)


VIT = Family("vit", read, write, rules)
