"""Llama (Touvron et al. 2023) and the families that differ from it in the spec only.

`model_type` llama; mistral adds a window, qwen2 biases for queries, keys and values, qwen3 a norm for every query
and key head.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from clearformer import spec
from clearformer.arrangements import block_of
from clearformer.checkpoints.config import ACTIVATIONS, Config, shown
from clearformer.checkpoints.families.common import UNUSED, Family, public_activation
from clearformer.checkpoints.name_map import Row, Rules, under


@dataclass(frozen=True)
class Kind:
    """How a family of this kind differs."""

    name: str
    word: str  # of its classes
    usual_heads: int | None = None  # key heads where the file is silent; None: as many as heads
    bias: bool | None = False  # of queries, keys and values; None: the file says it, and for the output too
    norms: bool = False  # of every query and key head
    window: bool = False  # in all layers
    layered_window: bool = False  # in some layers
    tied: bool = False  # where the file is silent
    inner_bias: bool = False  # whether the file says if feed-forward layers have biases
    causal: bool = True  # whether nobody sees what comes later
    eps: float = 1e-6  # of the norms, where the file is silent

    @property
    def classes(self) -> dict[str, str]:
        return {f"{self.word}ForCausalLM": "causal", f"{self.word}Model": "base"}


LLAMA_LIKE = (
    Kind("llama", "Llama", bias=None, inner_bias=True),
    Kind("mistral", "Mistral", usual_heads=8, window=True),
    Kind("qwen2", "Qwen2", bias=True, layered_window=True),
    Kind("qwen3", "Qwen3", bias=None, norms=True, layered_window=True),
)


def guess(names: Collection[str]) -> str:
    return "causal" if not names or "lm_head.weight" in names else "base"


def reader(kind: Kind) -> Callable[[Config], spec.Transformer]:
    def read(config: Config) -> spec.Transformer:
        headed = config.architecture(kind.classes, guess) == "causal"
        tied = config.flag("tie_word_embeddings", "whether logits use the token table", kind.tied)
        stack = read_stack(config, kind)
        completes = headed or (tied and not config.pooled)
        return spec.Transformer(stack=stack(), head=spec.NextToken(tied=tied) if completes else spec.States())

    return read


def read_stack(config: Config, kind: Kind) -> Callable[[], spec.Stack]:
    """Reads all keys at once and gives what makes the stack, to be called when all are known to be right."""
    width = config.whole("hidden_size", "width of the states")
    layers = config.whole("num_hidden_layers", "number of blocks", most=1000)
    heads = config.whole("num_attention_heads", "heads of every attention")
    key_heads = config.whole("num_key_value_heads", "key heads, each shared by heads", kind.usual_heads or heads)
    head_width = config.maybe_whole("head_dim", "width of a head; null is the width divided by the heads")
    inner = config.whole("intermediate_size", "inner width of the feed-forward layers")
    vocabulary = config.whole("vocab_size", "rows of the token table")
    activation = config.word("hidden_act", "of the feed-forward gate", "silu", ACTIVATIONS)
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps", "eps of the norms", kind.eps))
    weight_dropout = config.share("attention_dropout", "dropout of attention weights, in training", 0.0)
    initial = config.number("initializer_range", "spread of fresh weights", 0.02)
    bias = output_bias = bool(kind.bias)
    if kind.bias is None:
        bias = output_bias = config.flag("attention_bias", "biases of the attentions", False)
    elif kind.bias:
        output_bias = False
    else:
        config.must("attention_bias", False, why="this family has no biases")
    inner_bias = config.flag("mlp_bias", "biases of the feed-forward layers", False) if kind.inner_bias else False
    positions = read_rotary(config)
    patterns = read_patterns(config, kind, layers)
    read_longest(config)
    leave(config)
    config.settle()

    def made() -> spec.Stack:
        blocks = []
        for pattern in patterns:
            attention = spec.SelfAttention(
                heads=heads,
                key_heads=None if key_heads == heads else key_heads,
                head_width=None if head_width is None or head_width * heads == width else head_width,
                bias=bias,
                output_bias=output_bias,
                norm=norm if kind.norms else None,
                weight_dropout=weight_dropout,
                pattern=pattern,
                positions=positions,
            )
            feedforward = spec.Gated(inner=inner, activation=activation, bias=inner_bias)
            blocks.append(block_of(norm, "before", 0.0, self=attention, feedforward=feedforward))
        embed = spec.Tokens(vocabulary=vocabulary)
        return spec.Stack(width=width, embed=embed, blocks=tuple(blocks), final=norm, initial=initial or None)

    return made


def read_longest(config: Config) -> None:
    """`max_position_embeddings`, or what the first conversions of Llama said instead."""
    older = "max_sequence_length"
    if config.values.get("max_position_embeddings") is None:
        config.maybe_whole(older, "the longest text")
    else:
        config.ignore("max_position_embeddings counts", older)
    config.whole("max_position_embeddings", "the longest text", 2048)


def leave(config: Config) -> None:
    config.must("pretraining_tp", 1, why="matrices cut into parts are not read")
    config.must("rope_interleaved", False, why="rotary halves, as the public classes compute them")
    config.must("partial_rotary_factor", 1.0, 1, why="all of a head is rotated")
    config.must("use_mrope", False, why="positions are those of a text, without images")
    config.must("is_causal", True, why="nobody sees what comes later")
    config.must("is_encoder_decoder", False, why="there is one stack")
    config.ignore("says that the public code is Llama's", "is_llama_config")


SCALINGS = ("default", "linear", "llama3")
TYPES = {"rope_type", "type"}


def read_rotary(config: Config) -> spec.Rotary:
    """The angles: `rope_theta` and `rope_scaling`, or both in `rope_parameters`."""
    top = config.number("rope_theta", "base of the rotary angles", 10_000.0)
    parts = _rope_parts(config, top)
    base = _number(config, parts, "rope_theta", top)
    kind = _rope_type(parts)
    known = {"rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor"}
    known |= {"original_max_position_embeddings", "partial_rotary_factor"}
    if kind in SCALINGS and (unknown := parts.keys() - known):
        config.fault(f"rope scaling: unknown {', '.join(sorted(unknown))}")
    if parts.get("partial_rotary_factor", 1.0) != 1.0:
        config.fault(f"rope scaling: partial_rotary_factor {shown(parts['partial_rotary_factor'])} is not read, only 1")
    if kind == "linear":
        return _rotary(config, base, spec.Linear(factor=_number(config, parts, "factor", None)))
    if kind == "llama3":
        longest = config.values.get("max_position_embeddings")
        usual = longest if type(longest) is int and longest > 0 else 2048  # as in read_longest
        scaling = {
            "factor": _number(config, parts, "factor", None),
            "low": _number(config, parts, "low_freq_factor", 1.0),
            "high": _number(config, parts, "high_freq_factor", 4.0),
            "original": int(_number(config, parts, "original_max_position_embeddings", usual)),
        }
        if scaling["low"] < scaling["high"]:
            return _rotary(config, base, spec.Llama3(**scaling))
        config.fault("rope scaling: low_freq_factor must be below high_freq_factor")
    elif kind != "default":
        config.fault(f"rope scaling: {shown(kind)} is not read; known: {', '.join(SCALINGS)}")
    return _rotary(config, base, None)


def _rope_parts(config: Config, top: float) -> dict[str, Any]:
    """What is said of the angles, under either key.

    Beside a `rope_scaling`, the public classes pass over the whole of `rope_parameters`, its `rope_theta` too. Both
    are read where that changes nothing; where they contradict each other nobody can know which was meant.
    """
    objects = {}
    for key in ("rope_parameters", "rope_scaling"):
        given = config.values.get(key) or {}
        if not isinstance(given, dict):
            config.fault(f"{key}: an object is needed, given {shown(given)}")
            given = {}
        objects[key] = given
    newer, older = objects.values()
    if newer and older:
        config.ignore("rope_scaling counts, and does not contradict it", "rope_parameters")
        theta = older.get("rope_theta", top)
        plain = _rope_type(newer) == "default" and newer.keys() <= TYPES | {"rope_theta"}
        rest = [
            {key: value for key, value in each.items() if key not in {*TYPES, "rope_theta"}} for each in (newer, older)
        ]
        same = _rope_type(newer) == _rope_type(older) and rest[0] == rest[1]
        if not (plain or same) or newer.get("rope_theta", theta) != theta:
            config.fault(
                f"rope_parameters {shown(newer)} and rope_scaling {shown(older)}, with the base {shown(theta)},"
                " contradict each other; take out the one that is not meant"
            )
    else:
        config.value("rope_parameters", "base and scaling of the rotary angles")
    config.value("rope_scaling", "scaling of the rotary angles")
    return older or newer


def _rope_type(parts: dict[str, Any]) -> Any:
    return parts.get("rope_type", parts.get("type", "default"))


def _rotary(config: Config, base: float, scaling: Any) -> spec.Rotary:
    if base <= 0:
        config.fault(f"rope_theta: {base} given, a number above 0 is needed")
    return spec.Rotary(base=base if base > 0 else 1.0, scaling=scaling)


def _number(config: Config, parts: dict[str, Any], key: str, usual: float | None) -> float:
    value = parts.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        config.fault(f"rope scaling: {key} must be a number above 0, given {shown(value)}")
        return usual or 1.0
    return float(value)


def read_patterns(config: Config, kind: Kind, layers: int) -> list[spec.Pattern]:
    """Who sees whom in every layer."""
    if not kind.causal:
        return [spec.Everyone()] * layers
    if not (kind.window or kind.layered_window):
        config.must("sliding_window", None, why="this family has no windows")
        config.must("layer_types", None, ["full_attention"] * layers, why="this family has no windows")
        return [spec.Causal()] * layers
    size = config.maybe_whole("sliding_window", "how many of the newest tokens are seen; null is all")
    if kind.window:
        one = "full_attention" if size is None else "sliding_attention"
        config.must("layer_types", None, [one] * layers, why="sliding_window is that of all layers")
        return [spec.Causal() if size is None else spec.Window(size=size)] * layers
    on = config.flag("use_sliding_window", "whether there are windows", False)
    first = config.whole("max_window_layers", "the first layer with a window, where there are windows", 28, least=0)
    types = config.value("layer_types", "which layers have windows, where there are windows")
    windowed = [size is not None and on and number >= first for number in range(layers)]
    if types is not None:
        kinds = {"full_attention": False, "sliding_attention": True}
        if not isinstance(types, list) or len(types) != layers or not all(one in kinds for one in types):
            config.fault(f"layer_types: {layers} of {' or '.join(kinds)} are needed, given {shown(types)}")
        else:
            windowed = [kinds[one] for one in types]
            if any(windowed) and (size is None or not on):
                config.fault("layer_types: it names windows, but use_sliding_window and sliding_window give none")
    return [spec.Window(size=size) if yes and size else spec.Causal() for yes in windowed]


def writer(kind: Kind) -> Callable[[spec.Transformer], dict[str, Any]]:
    def write(what: spec.Transformer) -> dict[str, Any]:
        stack, first = what.stack, what.stack.at("blocks.0.self")
        headed = isinstance(what.head, spec.NextToken)
        return {
            "architectures": [f"{kind.word}ForCausalLM" if headed else f"{kind.word}Model"],
            "model_type": kind.name,
            "vocab_size": stack.at("embed.vocabulary"),
            "hidden_size": stack.width,
            "intermediate_size": stack.at("blocks.0.feedforward.layer.inner"),
            "num_hidden_layers": len(stack.blocks),
            "num_attention_heads": first.layer.heads,
            "num_key_value_heads": first.layer.key_heads or first.layer.heads,
            "head_dim": first.layer.head_width or stack.width // first.layer.heads,
            "hidden_act": public_activation(stack.at("blocks.0.feedforward.layer.activation")),
            "rms_norm_eps": stack.at("final.eps"),
            "attention_dropout": first.layer.weight_dropout,
            "initializer_range": stack.initial or 0.02,
            "tie_word_embeddings": headed and what.head.tied,  # type: ignore[union-attr]
            **write_rotary(first.layer.positions),
            **write_patterns(kind, [block.branches[0].layer.pattern for block in stack.blocks]),  # type: ignore[union-attr]
            **({"attention_bias": first.layer.bias} if kind.bias is None else {}),
            **({"mlp_bias": stack.at("blocks.0.feedforward.layer.bias")} if kind.inner_bias else {}),
            "bos_token_id": None,  # the library's own would be those of another vocabulary
            "eos_token_id": None,
        }

    return write


def write_rotary(positions: spec.Rotary) -> dict[str, Any]:
    """Both spellings: the older one is read by all versions."""
    match positions.scaling:
        case spec.Linear(factor=factor):
            scaling: dict[str, Any] | None = {"rope_type": "linear", "type": "linear", "factor": factor}
        case spec.Llama3(factor=factor, low=low, high=high, original=original):
            scaling = {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": original,
            }
        case _:
            scaling = None
    return {"rope_theta": positions.base, "rope_scaling": scaling}


def write_patterns(kind: Kind, patterns: list[Any]) -> dict[str, Any]:
    windows = [pattern.size if isinstance(pattern, spec.Window) else None for pattern in patterns]
    size = next((each for each in windows if each), None)
    if kind.window:
        return {"sliding_window": size}
    if not kind.layered_window:
        return {}
    types = ["sliding_attention" if each else "full_attention" for each in windows]
    first = types.index("sliding_attention") if size else len(types)
    return {
        "sliding_window": size,
        "use_sliding_window": size is not None,
        "max_window_layers": first,
        "layer_types": types,
    }


ROWS = [
    Row("stack.embed.table", "model.embed_tokens.weight"),
    *under(
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
    *under(
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


def rules(what: spec.Transformer) -> Rules:
    rows = ROWS
    left = {r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq": "the rotary frequencies, which config.json gives"}
    if isinstance(what.head, spec.States):
        left |= {r"lm_head\.weight": UNUSED}
        rows = [row._replace(public=row.public.removeprefix("model.")) for row in rows]
    return Rules(
        rows,
        base="model.",
        left=left,
        copies={"lm_head.weight": "embed_tokens.weight"},
    )


FAMILIES = [Family(kind.name, reader(kind), writer(kind), rules, writes=True) for kind in LLAMA_LIKE]
