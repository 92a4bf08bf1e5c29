"""What a model is: frozen values, validated when made, equal to themselves after a trip through JSON.

A model is one stack of blocks (`Transformer`) or two (`EncoderDecoder`). A block is a tuple of residual
branches. Wherever models differ, the difference is a *type that carries its own parameters*: there is no field
that means something only when another field has some value. No torch in here: a spec is data.

    spec = presets.original("base")
    spec.replace({"encoder.blocks.*.self.pattern": Near(radius=8)})
    Spec.from_json(spec.to_json()) == spec
"""

from clearformer.spec.base import Activation, Fraction, Part, Positive
from clearformer.spec.blocks import (
    Block,
    Compressed,
    CrossAttention,
    Gated,
    Layer,
    LayerNorm,
    Norm,
    Plain,
    Residual,
    RMSNorm,
    SelfAttention,
)
from clearformer.spec.ends import (
    Classes,
    Embed,
    Head,
    MaskedToken,
    NextToken,
    Patches,
    Spans,
    States,
    TokenClasses,
    Tokens,
    Vector,
)
from clearformer.spec.models import AnySpec, EncoderDecoder, Spec, Stack, Transformer
from clearformer.spec.patterns import BigBird, Both, Causal, Either, Everyone, Global, Near, Pattern, Random, Window
from clearformer.spec.positions import (
    Absolute,
    ALiBi,
    Buckets,
    Learned,
    Linear,
    Llama3,
    Relative,
    Rotary,
    Shaw,
    Sinusoid,
    TreeDepth,
    TreeDistance,
)

__all__ = [
    "ALiBi",
    "Absolute",
    "Activation",
    "AnySpec",
    "BigBird",
    "Block",
    "Both",
    "Buckets",
    "Causal",
    "Classes",
    "Compressed",
    "CrossAttention",
    "Either",
    "Embed",
    "EncoderDecoder",
    "Everyone",
    "Fraction",
    "Gated",
    "Global",
    "Head",
    "Layer",
    "LayerNorm",
    "Learned",
    "Linear",
    "Llama3",
    "MaskedToken",
    "Near",
    "NextToken",
    "Norm",
    "Part",
    "Patches",
    "Pattern",
    "Plain",
    "Positive",
    "RMSNorm",
    "Random",
    "Relative",
    "Residual",
    "Rotary",
    "SelfAttention",
    "Shaw",
    "Sinusoid",
    "Spans",
    "Spec",
    "Stack",
    "States",
    "TokenClasses",
    "Tokens",
    "Transformer",
    "TreeDepth",
    "TreeDistance",
    "Vector",
    "Window",
]
