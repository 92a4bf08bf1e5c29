"""Alignment, splitting, scoring and overlap, by hand; loading what is not a model."""

import shutil
from pathlib import Path

import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearformer.data.overlap import Seen
from clearformer.errors import CheckpointError, DataError
from clearformer.explain.trace import trace
from clearformer.tasks.align import Link, links, weights, words
from clearformer.tasks.explain import explain
from clearformer.tasks.load import find, load
from clearformer.tasks.score import score
from clearformer.tasks.split import gaps, split
from clearformer.tasks.translate import Translator


def test_tokens_are_joined_to_the_words_they_spell() -> None:
    assert words(["▁un", "known", "▁word", "."]) == [0, 0, 1, 1]
    assert words(["<0xE0>", "x", "▁y"]) == [0, 0, 1]
    assert words(["walk", "twice"]) == [0, 1]  # a vocabulary of whole words marks no spaces


def test_a_word_is_linked_to_the_word_it_saw_most() -> None:
    seen = torch.tensor([[0.1, 0.2, 0.7], [0.6, 0.1, 0.3], [0.0, 0.5, 0.5]])
    # source: “▁a b” and “▁c”; target: “▁x y” (rows 0, 1) and “▁z” (row 2)
    found = links(seen, ["▁a", "b", "▁c"], ["▁x", "y", "▁z"])
    assert found == [Link(0, 0, 0.5), Link(0, 1, 0.5)]
    assert links(seen, [], ["▁x"]) == []


def test_alignment_is_the_mean_of_the_traced_cross_attention(translator: Translator) -> None:
    source, target = [5, 6, 7, 2], [1, 8, 9]
    run = trace(translator.model, torch.tensor([source]), torch.tensor([target]))
    by_hand = sum(run[f"decoder.{layer}.cross.h{head}.weights"].values for layer in range(2) for head in range(4)) / 8
    assert torch.allclose(weights(translator.model, source, target), by_hand, atol=1e-6)
    assert torch.allclose(by_hand.sum(1), torch.ones(3))


@given(st.text(alphabet="ab .,!?\n。é\u0301", max_size=80), st.integers(3, 20), st.integers(0, 10))
def test_parts_can_be_taken_and_lose_nothing(text: str, usual: int, more: int) -> None:
    parts = split(text, lambda part: len(part) <= usual, lambda part: len(part) <= usual + more)
    assert parts is not None
    assert all(len(part) <= usual + more for part in parts)
    between = gaps(text, parts)
    assert all(not gap.strip() for gap in between)
    assert "".join(a + b for a, b in zip(between, parts, strict=True)) == text.rstrip()
    if max((len(word) for word in text.split()), default=0) <= usual + more and "。" not in text:
        assert " ".join(parts).split() == text.split()  # no word is cut that need not be


def parts(text: str, usual: int, longest: int) -> list[str] | None:
    return split(text, lambda part: len(part) <= usual, lambda part: len(part) <= longest)


def test_sentences_stay_whole_where_they_can() -> None:
    assert parts("A b. C d! E f?", 9, 20) == ["A b. C d!", "E f?"]
    assert parts("a b, c d e. F", 4, 20) == ["a b, c d e.", "F"]  # longer than usual, and still one sentence
    assert parts("a b, c d e", 6, 8) == ["a b,", "c d e"]
    assert parts("a b c d", 3, 5) == ["a b", "c d"]
    assert parts("a b, cc dd ee, f", 3, 5) == ["a b,", "cc", "dd", "ee,", "f"]  # at spaces where commas are too few
    assert parts("abcdef g", 3, 5) == ["abc", "def", "g"]  # a word, where there is nothing else
    assert parts("a", 3, 0) is None


def test_scores_are_sacrebleus_with_signatures() -> None:
    made = ["the cat sat on the mat", "a dog ran in the park today", "x"]
    references = ["the cat sat on a mat", "a dog ran in the park today", "completely different"]
    found = score(made, references, ["1", "2", "3"], worst=2)
    assert found.bleu == sacrebleu.corpus_bleu(made, [references]).score
    assert found.chrf == sacrebleu.corpus_chrf(made, [references]).score
    assert found.exact == pytest.approx(1 / 3)
    assert "tok:13a" in found.signatures[0]
    assert "case:mixed" in found.signatures[0]
    assert [each.line for each in found.worst] == [3, 1]
    assert found.worst[0].source == "3"
    assert "case:lc" in score(["A"], ["a"], lowercase=True).signatures[0]
    with pytest.raises(DataError, match="no tokenizer '13b'"):
        score(["a"], ["a"], tokenize="13b")
    with pytest.raises(DataError, match="2 translations given for 1"):
        score(["a", "b"], ["a"])


def test_overlap_counts_sources_and_pairs_without_case_or_spacing(folder: Path) -> None:
    seen = Seen.load(folder)
    assert seen is not None
    found = seen.overlap(["ONE  two three", "four", "five", "six"], ["drei", "other", "x", "y"])
    assert found == (0.5, 0.25)
    assert "50.0% of the sources and 25.0% of the pairs" in str(found)


@pytest.mark.parametrize("missing", ["spec.json", "weights.safetensors", "tokenizer.json", "task.json"])
def test_a_folder_without_one_of_its_files_is_no_model(folder: Path, tmp_path: Path, missing: str) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "m"))
    (copy / missing).unlink()
    with pytest.raises(CheckpointError, match=missing):
        load(copy, precision="float32")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"task": "paint"}', '{"task": "translate", "longest": "x", "to": []}']
)
def test_a_damaged_task_file_is_named(folder: Path, tmp_path: Path, content: str) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "m"))
    (copy / "task.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"task\.json"):
        load(copy, precision="float32")


def test_what_is_no_folder_and_no_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        find(file)
    with pytest.raises(CheckpointError, match="no bundled model of that name; did you mean 'en-de'"):
        find("en_de")


def test_an_explanation_is_of_the_very_translation(translator: Translator) -> None:
    text = "Do you know him?"
    found, plain = explain(translator, text, num_beams=3, top=4), translator.translate(text, num_beams=3)[0]
    assert found.text == plain.text
    assert found.target[1:] == list(plain.tokens)
    assert [choice.chosen for choice in found.choices][: len(plain.tokens)] == list(plain.tokens)
    logs = sum(float(torch.tensor(choice.probability).log()) for choice in found.choices)
    assert logs == pytest.approx(found.score, abs=1e-3)
    node = found.tree
    for _ in found.choices:
        (node,) = [child for child in node.children.values() if child.chosen]
    assert all(len(choice.likeliest) == 4 for choice in found.choices)
    with pytest.raises(DataError, match="empty"):
        explain(translator, "  ")
