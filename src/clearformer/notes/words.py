"""From words to numbers (N1, N3): one-hot, TF-IDF, static vectors, and the same word in two contexts."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer import presets
from clearformer.assemble import build
from clearformer.core.model import EncoderDecoder
from clearformer.notes.layers import furthest, table, weighted_sum
from clearformer.notes.parts import (
    Beside,
    Check,
    Equation,
    Heading,
    Matrix,
    Ours,
    Prose,
    Section,
    Slip,
    matrix,
    vector,
)
from clearformer.tasks.load import load

SENTENCES = (
    "an apple a day keeps the doctor away",
    "apple is healthy",
    "apple is better than orange",
    "apple makes great phones",
)
S1 = table([0.7, 0.2, 0.1], [0.25, 0.7, 0.05], [0.1, 0.2, 0.7])
S2 = table([0.8, 0.15, 0.05], [0.2, 0.78, 0.02], [0.4, 0.01, 0.59])


def words() -> list[Section]:
    return [*_one_hot(), *_tf_idf(), *_static(), *_average(), *_weights(), *_model(), *_trained()]


def _one_hot() -> list[Section]:
    hot = F.one_hot(torch.arange(3)).double()
    apart = furthest(hot @ hot.T, torch.eye(3, dtype=torch.float64))
    return [
        Heading("One-hot"),
        Prose("One place for each word of the vocabulary, a single 1 in its own place."),
        matrix("N3's three words", hot, "mat cat rat", "mat cat rat", decimals=0),
        Check("no two words are alike: every dot product of different words is 0", apart == 0, "cat · rat = 0"),
        Slip(
            "E_cat = [0 1 0 1] and E_sat = [1 1 1 1] as one-hot",
            "The [1 0 0], cat [0 1 0], sat [0 0 1]",
            "a one-hot vector has exactly one 1, and as many places as the vocabulary has words",
            "N1, token embeddings",
        ),
    ]


def _tf_idf() -> list[Section]:
    shown = ["apple", "is", "doctor", "healthy", "orange", "phones"]
    split = [sentence.split() for sentence in SENTENCES]
    found = [
        [words.count(w) / len(words) * math.log(len(split) / sum(w in s for s in split)) for w in shown]
        for words in split
    ]
    return [
        Heading("TF-IDF"),
        Prose("How often a word is in a sentence, times the logarithm of how few sentences have it."),
        Equation("tf-idf(w, s) = count(w in s) / length(s) · ln(sentences / sentences with w)"),
        matrix("N3's four sentences about apple", table(*found), ["1", "2", "3", "4"], shown, ("sentences", "words")),
        Prose(
            "apple is in all four, so it weighs nothing: good for finding texts, no help in saying what apple means."
        ),
    ]


def _static() -> list[Section]:
    king, queen = table([0.6, 0.1, 1.0, 0.9], [0.3, 0.2, 0.9, 1.0])
    cosine = float(king @ queen / (king.norm() * queen.norm()))
    return [
        Heading("Word2Vec: one learned vector a word"),
        Equation(f"king = {vector(king, 1)}   queen = {vector(queen, 1)}"),
        Equation(f"cosine(king, queen) = {float(king @ queen):.4f} / (|king| · |queen|) = {cosine:.4f}"),
        Prose("Words used alike now point alike. But each word has a single vector, whatever stands beside it."),
    ]


def _average() -> list[Section]:
    senses = torch.eye(2, dtype=torch.float64)  # fruit, technology
    many, few = weighted_sum(table([0.9, 0.1], [0.75, 0.25]), senses)
    return [
        Heading("apple: the average meaning"),
        Prose("Axes [taste, technology]. In 10K sentences, 9K speak of the fruit and 1K of the company:"),
        Equation(f"apple = 9000/10000 · [1, 0] + 1000/10000 · [0, 1] = {vector(many, 1)}"),
        Prose("The vector leans to food even in «Apple makes great phones»: static vectors average over the data."),
        Slip(
            "apple = [0.8, 0.1]",
            f"{vector(many, 1)} for 9K and 1K, {vector(few, 2)} for the four sentences listed",
            "shares of two senses add up to 1; the next page has the 0.9 and 0.1",
            "N3, problem with word embedding",
        ),
    ]


def _weights() -> list[Section]:
    first, second = ["money", "bank", "grows"], ["river", "bank", "flows"]
    money, river = table([1.0, 0.0], [0.5, 0.5], [0.6, 0.1]), table([0.0, 1.0], [0.5, 0.5], [0.1, 0.8])
    one, two = weighted_sum(S1, money), weighted_sum(S2, river)
    sums = torch.cat([S1.sum(1), S2.sum(1)])
    return [
        Heading("bank: each word as a mixture of its sentence"),
        Beside((_given("S1", S1, first), _given("S2", S2, second))),
        Check("every row of both tables sums to 1", bool(torch.allclose(sums, torch.ones_like(sums))), vector(sums, 2)),
        Slip(
            "first bank = 0.2 money + 0.7 bank + 0.1 grows, then in S1 bank = 0.25 money + 0.7 bank + 0.05 grows",
            "0.25, 0.7 and 0.05 in all that follows",
            "S1 is the table that the notes go on with; both rows sum to 1, and neither is computed",
            "N3, money bank grows",
        ),
        Slip(
            "first bank = 0.5 river + 0.4 bank + 0.1 flows, then in S2 bank = 0.2 river + 0.78 bank + 0.02 flows",
            "0.2, 0.78 and 0.02 in the table",
            "the two lines disagree and nothing decides: these weights are given, not computed as in example 2",
            "N3, river bank flows",
        ),
        Ours("vectors with the axes [finance, water], to see the mixtures move; bank starts at [0.5, 0.5]."),
        Beside(
            (
                matrix("S1 · embeddings", one, first, "finance water"),
                matrix("S2 · embeddings", two, second, "finance water"),
            )
        ),
        Check(
            "the static bank is one vector, the contextual banks are two",
            furthest(one[1], two[1]) > 0,
            f"{vector(one[1])} beside money, {vector(two[1])} beside river",
        ),
    ]


def _given(name: str, weights: Tensor, sentence: list[str]) -> Matrix:
    return matrix(f"{name}, as given", weights, sentence, sentence, ("word", "made of"), shade=True, decimals=2)


def _model() -> list[Section]:
    model = build(presets.original("tiny", vocabulary=5, dropout=0.0), seed=0)
    assert isinstance(model, EncoderDecoder)
    money, river = torch.tensor([[0, 1, 2]]), torch.tensor([[3, 1, 4]])  # bank is word 1 in both
    with torch.no_grad():
        beside_money, beside_river = model.encode(money).states[0, 1], model.encode(river).states[0, 1]
    cosine = float(F.cosine_similarity(beside_money, beside_river, dim=0))
    return [
        Heading("The same on a model"),
        Ours("the encoder of a tiny model, untrained: what differs here differs by construction, not by learning."),
        Check("bank enters as the same row of the table", bool(money[0, 1] == river[0, 1]), "row 1 in both sentences"),
        Check(
            "bank leaves as another vector in each sentence",
            furthest(beside_money, beside_river) > 1e-3,
            f"cosine {cosine:.4f}, largest difference {furthest(beside_money, beside_river):.4f}",
        ),
    ]


def _trained() -> list[Section]:
    """One word, two meanings, in a model that has learned to translate both."""
    translator = load("en-de", precision="float32")
    sentences = ("He took the left hand.", "He has left the house.", "She has left the city.")

    def state(sentence: str) -> Tensor:
        ids = translator.tokenizer.encode(sentence).ids
        place = translator.tokenizer.pieces(ids).index("▁left")
        with torch.no_grad():
            return translator.model.encode(torch.tensor([ids])).states[0, place]

    side, went, gone = (state(sentence) for sentence in sentences)
    same, other = (float(F.cosine_similarity(went, each, dim=0)) for each in (gone, side))
    return [
        Heading("And on a trained one"),
        Ours("the encoder of the bundled English–German model: left, the side, and left, went away."),
        Prose(" · ".join(sentences)),
        Check(
            "the vectors of left are nearer where the meaning is the same",
            same > other,
            f"cosine {same:.2f} between the last two, {other:.2f} between the first two",
        ),
    ]
