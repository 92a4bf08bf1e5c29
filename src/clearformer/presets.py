"""The families as values of one specification.

Each function takes a size by name and returns a spec; `tiny` ones serve tests, `small` ones a laptop. What a family
does differently is here to read side by side: the place of the norms, the positions, the feed-forward layer, the head.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from clearformer.arrangements import Place, block_of, encoder_decoder
from clearformer.errors import SpecError, nearest
from clearformer.spec import (
    Activation,
    BigBird,
    Buckets,
    Causal,
    Classes,
    Compressed,
    CrossAttention,
    EncoderDecoder,
    Gated,
    Head,
    LayerNorm,
    Learned,
    Linear,
    Llama3,
    MaskedToken,
    NextToken,
    Patches,
    Pattern,
    Plain,
    RMSNorm,
    Rotary,
    SelfAttention,
    Sinusoid,
    Stack,
    States,
    Tokens,
    Transformer,
    Vector,
)

Size = TypeVar("Size")


def _pick(family: str, sizes: Mapping[str, Size], size: str) -> Size:
    if not isinstance(size, str) or size not in sizes:
        raise SpecError(f"{family} has no size {size!r}{nearest(str(size), sizes)}")
    return sizes[size]


# --- encoder–decoder --------------------------------------------------------------------------------------

#            width layers heads inner
_ORIGINAL = {
    "tiny": (32, 2, 4, 64),
    "small": (256, 3, 4, 1024),
    "base": (512, 6, 8, 2048),
    "big": (1024, 6, 16, 4096),
}


def original(
    size: str = "base",
    *,
    vocabulary: int | None = None,
    norm: Place = "after",
    dropout: float | None = None,
    activation: Activation = "relu",
    positions: Sinusoid | Learned = Sinusoid(),
    head_bias: bool = False,
) -> EncoderDecoder:
    """Vaswani et al. 2017, table 3. `norm="before"` is the arrangement that later models train with."""
    width, layers, heads, inner = _pick("original", _ORIGINAL, size)
    return encoder_decoder(
        width=width,
        layers=(layers, layers),
        heads=heads,
        inner=inner,
        vocabulary=vocabulary if vocabulary is not None else {"tiny": 100, "small": 8_000}.get(size, 37_000),
        dropout=dropout if dropout is not None else 0.3 if size == "big" else 0.1,
        norm=norm,
        activation=activation,
        positions=positions,
        head_bias=head_bias,
    )


_MARIAN = {"tiny": "tiny", "small": "small", "opus-mt": "base"}


def marian(size: str = "opus-mt", *, vocabulary: int | None = None, dropout: float = 0.1) -> EncoderDecoder:
    """Marian as OPUS-MT ships it: the original with SiLU, sines and cosines in halves, and a bias on the logits."""
    return original(
        _pick("marian", _MARIAN, size),
        vocabulary=vocabulary if vocabulary is not None else {"tiny": 100, "small": 8_000}.get(size, 58_101),
        dropout=dropout,
        activation="silu",
        positions=Sinusoid(layout="halves"),
        head_bias=True,
    )


#            width layers heads head_width inner
_T5 = {
    "tiny": (32, 2, 4, 8, 64),
    "small": (512, 6, 8, 64, 2048),
    "base": (768, 12, 12, 64, 3072),
    "large": (1024, 24, 16, 64, 4096),
}
_FLAN_T5 = {
    "tiny": (32, 2, 4, 12, 48),
    "small": (512, 8, 6, 64, 1024),
    "base": (768, 12, 12, 64, 2048),
    "large": (1024, 24, 16, 64, 2816),
}


def t5(size: str = "small", *, vocabulary: int | None = None, dropout: float = 0.1) -> EncoderDecoder:
    """T5 1.0: ReLU, a tied head on scaled states, one table of distance buckets per stack, no scaling by √d."""
    width, layers, heads, head_width, inner = _pick("t5", _T5, size)
    feedforward = Plain(inner=inner, activation="relu", bias=False, inner_dropout=dropout)
    head = NextToken(tied=True, scaled=True)
    return _t5(
        width, layers, heads, head_width, feedforward, head, _or(vocabulary, 100 if size == "tiny" else 32_128), dropout
    )


def flan_t5(size: str = "small", *, vocabulary: int | None = None, dropout: float = 0.1) -> EncoderDecoder:
    """T5 1.1 and FLAN-T5: gated GELU, an untied head."""
    width, layers, heads, head_width, inner = _pick("flan_t5", _FLAN_T5, size)
    feedforward = Gated(inner=inner, activation="gelu_tanh", inner_dropout=dropout)
    head = NextToken(tied=False)
    return _t5(
        width, layers, heads, head_width, feedforward, head, _or(vocabulary, 100 if size == "tiny" else 32_128), dropout
    )


def _t5(
    width: int,
    layers: int,
    heads: int,
    head_width: int,
    feedforward: Plain | Gated,
    head: NextToken,
    vocabulary: int,
    dropout: float,
) -> EncoderDecoder:
    same: dict[str, Any] = {
        "heads": heads,
        "head_width": head_width,
        "bias": False,
        "output_bias": False,
        "scale": 1.0,
        "weight_dropout": dropout,
    }
    norm = RMSNorm(eps=1e-6)
    both_ways = SelfAttention(**same, positions=Buckets(two_way=True))
    masked = SelfAttention(**same, pattern=Causal(), positions=Buckets(two_way=False))
    encode = block_of(norm, "before", dropout, self=both_ways, feedforward=feedforward)
    decode = block_of(norm, "before", dropout, self=masked, cross=CrossAttention(**same), feedforward=feedforward)
    embed = Tokens(vocabulary=vocabulary, dropout=dropout)
    return EncoderDecoder(
        encoder=Stack(width=width, embed=embed, blocks=(encode,) * layers, final=norm),
        decoder=Stack(width=width, embed=embed, blocks=(decode,) * layers, final=norm),
        head=head,
    )


# --- encoder-only -----------------------------------------------------------------------------------------

_BERT = {
    "tiny": (32, 2, 4, 64),
    "small": (256, 4, 4, 1024),
    "base": (768, 12, 12, 3072),
    "large": (1024, 24, 16, 4096),
}
_DISTILBERT = {"tiny": (32, 2, 4, 64), "small": (256, 2, 4, 1024), "base": (768, 6, 12, 3072)}


def bert(
    size: str = "base",
    *,
    vocabulary: int | None = None,
    length: int = 512,
    head: Head = Vector(dense="tanh"),
    dropout: float = 0.1,
) -> Transformer:
    """Devlin et al. 2019; the default head is BERT's pooler, `MaskedToken()` its pre-training head."""
    shape = _pick("bert", _BERT, size)
    return _encoder(shape, _or(vocabulary, _small(size, 30_522)), Learned(length=length), 2, head, dropout)


def distilbert(
    size: str = "base",
    *,
    vocabulary: int | None = None,
    length: int = 512,
    head: Head = States(),
    dropout: float = 0.1,
) -> Transformer:
    """Sanh et al. 2019: half of BERT's layers, no segments, no pooler."""
    shape = _pick("distilbert", _DISTILBERT, size)
    return _encoder(shape, _or(vocabulary, _small(size, 30_522)), Learned(length=length), 0, head, dropout)


def roberta(
    size: str = "base",
    *,
    vocabulary: int | None = None,
    length: int = 512,
    head: Head = MaskedToken(norm=LayerNorm(eps=1e-5)),
    dropout: float = 0.1,
) -> Transformer:
    """Liu et al. 2019: BERT's shape, trained longer; one segment, and positions that begin at row 2 of their table."""
    shape = _pick("roberta", _BERT, size)
    positions = Learned(length=length, offset=2)
    return _encoder(shape, _or(vocabulary, _small(size, 50_265)), positions, 1, head, dropout, LayerNorm(eps=1e-5))


def bigbird(
    size: str = "small",
    *,
    vocabulary: int | None = None,
    pattern: Pattern | None = None,
    head: Head = MaskedToken(),
    dropout: float = 0.1,
) -> Transformer:
    """A BERT-shaped encoder for long texts whose attention is window + global + random (Zaheer et al. 2020)."""
    shape = _pick("bigbird", _BERT, size)
    if pattern is None:
        pattern = BigBird(block=4, radius=4, count=1, first=1) if size == "tiny" else BigBird()
    base = _encoder(shape, _or(vocabulary, _small(size, 50_358)), Sinusoid(), 0, head, dropout)
    return base.replace({"stack.blocks.*.self.pattern": pattern})


def linformer(
    size: str = "small",
    *,
    vocabulary: int | None = None,
    length: int | None = None,
    rank: int | None = None,
    head: Head = MaskedToken(),
    dropout: float = 0.1,
) -> Transformer:
    """A BERT-shaped encoder whose keys and values are compressed to `rank` rows (Wang et al. 2020)."""
    shape = _pick("linformer", _BERT, size)
    compressed = Compressed(
        length=_or(length, 64 if size == "tiny" else 4096), rank=_or(rank, 8 if size == "tiny" else 256)
    )
    base = _encoder(shape, _or(vocabulary, _small(size, 30_522)), Sinusoid(), 0, head, dropout)
    return base.replace({"stack.blocks.*.self.compressed": compressed})


def _encoder(
    shape: tuple[int, int, int, int],
    vocabulary: int,
    positions: Learned | Sinusoid,
    segments: int,
    head: Head,
    dropout: float,
    norm: LayerNorm = LayerNorm(eps=1e-12),
) -> Transformer:
    width, layers, heads, inner = shape
    block = block_of(
        norm,
        "after",
        dropout,
        self=SelfAttention(heads=heads, weight_dropout=dropout),
        feedforward=Plain(inner=inner, activation="gelu"),
    )
    embed = Tokens(vocabulary=vocabulary, positions=positions, segments=segments, norm=norm, dropout=dropout)
    return Transformer(stack=Stack(width=width, embed=embed, blocks=(block,) * layers, initial=0.02), head=head)


# --- decoder-only -----------------------------------------------------------------------------------------

#            width layers heads
_GPT2 = {
    "tiny": (32, 2, 4),
    "small": (256, 4, 4),
    "124m": (768, 12, 12),
    "355m": (1024, 24, 16),
    "774m": (1280, 36, 20),
    "1.5b": (1600, 48, 25),
}


def gpt2(size: str = "124m", *, vocabulary: int | None = None, length: int = 1024, dropout: float = 0.1) -> Transformer:
    """Radford et al. 2019: norms before, a learned table of positions, GELU (tanh form), a tied head."""
    width, layers, heads = _pick("gpt2", _GPT2, size)
    block = block_of(
        LayerNorm(),
        "before",
        dropout,
        self=SelfAttention(heads=heads, pattern=Causal(), weight_dropout=dropout),
        feedforward=Plain(inner=4 * width, activation="gelu_tanh"),
    )
    embed = Tokens(vocabulary=_or(vocabulary, _small(size, 50_257)), positions=Learned(length=length), dropout=dropout)
    stack = Stack(width=width, embed=embed, blocks=(block,) * layers, final=LayerNorm(), initial=0.02)
    return Transformer(stack=stack, head=NextToken())


#                  width layers heads key_heads inner vocabulary tied base scaling
_LLAMA: dict[str, tuple[int, int, int, int, int, int, bool, float, Linear | Llama3 | None]] = {
    "tiny": (32, 2, 4, 2, 48, 100, False, 10_000.0, None),
    "small": (256, 4, 8, 4, 688, 8_000, True, 10_000.0, None),
    "135m": (576, 30, 9, 3, 1536, 49_152, True, 10_000.0, None),
    "tinyllama-1.1b": (2048, 22, 32, 4, 5632, 32_000, False, 10_000.0, None),
    "llama-2-7b": (4096, 32, 32, 32, 11008, 32_000, False, 10_000.0, None),
    "llama-3-8b": (4096, 32, 32, 8, 14336, 128_256, False, 500_000.0, None),
    "llama-3.1-8b": (4096, 32, 32, 8, 14336, 128_256, False, 500_000.0, Llama3(factor=8.0)),
    "llama-3.2-1b": (2048, 16, 32, 8, 8192, 128_256, True, 500_000.0, Llama3(factor=32.0)),
}


def llama(size: str = "tinyllama-1.1b", *, vocabulary: int | None = None, pattern: Pattern = Causal()) -> Transformer:
    """Touvron et al. 2023: RMS norms before, rotary positions, gated SiLU, grouped key heads, no biases."""
    width, layers, heads, key_heads, inner, words, tied, base, scaling = _pick("llama", _LLAMA, size)
    attention = SelfAttention(
        heads=heads,
        key_heads=key_heads,
        bias=False,
        output_bias=False,
        pattern=pattern,
        positions=Rotary(base=base, scaling=scaling),
    )
    norm = RMSNorm(eps=1e-5)
    block = block_of(norm, "before", 0.0, self=attention, feedforward=Gated(inner=inner))
    stack = Stack(
        width=width, embed=Tokens(vocabulary=_or(vocabulary, words)), blocks=(block,) * layers, final=norm, initial=0.02
    )
    return Transformer(stack=stack, head=NextToken(tied=tied))


# --- vision -----------------------------------------------------------------------------------------------

#        width layers heads inner image patch channels classes
_VIT = {
    "tiny": (32, 2, 4, 64, 12, 4, 3, 5),
    "small": (192, 6, 3, 768, 32, 4, 3, 10),
    "ti/16": (192, 12, 3, 768, 224, 16, 3, 1000),
    "s/16": (384, 12, 6, 1536, 224, 16, 3, 1000),
    "b/16": (768, 12, 12, 3072, 224, 16, 3, 1000),
}


def vit(
    size: str = "b/16",
    *,
    image: int | None = None,
    patch: int | None = None,
    channels: int | None = None,
    classes: int | None = None,
    dropout: float = 0.0,
) -> Transformer:
    """Dosovitskiy et al. 2021: an image as patches, a learned summary in front, norms before."""
    width, layers, heads, inner, *rest = _pick("vit", _VIT, size)
    side, cut, colours, count = (
        _or(given, usual) for given, usual in zip((image, patch, channels, classes), rest, strict=True)
    )
    norm = LayerNorm(eps=1e-12)
    block = block_of(
        norm,
        "before",
        dropout,
        self=SelfAttention(heads=heads, weight_dropout=dropout),
        feedforward=Plain(inner=inner, activation="gelu"),
    )
    embed = Patches(image=(side, side), patch=cut, channels=colours, dropout=dropout)
    embed = embed.replace(positions=Learned(length=embed.count))
    stack = Stack(width=width, embed=embed, blocks=(block,) * layers, final=norm, initial=0.02)
    return Transformer(stack=stack, head=Classes(count=count))


def _or(given: int | None, usual: int) -> int:
    return usual if given is None else given


def _small(size: str, full: int) -> int:
    """The vocabulary of a size: a toy one where the model is a toy."""
    return {"tiny": 100, "small": 8_000}.get(size, full)


FAMILIES: dict[str, Callable[..., Transformer | EncoderDecoder]] = {
    "original": original,
    "marian": marian,
    "t5": t5,
    "flan_t5": flan_t5,
    "bert": bert,
    "distilbert": distilbert,
    "roberta": roberta,
    "bigbird": bigbird,
    "linformer": linformer,
    "gpt2": gpt2,
    "llama": llama,
    "vit": vit,
}

SIZES: dict[str, list[str]] = {
    "original": list(_ORIGINAL),
    "marian": list(_MARIAN),
    "t5": list(_T5),
    "flan_t5": list(_FLAN_T5),
    "bert": list(_BERT),
    "distilbert": list(_DISTILBERT),
    "roberta": list(_BERT),
    "bigbird": list(_BERT),
    "linformer": list(_BERT),
    "gpt2": list(_GPT2),
    "llama": list(_LLAMA),
    "vit": list(_VIT),
}
