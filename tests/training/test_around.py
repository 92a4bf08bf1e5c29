"""Around a run: from Python, its curves, checksums of its data, sizes that cannot be."""

import fcntl
import hashlib
import json
import math
from pathlib import Path

import pytest

import clearformer as cf
from clearformer.data.pairs import Pairs
from clearformer.errors import DataError, TrainingError
from clearformer.training import plot as module
from clearformer.training.export import card
from clearformer.training.logging import Watch
from clearformer.training.loop import Progress
from clearformer.training.plot import Mark, plot, read_log, resumes
from clearformer.training.prepare import prepare
from clearformer.training.run import LOCK
from tests.training.runs import asking, prepared, write_pairs

TINY = {
    "tokenizer.kind": "word",
    "model.width": 16,
    "model.layers": 1,
    "model.decoder_layers": 1,
    "machine.device": "cpu",
    "machine.precision": "float32",
}


def test_from_python_from_files_to_translations(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    done = cf.train(source=source, target=str(target), out=tmp_path / "m", to="xx", steps=4, settings=TINY)
    assert (done.folder, done.steps, done.finish) == (tmp_path / "m", 4, "steps")
    assert {"loss", "bleu", "chrf"} <= set(done.scores)
    found = cf.load(done.folder, precision="float32").translate(["a b c"], to="xx")
    assert isinstance(found[0], cf.Translation)
    more = cf.train(resume=done.folder, steps=6)
    assert more.steps == 6
    with pytest.raises(DataError, match="data it began with"):
        cf.train(resume=done.folder, source=source)
    with pytest.raises(TrainingError, match=r"validation\.best cannot be changed"):
        cf.train(resume=done.folder, settings={"validation.best": "bleu"})
    with pytest.raises(DataError, match="to is the language of the files"):
        cf.train(resume=done.folder, to="de")
    with pytest.raises(DataError, match="no data"):
        cf.train(out=tmp_path / "n")
    with pytest.raises(DataError, match="no out"):
        cf.train(source=source, target=target)


def test_the_folder_tells_what_was_trained_on(tmp_path: Path) -> None:
    """Held-out pairs are not trained on even where they are repeated, and `seen` knows the rest."""
    run = prepared(tmp_path, count=400, longest=2)  # two letters: many pairs come again
    held = {(row["source"], row["target"]) for row in run.goal.valid_rows}
    trained = {
        tuple(run.goal.tokenizer.decode([int(i) for i in side]) for side in run.train.corpus.pair(n))
        for n in range(len(run.train.corpus))
    }
    assert held
    assert not held & trained
    assert run.reports["train"].duplicate > 0


def log(folder: Path, *rows: dict[str, object]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"event": "st')
    return folder


def test_steps_made_again_count_once(tmp_path: Path) -> None:
    steps = [{"event": "step", "step": n, "loss": 9.0 - n} for n in (1, 2, 3)]
    again = {"event": "step", "step": 3, "loss": 1.0}
    rows = read_log(log(tmp_path / "run", *steps, {"event": "resume", "step": 2}, again))
    assert [(row["step"], row["loss"]) for row in rows if row["event"] == "step"] == [(1, 8.0), (2, 7.0), (3, 1.0)]


def test_a_torn_line_of_the_log_costs_no_other(tmp_path: Path) -> None:
    """A run that was killed while it wrote: what is logged next stands on a line of its own."""
    folder = log(tmp_path / "run", {"event": "step", "step": 1})
    watch = Watch(folder, 9, quiet=False)
    watch.note("resume", 1, {"why": "größer"})
    watch.note("step", 2, {})
    text = (folder / "log.jsonl").read_text(encoding="utf-8")
    assert [line[:9] for line in text.splitlines()] == ['{"event":', '{"event":', '{"event":', '{"event":']
    assert text.endswith("\n")
    assert [(row["event"], row["step"]) for row in read_log(folder)] == [("step", 1), ("resume", 1), ("step", 2)]
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    Watch(fresh, 9).note("step", 1, {})
    assert (fresh / "log.jsonl").read_bytes().startswith(b"{")


@pytest.mark.parametrize("name", ["c.png", "c.svg"])
def test_curves_are_drawn(tmp_path: Path, name: str) -> None:
    step = {"event": "step", "step": 5, "loss": 3.0, "rate": 1e-3, "tokens_per_second": 10.0}
    valid = {"event": "validation", "step": 5, "loss": 2.0, "bleu": 1.0, "chrf": 2.0}
    drawn = plot(log(tmp_path / "run", step, valid), tmp_path / name)
    start = drawn.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if name.endswith("png") else b"<?xml" in start


def test_interruptions_are_marked(tmp_path: Path) -> None:
    """Several at one step are one; one that nothing came after is none; a length that changed twice is told once."""
    rows = [
        {"event": "step", "step": 10, "loss": 3.0},
        {"event": "resume", "step": 10},  # of a log from before lengths were told
        {"event": "step", "step": 20, "loss": 2.0},
        {"event": "resume", "step": 20, "steps": 60, "steps_before": 40},
        {"event": "resume", "step": 20, "steps": 80, "steps_before": 60},
        {"event": "step", "step": 30, "loss": 2.0},
        {"event": "resume", "step": 30, "steps": 80},
    ]
    assert resumes(rows) == [Mark(10, None, None), Mark(20, 40, 80)]


def test_curves_have_gaps_where_the_run_had(tmp_path: Path) -> None:
    """Steps 10 and 20, resumed at 20, step 30: two pieces, and a dotted line at 20."""
    steps = [{"event": "step", "step": n, "loss": 9.0 - n / 10, "rate": 1e-3} for n in (10, 20, 30)]
    rows = [*steps[:2], {"event": "resume", "step": 20, "steps": 50, "steps_before": 40}, steps[2]]
    drawn: list[tuple[list[float], list[float]]] = []
    lines: list[float] = []

    class Axes:
        def plot(self, x: list[float], y: list[float], **_: object) -> None:
            drawn.append((list(x), list(y)))

        def axvline(self, x: float, **_: object) -> None:
            lines.append(x)

    marks = resumes(rows)
    module._line(Axes(), steps, "loss", None, breaks=[mark.step for mark in marks])
    module._mark(Axes(), marks, told=False)
    (x, y), *_ = drawn
    assert x == [10, 20, 30, 30]
    assert y[:2] == [8.0, 7.0]
    assert math.isnan(y[2])
    assert y[3] == 6.0
    assert lines == [20]
    assert plot(log(tmp_path / "run", *rows), tmp_path / "c.svg").stat().st_size


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"no log\.jsonl"):
        plot(tmp_path, tmp_path / "c.png")
    with pytest.raises(DataError, match=r"ends in \.png"):
        plot(tmp_path, tmp_path / "c.jpeg")
    with pytest.raises(TrainingError, match="no steps yet"):
        plot(log(tmp_path / "run"), tmp_path / "c.png")


def test_a_recipe_takes_the_very_files_it_names(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    right = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (source, target)]
    Pairs(source=source, target=target, sha256=right).check()
    wrong = [right[0], "0" * 64]
    with pytest.raises(DataError, match=r"target\.txt is another file.*" + right[1]):
        Pairs(source=source, target=target, sha256=wrong).check()
    with pytest.raises(DataError, match="1 checksums given for 2 files"):
        Pairs(source=source, target=target, sha256=right[:1]).check()
    with pytest.raises(DataError, match="another file"):
        prepared(tmp_path, {"data.train.0.sha256": wrong})
    assert not (tmp_path / "run").exists()


def test_any_data_goes_on_with_other_files_and_the_card_says_so(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    right = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (source, target)]
    said: list[str] = []
    asked = asking(tmp_path, {"data.train.0.sha256": (right[0], "0" * 64), "data.any_data": True})
    run = prepare(asked, said.append)
    warning = f"{target} is not the file that the recipe names: its SHA-256 is {right[1]}, not {'0' * 64}"
    assert [line for line in said if "warning" in line] == [
        f"warning: {warning}; the run goes on with it, and the model's card says so (--any-data)"
    ]
    assert f"Warning: {warning}. Scores of the recipe are not scores of this model." in card(run, Progress())
    pinned = prepare(asked.replace({"data.train.0.sha256": tuple(right), "out": tmp_path / "pinned"}), said.append)
    assert "Warning" not in card(pinned, Progress())


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"model.width": 65_536, "model.heads": 8}, "GiB to train"), ({"model.heads": 3}, "must divide model.width")],
)
def test_impossible_sizes_are_known_before_anything_is_written(
    tmp_path: Path, changes: dict[str, int], said: str
) -> None:
    asked = asking(tmp_path, changes)
    with pytest.raises(cf.ClearformerError, match=said):
        prepared(tmp_path, changes)
    assert not asked.out.exists()


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    """The lock is of the process that holds it, so another one must ask."""
    source, target = write_pairs(tmp_path)
    done = cf.train(source=source, target=target, out=tmp_path / "m", steps=2, settings=TINY)
    with (done.folder / LOCK).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(TrainingError, match="another process is training there"):
            cf.train(resume=done.folder, steps=4)
    assert cf.train(resume=done.folder, steps=4).steps == 4
