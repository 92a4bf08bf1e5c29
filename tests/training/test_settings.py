"""Settings: one file, one command line, the same names; what is unknown is refused with the nearest name."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.errors import DataError, SpecError
from clearformer.training.defaults import advise, choices, lay_out
from clearformer.training.settings import Settings, differences, read, to_toml

PAIRS: dict[str, Any] = {"source": "a", "target": "b"}
TOML = """
out = "run"
seed = 3
[[data.train]]
source = "a"
target = "b"
[model]
width = 32
"""


def toml(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_the_command_line_and_changes_in_this_order(tmp_path: Path) -> None:
    found = read(toml(tmp_path, TOML), {"length": {"steps": 5}, "seed": 4}, {"model.width": 64})
    assert (found.out, found.seed, found.length.steps, found.model.width) == (Path("run"), 4, 5, 64)
    assert found.data.train[0].source == Path("a")
    assert found.model.layers is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nwidht = 3", "model.widht: unknown field; did you mean 'width'"),
        ("sede = 3", "sede: unknown field; did you mean 'seed'"),
        ("[optimizer]\nwarm_up = 3", "optimizer.warm_up: unknown field; did you mean 'warmup'"),
        ("[data]\nlongets = 3", "data.longets: unknown field; did you mean 'longest'"),
        (
            '[data]\n[[data.valid]]\nsuorce = "a"\ntarget = "b"',
            "data.valid.0.suorce: unknown field; did you mean 'source'",
        ),
        ("[model]\nwidth = 0", "model.width: Input should be greater than 0, given 0"),
        ('[optimizer]\nschedule = "cosin"', "optimizer.schedule: Input should be 'cosine'"),
        ("[length]\nsteps = 3\nepochs = 2.0", "length: give one of steps, epochs and minutes, not steps and epochs"),
        ("[average]\ndecay = 1.0", "average.decay"),
        ("[save]\nkeep = 1", "save.keep: Input should be greater than or equal to 2, given 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    base = 'out = "run"\n' + ('data.train = [{source = "a", target = "b"}]\n' if "[data]" not in text else "")
    if "[data]" in text:
        text = text.replace("[data]", '[data]\ntrain = [{source = "a", target = "b"}]')
    path = toml(tmp_path, base + text)
    with pytest.raises(DataError) as caught:
        read(path, {}, {})
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("model.widht", "model.widht: no field 'widht' here; did you mean 'width'"),
        ("modle.width", "modle.width: no field 'modle' here; did you mean 'model'"),
        ("save.evry", "save.evry: no field 'evry' here; did you mean 'every'"),
    ],
)
def test_so_is_a_change(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(toml(tmp_path, TOML), {}, {path: 3})
    assert message in str(caught.value)


def test_files_that_are_no_settings(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*nowhere"):
        read(tmp_path / "nowhere.toml", {}, {})
    with pytest.raises(DataError, match=r"run\.toml is not TOML"):
        read(toml(tmp_path, "out = "), {}, {})
    with pytest.raises(DataError, match="data: this field is required"):
        read(toml(tmp_path, "out = 'x'"), {}, {})


def test_languages() -> None:
    two = [{**PAIRS, "to": "de"}, {**PAIRS, "to": "fr"}]
    assert Settings(out="x", data={"train": two}).languages == ["de", "fr"]
    with pytest.raises(SpecError, match="every set of pairs must say which it translates to"):
        Settings(out="x", data={"train": two, "valid": [PAIRS]})
    with pytest.raises(SpecError, match=r"data\.valid: nothing in data\.train is translated to 'fr'"):
        Settings(out="x", data={"train": two[:1], "valid": two[1:]})


sizes, words = st.integers(1, 2**24), st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
fractions = st.floats(0, 0.99)


@given(
    st.fixed_dictionaries(
        {"out": words.filter(bool).map(Path), "seed": st.integers(0, 2**31)},
        optional={
            "model": st.fixed_dictionaries(
                {}, optional={"width": sizes, "dropout": fractions, "norm": st.just("after")}
            ),
            "optimizer": st.fixed_dictionaries(
                {"betas": st.tuples(fractions, fractions)}, optional={"rate": st.floats(1e-9, 9)}
            ),
            "length": st.sampled_from([{}, {"steps": 3}, {"epochs": 0.5}, {"minutes": 1e-7}]),
            "save": st.fixed_dictionaries({"keep": st.integers(2, 9)}, optional={"every": sizes}),
            "tensorboard": st.booleans(),
        },
    ),
    st.lists(
        st.sampled_from([PAIRS, {"file": "c.tsv", "fields": ("1", "2")}, {"file": "ü ", "format": "po"}]), min_size=1
    ),
    words | st.none(),
)
def test_written_and_read_again_they_are_the_same(
    fields: dict[str, Any], train: list[Any], language: str | None
) -> None:
    import tempfile

    settings = Settings(**fields, data={"train": train, "valid": train[1:], "source_language": language})
    assert Settings.from_json(settings.to_json()) == settings
    with tempfile.TemporaryDirectory() as folder:
        assert read(toml(Path(folder), to_toml(settings)), {}, {}) == settings


def test_differences_are_named_by_their_paths() -> None:
    before = Settings(out="x", data={"train": [PAIRS]})
    after = before.replace({"model.width": 8, "data.train.0.to": "de", "seed": 9})
    assert differences(before, after) == ["data.train", "model.width", "seed"]
    assert differences(before, before) == []


@given(st.integers(1, 10**9), st.integers(1, 10**6), st.integers(1, 10**6))
def test_advice_decides_everything_and_leaves_what_was_asked(tokens: int, steps: int, an_epoch: int) -> None:
    asked = Settings(out="x", data={"train": [PAIRS]}, model={"layers": 5}, validation={"every": 7})
    found = lay_out(advise(asked, tokens, tokens // 10), steps, an_epoch)
    assert (found.model.layers, found.model.decoder_layers, found.validation.every) == (5, 5, 7)
    written = json.loads(found.model_dump_json())
    missing = {
        f"{part}.{name}"
        for part in ("model", "batch", "optimizer", "average", "validation", "save")
        for name, value in written[part].items()
        if value is None
    }
    assert missing == {
        f"model.{name}" for name in ("spec", "start", "lora", "context", "patch", "positions")
    }  # not of this task
    assert found.model.width % found.model.heads == 0  # type: ignore[operator]
    assert found.length.steps == steps
    assert found.optimizer.warmup <= max(1, steps)  # type: ignore[operator]
    assert lay_out(advise(found, tokens, tokens // 10), steps, an_epoch) == found


def test_a_run_that_goes_on_from_a_model_is_short_and_careful() -> None:
    """The rate of a run from nothing would undo what was learned."""
    asked = Settings(out="x", data={"train": [PAIRS]}, model={"start": "en-de"})
    fine, fresh = advise(asked, 100_000, 10_000), advise(asked.replace({"model.start": None}), 100_000, 10_000)
    assert (fine.optimizer.rate, fine.length.epochs) == (1e-4, 5.0)
    assert (fresh.optimizer.rate, fresh.length.epochs) == (pytest.approx(1.414e-3, rel=1e-3), 60.0)
    assert advise(asked.replace({"model.lora": {}}), 100_000, 10_000).optimizer.rate == 1e-3
    minutes = asked.replace({"length.minutes": 5.0})
    assert choices(minutes, 100_000, 10_000) == [advise(minutes, 100_000, 10_000)]  # its size is what it is


@given(st.integers(1, 3000))
def test_any_width_gets_heads_that_divide_it(width: int) -> None:
    asked = Settings(out="x", data={"train": [PAIRS]}, model={"width": width})
    model = advise(asked, 1000, 100).model
    assert width % model.heads == 0  # type: ignore[operator]
    assert model.inner == 4 * width
