"""An encoder–decoder of ours as a CTranslate2 folder: the arrangement of the original Transformer or of Marian.

Its tokens are named by their numbers, so that text is read and written by the model's own tokenizer.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from clearformer import spec
from clearformer.core.positions import sinusoid
from clearformer.errors import DataError

ROWS = 1024  # positions that are written, where a scheme has no end
NEVER = -1e4  # added to the logit of what is never said
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}


def name(token: int) -> str:
    return f"<{token}>"


def write(
    model: Any, to: Path, *, start: int, end: int, never: Sequence[int] = (), quantization: str | None = None
) -> Path:
    """A new folder; a model that it cannot hold is an error that says why."""
    what = model.spec
    if not isinstance(what, spec.EncoderDecoder):
        raise DataError("only an encoder–decoder is written for it")
    for stack in (what.encoder, what.decoder):
        _check(stack)
    library: Any = import_module("ctranslate2.specs")
    first = what.encoder.blocks[0].branches
    before = first[0].before is not None
    activation = getattr(library.common_spec.Activation, ACTIVATIONS[first[-1].layer.activation])  # type: ignore[union-attr]
    layers = (len(what.encoder.blocks), len(what.decoder.blocks))
    heads = first[0].layer.heads  # type: ignore[union-attr]
    made = library.TransformerSpec.from_config(layers, heads, pre_norm=before, activation=activation)
    weights = _Weights(model)
    for side, stack in (("encoder", what.encoder), ("decoder", what.decoder)):
        _stack(getattr(made, side), side, stack, weights, getattr(model, side))
    made.decoder.projection.weight = weights.array(model.head.weight)
    weights.used.add("head.weight")
    if model.head.bias is not None:
        bias = weights["head.bias"].copy()
        bias[[token for token in never if token != end]] = NEVER
        made.decoder.projection.bias = bias
    weights.check()
    tokens = [name(token) for token in range(len(model.head.weight))]
    config = made.config
    config.add_source_bos = config.add_source_eos = False  # the tokenizer puts them there
    config.bos_token = config.decoder_start_token = name(start)
    config.eos_token, config.unk_token = name(end), name(end)
    made.register_source_vocabulary(tokens)
    made.register_target_vocabulary(tokens)
    made.validate()
    made.optimize(quantization=quantization)
    to.mkdir(parents=True)
    made.save(str(to))
    return to


class _Weights:
    """The model's weights by name, and which of them have found a place."""

    def __init__(self, model: Any):
        self.all = dict(model.state_dict())
        self.used: set[str] = set()

    @staticmethod
    def array(tensor: torch.Tensor) -> Any:
        return tensor.detach().float().contiguous().numpy()

    def __getitem__(self, key: str) -> Any:
        if key not in self.all:
            raise DataError(f"it needs {key}, which this model does not have")
        self.used.add(key)
        return self.array(self.all[key])

    def linear(self, to: Any, path: str, *names: str) -> None:
        """One matrix, or several one above the other."""
        paths = [f"{path}.{each}" for each in names] or [path]
        parts = {kind: [torch.from_numpy(self[f"{each}.{kind}"]) for each in paths] for kind in ("weight", "bias")}
        to.weight, to.bias = (torch.cat(parts[kind]).numpy() for kind in ("weight", "bias"))

    def norm(self, to: Any, path: str) -> None:
        to.gamma, to.beta = self[f"{path}.weight"], self[f"{path}.bias"]

    def check(self) -> None:
        if left := sorted(self.all.keys() - self.used):
            raise DataError(f"it has no place for {left[0]}")


def _check(stack: spec.Stack) -> None:
    """What a weight's name does not tell."""
    plain = isinstance(stack.embed, spec.Tokens) and isinstance(stack.embed.positions, spec.Sinusoid | spec.Learned)
    if not plain:
        raise DataError("it is written with sinusoid or learned positions added to its tokens alone")
    for number, branch, layer in stack.layers():
        where = f"blocks.{number}.{branch}"
        if isinstance(layer, spec.Gated):
            raise DataError(f"{where}: gated layers are not written for it")
        if isinstance(layer, spec.Plain):
            if layer.activation not in ACTIVATIONS:
                raise DataError(f"{where}: {layer.activation} is not written for it")
            continue
        if layer.scale is not None or layer.key_heads not in (None, layer.heads) or layer.head_width is not None:
            raise DataError(f"{where}: only heads of the usual width and scale are written for it")
        if isinstance(layer, spec.SelfAttention) and (
            layer.positions is not None or not isinstance(layer.pattern, spec.Everyone | spec.Causal)
        ):
            raise DataError(f"{where}: only full and causal attention without positions is written for it")


def _stack(to: Any, side: str, stack: spec.Stack, weights: _Weights, model: Any) -> None:
    embed: Any = stack.embed
    table = to.embeddings[0] if isinstance(to.embeddings, list) else to.embeddings
    table.weight, to.scale_embeddings = weights[f"{side}.embed.table"], embed.scaled
    if isinstance(embed.positions, spec.Learned):
        to.position_encodings.encodings = weights[f"{side}.embed.positions.table"][model.embed.positions.offset :]
    else:
        waves = sinusoid(torch.arange(ROWS), stack.width, embed.positions.base, embed.positions.layout, torch.empty(0))
        to.position_encodings.encodings = weights.array(waves)
    if stack.final is not None:
        weights.norm(to.layer_norm, f"{side}.final")
    where = "before" if stack.blocks[0].branches[0].before is not None else "after"
    for number, layer in enumerate(to.layer):
        path = f"{side}.blocks.{number}.branches"
        own = layer.self_attention
        weights.norm(own.layer_norm, f"{path}.self.{where}")
        weights.linear(own.linear[0], f"{path}.self.layer", "query", "key", "value")
        weights.linear(own.linear[1], f"{path}.self.layer.output")
        if side == "decoder":
            cross = layer.attention
            weights.norm(cross.layer_norm, f"{path}.cross.{where}")
            weights.linear(cross.linear[0], f"{path}.cross.layer.query")
            weights.linear(cross.linear[1], f"{path}.cross.layer", "key", "value")
            weights.linear(cross.linear[2], f"{path}.cross.layer.output")
        weights.norm(layer.ffn.layer_norm, f"{path}.feedforward.{where}")
        weights.linear(layer.ffn.linear_0, f"{path}.feedforward.layer.up")
        weights.linear(layer.ffn.linear_1, f"{path}.feedforward.layer.down")
