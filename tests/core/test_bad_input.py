"""What a model says to input that does not fit it: given, expected, remedy."""

from pathlib import Path

import pytest
import torch

import clearformer as cf
from clearformer import presets, spec

IDS = torch.tensor([[1, 2, 3]])
GPT = cf.build(presets.gpt2("tiny", length=8), seed=0)
PAIR = cf.build(presets.original("tiny"), seed=0)
VIT = cf.build(presets.vit("tiny"), seed=0)
BERT = cf.build(presets.bert("tiny"), seed=0)
TREE = cf.build(presets.gpt2("tiny").replace({"stack.blocks.*.self.positions": spec.TreeDistance(reach=2)}), seed=0)
SHORT = cf.build(presets.linformer("tiny", length=5), seed=0)


def _twice(model: torch.nn.Module, first: torch.Tensor, second: torch.Tensor) -> None:
    context = model.context()
    model(first, context=context)
    model(second, context=context)


BAD = {
    "an id beyond the vocabulary": (
        lambda: GPT(torch.tensor([[1, 100]])),
        "token id 100 is outside the vocabulary of 100",
    ),
    "a negative id": (lambda: GPT(torch.tensor([[-1]])), "token id -1 is outside"),
    "a text beyond the position table": (
        lambda: GPT(torch.ones(1, 9, dtype=torch.long)),
        "the text has 9 tokens and the position table 8 rows",
    ),
    "a text beyond the compression": (
        lambda: SHORT(torch.ones(1, 6, dtype=torch.long)),
        "the text has 6 tokens and compressed attention is built for 5",
    ),
    "ids without a batch": (lambda: GPT(torch.tensor([1, 2])), "batch × length, given int64 of shape 2"),
    "ids that are no integers": (lambda: GPT(torch.ones(1, 2)), "token ids must be integers"),
    "a mask of numbers": (lambda: GPT(IDS, torch.ones(1, 3)), "mask must be bool, True where a token is"),
    "a mask of another shape": (lambda: GPT(IDS, torch.ones(1, 2, dtype=torch.bool)), "of the ids' shape (1, 3)"),
    "a segment that is not there": (
        lambda: BERT(IDS, segments=torch.full((1, 3), 2)),
        "segment 2 given to a model with segments 0 to 1",
    ),
    "an image of another size": (
        lambda: VIT(torch.zeros(1, 3, 10, 10)),
        "batch × 3 × 12 × 12, given float32 of shape 1 × 3 × 10 × 10",
    ),
    "an image of another number of colours": (lambda: VIT(torch.zeros(1, 1, 12, 12)), "batch × 3 × 12 × 12"),
    "an image of integers": (lambda: VIT(torch.zeros(1, 3, 12, 12, dtype=torch.long)), "floating-point"),
    "a tree that is missing": (lambda: TREE(IDS), "uses dependency trees; pass trees="),
    "a tree of another size": (lambda: TREE(IDS, trees=[[0, 1]]), "2 heads given for a text of 3 tokens"),
    "a circle": (lambda: TREE(IDS, trees=[[2, 1, 0]]), "run in a circle"),
    "a source for one stack": (lambda: cf.greedy(GPT, IDS, max_new_tokens=1, source=IDS), "takes no source"),
    "no source for two stacks": (lambda: cf.greedy(PAIR, IDS, max_new_tokens=1), "pass source="),
    "two sources, one target": (
        lambda: PAIR.decode(IDS, PAIR.context(PAIR.encode(IDS.expand(2, 3)))),
        "1 rows given for a context of 2",
    ),
    "a context of another batch": (lambda: _twice(GPT, IDS, IDS.expand(2, 3)), "2 rows given for a context of 1"),
    "a context of another model": (lambda: PAIR.decode(IDS, GPT.context()), "belongs to another model"),
    "a context for a model that does not decode": (lambda: BERT.context(), "does not continue texts"),
    "decoding with a model that does not decode": (lambda: cf.greedy(VIT, IDS, max_new_tokens=1), "does not write"),
    "decoding in training mode": (
        lambda: cf.greedy(cf.build(GPT.spec).train(), IDS, max_new_tokens=1),
        "call model.eval()",
    ),
    "a prompt row without tokens": (
        lambda: cf.greedy(GPT, IDS.expand(2, 3), max_new_tokens=1, mask=torch.tensor([[True] * 3, [False] * 3])),
        "row 1 of the prompt has no token",
    ),
    "an empty prompt": (lambda: cf.greedy(GPT, IDS[:, :0], max_new_tokens=1), "row 0 of the prompt has no token"),
    "an end outside the vocabulary": (
        lambda: cf.beam(GPT, IDS, max_new_tokens=1, eos_token_id=100),
        "eos_token_id must be of the vocabulary",
    ),
    "no limit": (lambda: cf.greedy(GPT, IDS, max_new_tokens=0), "max_new_tokens must be a whole number from 1"),
    "a top_p of nothing": (lambda: cf.sample(GPT, IDS, max_new_tokens=1, seed=0, top_p=0.0), "top_p must be above 0"),
    "a top_k below nothing": (
        lambda: cf.sample(GPT, IDS, max_new_tokens=1, seed=0, top_k=-1),
        "top_k must be a whole number",
    ),
    "segments where there are none": (lambda: GPT(IDS, segments=IDS), "has no segments"),
    "segments of another shape": (lambda: BERT(IDS, segments=IDS[:, :2]), "of the ids' shape (1, 3)"),
    "trees where nothing reads them": (lambda: GPT(IDS, trees=[[0, 1, 1]]), "no positions that read trees"),
    "one tree for two texts": (lambda: TREE(IDS.expand(2, 3), trees=[[0, 1, 1]]), "1 given for a batch of 2"),
    "a tree of fractions": (lambda: TREE(IDS, trees=[[0, 0.5, 1]]), "is no whole number"),
    "a mask for an image": (lambda: VIT(torch.zeros(1, 3, 12, 12), torch.ones(1, 10).bool()), "no padding"),
    "an image in another precision": (lambda: VIT(torch.zeros(1, 3, 12, 12).double()), "use images.to"),
    "a list instead of a tensor": (lambda: GPT([[1, 2]]), "must be a tensor, given list"),
    "a cold temperature": (
        lambda: cf.sample(GPT, IDS, max_new_tokens=1, seed=0, temperature=-1.0),
        "temperature must be 0 or more",
    ),
    "no beam": (
        lambda: cf.beam(GPT, IDS, max_new_tokens=1, eos_token_id=0, num_beams=0),
        "num_beams must be a whole number from 1",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what: str) -> None:
    call, message = BAD[what]
    with pytest.raises(cf.DataError) as caught:
        call()
    assert message in str(caught.value)


def test_kernels_say_why_not() -> None:
    with pytest.raises(cf.KernelError, match="did you mean 'fused'"):
        cf.build(presets.gpt2("tiny"), kernel="fsued")
    with pytest.raises(cf.KernelError, match="nothing to skip"):
        cf.build(presets.gpt2("tiny"), kernel="sparse")
    shaw = presets.gpt2("tiny").replace({"stack.blocks.*.self.positions": spec.Shaw(reach=2)})
    with pytest.raises(cf.KernelError, match="which fused attention never shows"):
        cf.build(shaw, kernel="fused")
    chosen = [str(choice) for choice in cf.kernels_of(cf.build(shaw))]
    assert chosen[0].startswith("stack.0.self: reference; not sparse: pattern 'causal'")
    assert {choice.kernel for choice in cf.kernels_of(cf.build(presets.bigbird("tiny")))} == {"sparse"}
    assert {choice.kernel for choice in cf.kernels_of(PAIR)} == {"fused"}


def saved(folder: Path) -> Path:
    return cf.save_model(GPT, folder / "model")


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(cf.CheckpointError, match=r"is not a model folder: it has no spec\.json"):
        cf.load_model(tmp_path)
    folder = saved(tmp_path)
    with pytest.raises(cf.CheckpointError, match="exists already"):
        cf.save_model(GPT, folder)
    (folder / "spec.json").write_text(GPT.spec.to_json().replace("causal", "casual"))
    with pytest.raises(cf.CheckpointError, match=r"spec.json: .*did you mean 'causal'"):
        cf.load_model(folder)


def test_damaged_weights(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    whole = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(cf.CheckpointError, match="damaged or no safetensors"):
        cf.load_model(folder)


def test_weights_that_do_not_fit_are_named_together(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = saved(tmp_path)
    weights = load_file(folder / "weights.safetensors")
    weights["stray"] = torch.zeros(2)
    weights["stack.final.weight"] = torch.zeros(5)
    del weights["stack.embed.table"]
    save_file(weights, folder / "weights.safetensors")
    with pytest.raises(cf.CheckpointError) as caught:
        cf.load_model(folder)
    for line in (
        "missing     stack.embed.table [100, 32]",
        "unexpected  stray [2]",
        "misshapen   stack.final.weight [5], expected [32]",
    ):
        assert line in str(caught.value)


def test_spoilt_weights_are_neither_saved_nor_loaded(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = saved(tmp_path)
    weights = load_file(folder / "weights.safetensors")
    weights["stack.final.bias"] = torch.full((32,), float("nan"))
    save_file(weights, folder / "weights.safetensors")
    with pytest.raises(cf.CheckpointError, match=r"non-finite  stack\.final\.bias"):
        cf.load_model(folder)
    model = cf.build(GPT.spec)
    with torch.no_grad():
        model.stack.final.bias.fill_(float("inf"))
    with pytest.raises(cf.CheckpointError, match="nothing was saved"):
        cf.save_model(model, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_spec_that_asks_for_too_much_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    huge = GPT.spec.replace({"stack.embed.vocabulary": 2**24, "stack.width": 2**20})
    (folder / "spec.json").write_text(huge.to_json())
    with pytest.raises(cf.CheckpointError, match=r"misshapen   stack\.embed\.table"):
        cf.load_model(folder)


def test_what_is_no_spec() -> None:
    with pytest.raises(cf.SpecError, match="a spec is needed"):
        cf.build("gpt2")  # type: ignore[arg-type]
    with pytest.raises(cf.SpecError, match="has no size 124"):
        presets.gpt2(124)  # type: ignore[arg-type]
