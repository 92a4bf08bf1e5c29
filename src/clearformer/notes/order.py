"""The order problem (N2, N3): without positions the same words in another order are the same vectors, moved."""

import torch
from torch import Tensor

from clearformer import spec
from clearformer.assemble import build
from clearformer.notes.layers import furthest
from clearformer.notes.parts import Beside, Check, Equation, Heading, Ours, Prose, Section, Slip, matrix, tiny

WORDS = ["Nitish", "killed", "lion", "Man", "eats", "small", "dinosaur"]
WIDTH = 4


def order() -> list[Section]:
    one, other = ["Nitish", "killed", "lion"], ["lion", "killed", "Nitish"]
    first, second = states(one, None), states(other, None)
    placed, moved = states(one, spec.Sinusoid()), states(other, spec.Sinusoid())
    back = [other.index(word) for word in one]
    return [
        Heading("Nitish killed lion, lion killed Nitish"),
        Ours(f"one self-attention layer of width {WIDTH} on a table of random vectors, seed 0."),
        Heading("Without positions"),
        Beside((matrix("one order", first, one), matrix("the other", second, other))),
        Check(
            "the same vectors, moved with their words: who killed whom is lost",
            furthest(first, second[back]) < 1e-12,
            f"largest difference word by word {tiny(furthest(first, second[back]))}",
        ),
        Heading("With sinusoidal positions"),
        Equation("x_i = embedding(word_i) + PE(i)"),
        Beside((matrix("one order", placed, one), matrix("the other", moved, other))),
        Check(
            "the vectors of the same word differ",
            furthest(placed, moved[back]) > 0.01,
            f"largest difference word by word {furthest(placed, moved[back]):.4f}",
        ),
        *_dinosaur(),
        Slip(
            "q_i = old q_i + p_i, and likewise for k and v",
            "q_i = W_Q (x_i + p_i)",
            "the position is added to the input, as the same page says in words; what reaches the query is W_Q p_i",
            "N2, sequence order",
        ),
    ]


def _dinosaur() -> list[Section]:
    man, beast = ["Man", "eats", "small", "dinosaur"], ["small", "dinosaur", "eats", "Man"]
    back = [beast.index(word) for word in man]
    without = furthest(states(man, None), states(beast, None)[back])
    placed = furthest(states(man, spec.Sinusoid()), states(beast, spec.Sinusoid())[back])
    return [
        Heading("Man eats small dinosaur, small dinosaur eats Man"),
        Check("without positions: one and the same", without < 1e-12, f"largest difference {tiny(without)}"),
        Check("with positions: two sentences", placed > 0.01, f"largest difference {placed:.4f}"),
        Prose("A recurrent network has no such problem: it reads one word at a time, and pays for it (example 20)."),
    ]


def states(sentence: list[str], positions: spec.Sinusoid | None) -> Tensor:
    """t m: what one self-attention layer makes of the sentence."""
    layer = spec.Residual(name="self", layer=spec.SelfAttention(heads=1))
    stack = spec.Stack(
        width=WIDTH,
        embed=spec.Tokens(vocabulary=len(WORDS), scaled=True, positions=positions),
        blocks=(spec.Block(branches=(layer,)),),
    )
    model = build(spec.Transformer(stack=stack, head=spec.States()), kernel="reference", seed=0).double()
    with torch.no_grad():
        return model(torch.tensor([[WORDS.index(word) for word in sentence]]))[0]
