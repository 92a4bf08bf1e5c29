"""The quizzes of N0, with answers checked on running models. The text of the notes does not mark its answers."""

import torch

from clearformer import presets, spec
from clearformer.notes.heads import base_attention
from clearformer.notes.layers import furthest, steps
from clearformer.notes.order import states
from clearformer.notes.parts import Check, Prose, Question, Section, tiny
from clearformer.notes.small import Translator

SOURCE, TARGET = "I am fine", "<start> Ich bin gut"


def quiz() -> list[Section]:
    small = Translator(SOURCE, TARGET, "you are")
    return [
        Prose("● is right. Each answer is checked on a model, untrained: it must hold of any."),
        *_architecture(small),
        *_positions(),
        *_self_attention(small),
        *_heads(),
        *_masking(small),
        *_origin(small),
        *_bert(),
    ]


def _architecture(small: Translator) -> list[Section]:
    with torch.no_grad():
        latent = small.model.encode(small.ids(SOURCE)).states
    moved = furthest(small.logits(SOURCE, TARGET), small.logits("you are fine", TARGET))
    size = sum(p.numel() for p in small.model.parameters())
    stacked = {name: len(presets.original(name).encoder.blocks) for name in ("tiny", "small", "base", "big")}
    return [
        Question(
            "Which statements about the original Transformer are true?",
            (
                "it is a neural network",
                "the encoder outputs a latent representation of the input",
                "the decoder outputs a sequence of tokens based on it",
                "encoder and decoder always have one block only",
            ),
            "ABC",
            "encoder.0.feedforward.sum",
        ),
        Check("A: layers with weights that training sets", size > 0, f"{size:,} weights in the tiny one"),
        Check("B: a vector for each input word", latent.shape == (1, 3, 32), " × ".join(str(n) for n in latent.shape)),
        Check("C: another input, other outputs", moved > 1e-3, f"logits move by {moved:.4f}"),
        Check(
            "not D: the paper stacks six",
            stacked["base"] == 6 and min(stacked.values()) > 1,
            ", ".join(f"{name} {n}" for name, n in stacked.items()),
        ),
    ]


def _positions() -> list[Section]:
    one, other = ["Nitish", "killed", "lion"], ["lion", "killed", "Nitish"]
    without = furthest(states(one, None), states(other, None).flip(0))
    placed = furthest(states(one, spec.Sinusoid()), states(other, spec.Sinusoid()).flip(0))
    return [
        Question(
            "What is positional encoding for?",
            (
                "randomness, to generalise better",
                "telling words of similar meaning apart",
                "information about the order of words",
                "making self-attention cheaper",
            ),
            "C",
            "encoder.embed.positions",
        ),
        Check(
            "the order of three words changes their vectors only with it",
            without < 1e-12 < placed,
            f"by {tiny(without)} without, by {placed:.4f} with",
        ),
    ]


def _self_attention(small: Translator) -> list[Section]:
    with torch.no_grad():
        here = small.model.encode(small.ids("I am fine")).states[0, 2]
        there = small.model.encode(small.ids("you are fine")).states[0, 2]
    return [
        Question(
            "What is self-attention for?",
            (
                "focusing on the relevant parts of the input",
                "reducing the network's cost",
                "generating synthetic data",
                "generalising to unseen data",
            ),
            "A",
            "encoder.0.self.h0.weights",
        ),
        Check(
            "the vector of a word depends on the words around it",
            furthest(here, there) > 1e-3,
            f"fine differs by {furthest(here, there):.4f} between «I am fine» and «you are fine»",
        ),
    ]


def _heads() -> list[Section]:
    attention, width = base_attention()
    with torch.no_grad():
        mixed = steps(attention, torch.zeros(2, width)).mixed
        merged = attention.merged(mixed[None])
    return [
        Question(
            "8 heads of 64 dimensions: how wide is the concatenation?",
            ("64", "128", "256", "512"),
            "D",
            "encoder.0.self.merged",
        ),
        Check(
            "run on the base model's layer",
            merged.size(-1) == 512,
            f"{mixed.size(0)} × {mixed.size(2)} = {merged.size(-1)}",
        ),
    ]


def _masking(small: Translator) -> list[Section]:
    before, after = small.logits(SOURCE, TARGET), small.logits(SOURCE, "<start> Ich gut gut")
    past, future = furthest(before[:2], after[:2]), furthest(before[2:], after[2:])
    return [
        Question(
            "Why is masking needed in the decoder?",
            (
                "to keep it from future positions",
                "to focus attention on what is relevant",
                "to prevent overfitting",
                "to handle longer sequences",
            ),
            "A",
            "decoder.0.self.h0.weights",
        ),
        Check(
            "changing the third word changes nothing before it",
            past == 0 and future > 1e-3,
            f"positions 1 and 2 by {tiny(past)}, 3 and 4 by {future:.4f}",
        ),
    ]


def _origin(small: Translator) -> list[Section]:
    found, other = small.cross(SOURCE, TARGET), small.cross(SOURCE, "<start> gut bin Ich")
    return [
        Question(
            "Where do query, key and value of encoder–decoder attention come from?",
            (
                "all three from the encoder",
                "the query from the decoder, key and value from the encoder",
                "query and value from the encoder, the key from the decoder",
                "all three from the decoder",
            ),
            "B",
            "decoder.0.cross.h0.weights",
        ),
        Check(
            "another target moves the queries and leaves keys and values",
            furthest(found.q, other.q) > 1e-3 and furthest(found.k, other.k) == furthest(found.v, other.v) == 0,
            f"q by {furthest(found.q, other.q):.4f}, k by {tiny(furthest(found.k, other.k))}, "
            f"v by {tiny(furthest(found.v, other.v))}",
        ),
    ]


def _bert() -> list[Section]:
    bert = presets.bert("base")
    kinds = {layer.kind for _, _, layer in bert.stack.layers()}
    return [
        Question("What is BERT?", ("a decoder-only model", "an encoder-only model", "both encoder and decoder"), "B"),
        Check(
            "one stack, every word sees both sides, nothing to cross to",
            isinstance(bert, spec.Transformer) and not bert.stack.causal and "cross" not in kinds,
            f"{len(bert.stack.blocks)} blocks of self-attention and feed-forward",
        ),
    ]
