"""Sets of data that a run goes on without."""

from pathlib import Path

import pytest

from clearformer.errors import DataError
from clearformer.training.prepare import prepare, without_absent
from tests.training.runs import asking


def test_an_optional_set_that_is_not_there_is_left_out_with_a_word(tmp_path: Path) -> None:
    asked = asking(tmp_path)
    more = {"source": tmp_path / "none.en", "target": tmp_path / "none.de", "optional": True}
    wanted = asked.replace({"data.train": [*asked.data.train, more], "data.valid": [more]})
    said: list[str] = []
    run = prepare(wanted, said.append)
    assert run.settings.data.train == asked.data.train
    assert run.settings.data.valid == ()
    assert [line for line in said if "none.en" in line] == [
        f"warning: {tmp_path}/none.en + {tmp_path}/none.de is not there and optional; the run goes on without it"
    ] * 2


def test_an_optional_set_that_is_there_is_used(tmp_path: Path) -> None:
    asked = asking(tmp_path)
    wanted = asked.replace({"data.train.0.optional": True})
    assert without_absent(wanted, pytest.fail) == wanted


def test_without_any_set_there_is_nothing_to_learn_from(tmp_path: Path) -> None:
    asked = asking(tmp_path)
    asked = asked.replace({"data.train.0.optional": True, "data.train.0.source": tmp_path / "none.en"})
    with pytest.raises(DataError, match=r"none of the sets of training data is there: .*none\.en"):
        without_absent(asked, print)
