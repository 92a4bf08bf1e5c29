"""What a model is: frozen values, validated when made, equal to themselves after a trip through JSON.

A model is one stack of blocks (`Transformer`) or two (`EncoderDecoder`). A block is a tuple of residual
branches. Wherever models differ, the difference is a *type that carries its own parameters*: there is no field
that means something only when another field has some value. No torch in here: a spec is data.

    spec = presets.original("base")
    spec.replace({"encoder.blocks.*.self.pattern": Near(radius=8)})
    Spec.from_json(spec.to_json()) == spec
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, TypeAdapter, ValidationError, model_validator

from clearformer import _paths
from clearformer.errors import SpecError

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh"]


class _Raising(ModelMetaclass):
    """Direct construction reports a `SpecError`; pydantic's own nested validation is left to collect paths."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805
        try:
            return super().__call__(*args, **fields)
        except ValidationError as error:
            raise SpecError(_paths.explain(error, cls, fields)) from None


class Part(BaseModel, metaclass=_Raising):
    """The base of every spec: frozen, without unknown fields, written and read as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    transparent: ClassVar[str | None] = None  # the field in which paths go on looking for a name

    def replace(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """The same spec with some parts changed, validated anew.

        Paths are dotted; `*` means every item and a branch goes by its name: `encoder.blocks.*.self.heads`.
        """
        data = self.model_dump()
        for path, value in {**(changes or {}), **fields}.items():
            _paths.assign(self, data, path, value.model_dump() if isinstance(value, Part) else value)
        return self._from(data)

    def at(self, path: str) -> Any:
        """The value at a dotted path, as `replace` takes them (without `*`)."""
        return _paths.find(self, path)

    def to_json(self) -> str:
        return self.model_dump_json(indent=1, exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise SpecError(_paths.explain(error, cls, text)) from None

    @classmethod
    def _from(cls, data: Any) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise SpecError(_paths.explain(error, cls, data)) from None

    def __str__(self) -> str:
        return _paths.tree(self)


# --- who may see whom -------------------------------------------------------------------------------------


class _Pattern(Part):
    """A relation between the positions of queries and keys; `core.patterns` computes it."""

    @property
    def causal(self) -> bool:
        """Whether no query sees a later key."""
        return False

    def __and__(self, other: Pattern) -> Both:
        return Both(parts=(self, other))

    def __or__(self, other: Pattern) -> Either:
        return Either(parts=(self, other))


class Everyone(_Pattern):
    """Every query sees every key."""

    kind: Literal["everyone"] = "everyone"


class Causal(_Pattern):
    """A query sees itself and what came before: the look-ahead mask."""

    kind: Literal["causal"] = "causal"

    @property
    def causal(self) -> bool:
        return True


class Window(_Pattern):
    """A query sees the `size` newest keys, itself included."""

    kind: Literal["window"] = "window"
    size: PositiveInt

    @property
    def causal(self) -> bool:
        return True


class Near(_Pattern):
    """A query sees the keys at most `radius` away, on both sides."""

    kind: Literal["near"] = "near"
    radius: Annotated[int, Field(ge=0)]


class Global(_Pattern):
    """The first `count` positions see everything and are seen by everything."""

    kind: Literal["global"] = "global"
    count: PositiveInt


class Random(_Pattern):
    """The queries of a block of positions see `count` blocks drawn by a hash of `seed` and their block.

    A draw is uniform over twice the block's own distance from the start, so that it needs no length: a longer
    text never changes what a shorter one saw. Draws beyond the end of the text see nothing.
    """

    kind: Literal["random"] = "random"
    count: PositiveInt
    seed: int = 0
    block: PositiveInt = 64


class Both(_Pattern):
    """What all parts allow: `a & b`."""

    kind: Literal["both"] = "both"
    parts: tuple[Pattern, ...] = Field(min_length=1)

    @property
    def causal(self) -> bool:
        return any(part.causal for part in self.parts)


class Either(_Pattern):
    """What any part allows: `a | b`."""

    kind: Literal["either"] = "either"
    parts: tuple[Pattern, ...] = Field(min_length=1)

    @property
    def causal(self) -> bool:
        return all(part.causal for part in self.parts)


Pattern = Annotated[Everyone | Causal | Window | Near | Global | Random | Both | Either, Field(discriminator="kind")]


def BigBird(*, block: int = 64, radius: int = 96, count: int = 3, first: int = 2, seed: int = 0) -> Either:  # noqa: N802
    """Window + global + random (Zaheer et al. 2020): the union the notes draw as figure (d)."""
    return Either(parts=(Near(radius=radius), Global(count=first), Random(count=count, seed=seed, block=block)))


# --- where a token is -------------------------------------------------------------------------------------


class Sinusoid(Part):
    """PE(pos, 2i) = sin(pos / base^(2i/d)), PE(pos, 2i+1) = cos(same); `halves` puts all sines first (Marian)."""

    kind: Literal["sinusoid"] = "sinusoid"
    base: Positive = 10_000.0
    layout: Literal["interleaved", "halves"] = "interleaved"


class Learned(Part):
    """A table of `length` rows; RoBERTa's first position is row `offset`."""

    kind: Literal["learned"] = "learned"
    length: PositiveInt
    offset: Annotated[int, Field(ge=0)] = 0


class TreeDepth(Part):
    """Wang et al. 2019: tanh(W [sequential ; sinusoid(depth in the dependency tree)])."""

    kind: Literal["tree_depth"] = "tree_depth"
    sequential: Sinusoid | Learned = Field(default=Sinusoid(), discriminator="kind")


Absolute = Annotated[Sinusoid | Learned | TreeDepth, Field(discriminator="kind")]


class Linear(Part):
    """Rotary positions divided by `factor`."""

    kind: Literal["linear"] = "linear"
    factor: Positive


class Llama3(Part):
    """Llama 3.1's scaling: slow rotations are divided by `factor`, fast ones kept, those between blended."""

    kind: Literal["llama3"] = "llama3"
    factor: Positive
    low: Positive = 1.0
    high: Positive = 4.0
    original: PositiveInt = 8192

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low}) must be below high ({self.high})")
        return self


class Rotary(Part):
    """Su et al. 2021: queries and keys are rotated by angles that grow with their position."""

    kind: Literal["rotary"] = "rotary"
    base: Positive = 10_000.0
    scaling: Annotated[Linear | Llama3, Field(discriminator="kind")] | None = None
    layout: Literal["halves", "interleaved"] = "halves"


class Buckets(Part):
    """T5's bias: one number per head and bucket of distance; `shared`: one table for all layers of the stack."""

    kind: Literal["buckets"] = "buckets"
    count: Annotated[int, Field(ge=4, multiple_of=2)] = 32
    reach: Annotated[int, Field(ge=2)] = 128
    two_way: bool
    shared: bool = True

    @model_validator(mode="after")
    def _reaches_beyond_exact(self) -> Self:
        exact = self.count // (4 if self.two_way else 2)
        if self.reach <= exact:
            raise ValueError(f"reach ({self.reach}) must exceed the {exact} exact buckets that count gives")
        return self


class Shaw(Part):
    """Shaw et al. 2018: a vector per clipped distance joins the key and, with `values`, the value."""

    kind: Literal["shaw"] = "shaw"
    reach: PositiveInt
    values: bool = True
    shared: bool = False


class ALiBi(Part):
    """Press et al. 2022: score − slope · distance, with a fixed slope per head."""

    kind: Literal["alibi"] = "alibi"


class TreeDistance(Part):
    """Wang et al. 2019: Shaw's vectors on the distance in the dependency tree, added to the sequential ones."""

    kind: Literal["tree_distance"] = "tree_distance"
    reach: PositiveInt
    sequential: PositiveInt | None = None
    values: bool = True
    shared: bool = False


Relative = Annotated[Rotary | Buckets | Shaw | ALiBi | TreeDistance, Field(discriminator="kind")]


# --- the parts of a block ---------------------------------------------------------------------------------


class LayerNorm(Part):
    kind: Literal["layer"] = "layer"
    eps: Positive = 1e-5
    bias: bool = True


class RMSNorm(Part):
    kind: Literal["rms"] = "rms"
    eps: Positive = 1e-6


Norm = Annotated[LayerNorm | RMSNorm, Field(discriminator="kind")]


class Plain(Part):
    """W2 · activation(W1 x + b1) + b2; dropout on the activation."""

    kind: Literal["plain"] = "plain"
    inner: PositiveInt
    activation: Activation = "relu"
    bias: bool = True
    dropout: Fraction = 0.0


class Gated(Part):
    """W2 · (activation(Wg x) ∘ W1 x); Shazeer 2020."""

    kind: Literal["gated"] = "gated"
    inner: PositiveInt
    activation: Activation = "silu"
    bias: bool = False
    dropout: Fraction = 0.0


class _Attention(Part):
    heads: PositiveInt
    key_heads: PositiveInt | None = None  # None: as many as heads
    head_width: PositiveInt | None = None  # None: width / heads
    bias: bool = True  # of queries, keys and values
    output_bias: bool = True
    scale: Positive | None = None  # None: 1/√d
    norm: RMSNorm | None = None  # of each query and key head (Qwen 3)
    dropout: Fraction = 0.0  # of the weights

    @model_validator(mode="after")
    def _groups(self) -> Self:
        if self.heads % (self.key_heads or self.heads):
            raise ValueError(f"key_heads ({self.key_heads}) must divide heads ({self.heads})")
        return self


class Compressed(Part):
    """Linformer (Wang et al. 2020): the length axis of keys and values is projected to `rank` rows.

    `length` is the longest text; `shared` uses one projection for keys and values.
    """

    kind: Literal["compressed"] = "compressed"
    length: PositiveInt
    rank: PositiveInt
    shared: bool = False


class SelfAttention(_Attention):
    kind: Literal["self"] = "self"
    pattern: Pattern = Everyone()
    positions: Relative | None = None
    compressed: Compressed | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.compressed and self.pattern != Everyone():
            raise ValueError(
                f"compressed keys mix all positions, so pattern {self.pattern.kind!r} cannot hold"
                " and a causal one would leak the future; use pattern everyone, or no compression"
            )
        if self.compressed and self.positions is not None:
            raise ValueError(
                f"compressed keys have no positions of their own for {self.positions.kind!r}; use absolute positions"
            )
        if isinstance(self.positions, Buckets) and self.positions.two_way and self.pattern.causal:
            raise ValueError("two_way buckets waste half their rows under a causal pattern; set two_way=False")
        return self


class CrossAttention(_Attention):
    kind: Literal["cross"] = "cross"


Layer = Annotated[SelfAttention | CrossAttention | Plain | Gated, Field(discriminator="kind")]


class Residual(Part):
    """after(x + dropout(inner(layer(before(x))))): a missing norm is the identity."""

    transparent: ClassVar = "layer"
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    layer: Layer
    before: Norm | None = None
    inner: Norm | None = None
    after: Norm | None = None
    dropout: Fraction = 0.0


class Block(Part):
    """Branches in the order they run."""

    transparent: ClassVar = "branches"
    branches: tuple[Residual, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [branch.name for branch in self.branches]
        if len(set(names)) < len(names):
            raise ValueError(f"branch names must differ, given {', '.join(names)}")
        return self


# --- what turns input into vectors, and vectors into answers ----------------------------------------------


class Tokens(Part):
    """Table lookup, times √width if `scaled`, plus positions and segments, then norm and dropout."""

    kind: Literal["tokens"] = "tokens"
    vocabulary: PositiveInt
    scaled: bool = False
    positions: Absolute | None = None
    segments: Annotated[int, Field(ge=0)] = 0
    norm: Norm | None = None
    dropout: Fraction = 0.0


class Patches(Part):
    """An image cut into squares, each projected to a vector; `summary` puts a learned vector in front."""

    kind: Literal["patches"] = "patches"
    image: tuple[PositiveInt, PositiveInt]  # height, width
    patch: PositiveInt
    channels: PositiveInt = 3
    summary: bool = True
    positions: Annotated[Sinusoid | Learned, Field(discriminator="kind")] | None = None
    norm: Norm | None = None
    dropout: Fraction = 0.0

    @property
    def count(self) -> int:
        return (self.image[0] // self.patch) * (self.image[1] // self.patch) + self.summary

    @model_validator(mode="after")
    def _tiles(self) -> Self:
        if any(side % self.patch for side in self.image):
            raise ValueError(f"patch ({self.patch}) must divide both sides of the image {self.image}")
        if isinstance(self.positions, Learned) and self.positions.length < self.count:
            raise ValueError(f"positions.length ({self.positions.length}) must hold the {self.count} patches")
        return self


Embed = Annotated[Tokens | Patches, Field(discriminator="kind")]


class Vector(Part):
    """One vector per sequence: its `first`, `last` or `mean` state, through a dense layer if one is named."""

    kind: Literal["vector"] = "vector"
    pool: Literal["first", "last", "mean"] = "first"
    dense: Activation | None = None


class States(Part):
    """The states themselves."""

    kind: Literal["states"] = "states"


class NextToken(Part):
    """Logits over the vocabulary; `tied` to the embedding table; T5 multiplies states by width^−½ first."""

    kind: Literal["next_token"] = "next_token"
    tied: bool = True
    bias: bool = False
    scaled: bool = False


class MaskedToken(Part):
    """BERT's: dense, activation, norm, then logits over the vocabulary with a bias."""

    kind: Literal["masked_token"] = "masked_token"
    tied: bool = True
    activation: Activation = "gelu"
    norm: Norm = LayerNorm(eps=1e-12)


class Classes(Part):
    """Logits over `count` classes for the whole sequence or image."""

    kind: Literal["classes"] = "classes"
    count: PositiveInt
    vector: Vector = Vector()
    dropout: Fraction = 0.0


class TokenClasses(Part):
    """Logits over `count` classes for every token."""

    kind: Literal["token_classes"] = "token_classes"
    count: PositiveInt
    dropout: Fraction = 0.0


class Spans(Part):
    """Two logits for every token: an answer starts here, an answer ends here."""

    kind: Literal["spans"] = "spans"
    dropout: Fraction = 0.0


Head = Annotated[
    States | Vector | NextToken | MaskedToken | Classes | TokenClasses | Spans, Field(discriminator="kind")
]


# --- whole models -----------------------------------------------------------------------------------------


class Stack(Part):
    """Embedding, blocks, final norm; `initial` is the standard deviation of fresh weight matrices
    (None: Glorot's uniform, as the original)."""

    width: PositiveInt
    embed: Embed
    blocks: tuple[Block, ...] = Field(min_length=1)
    final: Norm | None = None
    initial: Positive | None = None

    @model_validator(mode="after")
    def _widths(self) -> Self:
        for number, name, layer in self.layers():
            if not isinstance(layer, _Attention):
                continue
            where = f"blocks.{number}.{name}"
            if layer.head_width is None and self.width % layer.heads:
                raise ValueError(
                    f"{where}.heads ({layer.heads}) must divide width ({self.width}), or head_width be given"
                )
            width = layer.head_width or self.width // layer.heads
            if isinstance(layer, SelfAttention) and isinstance(layer.positions, Rotary) and width % 2:
                raise ValueError(f"{where}.positions: rotary needs an even head width, given {width}")
        if isinstance(self.embed.positions, Sinusoid | TreeDepth) and self.width % 2:
            raise ValueError(f"embed.positions: sinusoids need an even width, given {self.width}")
        return self

    def layers(self) -> Iterator[tuple[int, str, SelfAttention | CrossAttention | Plain | Gated]]:
        """Every layer with the number of its block and the name of its branch."""
        for number, block in enumerate(self.blocks):
            for branch in block.branches:
                yield number, branch.name, branch.layer

    def _require_causal(self, own: str, why: str) -> None:
        for number, name, layer in self.layers():
            if isinstance(layer, SelfAttention) and not layer.pattern.causal:
                asked = "compressed keys" if layer.compressed else f"pattern {layer.pattern.kind!r}"
                raise ValueError(
                    f"{own}.blocks.{number}.{name}: {asked} would see the future, and {why};"
                    " use causal, window, or combine with & causal"
                )

    @property
    def causal(self) -> bool:
        return all(layer.pattern.causal for _, _, layer in self.layers() if isinstance(layer, SelfAttention))


class _Model(Part):
    def _head_fits(self, own: str, stack: Stack, head: Any) -> None:
        if isinstance(head, NextToken):
            stack._require_causal(own, "the head predicts the next token")
        if isinstance(head, NextToken | MaskedToken) and not isinstance(stack.embed, Tokens):
            raise ValueError(f"head {head.kind!r} needs a stack that embeds tokens, given {stack.embed.kind!r}")


class Transformer(_Model):
    """One stack: encoder-only or decoder-only, by its patterns and its head."""

    kind: Literal["transformer"] = "transformer"
    stack: Stack
    head: Head

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self._head_fits("stack", self.stack, self.head)
        for number, name, layer in self.stack.layers():
            if isinstance(layer, CrossAttention):
                raise ValueError(f"stack.blocks.{number}.{name}: cross-attention has no memory in a single stack")
        return self


class EncoderDecoder(_Model):
    """Two stacks: the second attends to the first's output. `shared`: one embedding table serves both."""

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    encoder: Stack
    decoder: Stack
    head: NextToken
    shared: bool = True

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self._head_fits("decoder", self.decoder, self.head)
        for number, name, layer in self.encoder.layers():
            if isinstance(layer, CrossAttention):
                raise ValueError(f"encoder.blocks.{number}.{name}: cross-attention has no memory in the encoder")
        if not any(isinstance(layer, CrossAttention) for _, _, layer in self.decoder.layers()):
            raise ValueError("decoder: no block has cross-attention, so it would never see the encoder's output")
        if self.shared:
            encoder, decoder = self.encoder, self.decoder
            if not (isinstance(encoder.embed, Tokens) and isinstance(decoder.embed, Tokens)):
                raise ValueError("shared: only two token embeddings can share a table; set shared=False")
            sizes = [(s.embed.vocabulary, s.width) for s in (encoder, decoder) if isinstance(s.embed, Tokens)]
            if sizes[0] != sizes[1]:
                raise ValueError(f"shared: (vocabulary, width) must agree, given {sizes[0]} and {sizes[1]}")
        return self


AnySpec = Annotated[Transformer | EncoderDecoder, Field(discriminator="kind")]


class Spec:
    """Reads either kind of model: `Spec.from_json(text)`."""

    @staticmethod
    def from_json(text: str | bytes) -> Transformer | EncoderDecoder:
        try:
            return TypeAdapter(AnySpec).validate_json(text)
        except ValidationError as error:
            raise SpecError(_paths.explain(error, AnySpec, text)) from None


for _part in (Both, Either, SelfAttention, Residual, Block, Stack, Transformer, EncoderDecoder):
    _part.model_rebuild()
