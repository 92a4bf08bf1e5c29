"""Relative positions (Shaw et al. 2018) and dependency-syntax positions (Wang et al. 2019), which N2 names."""

from clearformer.core.places import Places
from clearformer.core.positions import distance, tree_distance
from clearformer.notes.heads import SENTENCE
from clearformer.notes.layers import furthest
from clearformer.notes.parts import Check, Equation, Heading, Ours, Prose, Section, Table, matrix

#        The man saw the astronomer with a telescope: the head of each word, 1 for the first, 0 for none
WITH_SAW = [2, 3, 0, 5, 3, 8, 8, 3]
WITH_ASTRONOMER = [2, 3, 0, 5, 3, 8, 8, 5]
REACH = 2


def relative() -> list[Section]:
    places = Places.span(0, len(SENTENCE))
    away = distance(places, places)[0]
    return [
        Heading("Relative positions: how far the key is from the query"),
        Prose("N2 asks whether absolute indices are the best we can do. Shaw gives each distance a vector of its own."),
        Equation("score = q_i · (k_j + a(j − i)) / √d, with j − i cut to the reach"),
        matrix("j − i", away, SENTENCE, SENTENCE, ("query i", "key j"), decimals=0),
        Ours(f"a reach of {REACH}, so {2 * REACH + 1} vectors: farther words share the outermost."),
        matrix("cut to −2 … 2", away.clamp(-REACH, REACH), SENTENCE, SENTENCE, ("query i", "key j"), decimals=0),
        Check(
            "a distance means the same anywhere in the sentence",
            bool((away.diagonal(1) == 1).all() and (away.diagonal(-3) == -3).all()),
            "each diagonal holds one number",
        ),
        *_trees(places),
    ]


def _trees(places: Places) -> list[Section]:
    saw, astronomer = (places.with_trees([heads]) for heads in (WITH_SAW, WITH_ASTRONOMER))
    one, other = tree_distance(saw, saw)[0], tree_distance(astronomer, astronomer)[0]
    phrase = SENTENCE.index("telescope")
    to_saw, to_star = SENTENCE.index("saw"), SENTENCE.index("astronomer")
    moved = {(i, j) for i in range(len(SENTENCE)) for j in range(len(SENTENCE)) if one[i, j] != other[i, j]}
    rows = tuple(
        (
            word,
            _head(WITH_SAW, n),
            str(int(saw.depth[0, n])),
            _head(WITH_ASTRONOMER, n),
            str(int(astronomer.depth[0, n])),
        )
        for n, word in enumerate(SENTENCE)
    )
    return [
        Heading("Positions in the dependency tree"),
        Prose("Wang counts steps in the parse instead of words. The telescope sentence has two parses:"),
        Ours("the parses, in the style of Universal Dependencies."),
        Table("", ("word", "hangs on", "depth", "or on", "depth"), rows),
        Equation("ancestor and descendant: depth_i − depth_j"),
        Equation("others: depth_i + depth_j, with a minus where i stands before j"),
        matrix("he saw with a telescope", one, SENTENCE, SENTENCE, ("query i", "key j"), decimals=0),
        matrix(
            "the astronomer has a telescope (* changed)",
            other,
            SENTENCE,
            SENTENCE,
            ("query i", "key j"),
            decimals=0,
            highlight=moved,
        ),
        Check(
            "the words have not moved, but the telescope has",
            furthest(one, other) > 0,
            f"telescope to saw {int(one[phrase, to_saw])} or {int(other[phrase, to_saw])}, "
            f"to astronomer {int(one[phrase, to_star])} or {int(other[phrase, to_star])}",
        ),
    ]


def _head(heads: list[int], n: int) -> str:
    return SENTENCE[heads[n] - 1] if heads[n] else "(root)"
