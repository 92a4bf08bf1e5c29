"""An expression as data: kinds, operands and values, without anything that can be called.

A `number` has the address of a recorded cell, which can be asked for in turn; a `constant` has none, because the
model's equations say it: 1/√d, a frequency of a position, an epsilon. What is `made` of others names what is done:

    apply     sign: + − · / ^ relu gelu gelu_tanh silu tanh sin cos abs; parts
    products  pairs: Σ a·b, and a bias or null
    softmax   row, place: exp(row[place]) / Σ exp(row)
    norm      row, place, centred, eps, weight, bias: (x − mean) / √(variance + eps) · weight + bias, or, not centred,
              x / √(mean square + eps) · weight
    masked    the query may not see this key
"""

from typing import Any

from clearformer.explain.cell import Apply, Expression, Masked, Normed, Number, Products, Share


def tree(made: Expression) -> dict[str, Any]:
    said: dict[str, Any] = {"value": _number(made.value())}
    match made:
        case Number(address=None):
            return {"kind": "constant", **said}
        case Number(address=address):
            return {"kind": "number", "address": address, **said}
        case Masked():
            return {"kind": "masked", **said}
        case Apply(sign=sign, parts=parts):
            return {"kind": "apply", "sign": sign, "parts": [tree(part) for part in parts], **said}
        case Products(pairs=pairs, bias=bias):
            both = [[tree(a), tree(b)] for a, b in pairs]
            return {"kind": "products", "pairs": both, "bias": _maybe(bias), **said}
        case Share(row=row, place=place):
            return {"kind": "softmax", "row": [tree(each) for each in row], "place": place, **said}
        case Normed():
            return {
                "kind": "norm",
                "row": [tree(each) for each in made.row],
                "place": made.place,
                "centred": made.centred,
                "eps": made.eps,
                "weight": _maybe(made.weight),
                "bias": _maybe(made.bias),
                **said,
            }
    raise TypeError(f"{type(made).__name__} is no expression that can be written down")


def _maybe(made: Expression | None) -> dict[str, Any] | None:
    return None if made is None else tree(made)


def _number(value: float) -> float | None:
    """JSON has no infinities."""
    return value if value - value == 0 else None
