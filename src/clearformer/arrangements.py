"""Models of any size, as values of one specification: what is trained from nothing is one of these.

`presets` has the published families in their published sizes, made of the same pieces.
"""

from typing import Any, Literal

from clearformer.spec import (
    Absolute,
    Activation,
    Block,
    Causal,
    Classes,
    CrossAttention,
    EncoderDecoder,
    Gated,
    Head,
    LayerNorm,
    Learned,
    NextToken,
    Norm,
    Patches,
    Plain,
    Relative,
    Residual,
    RMSNorm,
    Rotary,
    SelfAttention,
    Sinusoid,
    Stack,
    Tokens,
    Transformer,
    Vector,
    Window,
)

Place = Literal["before", "after"]


def block_of(norm: Norm, place: Place, dropout: float, **layers: Any) -> Block:
    """One residual branch a layer, all with the same norm in the same place."""
    return Block(
        branches=tuple(
            Residual(name=name, layer=layer, dropout=dropout, **{place: norm}) for name, layer in layers.items()
        )
    )


def encoder_decoder(
    *,
    width: int,
    layers: tuple[int, int],
    heads: int,
    inner: int,
    vocabulary: int,
    dropout: float = 0.1,
    norm: Place = "after",
    activation: Activation = "relu",
    positions: Sinusoid | Learned = Sinusoid(),
    head_bias: bool = False,
) -> EncoderDecoder:
    """The original's arrangement in any size; `layers` are the encoder's and the decoder's."""
    feedforward = Plain(inner=inner, activation=activation)
    own, cross = SelfAttention(heads=heads), CrossAttention(heads=heads)
    encode = block_of(LayerNorm(), norm, dropout, self=own, feedforward=feedforward)
    masked = own.replace(pattern=Causal())
    decode = block_of(LayerNorm(), norm, dropout, self=masked, cross=cross, feedforward=feedforward)
    embed = Tokens(vocabulary=vocabulary, scaled=True, positions=positions, dropout=dropout)
    final = LayerNorm() if norm == "before" else None
    return EncoderDecoder(
        encoder=Stack(width=width, embed=embed, blocks=(encode,) * layers[0], final=final),
        decoder=Stack(width=width, embed=embed, blocks=(decode,) * layers[1], final=final),
        head=NextToken(bias=head_bias),
    )


def encoder(
    *,
    width: int,
    layers: int,
    heads: int,
    inner: int,
    vocabulary: int,
    head: Head,
    dropout: float = 0.1,
    norm: Place = "before",
    activation: Activation = "gelu",
    positions: Absolute | None = Sinusoid(),
    relative: Relative | None = None,
) -> Transformer:
    """An encoder of any size, as later models arrange it, to be trained from nothing."""
    own = SelfAttention(heads=heads, positions=relative, weight_dropout=dropout)
    block = block_of(LayerNorm(), norm, dropout, self=own, feedforward=Plain(inner=inner, activation=activation))
    embed = Tokens(vocabulary=vocabulary, scaled=True, positions=positions, dropout=dropout)  # as large as positions
    final = LayerNorm() if norm == "before" else None
    return Transformer(stack=Stack(width=width, embed=embed, blocks=(block,) * layers, final=final), head=head)


def rotary_encoder(
    *,
    width: int,
    layers: int,
    heads: int,
    inner: int,
    vocabulary: int,
    head: Head,
    dropout: float = 0.1,
) -> Transformer:
    """An encoder of any size in EuroBERT's arrangement, Llama's blocks where all see all. From nothing and with few
    texts it learns much faster than one with sinusoids (docs/training.md)."""
    norm = RMSNorm(eps=1e-5)
    own = SelfAttention(heads=heads, bias=False, output_bias=False, positions=Rotary())
    block = block_of(norm, "before", dropout, self=own, feedforward=Gated(inner=inner))
    embed = Tokens(vocabulary=vocabulary, dropout=dropout)
    stack = Stack(width=width, embed=embed, blocks=(block,) * layers, final=norm, initial=0.02)
    return Transformer(stack=stack, head=head)


def decoder(
    *,
    width: int,
    layers: int,
    heads: int,
    inner: int,
    vocabulary: int,
    dropout: float = 0.1,
    tied: bool = True,
    context: int | None = None,
) -> Transformer:
    """A decoder of any size in Llama's arrangement, with dropout, to be trained from nothing. One that is trained on
    texts of `context` tokens looks no further back: it can go on for ever and meets no distance that is new to it."""
    norm = RMSNorm(eps=1e-5)
    pattern = Causal() if context is None else Window(size=context)
    own = SelfAttention(heads=heads, bias=False, output_bias=False, pattern=pattern, positions=Rotary())
    block = block_of(norm, "before", dropout, self=own, feedforward=Gated(inner=inner))
    embed = Tokens(vocabulary=vocabulary, dropout=dropout)
    stack = Stack(width=width, embed=embed, blocks=(block,) * layers, final=norm, initial=0.02)
    return Transformer(stack=stack, head=NextToken(tied=tied))


def vision(
    *,
    width: int,
    layers: int,
    heads: int,
    inner: int,
    image: tuple[int, int],
    patch: int,
    channels: int,
    classes: int,
    dropout: float = 0.0,
    pool: Literal["first", "mean"] = "mean",
) -> Transformer:
    """A ViT of any size; the mean of all patches is classified, which learns faster from few images."""
    norm = LayerNorm(eps=1e-6)
    own = SelfAttention(heads=heads, weight_dropout=dropout)
    block = block_of(norm, "before", dropout, self=own, feedforward=Plain(inner=inner, activation="gelu"))
    embed = Patches(image=image, patch=patch, channels=channels, summary=pool == "first", dropout=dropout)
    embed = embed.replace(positions=Learned(length=embed.count))
    # weights by Glorot's rule: with the usual deviation of 0.02, made for wide models, narrow ones learn half as fast
    stack = Stack(width=width, embed=embed, blocks=(block,) * layers, final=norm)
    return Transformer(stack=stack, head=Classes(count=classes, vector=Vector(pool=pool)))
