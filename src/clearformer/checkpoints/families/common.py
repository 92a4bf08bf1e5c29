"""What the families' files share: reading heads and labels, and asking a spec whether it has a family's shape."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearformer import spec
from clearformer.arrangements import block_of
from clearformer.checkpoints.config import PUBLIC_ACTIVATIONS, Config
from clearformer.checkpoints.name_map import Row, Rules

Spec = spec.Transformer | spec.EncoderDecoder


@dataclass(frozen=True)
class Family:
    """A `model_type`: its config.json as a spec and back, and the names of its tensors.

    `write` may fail with any error of looking up a part that a spec of another shape does not have, and may give a
    config that means another spec: whoever calls it reads the config back and compares.
    """

    name: str
    read: Callable[[Config], Spec]
    write: Callable[[Any], dict[str, Any]]
    rules: Callable[[Any], Rules]
    writes: bool = False  # texts
    # tensors that the public file must hold besides: of a spec, its config, and those that it holds already
    more: Callable[[Any, Mapping[str, Any], Mapping[str, Tensor]], dict[str, Tensor]] = lambda *given: {}


def count_labels(config: Config) -> int:
    """How many classes there are: public configurations list them, or say a number, or mean two."""
    names = config.value("id2label", "names of the labels")
    config.value("problem_type", "whether labels exclude each other")
    if isinstance(names, dict) and names:
        return len(names)
    for key in ("num_labels", "_num_labels"):
        if config.values.get(key) is not None:
            return config.whole(key, "how many classes there are", 2)
    return 2


def encoder_head(
    config: Config,
    kinds: Mapping[str, str],
    guess: Callable[[Any], str],
    *,
    dense: spec.Activation,
    masked: spec.MaskedToken,
    pooler: bool,
    dropouts: tuple[float, float, float],
) -> spec.Head:
    """The head of BERT and its like; `dense` is the activation of the vector that classes are told from, `dropouts`
    those before the classes of a text, of tokens, and before spans."""
    match config.architecture(kinds, guess):
        case "masked":
            return masked
        case "classes":
            return spec.Classes(count=count_labels(config), vector=spec.Vector(dense=dense), dropout=dropouts[0])
        case "tokens":
            return spec.TokenClasses(count=count_labels(config), dropout=dropouts[1])
        case "spans":
            return spec.Spans(dropout=dropouts[2])
    return spec.Vector(dense=dense) if pooler else spec.States()


def post_norm_encoder(
    *,
    width: int,
    layers: int,
    attention: spec.SelfAttention,
    feedforward: spec.Plain,
    embed: spec.Tokens,
    dropout: float,
    initial: float,
    head: spec.Head,
) -> spec.Transformer:
    """BERT's arrangement: norms after, no final one."""
    assert embed.norm is not None
    block = block_of(embed.norm, "after", dropout, self=attention, feedforward=feedforward)
    stack = spec.Stack(width=width, embed=embed, blocks=(block,) * layers, initial=initial or None)
    return spec.Transformer(stack=stack, head=head)


def public_activation(ours: str) -> str:
    return PUBLIC_ACTIVATIONS[ours]


HEADS = {  # our kind of head → the kind that architectures map to
    "states": "base",
    "vector": "base",
    "masked_token": "masked",
    "classes": "classes",
    "token_classes": "tokens",
    "spans": "spans",
}


def architecture_of(head: spec.Head, kinds: Mapping[str, str]) -> str:
    """The public class for a head of ours."""
    return next(name for name, kind in kinds.items() if kind == HEADS[head.kind])


def without_base(rows: list[Row], base: str, head: spec.Head) -> list[Row]:
    """A model that is only a body, and perhaps a pooler, has no prefix in public."""
    if head.kind not in ("states", "vector"):
        return rows
    return [row._replace(public=row.public.removeprefix(base)) for row in rows]


def untied_bias(what: Any, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A masked-token head with a table of its own has its bias twice in public: the second is the one that counts."""
    names = {"cls.predictions.bias": "cls.predictions.decoder.bias", "lm_head.bias": "lm_head.decoder.bias"}
    if not isinstance(what.head, spec.MaskedToken) or what.head.tied:
        return {}
    return {copy: tensors[name].clone() for name, copy in names.items() if name in tensors}


UNUSED = "of a head that this model does not use"
POSITION_IDS = {r"embeddings\.(position_ids|token_type_ids)": "numbers in order, no weights"}
