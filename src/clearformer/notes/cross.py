"""Cross-attention (N0, N2, N3, N4): queries from the target, keys and values from the source."""

from clearformer.notes.layers import furthest
from clearformer.notes.parts import (
    QUERIES_KEYS,
    Check,
    Equation,
    Heading,
    Ours,
    Prose,
    Section,
    Slip,
    Table,
    matrix,
)
from clearformer.notes.small import Translator
from clearformer.tasks.explain import explain
from clearformer.tasks.load import load
from clearformer.tasks.translate import Translator as Trained

ENGLISH = "I like eating ice-cream"
HINDI = "mujhe aaiskreem khaana pasand hai"
SHIFTED = "<start> mujhe aaiskreem khaana pasand"


def cross() -> list[Section]:
    small = Translator(ENGLISH, HINDI)
    found = small.cross(ENGLISH, SHIFTED)
    return [*_sources(small), *_grid(small), *_trained(), *_slips(float(found.weights.min()), found.mixed.size(1))]


def _sources(small: Translator) -> list[Section]:
    found = small.cross(ENGLISH, SHIFTED)
    other_target = small.cross(ENGLISH, "<start> hai hai hai hai")
    other_source = small.cross("I like eating eating", SHIFTED)
    return [
        Heading("Where queries, keys and values come from"),
        Equation("q_i = W_Q z_i (decoder)    k_j = W_K h_j, v_j = W_V h_j (encoder's output)"),
        Prose("I like eating ice-cream → मुझे आइसक्रीम खाना पसंद है (mujhe aaiskreem khaana pasand hai)."),
        Ours("a tiny model, untrained, seed 0; a trained one is below."),
        Table(
            "Shapes in the decoder's last block",
            ("", "heads × words × head width", "words of"),
            (
                ("q", _shape(found.q.shape), "the target, Hindi"),
                ("k", _shape(found.k.shape), "the source, English"),
                ("v", _shape(found.v.shape), "the source, English"),
                ("weights", _shape(found.weights.shape), "target × source"),
            ),
        ),
        Check(
            "another target changes the queries, not the keys and values",
            furthest(found.q, other_target.q) > 1e-3
            and furthest(found.k, other_target.k) == 0
            and furthest(found.v, other_target.v) == 0,
            f"q by {furthest(found.q, other_target.q):.4f}, k and v by 0",
        ),
        Check(
            "another source changes the keys and values",
            min(furthest(found.k, other_source.k), furthest(found.v, other_source.v)) > 1e-3,
            f"k by {furthest(found.k, other_source.k):.4f}, v by {furthest(found.v, other_source.v):.4f}",
        ),
    ]


def _grid(small: Translator) -> list[Section]:
    weights = small.cross(ENGLISH, SHIFTED).weights.mean(0)
    english, hindi = ENGLISH.split(), [f"→ {word}" for word in HINDI.split()]
    return [
        Heading("The alignment grid"),
        Prose("Each row is the word about to be written; each row sums to 1. Mean of the heads, untrained:"),
        matrix("weights (untrained)", weights, hindi, english, QUERIES_KEYS, shade=True),
        Prose("The notes draw the same grid lying on its side, English × Hindi, 4 × 5: there each column sums to 1."),
        matrix("as N3 draws it (untrained)", weights.T, english, HINDI.split(), ("keys", "queries"), shade=True),
        Check(
            "a row of weights for every target word, a column for every source word",
            tuple(weights.shape) == (5, 4),
            _shape(weights.shape),
        ),
    ]


def _trained() -> list[Section]:
    found = explain(load("en-de", precision="float32", kind=Trained), "I like to eat ice cream.")
    last = found.trace["decoder.2.cross.weights"].values
    weights = last.reshape(-1, len(found.target), len(found.source)).mean(0)
    said = [f"→ {choice.chosen}" for choice in found.choices]
    diagonal = float(weights.max(1).values.mean())
    return [
        Heading("The same on a trained model"),
        Ours("the bundled English–German model; it has no Hindi sentence this long to learn from."),
        Prose(f"I like to eat ice cream. → {found.text}"),
        matrix(
            "weights, last layer, mean of the heads (trained)", weights, said, found.source, QUERIES_KEYS, shade=True
        ),
        Check(
            "training makes rows look at few words",
            diagonal > 0.4,
            f"the largest of a row is {diagonal:.2f} on average",
        ),
    ]


def _slips(least: float, outputs: int) -> list[Section]:
    return [
        Slip(
            "that Q for <SOS> only relies on the K and V of the word I, to predict the first word",
            "all source words, weighted",
            f"softmax gives every key some weight: {least:.4f} is the least in this grid, in any head; a trained "
            "model may put most of it on one word",
            "N0, encoder–decoder attention",
        ),
        Slip(
            "number of outputs of cross-attention == number of output sequences",
            f"the number of words of the output sequence, {outputs} here",
            "each query gives one output, and there is a query for each target word",
            "N3, cross attention",
        ),
    ]


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
