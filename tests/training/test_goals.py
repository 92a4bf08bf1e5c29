"""Every goal on the one trainer: it learns, it resumes to the last bit, and its model does its task."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import clearformer as cf
from clearformer import arrangements, build, presets, spec
from clearformer.checkpoints.convert import convert, verify
from clearformer.checkpoints.huggingface import describe
from clearformer.core.places import Places
from clearformer.data.pairs import Pairs
from clearformer.data.preprocessing import Preprocessing
from clearformer.errors import ClearformerError, DataError, SpecError, TrainingError
from clearformer.tasks.load import load
from clearformer.training.distributed import Group
from clearformer.training.evaluate import evaluate
from clearformer.training.goals.embed import spearman
from clearformer.training.goals.see import PictureBatches, SeeLoss
from clearformer.training.loop import Trainer
from clearformer.training.lora import adapt, merged
from clearformer.training.prepare import Prepared, prepare, reopen
from clearformer.training.run import resume, start
from clearformer.training.session import Stopped
from clearformer.training.settings import Lora, Settings
from tests.tasks import encoders
from tests.tasks.writers import save, writer
from tests.training.goals import GOALS, TINY, asking, write
from tests.training.runs import ALONE, assert_same, saved
from tests.training.test_resume import interrupt


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("goals")
    write(folder)
    return folder


def write_to(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def prepared(asked: Settings) -> Prepared:
    return prepare(asked, lambda text: None)


def reopened(out: Path) -> Any:
    found = reopen(out)
    assert found is not None
    return found


@pytest.mark.parametrize("name", GOALS)
def test_a_resumed_run_of_any_goal_is_the_same_to_the_last_bit(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole, broken = (asking(data, name, out=f"{name} {kind}") for kind in ("whole", "broken"))
    start(whole)
    with monkeypatch.context() as patch:
        interrupt(patch, 6)
        with pytest.raises(Stopped):
            start(broken)
    resume(broken.out)
    assert_same(saved(whole.out), saved(broken.out))


@pytest.mark.parametrize("name", [name for name in GOALS if name != "tag"])
def test_every_goal_learns(data: Path, name: str) -> None:
    asked = asking(data, name, {"length.steps": 150, "log_every": 10, "model.dropout": 0.0}, out=f"{name} learns")
    start(asked.replace({"validation.every": 150}))
    rows = [json.loads(line) for line in (asked.out / "log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row["event"] == "step"]
    assert losses[-1] < 0.8 * losses[0], losses
    load(asked.out, precision="float32")


def test_the_tree_tells_what_the_words_do_not(data: Path) -> None:
    """Whether heads form a chain or a fan is nowhere in the words."""
    valid = [{"file": data / "more_trees.conllu", "fields": ("form", "deprel")}]
    changes = {"length.steps": 120, "validation.every": 120, "model.dropout": 0.0, "data.valid": valid}
    plain = start(asking(data, "tag", changes, out="tag plainly")).scores["accuracy"]
    tree = start(asking(data, "tag by tree", changes, out="tag with trees")).scores["accuracy"]
    assert tree > 0.95
    assert plain < 0.7


def test_a_batch_and_its_rows_alone_have_the_same_loss(data: Path) -> None:
    for name in GOALS:
        if name in ("embed by contrast", "fill", "see"):  # rows that see each other; what is masked or moved by chance
            continue
        run = prepared(asking(data, name, {"model.dropout": 0.0}, out=f"{name} alone"))
        objective = run.goal.objective(run.goal.model(run.spec).double(), 0.1).eval()
        batch = run.train.make(run.train.plan(0)[0])
        parts = [type(batch)(*(part[n : n + 1] for part in batch)) for n in range(len(batch[0]))]
        if name == "embed by score":
            batch = batch._replace(scores=batch.scores.double())
            parts = [part._replace(scores=part.scores.double()) for part in parts]
        with torch.no_grad():
            together, apart = float(objective(batch)), sum(float(objective(part)) for part in parts)
        assert together == pytest.approx(apart, rel=1e-9), name
        assert batch.tokens == sum(part.tokens for part in parts)


def test_processes_share_the_rows_of_any_batch(data: Path) -> None:
    for name in GOALS:
        if name == "embed by contrast":
            continue
        run = prepared(asking(data, name, {"model.dropout": 0.0}, out=f"{name} shared"))
        whole = run.train.make(run.train.plan(0)[0])
        batch = type(whole)(*(part[:3] for part in whole))
        shares = [Group(rank, 5, torch.device("cpu"), False).share(batch) for rank in range(5)]
        assert [share.tokens for share in shares[3:]] == [0, 0], name
        assert sum(share.tokens for share in shares) == batch.tokens
        objective = run.goal.objective(run.goal.model(run.spec), 0.0).eval()
        with torch.no_grad():
            assert float(objective(shares[4])) == 0.0


# --- losses by hand ----------------------------------------------------------------------------------------------


def test_the_loss_of_classes_by_hand(data: Path) -> None:
    run = prepared(asking(data, "classify", out="classes by hand"))
    model = run.goal.model(run.spec).eval()
    batch = run.train.make(run.train.plan(0)[0])
    by_hand = 0.0
    for ids, mask, label in zip(batch.ids, batch.mask, batch.labels, strict=True):
        logits = model(ids[mask][None])[0]
        by_hand -= logits.log_softmax(-1)[label].item()
    assert run.goal.objective(model, 0.0).eval()(batch).item() == pytest.approx(by_hand, rel=1e-5)


def test_prompts_are_read_and_only_continuations_are_learned(data: Path) -> None:
    run = prepared(asking(data, "complete prompts", out="prompts by hand"))
    model = run.goal.model(run.spec).eval()
    batch = run.train.make(run.train.plan(0)[0])
    by_hand = 0.0
    for row in range(len(batch.ids)):
        source, target = (side.astype("int64") for side in run.goal.corpus.pair(int(run.train.plan(0)[0][row])))
        ids = torch.from_numpy(np.concatenate([source, target]))[None]
        chances = model(ids[:, :-1])[0].log_softmax(-1)
        by_hand -= sum(float(chances[len(source) - 1 + n, token]) for n, token in enumerate(target))
    assert batch.tokens == sum(len(run.goal.corpus.pair(int(row))[1]) for row in run.train.plan(0)[0])
    assert run.goal.objective(model, 0.0).eval()(batch).item() == pytest.approx(by_hand, rel=1e-5)


def test_the_contrast_by_hand(data: Path) -> None:
    run = prepared(asking(data, "embed by contrast", out="contrast by hand"))
    model = run.goal.model(run.spec).eval()
    batch = run.train.make(run.train.plan(0)[0][:4])
    one, other = (F.normalize(model(*side), dim=-1) for side in (batch[:2], batch[2:4]))
    cosines = (one @ other.T / 0.05).tolist()

    def lost(row: list[float], right: int) -> float:
        return math.log(sum(math.exp(value - row[right]) for value in row))

    by_hand = sum(lost(cosines[n], n) + lost([row[n] for row in cosines], n) for n in range(4)) / 2
    assert float(run.goal.objective(model, 0.0)(batch)) == pytest.approx(by_hand, rel=1e-4)


def test_masks_fall_on_fifteen_in_a_hundred(data: Path) -> None:
    """8 in 10 of them masked, 1 replaced, 1 left; special and other tokens as they were."""
    run = prepared(asking(data, "fill", {"batch.tokens": 100_000}, out="masks"))
    batch = run.train.make(run.train.plan(0)[0])
    given: list[torch.Tensor] = []
    objective = run.goal.objective(run.goal.model(run.spec), 0.0)
    true = objective.model.stack.forward
    objective.model.stack.forward = lambda ids, places: given.append(ids) or true(ids, places)  # type: ignore[func-returns-value]
    for seed in range(20):
        torch.manual_seed(seed)
        objective(batch)
    changed = torch.cat([(ids != batch.ids).flatten() for ids in given]).float().mean()
    masked = torch.cat([(ids == run.goal.words.mask).flatten() for ids in given]).float().mean()  # type: ignore[attr-defined]
    assert float(masked) == pytest.approx(0.12, abs=0.01)
    assert float(changed - masked) == pytest.approx(0.015, abs=0.006)


def test_ranks_and_their_correlation() -> None:
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 90.0])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1)
    # ranks 0, 1.5, 1.5, 3 and 0, 1, 2, 3: covariance 4.5, variances 4.5 and 5
    assert spearman(np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 3, 4])) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert spearman(np.ones(3), np.arange(3.0)) == 0.0


def test_blocks_of_text_cover_it_and_shift(data: Path) -> None:
    run = prepared(asking(data, "complete", out="blocks"))
    stream, length = run.train.stream, 24  # type: ignore[attr-defined]
    seen = np.zeros(len(stream), int)
    for rows in run.train.plan(0):
        ids = run.train.make(rows).ids.numpy()
        for begin, row in zip(rows, ids, strict=True):
            assert (row == stream[begin : begin + length + 1]).all()
            seen[begin + 1 : begin + length + 1] += 1
    assert (seen <= 1).all()
    assert (seen[length : len(stream) - length] == 1).all()  # less than a block is left out at each end
    first, second = (
        sorted(int(start) % length for rows in run.train.plan(epoch) for start in rows) for epoch in (1, 2)
    )
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]


def test_what_is_trained_on_blocks_looks_no_further_back(data: Path) -> None:
    """So a text may go on for as long as one likes: distances beyond the blocks were never learned."""
    run = prepared(asking(data, "complete", {"model.context": 12}, out="no further"))
    assert {block.branches[0].layer.pattern for block in run.spec.stack.blocks} == {spec.Window(size=12)}
    model = run.goal.model(run.spec).eval()
    one = torch.randint(5, 20, (1, 40), generator=torch.Generator().manual_seed(0))
    other = one.clone()
    other[:, 0] = 4
    reach = 1 + (12 - 1) * len(run.spec.stack.blocks)  # through all layers
    with torch.no_grad():
        apart = (model(one) - model(other)).abs().amax((0, 2))
    assert apart[0] > 0
    assert bool((apart[reach:] == 0).all())


def test_no_example_is_longer_than_what_its_model_sees(data: Path) -> None:
    text = " ".join(f"word{number % 7}" for number in range(400))
    long = write_to(data / "long prompts.tsv", f"{text}\tend end end\n" + "short one\tend\n" * 20)
    part = [{"file": long}]
    run = prepared(asking(data, "complete prompts", {"data.train": part, "data.longest": 600}, out="long prompts"))
    (whole,) = {block.branches[0].layer.pattern.size for block in run.spec.stack.blocks}
    assert whole == max(sum(map(len, run.train.corpus.pair(row))) for row in range(len(run.train.corpus))) > 400


HOW = Preprocessing(mean=(0.0,), std=(1.0,), scale=1.0)


def test_images_are_moved_and_mirrored_at_random() -> None:
    """Of a single bright pixel: where it comes to lie, and how often."""
    loss = SeeLoss(nn.Identity(), HOW, 0.0, shift=1, mirror=True)
    images = torch.zeros(4000, 1, 5, 5, dtype=torch.uint8)
    images[:, 0, 2, 1] = 9
    torch.manual_seed(0)
    varied = loss._varied(images)
    assert (varied.sum((1, 2, 3)) == 9).all()
    places = varied.sum((0, 1)) / 9 / 4000
    wanted = torch.zeros(5, 5)
    wanted[1:4, 0:3] += 1 / 18
    wanted[1:4, 2:5] += 1 / 18
    assert float((places - wanted).abs().max()) < 0.02


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_images_are_looked_at_in_part(pool: str) -> None:
    """So many squares of each, of its own; what they say does not depend on their order."""
    sizes = {"width": 16, "layers": 2, "heads": 2, "inner": 32, "image": (12, 12), "patch": 3, "channels": 1}
    model = build(arrangements.vision(**sizes, classes=4, pool=pool), seed=0).eval()  # type: ignore[arg-type]
    images, summary = torch.rand(5, 1, 12, 12), pool == "first"
    seen = []
    hook = model.stack.embed.register_forward_hook(lambda _, given, out: seen.append((given[1].index, out)))
    torch.manual_seed(0)
    with torch.no_grad():
        found = SeeLoss(model, HOW, 0.0, 0, False).logits(images, 6)
        whole = model.stack.embed(images, Places.span(0, 16 + summary))
    hook.remove()
    (index, shown), _ = seen
    assert shown.shape == (5, 6 + summary, 16)
    assert all(len(set(row)) == 6 + summary and (not summary or 0 in row) for row in index.tolist())
    assert len({tuple(sorted(row)) for row in index.tolist()}) == 5
    for image, squares, chosen in zip(whole, shown, index, strict=True):
        assert torch.equal(squares, image[chosen])
    order = torch.randperm(16 + summary)[None]
    with torch.no_grad():
        places = Places.some(order)
        again = model.head(model.stack(images, places), places)
        assert not torch.allclose(found, model(images), atol=1e-3)
        assert torch.allclose(again, model(images), atol=1e-5)


def test_a_run_ends_with_whole_images() -> None:
    images = np.zeros((20, 1, 6, 6), dtype=np.uint8), np.zeros(20, dtype=np.uint16)
    batches = PictureBatches(*images, size=5, squares=3, total=16)  # four an epoch
    squares = [[batches.make(planned).squares.tolist() for planned in batches.plan(epoch)] for epoch in range(4)]
    assert squares[:3] == [[[3] * 5] * 4] * 3
    assert squares[3] == [[3] * 5, [3] * 5, [0] * 5, [0] * 5]
    unknown = PictureBatches(*images, size=1, squares=3)
    assert [some for _, some in unknown.plan(0)][:16] == ([3] * 7 + [0]) * 2


def test_a_run_looks_at_parts(data: Path) -> None:
    run = prepared(asking(data, "see", {"data.squares": 0.25, "length.steps": 8}, out="parts"))
    count = run.spec.stack.embed.count
    planned = [some for _, some in run.train.plan(0)] + [some for _, some in run.train.plan(1)]
    assert planned[:8] == [max(1, round(0.25 * count))] * 7 + [0]
    start(asking(data, "see", {"data.squares": 0.25, "length.steps": 8}, out="parts trained"))
    assert load(data / "parts trained", precision="float32").see is not None


def test_a_part_of_an_image_as_the_start_cuts_it(data: Path) -> None:
    """Not as the settings would, were the model new."""
    start(asking(data, "see", {"model.patch": 2, "length.steps": 2}, out="cut small"))
    changes = {"model.start": data / "cut small", "model.patch": None, "data.squares": 0.5, "length.steps": 8}
    run = prepared(asking(data, "see", changes, out="cut small and tuned"))
    count = run.spec.stack.embed.count
    assert run.settings.model.patch != 2
    assert run.train.plan(0)[0][1] == round(count / 2)
    start(asking(data, "see", changes, out="cut small and trained"))


# --- beginning with another model --------------------------------------------------------------------------------


def test_a_start_gives_its_weights_and_its_words(data: Path) -> None:
    start(asking(data, "fill", {"length.steps": 20}, out="started from"))
    changes = {"model.start": data / "started from"}
    run = prepared(asking(data, "classify", changes, out="started"))
    before, after = load(data / "started from", precision="float32"), run.goal.model(run.spec)
    weights = before.model.state_dict()
    same = {name for name, weight in after.named_parameters() if name in weights and torch.equal(weight, weights[name])}
    assert {name for name in weights if name.startswith("stack.")} <= same
    assert run.spec.head.kind == "classes"
    assert run.goal.words.pieces(range(20)) == before.tokenizer.pieces(range(20))  # type: ignore[attr-defined]
    start(asking(data, "classify", {**changes, "length.steps": 2}, out="started and trained"))
    assert load(data / "started and trained", precision="float32").classify("big cat")[0].label in ("animal", "none")


@pytest.mark.parametrize("family", ["flan_t5", "marian"])
def test_a_public_writer_is_tuned_on_pairs(tmp_path: Path, family: str) -> None:
    """With its own words, its prompt in front, its end behind; and it stays what it was, but for its weights."""
    folder = save(
        writer(family, {"translate": {"de": "in German: "}} if family == "flan_t5" else None), tmp_path / "start"
    )
    (tmp_path / "pairs.tsv").write_text("".join(f"one two {n}\tthree four {n}\n" for n in "abcdefghij" * 4))
    asked = Settings._from(
        {
            **TINY,
            "out": tmp_path / "run",
            "data": {"train": [{"file": tmp_path / "pairs.tsv"}], "duplicates": True},
            "model": {"start": folder},
            "length": {"steps": 40},
            "batch": {"tokens": 200},
            "optimizer": {"rate": 0.003, "warmup": 5},
        }
    )
    run = prepared(asked.replace(out=tmp_path / "prepared"))
    source, target = run.goal.corpus.pair(0)  # type: ignore[attr-defined]
    words = run.goal.tokenizer.tokenizer  # type: ignore[attr-defined]
    front = "in German: " if family == "flan_t5" else ""
    assert words.decode(source.tolist()).startswith(front + "one two")
    assert (source[-1], target[-1]) == (2, 2)
    batch = run.train.make(run.train.plan(0)[0])
    assert set(batch.target[:, 0].tolist()) == {0}  # the checkpoint's start
    start(asked)
    rows = [json.loads(line) for line in (asked.out / "log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row["event"] == "validation"]
    assert losses[-1] < 0.9 * losses[0]
    tuned = load(asked.out)
    assert tuned.metadata == load(folder).metadata
    assert tuned.translate(["one two a"], num_beams=1)[0].text is not None


def test_lora_begins_as_the_model_and_merges_into_it() -> None:
    torch.manual_seed(0)
    model = cf.build(presets.gpt2("small", vocabulary=500), seed=1)
    ids = torch.randint(500, (2, 20))
    with torch.no_grad():
        before = model(ids)
        frozen = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        lora = Lora(rank=4, alpha=8.0, on=("query", "value"))
        adapt(model, lora, seed=0)
        assert torch.equal(model(ids), before)
        learned = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        assert len(learned) == 2 * 2 * 4
        for name, weight in learned.items():
            weight.normal_(0, 0.02 if "up" in name else 0.1)
        plain = cf.build(presets.gpt2("small", vocabulary=500))
        for name, parameter in plain.named_parameters():
            parameter.copy_(merged(learned, frozen, lora)[name])
        assert float((model(ids) - before).abs().max()) > 1e-2
        assert float((model(ids) - plain(ids)).abs().max()) <= 1e-5


def test_lora_trains_less_than_two_in_a_hundred_of_gpt2() -> None:
    with torch.device("meta"):
        model = cf.build(presets.gpt2("124m"))
        total = sum(weight.numel() for weight in model.parameters())
    adapt(model, Lora(), seed=0)
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert 0 < trained < 0.02 * total


def test_a_run_by_lora_keeps_a_plain_model(data: Path) -> None:
    start(asking(data, "complete", {"length.steps": 20}, out="plain"))
    changes: dict[str, Any] = {"model.start": data / "plain", "model.lora": {"rank": 2, "alpha": 4.0}}
    asked = asking(data, "complete", {**changes, "length.steps": 8, "average.kind": "none"}, out="by lora")
    start(asked)
    state = saved(asked.out)
    assert all(".lora_" in name for name in state.tensors["weights"])
    before, after = load(data / "plain", precision="float32").model, load(asked.out, precision="float32").model
    weights = after.state_dict()
    changed = {name.split(".")[-2] for name, one in before.state_dict().items() if not torch.equal(one, weights[name])}
    assert changed == {"query", "value"}
    run = prepared(asking(data, "complete", {**changes, "average.kind": "none"}, out="by lora again"))
    trainer = Trainer(run, ALONE)
    trainer.restore(state)
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        assert float((trainer.model.eval()(ids) - after(ids)).abs().max()) <= 1e-5


@pytest.mark.parametrize("lora", [True, False])
def test_a_start_that_is_gone_or_another_is_not_gone_on_from(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: bool
) -> None:
    """The frozen weights, or the metadata, are there: with others the run would be another without a word."""
    start(asking(data, "complete", {"length.steps": 4}, out=f"first {lora}"))
    folder = tmp_path / "first"
    shutil.copytree(data / f"first {lora}", folder)
    asked = asking(data, "complete", {"model.start": folder}, out=f"second {lora}")
    asked = asked.replace({"model.lora": {"rank": 2}}) if lora else asked
    with monkeypatch.context() as patch:
        interrupt(patch, 5)
        with pytest.raises(Stopped):
            start(asked)
    weights = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(TrainingError, match=r"not what the run began with: .*weights"):
        resume(asked.out)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ClearformerError, match=r"there is no folder .*first"):
        resume(asked.out)


def test_what_validation_says_is_what_the_task_does(data: Path) -> None:
    """The same texts, special tokens and pieces in training as in use."""
    for name, kind in (("classify", "bpe"), ("tag", "bpe"), ("tag", "word")):
        out = f"{name} {kind} as used"
        changes = {"tokenizer.kind": kind, "length.steps": 30, "average.kind": "none", "validation.every": 30}
        done = start(asking(data, name, changes, out=out))
        used, rows = load(data / out, precision="float32"), reopened(data / out).goal.valid_rows
        if name == "classify":
            right = [used.classify(row["source"])[0].label == row["target"] for row in rows]
        else:
            made = [[word.label for word in used.tag(row["source"])[0].words] for row in rows]
            right = [
                a == b
                for row, found in zip(rows, made, strict=True)
                for a, b in zip(row["target"].split(), found, strict=True)
            ]
        assert done.scores["accuracy"] == pytest.approx(sum(right) / len(right), abs=1e-4), out


def test_a_completer_reads_prompts_as_the_text_was_read(data: Path) -> None:
    """No token that training has not seen stands in front."""
    start(asking(data, "complete", {"length.steps": 2}, out="prompts as read"))
    used, run = load(data / "prompts as read", precision="float32"), reopened(data / "prompts as read")
    seen = set(run.train.stream.tolist())  # type: ignore[attr-defined]
    assert set(used.prompt_ids("red green", 1)) <= seen
    assert used.prompt_ids("", 1) == [run.goal.words.end]  # type: ignore[attr-defined]


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file", "content", "told"),
    [
        ("classify", "labels.tsv", "a\tx\nb\tx\n", "has 1 label; there must be at least two"),
        ("classify", "labels.tsv", "a\nb\n", "column 2 is needed"),
        ("classify", "labels.tsv", "", "the training data has no pairs"),
        ("tag", "trees.conllu", "1\tone\n", "2 columns, and CoNLL-U has 10"),
        ("tag", "trees.conllu", "1\ta\ta\tX\tX\t_\t7\tdep\t_\t_\n", "head '7'"),
        ("embed by score", "couples.tsv", "a\tb\tmuch\n", "'much' is no number"),
        ("embed by score", "couples.tsv", "a\tb\t1\nc\td\t1\n", "the same score"),
        (
            "answer",
            "questions.jsonl",
            '{"question": "q", "context": "c", "answer": "x"}\n',
            "does not stand in the context",
        ),
        ("answer", "questions.jsonl", "[]\n", "must be an object with question, context and answer"),
        ("complete", "text.txt", " \n", "the training text is empty"),
        ("complete", "text.txt", b"a \xff b", "byte 3"),
        ("see", "images.npz", "hello", "is no set of images"),
    ],
)
def test_bad_data_is_named(tmp_path: Path, name: str, file: str, content: str | bytes, told: str) -> None:
    (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=told):
        start(asking(tmp_path, name))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("tag by tree", {"tokenizer.kind": "bpe"}, "needs whole words"),
        ("classify", {"model.heads": 3}, "must divide"),
        ("classify", {"model.lora": {"rank": 2}}, "give its folder as model.start"),
    ],
)
def test_settings_that_do_not_go_together(data: Path, name: str, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ClearformerError, match=told):
        start(asking(data, name, changes, out="refused"))


def test_a_label_that_was_never_trained_on(data: Path) -> None:
    (data / "odd.tsv").write_text("big cat\tanimall\n")
    with pytest.raises(DataError, match="line 1: no training text has the label 'animall'; did you mean 'animal'"):
        start(asking(data, "classify", {"data.valid": [{"file": data / "odd.tsv"}]}, out="odd"))


def test_a_start_that_cannot_do_the_task(data: Path) -> None:
    start(asking(data, "see", {"length.steps": 2}, out="sees"))
    with pytest.raises(SpecError, match="does not say next tokens"):
        start(asking(data, "complete", {"model.start": data / "sees"}, out="cannot"))


@pytest.mark.parametrize("name", ["classify", "tag", "embed by score", "answer", "complete", "fill", "see"])
def test_a_score_is_of_the_precision_asked_for(data: Path, name: str) -> None:
    _, part, _ = GOALS[name]
    start(asking(data, name, out=f"{name} in precisions"))
    test = Pairs(**{**part, "file": data / part["file"]})
    plain, packed, whole = (
        evaluate(data / f"{name} in precisions", test, precision=precision) for precision in (None, "float32", "int8")
    )
    assert packed.loss == pytest.approx(plain.loss, rel=1e-5)
    assert whole.loss == pytest.approx(plain.loss, rel=0.05)
    assert whole.loss != packed.loss
    assert whole.measures.keys() == plain.measures.keys()


@pytest.mark.parametrize("name", ["BertForMaskedLM", "RobertaForMaskedLM", "DistilBertForMaskedLM", "BertModel"])
@pytest.mark.parametrize("goal", ["classify", "embed by contrast"])
def test_a_tuned_public_encoder_goes_back_to_its_family(data: Path, tmp_path: Path, name: str, goal: str) -> None:
    folder, _, _ = encoders.save(tmp_path / "public", name)
    out = f"{name} to {goal}"
    changes = {"model.start": folder, "length.steps": 2, "model.dropout": None, "average.kind": "none"}
    start(asking(data, goal, changes, out=out))
    written = convert(data / out, tmp_path / "again", "huggingface")
    mine, theirs, texts = (
        load(data / out, precision="float32"),
        load(written, precision="float32"),
        ["red cat", "one two three dog runs"],
    )
    assert verify(data / out, written, (texts[0],)).same
    assert describe(written).family == json.loads((folder / "config.json").read_text())["model_type"]
    if goal == "classify":
        assert mine.classify(texts) == theirs.classify(texts)
    else:
        assert np.allclose(mine.embed(texts), theirs.embed(texts), atol=1e-6)


def test_a_classifier_begins_with_the_pooler_beside_another_head(data: Path, tmp_path: Path) -> None:
    """As in bert-base-uncased: the weights are of a masked-token model, and a pooler is among them."""
    folder, model, _ = encoders.save(tmp_path / "public", "BertForPreTraining")
    asked = asking(data, "classify", {"model.start": folder}, out="with a pooler")
    goal = prepare(asked, lambda text: None).goal
    dense = goal.model(goal.spec(asked, goal.vocabulary)).head.vector.dense
    assert torch.equal(dense.weight, model.bert.pooler.dense.weight)
    assert torch.equal(dense.bias, model.bert.pooler.dense.bias)


def test_names_of_columns_are_no_label(data: Path, tmp_path: Path) -> None:
    rows = (data / "labels.tsv").read_text()
    (tmp_path / "named.tsv").write_text("text\tlabel\n" + rows)
    asked = asking(data, "classify", out="named")
    with pytest.raises(DataError, match=r"named.tsv, line 1 looks like names of columns.*--fields text,label"):
        start(asked.replace({"data": {"train": [{"file": tmp_path / "named.tsv"}]}}))
    named = {"train": [{"file": tmp_path / "named.tsv", "fields": ("text", "label")}]}
    start(asked.replace({"data": named, "out": data / "named well"}))
    assert load(data / "named well").metadata.labels == ("animal", "none")


def test_masked_text_is_as_long_as_the_start_sees(data: Path, tmp_path: Path) -> None:
    folder, _, _ = encoders.save(tmp_path / "public", "BertForMaskedLM", max_position_embeddings=24)
    changes = {"model.start": folder, "model.context": None, "length.steps": 2, "model.dropout": None}
    start(asking(data, "fill", changes, out="short masked"))


def test_texts_longer_than_the_start_sees_are_left_out(data: Path, tmp_path: Path) -> None:
    folder, _, _ = encoders.save(tmp_path / "public", "BertForMaskedLM", max_position_embeddings=8)
    said: list[str] = []
    prepare(asking(data, "classify", {"model.start": folder}, out="few positions"), said.append)
    assert any("too long" in line for line in said)


def test_a_tuned_model_takes_texts_as_long_as_its_start_does(data: Path, tmp_path: Path) -> None:
    """Whatever lengths it was tuned on."""
    folder, _, _ = encoders.save(tmp_path / "public", "BertForMaskedLM")
    changes = {"model.start": folder, "data.longest": 12, "length.steps": 2, "model.dropout": None}
    start(asking(data, "classify", changes, out="short texts"))
    assert load(data / "short texts").metadata.longest == encoders.LONGEST


def test_starts_that_do_not_fit_images(data: Path, tmp_path: Path) -> None:
    folder, _, _ = encoders.save(tmp_path / "public", "BertForMaskedLM")
    with pytest.raises(SpecError, match="is no model that labels images"):
        start(asking(data, "see", {"model.start": folder}, out="blind"))


def test_photos_of_several_sizes_are_brought_to_one(tmp_path: Path) -> None:
    from PIL import Image

    draw = np.random.default_rng(0)
    for label, sizes in (("cat", [(20, 14), (16, 16)] * 6), ("dog", [(30, 20), (12, 18)] * 6)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number, size in enumerate(sizes):
            pixels = draw.integers(0, 255, (*size, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    parts: dict[str, Any] = {"train": [{"file": tmp_path / "photos"}]}
    with pytest.raises(DataError, match=r"differ in size.*data\.size"):
        start(Settings(task="see", out=tmp_path / "a", data=parts, **TINY))
    start(Settings(task="see", out=tmp_path / "b", data={**parts, "size": 16}, **TINY))
    assert load(tmp_path / "b").metadata.image.size == (16, 16)
