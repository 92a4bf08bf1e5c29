"""A small translator with random weights, saved as a folder: quick, and it ends, repeats and errs like a real one."""

import json
from pathlib import Path

import pytest

import clearformer as cf
from clearformer import presets
from clearformer.data.overlap import FILE, Seen
from clearformer.tasks.load import load
from clearformer.tasks.translate import Translator
from clearformer.text.learn import learn
from tests.laws.cases import loud

TEXTS = [
    "one two three",
    "four five, six.",
    "Do you know him?",
    "I see three of them. You do not!",
    "seven eight nine ten",
]


def save(folder: Path, languages: tuple[str, ...] = ()) -> Path:
    tokenizer = learn(TEXTS, "bpe", 360, languages=languages)
    model = loud(cf.build(presets.original("tiny", vocabulary=len(tokenizer), norm="before"), seed=3))
    cf.save_model(model, folder)  # type: ignore[arg-type]
    (folder / "tokenizer.json").write_text(tokenizer.to_json())
    task = {"task": "translate", "from": "en", "to": list(languages) or ["xx"], "longest": 40, "usual": 12}
    (folder / "task.json").write_text(json.dumps(task))
    (folder / FILE).write_bytes(Seen.of([("one two three", "drei"), ("four", "vier")]).to_bytes())
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def translator(folder: Path) -> Translator:
    return load(folder, precision="float32")
