"""The image side of SigLIP (Zhai et al. 2023), `model_type` siglip, as a classifier: a ViT without a summary token.

Classes are told from the mean of all squares. What learns to label square images here is one of these.
"""

from collections.abc import Collection
from typing import Any

from clearformer import spec
from clearformer.arrangements import block_of
from clearformer.checkpoints.config import Config, shown
from clearformer.checkpoints.families.common import Family, count_labels, public_activation
from clearformer.checkpoints.name_map import Row, Rules, squares, under

KINDS = {"SiglipForImageClassification": "classes"}


def guess(names: Collection[str]) -> str:
    return "classes"


def read(config: Config) -> spec.Transformer:
    config.architecture(KINDS, guess)
    classes = count_labels(config)
    inner = config.inner("vision_config")
    stack = _read_stack(inner)
    config.ignore("of the text side, which a classifier does not have", "text_config")
    config.ignore("of training only", "initializer_factor")
    config.ignore("an image model has no table of words", "tie_word_embeddings")
    config.settle()
    return spec.Transformer(stack=stack(), head=spec.Classes(count=classes, vector=spec.Vector(pool="mean")))


def _read_stack(config: Config) -> Any:
    width = config.whole("hidden_size", "width of the states", 768)
    layers = config.whole("num_hidden_layers", "number of blocks", 12, most=1000)
    heads = config.whole("num_attention_heads", "heads of every attention", 12)
    inner = config.whole("intermediate_size", "inner width of the feed-forward layers", 3072)
    image = config.whole("image_size", "height and width of an image", 224, most=2**14)
    patch = config.whole("patch_size", "side of the squares that an image is cut into", 16)
    if image % patch:
        config.fault(f"patch_size: {shown(patch)} does not divide the image's side {image}")
        patch = image
    channels = config.whole("num_channels", "colours of a pixel", 3)
    activation = config.activation("hidden_act", "gelu_pytorch_tanh")
    norm = spec.LayerNorm(eps=config.number("layer_norm_eps", "eps of the norms", 1e-6))
    weight_dropout = config.share("attention_dropout", "dropout of attention weights, in training", 0.0)
    config.ignore("the pooling of another head", "vision_use_head")
    config.settle()

    def made() -> spec.Stack:
        attention = spec.SelfAttention(heads=heads, weight_dropout=weight_dropout)
        feedforward = spec.Plain(inner=inner, activation=activation)
        block = block_of(norm, "before", 0.0, self=attention, feedforward=feedforward)
        embed = spec.Patches(image=(image, image), patch=patch, channels=channels, summary=False)
        embed = embed.replace(positions=spec.Learned(length=embed.count))
        return spec.Stack(width=width, embed=embed, blocks=(block,) * layers, final=norm)

    return made


def write(what: spec.Transformer) -> dict[str, Any]:
    stack, embed = what.stack, what.stack.embed
    assert isinstance(embed, spec.Patches)
    return {
        "architectures": ["SiglipForImageClassification"],
        "model_type": "siglip",
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": stack.width,
            "num_hidden_layers": len(stack.blocks),
            "num_attention_heads": stack.at("blocks.0.self.heads"),
            "intermediate_size": stack.at("blocks.0.feedforward.layer.inner"),
            "hidden_act": public_activation(stack.at("blocks.0.feedforward.layer.activation")),
            "layer_norm_eps": stack.at("final.eps"),
            "attention_dropout": stack.at("blocks.0.self.weight_dropout"),
            "image_size": embed.image[0],
            "patch_size": embed.patch,
            "num_channels": embed.channels,
            "vision_use_head": False,
        },
    }


def rules(what: spec.Transformer) -> Rules:
    embed = what.stack.embed
    assert isinstance(embed, spec.Patches)
    return Rules(
        [
            *under(
                "stack.embed",
                "vision_model.embeddings",
                ("positions.table", "position_embedding.weight"),
                ("project.weight", "patch_embedding.weight", squares(embed.channels, embed.patch)),
                ("project.bias", "patch_embedding.bias"),
            ),
            *under(
                "stack.blocks.{}.branches.self",
                "vision_model.encoder.layers.{}",
                ("before", "layer_norm1"),
                ("layer.query", "self_attn.q_proj"),
                ("layer.key", "self_attn.k_proj"),
                ("layer.value", "self_attn.v_proj"),
                ("layer.output", "self_attn.out_proj"),
            ),
            *under(
                "stack.blocks.{}.branches.feedforward",
                "vision_model.encoder.layers.{}",
                ("before", "layer_norm2"),
                ("layer.up", "mlp.fc1"),
                ("layer.down", "mlp.fc2"),
            ),
            Row("stack.final", "vision_model.post_layernorm"),
            Row("head.output", "classifier"),
        ],
        left={r"vision_model\.head\..*": "the pooling of another head"},
    )


SIGLIP = Family("siglip", read, write, rules)
