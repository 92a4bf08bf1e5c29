"""What `clearformer train TASK` makes by itself is read by transformers and says the same there."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from clearformer.checkpoints.convert import convert
from clearformer.checkpoints.huggingface import describe
from clearformer.tasks.load import load
from clearformer.tasks.verify import verify
from clearformer.training.run import start
from tests.training import goals, runs

FAMILIES = {
    "tag": "megatron-bert",
    "embed by score": "megatron-bert",
    "embed by contrast": "megatron-bert",
    "answer": "megatron-bert",
    "complete": "mistral",
    "complete prompts": "mistral",
    "fill": "megatron-bert",
    "see": "siglip",
}
TEXTS = ("red cat runs big dog", "one two three small cat eats", "blue")
LETTERS = ("a b c d", "l k j i h", "c", "a a b f g e")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("defaults")
    goals.write(folder)
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_every_default_says_the_same_in_transformers(data: Path, name: str, tmp_path: Path) -> None:
    asked = goals.asking(data, name, out=f"{name} exported")
    start(asked)
    public = convert(asked.out, tmp_path / "public", "huggingface")
    assert describe(public).family == FAMILIES[name]
    found = verify(asked.out, public, TEXTS)
    assert found.by == "transformers"
    assert found.said >= 1
    assert found.same, found
    assert found.answers <= 1e-5 * max(found.largest, 1.0)
    back = convert(public, tmp_path / "back", "clearformer")
    assert verify(asked.out, back, TEXTS).same
    assert verify(public, back, TEXTS).weights == 0


TRANSLATORS: dict[str, tuple[dict[str, Any], str]] = {
    "as it is": ({}, "pegasus"),
    "by subwords": ({"tokenizer.kind": "bpe", "tokenizer.vocabulary": 300}, "pegasus"),
    "by unigrams": ({"tokenizer.kind": "unigram", "tokenizer.vocabulary": 300}, "pegasus"),
    "norms after": ({"model.norm": "after"}, "marian"),
}


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("translators")


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_writes_the_same_tokens_in_transformers(translators: Path, name: str, tmp_path: Path) -> None:
    changes, family = TRANSLATORS[name]
    folder = translators / name
    folder.mkdir()
    asked = runs.asking(folder, {"length.steps": 60, "validation.every": 60, **changes})
    start(asked)
    public = convert(asked.out, tmp_path / "public", "huggingface")
    assert describe(public).family == family
    found = verify(asked.out, public, LETTERS)
    assert (found.by, found.same, found.said) == ("transformers", True, 1 + 3 * len(LETTERS)), found
    # the settings in the folder are enough: nothing is said here but the text
    tokenizer, model = hf.AutoTokenizer.from_pretrained(public), hf.AutoModelForSeq2SeqLM.from_pretrained(public)
    for text in LETTERS:
        ids = model.generate(**tokenizer(text, return_tensors="pt"))[0]
        (one,) = load(asked.out, precision="float32").translate(text)
        if one.finish == "end":
            assert tokenizer.decode(ids, skip_special_tokens=True) == one.text
    mine, again = (load(folder, precision="float32").translate(list(LETTERS)) for folder in (asked.out, public))
    assert [(one.tokens, one.source_tokens) for one in mine] == [(one.tokens, one.source_tokens) for one in again]
    assert [one.score for one in mine] == pytest.approx([one.score for one in again], abs=1e-4)
