"""What is learned from is as people write it: signs behind words without a space, a line as a text of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearformer.data.blocks import Blocks, write_stream
from clearformer.data.pairs import Pairs
from clearformer.data.trees import JOINED, read_trees, words_of
from clearformer.text.learn import learn
from clearformer.text.tokenizer import PublicTokenizer
from clearformer.training.goals.labels import TagCoder

WORDS = [("Do", "AUX", "No"), ("n't", "PART", ""), ("go", "VERB", "No"), (",", "PUNCT", ""), ("Tom", "PROPN", "No")]
WORDS += [("!", "PUNCT", "")]


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    rows = [
        f"{n}\t{form}\t_\t{tag}\t_\t_\t{n - 1}\tdep\t_\t{f'SpaceAfter={space}' if space else '_'}\n"
        for n, (form, tag, space) in enumerate(WORDS, 1)
    ]
    path = tmp_path / "some.conllu"
    path.write_text("# text = Don't go, Tom!\n" + "".join(rows) + "\n")
    return path


def test_words_and_signs_stand_as_in_the_text(trees: Path) -> None:
    pair = next(iter(read_trees(Pairs(file=trees))))
    # letters that meet are kept apart: no tokenizer begins a token inside a word
    assert pair.source == f"Do n't go{JOINED}, Tom{JOINED}!"
    assert words_of(pair.source) == [form for form, _, _ in WORDS]
    assert pair.target == "AUX PART VERB PUNCT PROPN PUNCT"


class _Goal:
    trees = False
    vocabulary = 400
    labels = ("AUX", "PART", "PROPN", "PUNCT", "VERB")

    def __init__(self, words: PublicTokenizer):
        self.words = words


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_every_word_has_its_label_at_its_first_piece(trees: Path, kind: Any) -> None:
    words = PublicTokenizer.of(learn(["Do n't go , Tom !"] * 3, kind, 400))
    goal: Any = _Goal(words)
    pair = next(iter(read_trees(Pairs(file=trees))))
    [(ids, labels)] = TagCoder(goal).code([pair], None)
    pieces = words.pieces(ids)
    assert len(labels) == len(ids)  # no heads, so that a sentence is not twice as long as it is
    told = [goal.labels[label - 1] for label in labels[: len(ids)] if label]
    assert told == [tag for _, tag, _ in WORDS]
    if kind == "bpe":  # a sign as in running text, without a space before it
        assert [piece for piece, label in zip(pieces, labels, strict=False) if label == 4] == [",", "!"]
        text = "Do n't go, Tom!"
        assert ids == words.encode(text).ids


def test_lines_are_texts_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("it rains\n\nI run\n")
    words = PublicTokenizer.of(learn(["it rains", "I run"], "bpe", 300), start=False)
    size = write_stream(tmp_path, "lines", [path], words, by_line=True)
    wanted = words.encode("it rains").ids + words.encode("I run").ids
    assert wanted.count(words.end) == 2
    stream = Blocks(tmp_path, "lines", 4, 8).stream
    assert size == len(wanted)
    np.testing.assert_array_equal(stream, wanted)
    whole = write_stream(tmp_path, "whole", [path], words)
    np.testing.assert_array_equal(
        Blocks(tmp_path, "whole", 4, 8).stream, [*words.encode("it rains\n\nI run\n", special=False).ids, words.end]
    )
    assert whole == len(Blocks(tmp_path, "whole", 4, 8).stream)


def test_blocks_to_learn_from_are_shuffled_in_every_epoch_and_those_to_validate_on_are_not(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"{n}\n" for n in range(500)))
    words = PublicTokenizer.of(learn([f"{n}\n" for n in range(500)], "char", 300))
    size = write_stream(tmp_path, "text", [tmp_path / "text"], words)
    learned, validated = Blocks(tmp_path, "text", 10, 40, seed=1), Blocks(tmp_path, "text", 10, 40)
    for epoch in range(3):
        starts = np.concatenate(learned.plan(epoch))
        assert list(starts) != sorted(starts)
        assert set(np.diff(sorted(starts))) == {10}  # none twice, none left out
        assert min(starts) < 10
        assert size - 21 < max(starts) <= size - 11
    assert list(np.concatenate(learned.plan(0))) != list(np.concatenate(learned.plan(1)))
    starts = np.concatenate(validated.plan(0))
    assert list(starts) == sorted(starts)
    assert {at + n for at in starts for n in range(11)} == set(range(size))
