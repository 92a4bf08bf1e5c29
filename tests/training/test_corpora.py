"""Several corpora in one run: shares, caps, tags, noise and cleaning, told apart, and resumed to the last bit."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from clearformer.data.corpus import Corpus
from clearformer.errors import DataError, SpecError
from clearformer.training.goals.translate import TeacherForced
from clearformer.training.loop import Trainer
from clearformer.training.prepare import Prepared, prepare, reopen
from clearformer.training.run import resume, start
from clearformer.training.session import Stopped
from clearformer.training.settings import Settings, read, to_toml
from tests.training.goals import asking as goal_asking
from tests.training.goals import write
from tests.training.runs import ALONE, ONE_THREAD, assert_same, saved
from tests.training.test_processes import ROOT, TORCHRUN
from tests.training.test_resume import interrupt, seen_batches
from tests.training.test_steps import trained

WORDS = ["low", "lower", "lowest", "new", "newer", "wide", "wider", "widest", "slow", "tower"]


def write_set(folder: Path, name: str, count: int, seed: int) -> Path:
    draw, path = np.random.default_rng(seed), folder / f"{name}.tsv"
    rows = [[WORDS[i] for i in draw.integers(len(WORDS), size=draw.integers(1, 7))] for _ in range(count)]
    made = [(" ".join(row).capitalize() + ".", " ".join(row[::-1]).capitalize() + "!") for row in rows]
    path.write_text("".join(f"{a}\t{b}\n" for a, b in made), encoding="utf-8")
    return path


def mixing(
    folder: Path, changes: dict[str, Any] | None = None, sets: dict[str, dict[str, Any]] | None = None
) -> Settings:
    """Three sets: one upsampled, one capped and downsampled, one tagged; two with noise; duplicates kept."""
    folder.mkdir(exist_ok=True)
    more: dict[str, dict[str, Any]] = {
        "first": {"weight": 2.0, "noise": {"case": 0.3, "punctuation": 0.3, "subwords": 0.2, "versions": 3}},
        "second": {"weight": 0.5, "cap": 60},
        "back": {"tag": "bt", "noise": {"case": 0.5, "versions": 2}},
    }
    train = [
        {"file": write_set(folder, name, count, number), **(more if sets is None else sets).get(name, {})}
        for number, (name, count) in enumerate((("first", 40), ("second", 100), ("back", 50)))
    ]
    asked = Settings(
        out=folder / "run",
        data={"train": train, "held_out": 8, "duplicates": True},
        tokenizer={"vocabulary": 310},
        model={"width": 16, "layers": 1, "heads": 2, "inner": 32, "dropout": 0.2},
        batch={"tokens": 80, "accumulate": 2},
        optimizer={"rate": 0.01, "warmup": 3},
        length={"steps": 24},
        validation={"every": 6, "sentences": 6},
        save={"every": 4},
        log_every=5,
        machine={"device": "cpu", "precision": "float32", "gemm": "mkl"},
    )
    return asked.replace(changes or {})


def made(folder: Path, **given: Any) -> tuple[Prepared, list[str]]:
    said: list[str] = []
    return prepare(mixing(folder, **given), said.append), said


def texts(run: Prepared, rows: Any) -> list[str]:
    tokenizer = run.goal.tokenizer.tokenizer
    return [tokenizer.decode([int(i) for i in run.train.corpus.pair(int(row))[0]], special=True) for row in rows]


# --- what an epoch is -------------------------------------------------------------------------------------


def test_shares_are_the_weights(tmp_path: Path) -> None:
    """Over four epochs: pairs of the first set eight times, those left of the second twice, of the third four times."""
    run, said = made(tmp_path)
    corpus = run.train.corpus
    assert [stretch.versions for stretch in corpus.stretches] == [3, 1, 2]
    kept = [stretch.examples for stretch in corpus.stretches]
    assert [report.kept for report in run.reports["train"].sets] == kept
    read = [report.read for report in run.reports["train"].sets]
    assert (sum(read[:2]), read[2]) == (100 - 7, 50)  # eight were to be held out, but no more than one in twenty
    assert all(each.kept + each.validation == each.read for each in run.reports["train"].sets)
    counts = Counter(int(row) for epoch in range(4) for rows in run.train.plan(epoch) for row in rows)
    for stretch, times in zip(corpus.stretches, (8, 2, 4), strict=True):
        rows = np.arange(stretch.first, stretch.last).reshape(-1, stretch.versions)
        assert {sum(counts[int(row)] for row in pair) for pair in rows} == {times}
    drawn = [2 * kept[0], kept[1] / 2, kept[2]]
    shares = [each / sum(drawn) for each in drawn]
    lines = [line for line in said if line.startswith("  ")]
    assert [line.split(":")[0].strip() for line in lines] == ["first", "second", "back"]
    assert all(f"{share:.1%} of an epoch's pairs" in line for share, line in zip(shares, lines, strict=True))
    assert "60 of 100 taken" in lines[1]
    assert "tag bt" in lines[2]


def test_the_same_settings_make_the_same_bytes(tmp_path: Path) -> None:
    one, other = (made(tmp_path / name)[0] for name in ("a", "b"))
    for name in ("train.tokens", "train.safetensors", "valid.tokens"):
        assert (one.folder / "data" / name).read_bytes() == (other.folder / "data" / name).read_bytes()
    seeded = made(tmp_path / "c", changes={"seed": 5})[0]
    assert (one.folder / "data/train.tokens").read_bytes() != (seeded.folder / "data/train.tokens").read_bytes()


def test_tags_stand_in_front_of_their_set_and_nowhere_else(tmp_path: Path) -> None:
    run, _ = made(tmp_path)
    corpus = run.train.corpus
    for number, stretch in enumerate(corpus.stretches):
        found = texts(run, range(stretch.first, stretch.last))
        assert all(text.startswith("<tag:bt>") == (number == 2) for text in found)
        assert not any("<tag:bt>" in text[3:] for text in found)
    assert {row["set"] for row in run.goal.valid_rows} <= {0, 1}  # what is tagged is not validated on
    valid = Corpus(run.folder / "data", "valid")
    tag = run.goal.tokenizer.tokenizer.tags["<tag:bt>"]
    assert not any(tag in valid.pair(n)[0] for n in range(len(valid)))
    assert tag not in run.goal.tokenizer.encode("<tag:bt> low")  # text stays text


def test_versions_are_noised_sources_of_the_same_pair(tmp_path: Path) -> None:
    run, _ = made(tmp_path)
    corpus = run.train.corpus
    first, second, back = corpus.stretches
    for stretch in (first, back):
        for example in range(stretch.examples):
            rows = range(stretch.first + example * stretch.versions, stretch.first + (example + 1) * stretch.versions)
            assert len({corpus.pair(row)[1].tobytes() for row in rows}) == 1  # one target
            plain = {text.removeprefix("<tag:bt>").strip().rstrip(".").lower() for text in texts(run, rows)}
            assert len({text.removesuffix("</s>").rstrip(".") for text in plain}) == 1  # but for case and end
    assert all(text.endswith(".</s>") and text[0].isupper() for text in texts(run, range(second.first, second.last)))
    lower = [text for text in texts(run, range(first.first, first.last)) if text == text.lower()]
    assert 0.1 < len(lower) / (first.last - first.first) < 0.4  # 0.3 · 3/4
    own = [run.goal.tokenizer.encode(text.removesuffix("</s>")) for text in texts(run, range(first.last))]
    cut = [ids != corpus.pair(row)[0].tolist() for row, ids in enumerate(own)]
    assert sum(cut) > first.last / 3  # in other pieces than the tokenizer's own


def test_a_cap_takes_so_many_by_the_seed(tmp_path: Path) -> None:
    runs = [
        made(tmp_path / name, changes={"seed": seed}, sets={"second": {"cap": 30}})[0]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    read = [[report.read for report in run.reports["train"].sets] for run in runs]
    held = [Counter(row["set"] for row in run.goal.valid_rows) for run in runs]
    assert all(each[1] + mine[1] == 30 for each, mine in zip(read, held, strict=True))
    sources = [{pair.source for pair in run.goal.sources(run.settings.data.train)[1].read()} for run in runs]
    assert sources[0] == sources[1] != sources[2]
    everything = made(tmp_path / "d", sets={"second": {"cap": 5000}})[0]
    assert everything.reports["train"].sets[1].read + Counter(r["set"] for r in everything.goal.valid_rows)[1] == 100


def test_the_tokenizer_learns_from_what_the_model_sees(tmp_path: Path) -> None:
    sets = {"first": {"weight": 0.1}, "second": {"cap": 20}, "back": {"weight": 3.0, "noise": {"case": 1.0}}}
    run, _ = made(tmp_path, sets=sets)
    found = list(run.goal.all_texts())
    assert len(found) == 2 * (4 + 20 + 150)
    back = found[48::2]
    assert all(text in (text.lower(), text.upper()) for text in back)


def test_plain_sets_are_as_they_were(tmp_path: Path) -> None:
    """Without weights or noise there is no sampler, and every pair comes once."""
    run, said = made(tmp_path, sets={})
    assert run.train.sampler is None
    assert sorted(int(row) for rows in run.train.plan(3) for row in rows) == list(range(len(run.train.corpus)))
    assert any(line.startswith("  second: ") for line in said)


# --- losses -----------------------------------------------------------------------------------------------


def test_losses_of_sets_by_brute_force(tmp_path: Path) -> None:
    """Row by row alone, without dropout: the sums of each set, in training and in evaluation."""
    run, _ = made(tmp_path, changes={"model.dropout": 0.0})
    objective = run.goal.objective(run.goal.model(run.spec).double(), 0.1)
    assert isinstance(objective, TeacherForced)
    rows = run.train.plan(0)[0]
    alone = [objective(run.train.make(np.asarray([row]))).item() for row in rows]
    tokens = [run.train.make(np.asarray([row])).tokens for row in rows]
    of = run.train.corpus.sets_of(rows).tolist()
    wanted = [[sum(x[n] for n in range(len(rows)) if of[n] == each) for x in (alone, tokens)] for each in range(3)]
    assert len(set(of)) > 1
    total = objective(run.train.make(rows))
    assert objective.by_set is not None
    torch.testing.assert_close(objective.by_set, torch.tensor(wanted, dtype=torch.float64), rtol=1e-5, atol=1e-5)
    assert float(objective.by_set[:, 0].sum()) == pytest.approx(total.item(), rel=1e-6)
    with torch.inference_mode():
        objective(run.train.make(rows))
    torch.testing.assert_close(objective.by_set, torch.tensor(wanted, dtype=torch.float64), rtol=1e-5, atol=1e-5)


def test_accumulating_adds_up_the_sets_of_one_large_batch(tmp_path: Path) -> None:
    still = {"model.dropout": 0.0, "optimizer.schedule": "constant", "optimizer.warmup": 0, "average.kind": "none"}
    run, _ = made(tmp_path, changes=still)
    small = run.train.plan(0)[:6]
    results = []
    for plan, accumulate in ((small, 3), ([np.concatenate(small[:3]), np.concatenate(small[3:])], 1)):
        run.settings = run.settings.replace({"batch.accumulate": accumulate, "length.steps": 2})
        trainer = Trainer(run, ALONE)
        trainer.model.double()
        trainer._batches = lambda epoch, first, plan=plan: ((0, n, run.train.make(r)) for n, r in enumerate(plan))  # type: ignore[method-assign,misc]
        results.append(trained(trainer))
    (steps, gradients), (wanted, right) = results
    for a, b in zip(steps, wanted, strict=True):
        assert len(a.sets) == 3
        np.testing.assert_allclose(a.sets, b.sets, rtol=1e-6)
        assert sum(loss for loss, _ in a.sets) == pytest.approx(a.loss * a.tokens, rel=1e-6)
        assert sum(tokens for _, tokens in a.sets) == a.tokens
    for found, one in zip(gradients, right, strict=True):
        for name in found:
            torch.testing.assert_close(found[name], one[name], rtol=1e-9, atol=1e-12)


def test_the_log_tells_sets_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = mixing(tmp_path)
    done = start(asked)
    rows = [json.loads(line) for line in (asked.out / "log.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["event"] == "step"]
    assert all(set(row["sets"]) == {"first", "second", "back"} for row in steps)
    for row in steps:
        assert sum(each["share"] for each in row["sets"].values()) == pytest.approx(1.0, abs=1e-3)
        mean = sum(each["share"] * each["loss"] for each in row["sets"].values())
        assert mean == pytest.approx(row["loss"], abs=1e-3)
    valid = [row for row in rows if row["event"] == "validation"]
    assert set(valid[-1]["sets"]) == {"first", "second"}
    assert {"bleu", "bleu first", "bleu second"} <= set(done.scores)
    told = capsys.readouterr().err
    assert "first: " in told
    assert "loss second" in told


def test_validation_sets_have_losses_of_their_own(tmp_path: Path) -> None:
    asked = mixing(tmp_path)
    valid = [{"file": write_set(tmp_path, name, 12, seed), "name": f"on {name}"} for name, seed in (("x", 7), ("y", 8))]
    run = prepare(asked.replace({"data.valid": valid}), lambda text: None)
    model = run.goal.model(run.spec).eval()
    scores = run.goal.validate(model)
    assert list(scores.sets) == ["on x", "on y"]
    batches, objective = run.goal.valid_batches(), run.goal.objective(model, 0.0).eval()
    for number, name in enumerate(scores.sets):
        parts = [batches.make(np.asarray([n])) for n in range(12 * number, 12 * number + 12)]
        with torch.inference_mode():
            loss = sum(float(objective(part)) for part in parts) / sum(part.tokens for part in parts)
        assert scores.sets[name] == pytest.approx(loss, rel=1e-4)


# --- over interruptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stops", [[7], [10, 1, 21]])
def test_everything_at_once_is_resumed_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: list[int]
) -> None:
    whole, broken = mixing(tmp_path / "whole"), mixing(tmp_path / "broken")
    with monkeypatch.context() as patch:
        through = seen_batches(patch)
        start(whole)
    assert saved(whole.out).facts["epoch"] >= 1
    with monkeypatch.context() as patch:
        pieces = seen_batches(patch)
        for number, after in enumerate(stops):
            with patch.context() as inner:
                interrupt(inner, after)
                with pytest.raises(Stopped):
                    resume(broken.out) if number else start(broken)
        if sum(stops) % 2:
            assert any(tokens for _, tokens in saved(broken.out).facts["part_sets"])
        resume(broken.out)
    assert pieces == through
    assert_same(saved(whole.out), saved(broken.out))
    one, other = (load_file(asked.out / "weights.safetensors") for asked in (whole, broken))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert logged(whole.out)[-1] == logged(broken.out)[-1]


def test_two_processes_tell_the_same_of_the_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start, and from the middle of a step of one process."""
    still = {"model.dropout": 0.0, "length.steps": 6, "log_every": 1, "batch.tokens": 30, "optimizer.eps": 1e-3}
    alone, two, broken = (mixing(tmp_path / name, still) for name in ("alone", "two", "broken"))
    start(alone)
    with monkeypatch.context() as patch:
        interrupt(patch, 5)
        with pytest.raises(Stopped):
            start(broken)
    jobs = [{"start": json.loads(two.to_json())}, {"resume": str(broken.out), "changes": {}}]
    (tmp_path / "jobs").write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
    words = [*TORCHRUN, "-m", "tests.training.two", str(tmp_path / "jobs")]
    done = subprocess.run(words, capture_output=True, text=True, env=ONE_THREAD, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = logged(alone.out)
    assert len(wanted) == 6
    for out in (two.out, broken.out):
        for found, right in zip(logged(out), wanted, strict=True):
            assert found.keys() == right.keys()
            for name in found:
                assert found[name] == pytest.approx(right[name], abs=2e-4)


def logged(out: Path) -> list[dict[str, dict[str, float]]]:
    rows = map(json.loads, (out / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [row["sets"] for row in rows if row["event"] == "step"]


def test_a_run_is_reopened_with_its_reports(tmp_path: Path) -> None:
    run, _ = made(tmp_path)
    again = reopen(run.folder)
    assert again is not None
    assert again.reports == run.reports
    assert [r.tolist() for r in again.train.plan(2)] == [r.tolist() for r in run.train.plan(2)]


def test_settings_with_sets_are_read_as_they_are_written(tmp_path: Path) -> None:
    asked = mixing(tmp_path).replace({"data.train.0.script": {"source": "Latin"}, "data.ratio": 3.0})
    (tmp_path / "run.toml").write_text(to_toml(asked), encoding="utf-8")
    assert read(tmp_path / "run.toml", {}, {}) == asked
    named = asked.replace({"data.train.1.name": "speeches"})
    assert named.replace({"data.train.speeches.weight": 0.1}).data.train[1].weight == 0.1


def test_the_settings_that_the_page_shows_are_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (shown,) = (text for text in re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S) if "noise" in text)
    (tmp_path / "run.toml").write_text(shown, encoding="utf-8")
    found = read(tmp_path / "run.toml", {"out": tmp_path / "out"}, {})
    assert [(part.name, part.weight) for part in found.data.train] == [("everyday", 3), ("speeches", 0.25), ("back", 1)]


# --- what makes no sense is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "changes", "said"),
    [
        (
            "complete",
            {"data.train.0.weight": 2.0},
            r"data\.train\.0\.weight is not for this data and task \(complete\)",
        ),
        ("classify", {"data.train.0.tag": "x"}, r"data\.train\.0\.tag .* cap, noise, weight"),
        ("classify", {"data.ratio": 2.0}, r"data\.ratio is not for"),
        ("classify", {"data.train.0.noise": {"subwords": 0.1}}, r"noise\.subwords is not for"),
        ("tag", {"data.train.0.noise": {"case": 0.1}}, r"data\.train\.0\.noise is not for"),
        ("see", {"data.train.0.cap": 3}, r"data\.train\.0\.cap is not for .*nothing of the kind"),
    ],
)
def test_other_tasks_refuse_what_is_not_for_them(tmp_path: Path, goal: str, changes: dict[str, Any], said: str) -> None:
    write(tmp_path)
    asked = goal_asking(tmp_path, goal, changes)
    with pytest.raises(DataError, match=said):
        prepare(asked, lambda text: None)
    assert not asked.out.exists()


@pytest.mark.parametrize("goal", ["classify", "embed by score", "complete prompts", "answer", "tag"])
def test_every_goal_of_pairs_takes_weights_and_caps(tmp_path: Path, goal: str) -> None:
    write(tmp_path)
    changes: dict[str, Any] = {"data.train.0.weight": 1.5, "data.train.0.cap": 100}
    if goal in ("classify", "embed by score"):
        changes["data.train.0.noise"] = {"case": 0.5, "versions": 2}
    run = prepare(goal_asking(tmp_path, goal, changes), lambda text: None)
    assert run.reports["train"].read + len(run.goal.valid_rows) == 100
    drawn = [sum(map(len, run.train.plan(epoch))) for epoch in (0, 1)]
    assert sum(drawn) == 3 * run.reports["train"].kept
    run.train.make(run.train.plan(0)[0])


@pytest.mark.parametrize(
    ("field", "value"),
    [("weight", 0.0), ("weight", -1.0), ("cap", 0), ("tag", "a b"), ("tag", ""), ("script", {"source": "Klingon"})],
)
def test_values_that_cannot_be(tmp_path: Path, field: str, value: Any) -> None:
    with pytest.raises(SpecError, match=field):
        mixing(tmp_path).replace({f"data.train.0.{field}": value})


def test_validation_data_has_no_weight(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="weight"):
        mixing(tmp_path).replace({"data.valid": [{"file": tmp_path / "first.tsv", "weight": 2.0}]})


def test_subwords_of_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bpe or unigram"):
        made(tmp_path, changes={"tokenizer.kind": "word"})
