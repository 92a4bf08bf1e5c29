"""A folder without a tokenizer opens for ids; what needs texts says what is missing."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import clearformer as cf
from clearformer.cli import app
from clearformer.errors import DataError
from tests.checkpoints.cases import ONE, TWO, VIT, pair, suitable


@pytest.mark.parametrize("name", [name for name in {**ONE, **TWO} if name not in VIT and name != "captions"])
def test_every_family_opens_and_runs_on_ids(name: str) -> None:
    task = cf.load(pair(name)[2])
    given = suitable(name)
    with torch.inference_mode():
        made = task.model(*(each.ids for each in given))
    assert bool(torch.isfinite(made).all())


VERBS = {
    "bert masked": "fill",
    "bert classes": "classify",
    "bert pooler": "embed",
    "llama": "complete",
    "t5": "summarize",
}


@pytest.mark.parametrize("name", VERBS)
def test_a_text_is_refused_with_what_is_missing(name: str) -> None:
    folder = pair(name)[2]
    work = getattr(cf.load(folder), VERBS[name], None)
    assert work is not None
    with pytest.raises(DataError, match=rf"{folder} has no tokenizer, so its model reads no texts: put its tokenizer"):
        work(["some text"])


def test_ids_are_completed() -> None:
    theirs, _, folder = pair("llama")
    task = cf.load(folder)
    prompts = [[5, 9, 2], [7], [1, 2, 3, 4]]
    found = task.complete(prompts, max_new_tokens=6)
    for ids, one in zip(prompts, found, strict=True):
        wanted = theirs.generate(
            torch.tensor([ids]), max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert [int(token) for token in one.tokens] == wanted[0, len(ids) :].tolist()
        assert one.prompt == " ".join(map(str, ids))
        assert one.text == "".join(f" {token}" for token in one.tokens)
    assert task.complete([(5, 9, 2)], max_new_tokens=6) == found[:1]
    heard: list[str] = []
    task.complete([[5, 9, 2]], max_new_tokens=6, on_token=lambda number, piece: heard.append(piece))
    assert "".join(heard) == found[0].text
    for wrong in ([[10_000]], [[-1]]):
        with pytest.raises(DataError, match=r"prompt 1 has the id -?\d+; this model has ids from 0 to \d+"):
            task.complete(wrong)


def test_an_unknown_key_goes_with_the_flag(tmp_path: Path) -> None:
    folder = shutil.copytree(pair("llama")[2], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "odd_key": 3}))
    with pytest.raises(cf.ClearformerError, match="--ignore odd_key"):
        cf.load(folder)
    assert cf.load(folder, ignore=["odd_key"]).complete([[1, 2]], max_new_tokens=2)
    run = CliRunner()
    assert run.invoke(app, ["inspect", str(folder)]).exit_code != 0
    done = run.invoke(app, ["inspect", str(folder), "--json", "--ignore", "odd_key"])
    rows = [row for row in json.loads(done.stdout)["config"] if row["key"] == "odd_key"]
    assert [(row["use"], row["value"], row["why"]) for row in rows] == [
        ("ignored", 3, "unknown, and ignored as the caller asked")
    ]
    assert "odd_key" in run.invoke(app, ["inspect", str(folder), "--ignore", "odd_key"]).stdout
    out = tmp_path / "out"
    done = run.invoke(app, ["convert", str(folder), str(out), "--to", "clearformer", "--ignore", "odd_key"])
    assert done.exit_code == 0, done.exception
    assert cf.load(out).complete([[1, 2]], max_new_tokens=2)


WORK = ["translate", "summarize", "answer", "complete", "classify", "embed", "search index", "search query", "fill"]
OTHER = ["tag", "see", "finetune", "score", "convert", "explain", "inspect"]


@pytest.mark.parametrize("verb", [*WORK, *OTHER])
def test_every_verb_with_a_model_has_the_flag(verb: str) -> None:
    assert "--ignore" in CliRunner().invoke(app, [*verb.split(), "--help"]).stdout
