"""A stack drawn in lines of text, from what goes in to what comes out."""

from itertools import groupby

from clearformer import spec

DOWN = "   ↓"


def diagram(what: spec.Transformer | spec.EncoderDecoder) -> list[str]:
    if isinstance(what, spec.Transformer):
        return [*_stack(what.stack), DOWN, _head(what.head, what.stack)]
    shared = ", one token table for both" if what.shared else ""
    return [
        f"encoder{shared}",
        *(f"  {line}" for line in _stack(what.encoder)),
        "    ↓ its states are the decoder's memory",
        "decoder",
        *(f"  {line}" for line in _stack(what.decoder)),
        f"  {DOWN}",
        f"  {_head(what.head, what.decoder)}",
    ]


def _stack(stack: spec.Stack) -> list[str]:
    lines = [_embed(stack)]
    for block, alike in groupby(stack.blocks):
        lines += [DOWN, f"{len(list(alike))} × block of width {stack.width:,}"]
        longest = max(len(branch.name) for branch in block.branches)
        for branch in block.branches:
            norms = [
                f"{norm.kind} norm {place}"
                for place in ("before", "between", "after")
                if (norm := getattr(branch, place))
            ]
            lines.append(f"   x + {branch.name:{longest}}  {', '.join([_layer(branch.layer, stack.width), *norms])}")
    if stack.final is not None:
        lines += [DOWN, f"{stack.final.kind} norm"]
    return lines


def _embed(stack: spec.Stack) -> str:
    embed = stack.embed
    if isinstance(embed, spec.Patches):
        height, width = embed.image
        parts = [f"images {height} × {width} × {embed.channels}"]
        parts.append(f"squares of {embed.patch} → {embed.count} × {stack.width:,}")
    else:
        parts = [f"tokens {embed.vocabulary:,} → {stack.width:,}"]
        parts += ["times √width"] if embed.scaled else []
        parts += [f"{embed.segments} segments"] if embed.segments else []
    if isinstance(embed.positions, spec.Learned):
        parts.append(f"a table of {embed.positions.length:,} positions")
    elif embed.positions is not None:
        parts.append(f"{embed.positions.kind} positions")
    parts += [f"{embed.norm.kind} norm"] if embed.norm is not None else []
    return ", ".join(parts)


def _layer(layer: spec.Layer, width: int) -> str:
    if isinstance(layer, spec.Plain | spec.Gated):
        gate = "gated " if isinstance(layer, spec.Gated) else ""
        return f"{width:,} → {layer.inner:,} → {width:,}, {gate}{layer.activation}"
    each = layer.head_width or width // layer.heads
    grouped = f" on {layer.key_heads} of keys" if layer.key_heads not in (None, layer.heads) else ""
    parts = [f"{layer.heads} heads × {each}{grouped}"]
    if isinstance(layer, spec.SelfAttention):
        parts.append(_pattern(layer.pattern))
        parts += [f"{layer.positions.kind} positions"] if layer.positions is not None else []
    else:
        parts.append("to the memory")
    return ", ".join(parts)


def _pattern(pattern: spec.Pattern) -> str:
    return f"window of {pattern.size:,}" if isinstance(pattern, spec.Window) else pattern.kind


def _head(head: spec.Head, stack: spec.Stack) -> str:
    match head:
        case spec.NextToken() | spec.MaskedToken():
            words = stack.embed.vocabulary if isinstance(stack.embed, spec.Tokens) else 0
            what = "the next token" if isinstance(head, spec.NextToken) else "masked tokens"
            return f"logits of {what}, {words:,}, by {'the token table' if head.tied else 'a table of their own'}"
        case spec.Classes():
            return f"logits of {head.count:,} classes, from the {head.vector.pool} state"
        case spec.TokenClasses():
            return f"logits of {head.count:,} classes, for every token"
        case spec.Spans():
            return "logits of where an answer starts and ends"
        case spec.Vector():
            return f"one vector, from the {head.pool} state" + (f", dense {head.dense}" if head.dense else "")
    return "the states themselves"
