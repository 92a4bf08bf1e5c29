"""Recurrence against attention (N2, N3): how many steps must wait for one another."""

from clearformer import presets
from clearformer.notes.parts import Check, Equation, Heading, Prose, Section, Slip, Table

LENGTHS = (10, 30, 100, 1000)


def recurrence() -> list[Section]:
    base = presets.original("base")
    layers = sum(len(block.branches) for stack in (base.encoder, base.decoder) for block in stack.blocks)
    blocks = len(base.encoder.blocks)
    rows = tuple((f"{n:,}", f"{2 * n:,}", str(layers), f"{n:,}", "1") for n in LENGTHS)
    return [
        Heading("Steps in sequence"),
        Prose(
            "A recurrent network needs the state of word t − 1 before it can begin word t; attention needs the layer"
            " below, for all words at once."
        ),
        Equation("recurrent: h_t = f(h_{t−1}, x_t), n steps to read and n to write"),
        Equation(f"Transformer base: {blocks} blocks of 2 layers and {blocks} of 3 = {layers} layers"),
        Table(
            "Training on a pair of n words each",
            ("n", "recurrent steps", "layers", "recurrent path", "attention path"),
            rows,
        ),
        Check(
            "steps grow with the length in one, not in the other",
            len({row[2] for row in rows}) == 1 and len({row[1] for row in rows}) == len(rows),
            f"at 1,000 words {rows[-1][1]} against {layers}",
        ),
        Prose(
            "The path is how many steps lie between the first word and the last. N3's problem, that the first words of "
            "a 30-word sentence fade, is a path of 30; attention looks there directly."
        ),
        Heading("What is not for free"),
        Prose("Attention pays in pairs: n² of them (example 18), where recurrence is linear."),
        Slip(
            "that the number of unparallelizable operations does not increase with sequence length",
            "so in training and encoding; in writing it is one pass a word, for both",
            "a word cannot be fed before it has been chosen (example 15)",
            "N2, recurrence against attention",
        ),
        Heading("Measured"),
        Prose("A recurrent encoder–decoder with attention, timed beside the Transformer on this machine:"),
        Equation("python -m clearformer.notes.measure_recurrent"),
    ]
