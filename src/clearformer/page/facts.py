"""What a model is made of, as the page shows it: its stacks, and the heads of every attention."""

from typing import TYPE_CHECKING, Any

from clearformer import spec
from clearformer.assemble import count_parameters
from clearformer.kernels.pack import is_int8

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace


def facts(trace: "Trace") -> dict[str, Any]:
    model = trace.ran.model
    what = model.spec
    return {
        "kind": kind(what),
        "parameters": count_parameters(what),
        "precision": "int8" if is_int8(model) else "float32",
        "head": what.head.kind,
        "stacks": [_stack(name, stack) for name, stack in stacks(what)],
        "attentions": _attentions(trace),
        "spec": what.model_dump(mode="json"),
    }


def stacks(what: spec.Transformer | spec.EncoderDecoder) -> list[tuple[str, spec.Stack]]:
    if isinstance(what, spec.EncoderDecoder):
        return [("encoder", what.encoder), ("decoder", what.decoder)]
    return [("stack", what.stack)]


def kind(what: spec.Transformer | spec.EncoderDecoder) -> str:
    """encoder-decoder, captioner, decoder, vision or encoder."""
    if isinstance(what, spec.EncoderDecoder):
        return "captioner" if isinstance(what.encoder.embed, spec.Patches) else "encoder-decoder"
    if isinstance(what.stack.embed, spec.Patches):
        return "vision"
    return "decoder" if isinstance(what.head, spec.NextToken) else "encoder"


def _stack(name: str, what: spec.Stack) -> dict[str, Any]:
    names = sorted({branch for _, branch, _ in what.layers()}, key=["self", "cross", "feedforward"].index)
    return {"name": name, "blocks": len(what.blocks), "width": what.width, "branches": names}


def _attentions(trace: "Trace") -> dict[str, dict[str, Any]]:
    """By address: heads, those of keys, their width, what they look at, and how."""
    found = {}
    for name, module in trace.ran.attentions.items():
        if f"{name}.q" in trace.tape.records:
            positions = getattr(module.kernel.layer, "positions", None)
            found[name] = {
                "heads": module.heads,
                "key_heads": module.key_heads,
                "head_width": module.query.out_features // module.heads,
                "scale": module.kernel.scale,
                "crosses": name in trace.crossing,
                "pattern": getattr(module.pattern, "kind", None),
                "positions": getattr(positions, "kind", None),
                "compressed": f"{name}.short_k" in trace.tape.records,
            }
    return found
