"""The residual stream at some positions as a sum of parts: the embedding, and what every head, layer and bias added.

Norms divide by a spread that depends on all of it; with each norm's spread held at what it was in this run, all that is
left is linear, and the parts sum to the stream exactly, with norms before the branches or after them.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearformer.core.attention import Attention
from clearformer.core.block import LayerNorm
from clearformer.core.embed import Tokens
from clearformer.explain.streams import Branch, Writer, branches, first, is_norm

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

Parts = dict[str, Tensor]  # address → rows m, in double precision


def stream(trace: "Trace", of: Writer, rows: Tensor, until: str | None = None) -> Parts:
    """What is in the stream at these positions, behind the last norm; or where a branch, `decoder.2.cross`, reads it,
    behind the norm before it."""
    records = trace.tape.records
    parts, whole = _embedded(trace, of, rows), first(trace, of)
    for branch in branches(of):
        if branch.name == until:
            if is_norm(branch.residual.before):
                parts = frozen(parts, branch.residual.before, _at(whole, rows), f"{branch.name}.before")
            return parts
        parts |= _branch(trace, branch, rows)
        step = "after" if f"{branch.name}.after" in records else "sum"
        whole = records[f"{branch.name}.{step}"].value
        if is_norm(branch.residual.after):
            summed = _at(records[f"{branch.name}.sum"].value, rows)
            parts = frozen(parts, branch.residual.after, summed, f"{branch.name}.after")
    if is_norm(of.stack.final):
        parts = frozen(parts, of.stack.final, _at(whole, rows), f"{of.name}.final")
    return parts


def _embedded(trace: "Trace", of: Writer, rows: Tensor) -> Parts:
    """The embedding of tokens, of positions and of segments; of an image, its patches as they are."""
    embed, own, records = of.stack.embed, f"{of.name}.embed", trace.tape.records
    if not isinstance(embed, Tokens):
        return {own + ".placed" if own + ".placed" in records else own + ".squares": _at(first(trace, of), rows)}
    whole = records[f"{own}.tokens"].value
    parts = {f"{own}.tokens": _at(whole, rows)}
    if embed.positions is not None:
        parts[f"{own}.positions"] = _at(records[f"{own}.positions"].value.expand_as(whole), rows)
        whole = records[f"{own}.placed"].value
    if embed.segments is not None:
        parts[f"{own}.sided"] = _at(records[f"{own}.sided"].value, rows) - _at(whole, rows)
        whole = records[f"{own}.sided"].value
    if is_norm(embed.norm):
        parts = frozen(parts, embed.norm, _at(whole, rows), f"{own}.norm")
    return parts


def _branch(trace: "Trace", branch: Branch, rows: Tensor) -> Parts:
    """What a branch adds: attention head by head."""
    records, layer = trace.tape.records, branch.residual.layer
    out = records[f"{branch.name}.out"].value
    if isinstance(layer, Attention):
        mixed = records[f"{branch.name}.mixed"].value[0].double()[:, rows]  # h rows d
        split = trace.ran.weight(layer.output).double().unflatten(1, (layer.heads, -1))  # m h d
        parts = {f"{branch.name}.h{n}.mixed": mixed[n] @ split[:, n].T for n in range(layer.heads)}
        if layer.output.bias is not None:
            parts[f"{branch.name}.output.bias"] = layer.output.bias.detach().double().expand(len(rows), -1)
    else:
        parts = {f"{branch.name}.out": _at(out, rows)}
    if is_norm(branch.residual.between):
        parts = frozen(parts, branch.residual.between, _at(out, rows), f"{branch.name}.between")
    return parts


def frozen(parts: Parts, norm: Any, whole: Tensor, name: str) -> Parts:
    """Each part through a norm whose spread is that of the whole; the norm's bias is a part of its own."""
    centred = isinstance(norm, LayerNorm)
    middle = whole - whole.mean(-1, keepdim=True) if centred else whole
    eps = norm.eps if norm.eps is not None else torch.finfo(torch.float32).eps
    scale = (middle.square().mean(-1, keepdim=True) + eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.detach().double()
    made = {key: (part - part.mean(-1, keepdim=True) if centred else part) * scale for key, part in parts.items()}
    if getattr(norm, "bias", None) is not None:
        made[f"{name}.bias"] = norm.bias.detach().double().expand_as(whole)
    return made


def _at(value: Tensor, rows: Tensor) -> Tensor:
    return value.detach()[0, rows].double()


def branch_of(address: str) -> str:
    """The branch, or the embedding, that a part belongs to: the heads of an attention and its biases are one."""
    name = address.split("[")[0].rsplit(".", 1)[0]
    words = name.removesuffix(".output").split(".")
    return ".".join(words[:-1] if words[-1][:1] == "h" and words[-1][1:].isdigit() else words)
