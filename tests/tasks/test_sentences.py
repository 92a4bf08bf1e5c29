"""Texts are translated sentence by sentence and put together with the space there was; signs are copied."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.data.pairs import Pair
from clearformer.tasks.load import load
from clearformer.tasks.split import sentences, spaced
from clearformer.tasks.translate import Translator
from clearformer.training.goals.translate import habits
from tests.cli.test_commands import run
from tests.tasks.conftest import save
from tests.tasks.test_translate import _cached


@pytest.mark.parametrize(
    "text",  # | where a sentence ends
    [
        "How are you?",
        "Hello. |How are you?",
        "Wait! |What?! |No.",
        "Mr. Smith met Dr. Jones. |They spoke.",
        "It is 8:45, or 3.14. |It costs 1.000,50 now.",
        "I saw her at 5 p.m. |She left at 6 p.m. on foot.",
        "J. K. Rowling lives in the U.S. and writes, e.g. novels. |Good.",
        "No. |I won't. |See No. 5.",
        "Visit example.com or write to a.b@c.de. |Now!",
        "1. Go in. |2. Come out.",
        "I am 5. |You are 6.",
        "Er kam am 3. Mai bzw. später an. |Er blieb.",
        "“Why?” he asked. |“Because.” |She left.",
        'Tom said, "Hi. How are you?" |Mary smiled.',
        "“Stop. Go home,” he said. |Then he left.",
        "He (it was late. I know.) left. |She stayed.",
        "(He left.) |She stayed.",
        ":( I am sad. |He (too) left.",
        "Well... maybe. |Wait... |What?",
        "I... I don't know. |OK…",
        "Really…? |Yes.",
        "how are you? |i am fine. |thanks",
        "iPhone is nice. eBay too.",
        "One fact.  |Two spaces.\t|A tab.",
        "A title\n\n|first line\ngoes on here. |Then\n|- one\n|- two",
        "你好。|我很好！|是吗？|“是。”他说",
        "नमस्ते। |आप कैसे हैं? |ठीक।",
        "Hey! |😀 Nice. |123",
        "Привет. |Как дела? |Γειά.",
    ],
)
def test_where_sentences_end(text: str) -> None:
    plain = text.replace("|", "")
    wanted = [part.strip() for part in text.split("|")]
    assert [plain[begin:end] for begin, end in sentences(plain)] == wanted


@given(st.text(st.sampled_from("aB1 .!?…\n\t\"'()“”।。,-😀é"), max_size=60))
def test_nothing_is_lost_between_sentences(text: str) -> None:
    found = spaced(text)
    assert "".join(gap + part for gap, part in found) == text.strip()
    assert all(part == part.strip() and part for _, part in found)
    assert all(not gap.strip() for gap, _ in found)


def test_a_long_line_takes_no_time_to_split() -> None:
    """Quadratic, it would not end: a million characters, with every sign that opens something."""
    for text in (
        "(a. " * 250_000,
        '"A. ' * 250_000,
        "a" * 1_000_000,
        "." * 1_000_000,
        '."' * 500_000,
        "(" * 300_000 + " A. )" * 150_000,
        " " * 1_000_000 + "a. B",
    ):
        assert sentences(text)


def test_sentences_are_translated_one_by_one_with_their_spacing(translator: Translator) -> None:
    parts = ["Do you know him?", "I see three of them.", "You do not!"]
    one, two, three = (each.text for each in translator.translate(parts))
    whole = translator.translate(f"  {parts[0]}\n\n{parts[1]}   {parts[2]}\n")[0]
    assert whole.text == f"{one}\n\n{two}   {three}"
    assert whole.score == pytest.approx(sum(each.score for each in translator.translate(parts)), abs=1e-4)
    assert translator.translate(" ".join(parts), by_sentence=False)[0].tokens != whole.tokens


@pytest.mark.parametrize("text", ["42", "8:45", "3.14 + 2 = 5.14", "...", "?!", "😀", "10 😀", "— § 7 —", "１２"])
def test_what_has_no_letters_is_copied(translator: Translator, text: str) -> None:
    found = translator.translate(["one", f" {text} ", "two"], num_beams=2, alignments=True)
    assert (found[1].text, found[1].finish, found[1].score) == (text, "end", 0.0)
    assert [one.text for one in found[::2]] == [one.text for one in translator.translate(["one", "two"], num_beams=2)]
    assert found[1].alignment is not None
    assert all(link.source == link.target for link in found[1].alignment)


def test_what_is_copied_stands_among_what_is_translated(translator: Translator) -> None:
    one = translator.translate("one two", num_return_sequences=2)[0]
    whole = translator.translate("one two\n\n42", num_return_sequences=2, alignments=True)[0]
    assert whole.text == f"{one.text}\n\n42"
    assert whole.others[0].text == f"{one.others[0].text}\n\n42"
    assert whole.alignment is not None
    assert whole.alignment[-1][:2] == (2, len(whole.alignment) - 1)  # the third word of both


def test_a_model_that_was_trained_on_other_things_is_given_them(tmp_path: Path) -> None:
    """One of paragraphs, and one that makes words of numbers."""
    folder = save(tmp_path / "m")
    said = (folder / "task.json").read_text()
    (folder / "task.json").write_text(said.replace("{", '{"by_sentence": false, "copies": false, ', 1))
    other, usual = load(folder, precision="float32"), _cached()
    text = "Do you know him? You do not!"
    assert other.translate(text)[0].tokens == usual.translate(text, by_sentence=False)[0].tokens
    assert other.translate("42", by_sentence=True)[0].tokens == usual.translate("42", by_sentence=False)[0].tokens


def test_habits_are_found_in_the_data() -> None:
    def found(*pairs: tuple[str, str]) -> dict[str, bool]:
        return habits(Pair(*pair, "") for pair in pairs)

    assert found(("a.", "b."), ("So. Go.", "C. D.")) == {"by_sentence": True, "copies": True}
    assert found(("So. Go.", "c"), ("Oh! Ah.", "f"), ("a", "b"))["by_sentence"] is False
    assert found(("1", "1"), ("2", "two"))["copies"] is True
    assert found(("1", "one"), ("2", "two"), ("3", "3"))["copies"] is False
    assert found() == {"by_sentence": True, "copies": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("models") / "tiny"))


def test_the_command_takes_whatever_comes(model: str, tmp_path: Path) -> None:
    """Empty lines, signs, 10,000 characters with and without spaces, mixed scripts: a line in is a line out."""
    lines = ["one two. You do not!", "", "42", "😀", "?", "one, two " * 1_100, "x" * 10_000, "Привет 你好 नमस्ते one 42"]
    file = tmp_path / "in.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    done = run("translate", "--model", model, "--num-beams", "1", "--file", str(file))
    assert done.returncode == 0, done.stderr
    out = done.stdout.removesuffix("\n").split("\n")
    assert len(out) == len(lines)
    assert out[1:5] == ["", "42", "😀", "?"]


def test_a_whole_file_keeps_its_lines(model: str, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("One two\n\n42\nYou do not!\n", encoding="utf-8")
    whole = run("translate", "--model", model, "--num-beams", "1", "--whole", "--file", str(file))
    lines = run("translate", "--model", model, "--num-beams", "1", "--file", str(file))
    assert whole.returncode == 0, whole.stderr
    assert whole.stdout == lines.stdout
    one = run("translate", "--model", model, "--as-one", "--num-beams", "1", "Do you know him? You do not!")
    assert one.stdout != run("translate", "--model", model, "--num-beams", "1", "Do you know him? You do not!").stdout
