"""What a newcomer gives on the command line is taken, said, or refused; nothing is passed over in silence."""

import json
from pathlib import Path
from typing import Any

import pytest

import clearformer as cf
from clearformer.errors import DataError
from clearformer.training.api import asked, settle
from clearformer.training.prepare import prepare
from tests.cli.test_commands import run
from tests.tasks.conftest import save
from tests.training.runs import asking, write_pairs

NONE: dict[str, Any] = {"source": None, "target": None, "file": None}
TINY = {"tokenizer.kind": "word", "model.width": 16, "model.layers": 1, "batch.tokens": 60, "validation.sentences": 0}
SET = [word for path, value in TINY.items() for word in ("--set", f"{path}={value}")]


def given(files: dict[str, str], fields: str | None, **rest: Any) -> dict[str, Any]:
    return asked({**NONE, **files}, NONE, out="x", to=None, length={}, fields=fields, **rest)


def test_fields_are_those_of_every_file_that_holds_both_sides() -> None:
    found = asked({**NONE, "file": "a.tsv"}, {**NONE, "file": "b.tsv"}, out="x", to="de", length={}, fields="en, de")
    settings = settle(None, found, {})
    assert [part.fields for part in (*settings.data.train, *settings.data.valid)] == [("en", "de")] * 2
    both = settle(None, given({"source": "a", "target": "b"}, "2,3", more=(["c.tsv"], [])), {})
    assert [part.fields for part in both.data.train] == [None, ("2", "3")]


@pytest.mark.parametrize("files", [{"source": "a", "target": "b"}, {}])
def test_fields_of_no_file_are_refused(files: dict[str, str]) -> None:
    with pytest.raises(DataError, match="fields are columns or keys of one file that holds both sides"):
        given(files, "en,de")
    for wrong in ("en", "en,", "a,b,c,d"):
        with pytest.raises(DataError, match="two or three names"):
            given({"file": "a.tsv"}, wrong)


def table(folder: Path, header: str = "") -> Path:
    """Three columns: a number, letters, the letters backwards; and blank lines."""
    source, target = write_pairs(folder, 60)
    rows = zip(source.read_text().splitlines(), target.read_text().splitlines(), strict=True)
    file = folder / "pairs.tsv"
    file.write_text(header + "".join(f"{n}\t{a}\t{b}\n" for n, (a, b) in enumerate(rows)) + "\n\n")
    return file


def test_the_command_takes_the_columns_it_is_told_and_says_so(tmp_path: Path) -> None:
    file = table(tmp_path, "id\ten\tde\n")
    words = ("train", "--pairs", str(file), "--out", str(tmp_path / "run"), "--steps", "2", *SET)
    done = run(*words, "--fields", "en,de")
    assert done.returncode == 0, done.stderr
    assert f"{file}: en and de of 3 are taken; line 1 has their names and is no pair" in done.stderr
    assert "2 with an empty side" in done.stderr
    held = [json.loads(line) for line in (tmp_path / "run" / "data" / "valid.jsonl").read_text().splitlines()]
    assert held
    assert not any(sign.isdigit() for row in held for sign in row["source"] + row["target"])
    wrong = run(*words[:4], str(tmp_path / "other"), *words[5:], "--fields", "en,dee")
    assert wrong.returncode == 2
    assert "no column 'dee'; did you mean 'de'" in wrong.stderr


def test_three_columns_and_a_header_are_not_taken_in_silence(tmp_path: Path) -> None:
    told: list[str] = []
    file = table(tmp_path, "id\ten\tde\n")
    settings = asking(tmp_path, {"data.train": [{"file": str(file)}]})
    prepare(settings, told.append)
    assert told[0].startswith(
        f"{file}: columns 1 and 2 of 3 are taken; choose others with fields (--fields 2,3). Line 1"
    )


def test_finetuning_takes_two_files(tmp_path: Path) -> None:
    (tmp_path / "valid").mkdir()
    files = [*write_pairs(tmp_path, 40), *write_pairs(tmp_path / "valid", 7)]
    options = ("--source", "--target", "--valid-source", "--valid-target")
    given = [word for pair in zip(options, map(str, files), strict=True) for word in pair]
    model, out = save(tmp_path / "model"), tmp_path / "run"
    small = ("--steps", "2", "--set", "validation.sentences=0", "--set", "batch.tokens=100")
    done = run("finetune", "translate", "--model", str(model), *given, "--out", str(out), *small)
    assert done.returncode == 0, done.stderr
    assert cf.load(out).can == ("translate",)


def test_scores_of_a_table_are_of_the_columns_asked_for(tmp_path: Path) -> None:
    model, file = str(save(tmp_path / "model")), tmp_path / "test.tsv"
    file.write_text("id\ten\tde\n1\tone two three\tdrei\n")
    found = run("score", "--model", model, "--pairs", str(file), "--fields", "en,de", "--json")
    assert found.returncode == 0, found.stderr
    assert '"overlap": {"sources": 1.0, "pairs": 1.0}' in found.stdout
    files = ("--source", str(file), "--target", str(file))
    assert "--source and --target have none" in run("score", "--model", model, *files, "--fields", "1,2").stderr
