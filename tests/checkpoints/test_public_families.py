"""The models are the public ones: with the same weights, the same numbers as Hugging Face's classes.

Tiny models with random weights, nothing downloaded. Weights travel through the folders that either side saves.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.t5.modeling_t5 import T5Attention

from clearformer import spec
from clearformer.assemble import build
from clearformer.checkpoints.huggingface import describe, load_public, save_public
from clearformer.checkpoints.match_family import differences, normal
from clearformer.core.model import Context
from clearformer.core.positions import Buckets
from clearformer.errors import CheckpointError
from tests.checkpoints.cases import (
    BAR,
    CASES,
    ONE,
    TWO,
    VIT,
    Batch,
    Case,
    ask_them,
    ask_us,
    assert_equal,
    assert_states_equal,
    batch,
    pair,
    scramble,
    suitable,
    walk,
    weights,
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- the same numbers -------------------------------------------------------------------------------------


def text_cases() -> Iterator[Any]:
    for name, case in ONE.items():
        kinds = ["whole", "right", "long", "long right"]
        if isinstance(case.spec.head, spec.NextToken):
            kinds += ["left", "long left"]
        elif case.family in ("bert", "roberta", "megatron-bert") and not isinstance(
            case.spec.head, spec.Vector | spec.Classes
        ):
            kinds += ["left"]  # the pooled ones read the first cell in public, which is padding there
        yield from (pytest.param(name, kind, id=f"{name}, {kind}") for kind in kinds)


def pair_cases() -> Iterator[Any]:
    for name in TWO:
        kinds = ["whole", "right", "long", "long right"]
        if not name.startswith(
            ("marian", "pegasus")
        ):  # whose public class numbers the padding too, and takes no positions
            kinds += ["left", "long left"]
        yield from (pytest.param(name, kind, id=f"{name}, {kind}") for kind in kinds)


@torch.no_grad()
@pytest.mark.parametrize(("name", "kind"), [*text_cases()])
def test_one_stack_gives_the_same_states_and_answers(name: str, kind: str) -> None:
    theirs, ours, _ = pair(name)
    given = batch(kind)
    out = ask_them(name, theirs, given)
    assert_equal(CASES[name].answer(out), ask_us(ours, given), given.real)
    assert_states_equal(out.hidden_states, walk(ours.stack, given), given.real)


@torch.no_grad()
@pytest.mark.parametrize(("name", "kind"), [*pair_cases()])
def test_two_stacks_give_the_same_states_and_logits(name: str, kind: str) -> None:
    theirs, ours, _ = pair(name)
    for target in (batch("whole", 7, seed=3), batch("right", 7, seed=3)):
        source = batch(kind)
        out = ask_them(name, theirs, source, target)
        assert_equal(out.logits, ask_us(ours, source, target), target.real)
        assert_states_equal(out.encoder_hidden_states, walk(ours.encoder, source), source.real)
        context = Context(ours.decoder, ours.encode(source.ids, source.mask))
        assert_states_equal(out.decoder_hidden_states, walk(ours.decoder, target, context), target.real)


@torch.no_grad()
@pytest.mark.parametrize("name", VIT)
def test_images_give_the_same_states_and_classes(name: str) -> None:
    theirs, ours, _ = pair(name)
    (given,) = suitable(name)
    out, states = ask_them(name, theirs, given), walk(ours.stack, given)
    assert_equal(CASES[name].answer(out), ask_us(ours, given))
    body = getattr(theirs, "vit", getattr(theirs, "vision_model", theirs))
    assert_equal(body(given.ids).last_hidden_state, states[-1])
    assert len(out.hidden_states) == len(states) - 1
    for one, other in zip(out.hidden_states, states, strict=False):  # these end before the final norm
        assert_equal(one, other)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["whole", "right"])
def test_captions_give_the_same_states_and_logits(kind: str) -> None:
    theirs, ours, _ = pair("captions")
    image, target = suitable("captions")[0], batch(kind, 7, seed=3)
    out = ask_them("captions", theirs, image, target)
    assert_equal(out.logits, ask_us(ours, image, target), target.real)
    seen = ours.encode(image.ids)
    assert_equal(out.encoder_last_hidden_state, seen.states)
    assert_states_equal(out.decoder_hidden_states, walk(ours.decoder, target, Context(ours.decoder, seen)), target.real)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["whole", "right", "left"])
def test_a_window_over_many_blocks_gives_the_same_logits(kind: str) -> None:
    theirs, ours, _ = pair("mistral")
    given = batch(kind, 200)
    assert_equal(ask_them("mistral", theirs, given).logits, ask_us(ours, given), given.real)


@pytest.mark.parametrize(("count", "reach"), [(32, 128), (8, 20), (64, 256), (4, 3), (16, 1000)])
@pytest.mark.parametrize("two_way", [True, False])
def test_buckets_are_the_public_ones_at_every_distance(two_way: bool, count: int, reach: int) -> None:
    away = torch.arange(-3000, 3001)
    theirs = T5Attention._relative_position_bucket(away, two_way, count, reach)
    assert torch.equal(theirs, Buckets(1, count, reach, two_way).bucket(away))


# --- one text or many -------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in CASES if name not in VIT and name != "captions"])
def test_a_text_alone_gives_what_it_gives_in_a_batch(name: str) -> None:
    theirs, ours, _ = pair(name)
    given = batch("right")
    targets = (batch("whole", 7, seed=3),) if name in TWO else ()
    together = ask_us(ours, given, *targets)
    length = int(given.real[1].sum())
    alone = Batch(given.ids[1:2, :length], None, given.segments[1:2, :length])
    answer = CASES[name].answer(ask_them(name, theirs, alone, *(Batch(t.ids[1:2], None) for t in targets)))
    assert_equal(answer, ask_us(ours, alone, *(Batch(t.ids[1:2], None) for t in targets)))
    mine = together[1:2] if together.dim() == 2 or targets else together[1:2, :length]
    assert_equal(answer, mine)


# --- there and back ---------------------------------------------------------------------------------------


UNUSED = {"encoder.pooler.dense.weight", "encoder.pooler.dense.bias"}  # a caption's ViT has one that nothing reads
UNUSED |= {f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")}  # sinusoids, computed here


def raw(given: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in given.items()}


def saved(folder: Path) -> dict[str, bytes]:
    found = raw(load_file(folder / "model.safetensors"))
    return {name: value for name, value in found.items() if name not in UNUSED}


@pytest.mark.parametrize("name", CASES)
def test_the_spec_is_the_one_that_was_meant(name: str) -> None:
    public = describe(pair(name)[2])
    assert not list(differences(normal(public.spec), normal(CASES[name].spec)))


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_theirs_comes_in_and_goes_out_the_same(name: str, tmp_path: Path) -> None:
    _, ours, folder = pair(name)
    save_public(ours, tmp_path / "out", metadata=describe(folder).metadata)
    assert saved(tmp_path / "out") == saved(folder)


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_ours_goes_out_whole_and_comes_back_the_same(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    torch.manual_seed(1)
    ours = build(case.spec)
    scramble(weights(ours))
    save_public(ours, tmp_path / "out")
    theirs, report = case.model.from_pretrained(tmp_path / "out", output_loading_info=True, attn_implementation="eager")
    report["missing_keys"] -= UNUSED
    assert not any(report.values()), report  # no name missing, unexpected or of another shape
    given = suitable(name)
    assert_equal(case.answer(ask_them(name, theirs.eval(), *given)), ask_us(ours, *given))

    theirs.save_pretrained(tmp_path / "again")
    assert saved(tmp_path / "again") == saved(tmp_path / "out")
    again, _ = load_public(tmp_path / "again")
    assert raw(weights(again)) == raw(weights(ours))


# --- the tests can fail -----------------------------------------------------------------------------------


def invisible(case: Case, name: str) -> bool:
    """A key's bias adds the same to every score of a query, which softmax forgets, unless rotation comes between."""
    return name.endswith(".key.bias") and case.family != "llama"


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_weight_would_show(name: str) -> None:
    case = CASES[name]
    theirs, ours, _ = pair(name)
    given = suitable(name)
    expected, mine = case.answer(ask_them(name, theirs, *given)), ask_us(ours, *given)
    assert_equal(expected, mine)
    for parameter_name, parameter in weights(ours).items():
        kept = parameter.clone()
        parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4))
        shift = (expected - ask_us(ours, *given)).abs().max()
        parameter.copy_(kept)
        if invisible(case, parameter_name):
            assert shift <= BAR, parameter_name
        else:
            assert shift > 10 * BAR, parameter_name
    assert torch.equal(ask_us(ours, *given), mine)


# --- rotary angles, said under one key or two -------------------------------------------------------------

LINEAR = {"rope_type": "linear", "factor": 3.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
BOTH: dict[str, dict[str, Any]] = {
    "older": {"rope_scaling": LINEAR, "rope_theta": 5e3},
    "newer": {"rope_parameters": {**LINEAR, "rope_theta": 5e3}},
    "newer and top": {"rope_parameters": {**LINEAR, "rope_theta": 5e3}, "rope_theta": 7e3},
    "plain and linear": {"rope_parameters": PLAIN, "rope_scaling": LINEAR},
    "plain and linear, base at the top": {
        "rope_parameters": {**PLAIN, "rope_theta": 5e3},
        "rope_scaling": LINEAR,
        "rope_theta": 5e3,
    },
    "plain and linear, base within": {
        "rope_parameters": {**PLAIN, "rope_theta": 5e3},
        "rope_scaling": {**LINEAR, "rope_theta": 5e3},
    },
    "plain and older word": {"rope_parameters": PLAIN, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "twice the same": {"rope_parameters": {**LINEAR, "rope_theta": 1e4}, "rope_scaling": {**LINEAR, "type": "linear"}},
    "plain and llama3": {"rope_parameters": PLAIN, "rope_scaling": LLAMA3},  # whose original length is left out
    "linear and nothing": {"rope_parameters": LINEAR, "rope_scaling": None},
    "nothing and linear": {"rope_parameters": None, "rope_scaling": LINEAR},
}
CONTRADICT: dict[str, dict[str, Any]] = {
    "another base": {"rope_parameters": {**PLAIN, "rope_theta": 5e3}, "rope_scaling": LINEAR},
    "another factor": {"rope_parameters": {**LINEAR, "factor": 2.0}, "rope_scaling": LINEAR},
    "another kind": {"rope_parameters": LINEAR, "rope_scaling": {"rope_type": "default"}},
    "yarn": {"rope_parameters": PLAIN, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "dynamic": {"rope_parameters": PLAIN, "rope_scaling": {"type": "dynamic", "factor": 4.0}},
    "yarn, newer": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}},
}


def with_rope(kind: str, said: dict[str, Any], folder: Path) -> Path:
    shutil.copytree(pair(kind)[2], folder)
    config = json.loads((folder / "config.json").read_text())
    config = {key: value for key, value in config.items() if not key.startswith("rope")} | said
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@torch.no_grad()
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2"])
@pytest.mark.parametrize("name", BOTH)
def test_rotary_angles_under_both_keys(name: str, kind: str, tmp_path: Path) -> None:
    folder = with_rope(kind, BOTH[name], tmp_path / "model")
    theirs = CASES[kind].model.from_pretrained(folder, attn_implementation="eager").eval()
    ours, public = load_public(folder)
    given = batch("long")
    assert_equal(ask_them(kind, theirs, given).logits, ask_us(ours, given))
    if all(BOTH[name].get(key) for key in ("rope_parameters", "rope_scaling")):
        assert {remark.use for remark in public.remarks if remark.key == "rope_scaling"} == {"used"}
        assert {remark.use for remark in public.remarks if remark.key == "rope_parameters"} == {"ignored"}


@pytest.mark.parametrize("name", CONTRADICT)
def test_rotary_angles_that_nobody_can_be_sure_of(name: str, tmp_path: Path) -> None:
    folder = with_rope("llama", CONTRADICT[name], tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"contradict each other|is not read; known: default, linear, llama3"):
        load_public(folder)
