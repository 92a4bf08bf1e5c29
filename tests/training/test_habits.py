"""What a translator's data does to texts goes with the model, and with every model that begins with it."""

import json
from pathlib import Path
from typing import Any

import pytest

import clearformer as cf
from clearformer.checkpoints.model_folder import save_model
from tests.training.runs import prepared

HABITS = {"placeholders": True, "by_sentence": False, "copies": True}
USUAL = {"placeholders": False, "by_sentence": True, "copies": True}


@pytest.mark.parametrize("said", [HABITS, {}])
def test_a_model_goes_on_as_the_one_it_begins_with(tmp_path: Path, said: dict[str, Any]) -> None:
    run = prepared(tmp_path, {"length.steps": 1})
    first = save_model(cf.build(run.spec, seed=1), tmp_path / "first")
    (first / "tokenizer.json").write_bytes((run.folder / "tokenizer.json").read_bytes())
    (first / "task.json").write_text(json.dumps({"task": "translate", "longest": 50, "to": [], **said}))
    again = tmp_path / "again"
    again.mkdir()
    begun = prepared(again, {"model": {"start": first}, "length.steps": 1})
    told = begun.goal.metadata(None)
    assert {name: getattr(told, name) for name in HABITS} == (said or USUAL)
