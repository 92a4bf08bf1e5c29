"""`answer` and `see` as a person uses them: what they print, what they write, and errors of one line."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers

from clearformer.cli import main
from clearformer.cli.answer import sentence
from clearformer.cli.see import grid
from clearformer.tasks.answer import Answer
from clearformer.tasks.load import load
from clearformer.tasks.see import Seen
from tests.tasks.test_answer import CONTEXT, QUESTIONS, save_public
from tests.tasks.test_see import IMAGES, LABELS, save_captioner, save_seer

Call = Callable[..., SimpleNamespace]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line in this process: what it printed, and its exit code."""

    def call(*words: Any, stdin: str | bytes = b"") -> SimpleNamespace:
        raw = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr(sys, "argv", ["clearformer", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        code = stopped.value.code or 0
        assert "Traceback" not in printed.err
        return SimpleNamespace(code=code, out=printed.out, err=printed.err)

    return call


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp(name) for name in ("answerer", "seer", "captioner", "writer", "files")}
    save_public(made["answerer"], longest=40)
    save_seer(made["seer"])
    save_captioner(made["captioner"])
    save_writer(made["writer"])
    (made["files"] / "page.txt").write_text(CONTEXT * 4)
    (made["files"] / "questions.txt").write_text("\n".join(QUESTIONS))
    for number, image in enumerate(IMAGES):
        image.save(made["files"] / f"{number}.png")
    (made["files"] / "text.png").write_text("no image")
    return made


def save_writer(folder: Path) -> None:
    """A GPT-2 that answers by writing on."""
    torch.manual_seed(6)
    sizes = {"n_positions": 512, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    letters = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(letters), **sizes)).save_pretrained(folder)
    engine = Engine(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, eos_token=letters[0]).save_pretrained(folder)


# --- answer -----------------------------------------------------------------------------------------------


def test_an_answer_and_its_sentence(folders: dict[str, Path], call: Call) -> None:
    page = folders["files"] / "page.txt"
    done = call("answer", "--model", folders["answerer"], "--context", page, QUESTIONS[0])
    assert done.code == 0, done.err
    one = load(folders["answerer"]).answer(QUESTIONS[0], page.read_text())[0]
    first, second = done.out.splitlines()
    assert first == f"{' '.join(one.text.split())}  {100 * one.probability:.1f} %"
    assert second.strip() == sentence(page.read_text(), one)
    assert call("answer", "--model", folders["answerer"], QUESTIONS[0], stdin=page.read_text()).out == done.out


def test_many_questions_and_answers(folders: dict[str, Path], call: Call) -> None:
    page, asked = folders["files"] / "page.txt", folders["files"] / "questions.txt"
    always = ("answer", "--model", folders["answerer"], "--context", page, "--top", 3)
    by_file, given = call(*always, "--file", asked), call(*always, *QUESTIONS)
    assert by_file.out == given.out
    lines = given.out.splitlines()
    assert [line for line in lines if line in QUESTIONS] == QUESTIONS
    assert len([line for line in lines if line.endswith("%")]) == 6
    records = [json.loads(line) for line in call(*always, "--json", "--impossible", *QUESTIONS).out.splitlines()]
    assert [record["question"] for record in records] == QUESTIONS
    for record in records:
        assert len(record["others"]) == 2
        assert record["text"] == page.read_text()[record["start"] : record["end"]]
        assert 0 <= record["impossible"] <= 1


def test_answers_in_a_file(folders: dict[str, Path], call: Call, tmp_path: Path) -> None:
    always = ("answer", "--model", folders["answerer"], "--context", folders["files"] / "page.txt", "Who?")
    out = tmp_path / "answers.txt"
    printed = call(*always).out
    assert call(*always, "--out", out).out == ""
    assert out.read_text() == printed
    assert "exists already" in call(*always, "--out", out).err


def test_a_model_that_writes_writes(folders: dict[str, Path], call: Call) -> None:
    always = ("answer", "--model", folders["writer"], "--context", folders["files"] / "page.txt")
    expected = load(folders["writer"]).answer(QUESTIONS, (folders["files"] / "page.txt").read_text())
    records = [json.loads(line) for line in call(*always, "--json", *QUESTIONS).out.splitlines()]
    assert [record["text"] for record in records] == [one.text for one in expected]
    assert call(*always, QUESTIONS[0]).out.startswith(expected[0].text.split("\n")[0])
    refused = call(*always, "--top", 2, "Who?")
    assert refused.code == 2
    assert "are for models that have a span head" in refused.err


def test_the_sentence_around() -> None:
    text = "One. Two is here! Three, the\nfourth?  Five."

    def around(part: str) -> str:
        start = text.index(part)
        return sentence(text, Answer(part, start, start + len(part), 1.0, 0))

    assert around("is") == "Two [is] here!"
    assert around("One") == "[One]."
    assert around("One.") == "[One.]"
    assert around("Three") == "[Three], the"
    assert around("fourth") == "[fourth]?"
    assert around("Five.") == "[Five.]"
    assert around("here! Three") == "Two is [here! Three], the"
    long = "a " * 400 + "x " + "b " * 400
    assert sentence(long, Answer("x", 800, 801, 1.0, 0)) == "…" + "a " * 80 + "[x] " + ("b " * 80)[:-1] + "…"


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (["Who?"], "", "context 1 is empty"),
        (["Who?", "--context", "{files}/none.txt"], "", "there is no file"),
        (["Who?", "--context", "{files}"], "", "is a folder; give a file"),
        (["Who?", "--context", "{files}/0.png"], "", "a binary file; give a text file"),
        (["Who?"], b"caf\xe9", "not UTF-8"),
        ([], CONTEXT, "give questions, or a file of questions with --file"),
        (["Who?", "--file", "{files}/questions.txt"], CONTEXT, "not both"),
        (["--file", "-"], CONTEXT, "cannot both come from stdin"),
        ([" "], CONTEXT, "question 1 is empty"),
        (["the tower " * 30], CONTEXT, "ask a shorter question"),
        (["Who?", "--top", "0"], CONTEXT, "top must be at least 1"),
        (["Who?", "--model", "{seer}"], CONTEXT, "this model cannot answer: that needs a model with a span head"),
        (["Who?", "--model", "{files}"], CONTEXT, "not a model folder"),
    ],
)
def test_questions_that_cannot_be_answered(
    folders: dict[str, Path], call: Call, words: list[str], stdin: str | bytes, said: str
) -> None:
    done = call("answer", "--model", folders["answerer"], *(word.format(**folders) for word in words), stdin=stdin)
    assert done.code == 2
    assert done.err.startswith("clearformer: ")
    assert said in done.err
    assert done.out == ""


# --- see --------------------------------------------------------------------------------------------------


def test_labels_and_the_grid(folders: dict[str, Path], call: Call) -> None:
    done = call("see", "--model", folders["seer"], folders["files"] / "0.png", "--top", 3)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line.split("%  ")[1] for line in lines[:3]] == [
        name for name, _ in load(folders["seer"]).see(IMAGES[0], top=3)[0].labels
    ]
    assert [len(line) for line in lines[4:9]] == [8] * 5  # three patches of two signs, and the frame
    assert "points" in lines[9]
    plain = call("see", "--model", folders["seer"], folders["files"] / "0.png", "--no-patches")
    assert len(plain.out.splitlines()) == len(LABELS)


def test_several_images_as_json(folders: dict[str, Path], call: Call) -> None:
    paths = [folders["files"] / f"{n}.png" for n in range(3)]
    records = [json.loads(line) for line in call("see", "--model", folders["seer"], "--json", *paths).out.splitlines()]
    assert [record["image"] for record in records] == list(map(str, paths))
    expected = [one.to_dict() for one in load(folders["seer"]).see(paths, patches=True)]
    assert [{"image": str(path), **one} for path, one in zip(paths, expected, strict=True)] == records
    named = call("see", "--model", folders["seer"], "--no-patches", *paths).out.splitlines()
    assert [line for line in named if line.endswith(".png")] == list(map(str, paths))


def test_shades() -> None:
    found = grid(Seen((("cat", 0.9),), ((0.5, 0.25, 0.0), (-0.4, -0.01, 0.125))))
    assert found[1:3] == ["│██▒▒  │", "│--  ░░│"]
    assert found[4] == "without a patch 'cat' loses up to 50.0 points (shades), gains up to 40.0 (--)"
    assert "gains" not in grid(Seen((("cat", 0.9),), ((0.5, 0.25),)))[-1]
    assert grid(Seen((("cat", 0.9),), ((0.0, 0.0),)))[1] == "│    │"


def test_the_picture_is_written(folders: dict[str, Path], call: Call, tmp_path: Path) -> None:
    always = ("see", "--model", folders["seer"], folders["files"] / "0.png")
    assert call(*always, "--out", tmp_path / "heat.png").code == 0
    with Image.open(tmp_path / "heat.png") as picture:
        assert picture.width == 456  # 12 pixels, 38 times as large
    assert list(tmp_path.iterdir()) == [tmp_path / "heat.png"]
    assert "exists already" in call(*always, "--out", tmp_path / "heat.png").err


def test_captions(folders: dict[str, Path], call: Call) -> None:
    paths = [folders["files"] / f"{n}.png" for n in range(3)]
    expected = load(folders["captioner"]).see(paths)
    assert call("see", "--model", folders["captioner"], paths[1]).out == expected[1].text + "\n"
    several = call("see", "--model", folders["captioner"], *paths).out.splitlines()
    assert several == [f"{path}\t{one.text}" for path, one in zip(paths, expected, strict=True)]
    short = call("see", "--model", folders["captioner"], "--json", "--max-new-tokens", 2, "--num-beams", 2, paths[0])
    assert len(json.loads(short.out)["tokens"]) <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{files}/text.png"], "text.png is not an image: none of PNG"),
        (["{files}/none.png"], "there is no file"),
        (["{files}"], "is a folder; give a file"),
        (["{files}/0.png", "--top", "0"], "top must be at least 1"),
        (["{files}/0.png", "--out", "{files}/heat.txt"], "heat.txt has no ending of a picture; call it heat.png"),
        (["{files}/0.png", "--out", "{files}/no/heat.png"], "there is no folder"),
        (["{files}/0.png", "{files}/1.png", "--out", "{files}/heat.png"], "--out is for the patches of one image"),
        (["{files}/0.png", "--no-patches", "--out", "{files}/heat.png"], "--out is for the patches of one image"),
        (["{files}/0.png", "--num-beams", "2"], "for models that write captions"),
        (["{files}/0.png", "--model", "{captioner}", "--out", "{files}/heat.png"], "this model writes captions"),
        (["{files}/0.png", "--model", "{captioner}", "--top", "5"], "--top and --square are for models that label"),
        (["{files}/0.png", "--model", "{captioner}", "--square", "1"], "--top and --square are for models that label"),
        (["{files}/0.png", "--model", "{answerer}"], "this model cannot see: that needs a ViT"),
    ],
)
def test_images_that_cannot_be_seen(folders: dict[str, Path], call: Call, words: list[str], said: str) -> None:
    done = call("see", "--model", folders["seer"], *(word.format(**folders) for word in words))
    assert done.code == 2
    assert done.err.startswith("clearformer: ")
    assert said in done.err
    assert done.out == ""
