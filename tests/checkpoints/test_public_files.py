"""Files as they are found: with and without prefixes, in shards, in half precision, with leftovers and with faults."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearformer import presets, spec
from clearformer.assemble import build
from clearformer.checkpoints.huggingface import describe, load_public, save_public
from clearformer.core.positions import sinusoid
from clearformer.errors import CheckpointError
from tests.checkpoints.cases import CASES, ask_us, pair, suitable

Edit = Callable[[dict[str, Tensor]], None]


def copy(name: str, to: Path, edit: Edit | None = None, **config: object) -> Path:
    """A case's folder once more, with changes."""
    folder = pair(name)[2]
    to.mkdir()
    tensors = load_file(folder / "model.safetensors")
    if edit is not None:
        edit(tensors)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, to / "model.safetensors")
    values = {**json.loads((folder / "config.json").read_text()), **config}
    (to / "config.json").write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))
    return to


@torch.no_grad()
def assert_same(name: str, folder: Path) -> list[str]:
    """The folder's model answers as the case's own; what was left of its tensors."""
    model, public = load_public(folder)
    given = suitable(name)
    assert torch.equal(ask_us(model, *given), ask_us(pair(name)[1], *given))
    return [remark.key for remark in public.remarks if "." in remark.key and remark.use == "ignored"]


def renamed(change: Callable[[str], str]) -> Edit:
    def edit(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[change(name)] = tensors.pop(name)

    return edit


PREFIXES = {
    "bert masked": "bert.",
    "bert classes": "bert.",
    "distilbert classes": "distilbert.",
    "roberta masked": "roberta.",
    "gpt2": "transformer.",
    "llama": "model.",
    "marian": "model.",
    "vit": "vit.",
}


@pytest.mark.parametrize(("name", "prefix"), PREFIXES.items())
def test_a_prefix_may_be_missing(name: str, prefix: str, tmp_path: Path) -> None:
    folder = copy(name, tmp_path / "bare", renamed(lambda key: key.removeprefix(prefix)))
    assert not any(key.startswith(prefix) for key in load_file(folder / "model.safetensors"))
    assert_same(name, folder)


@pytest.mark.parametrize(
    ("name", "prefix"), [("bert pooler", "bert."), ("distilbert states", "distilbert."), ("vit pooler", "vit.")]
)
def test_a_prefix_may_be_there(name: str, prefix: str, tmp_path: Path) -> None:
    assert_same(name, copy(name, tmp_path / "whole", renamed(lambda key: prefix + key)))


def test_old_names_of_norms_are_read(tmp_path: Path) -> None:
    def old(key: str) -> str:
        return key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    folder = copy("bert masked", tmp_path / "old", renamed(old))
    assert "bert.embeddings.LayerNorm.gamma" in load_file(folder / "model.safetensors")
    assert_same("bert masked", folder)


def leftovers(name: str) -> dict[str, Tensor]:
    """What files of a family hold besides, copies included."""
    theirs = load_file(pair(name)[2] / "model.safetensors")
    four = torch.ones(4)
    match name:
        case "bert masked":
            table, bias = theirs["bert.embeddings.word_embeddings.weight"], theirs["cls.predictions.bias"]
            return {
                "cls.seq_relationship.weight": torch.ones(2, 32),
                "cls.seq_relationship.bias": torch.ones(2),
                "bert.pooler.dense.weight": torch.ones(32, 32),
                "bert.embeddings.position_ids": torch.arange(70)[None],
                "cls.predictions.decoder.weight": table.clone(),
                "cls.predictions.decoder.bias": bias.clone(),
            }
        case "gpt2":
            return {
                "transformer.h.0.attn.bias": torch.ones(1, 1, 70, 70, dtype=torch.bool),
                "transformer.h.1.attn.masked_bias": torch.tensor(-1e4),
                "lm_head.weight": theirs["transformer.wte.weight"].clone(),
            }
        case "llama tied":
            return {
                "model.layers.0.self_attn.rotary_emb.inv_freq": four,
                "lm_head.weight": theirs["model.embed_tokens.weight"].clone(),
            }
        case "t5":
            copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
            extra = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
            return {**{each: theirs["shared.weight"].clone() for each in copies}, extra: torch.ones(32, 4)}
        case "marian":
            waves = sinusoid(torch.arange(80), 32, 10_000.0, "halves", four)
            copies = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
            return {
                **{each: theirs["model.shared.weight"].clone() for each in copies},
                "model.encoder.embed_positions.weight": waves,
                "model.decoder.embed_positions.weight": waves.clone(),
            }
    raise KeyError(name)


LEFT = ("bert masked", "gpt2", "llama tied", "t5", "marian")


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_weight_is_left_and_said(name: str, tmp_path: Path) -> None:
    extra = leftovers(name)
    folder = copy(name, tmp_path / "more", lambda tensors: tensors.update(extra))
    assert sorted(assert_same(name, folder)) == sorted(extra)


@pytest.mark.parametrize("name", LEFT)
def test_a_copy_that_differs_is_refused(name: str, tmp_path: Path) -> None:
    copied = next(key for key in leftovers(name) if key in ("lm_head.weight", "cls.predictions.decoder.weight"))

    def edit(tensors: dict[str, Tensor]) -> None:
        tensors[copied] = leftovers(name)[copied] + 1e-3

    with pytest.raises(CheckpointError, match=rf"differs +{copied} should repeat .*tie_word_embeddings"):
        load_public(copy(name, tmp_path / "odd", edit))


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        (
            "bert pooler",
            {"cls.predictions.decoder.weight": torch.ones(100, 32), "cls.predictions.bias": torch.ones(100)},
        ),
        ("distilbert states", {"vocab_transform.weight": torch.ones(32, 32)}),
        ("vit pooler", {"classifier.weight": torch.ones(5, 32)}),
    ],
)
def test_a_body_leaves_the_heads_of_its_file(name: str, extra: dict[str, Tensor], tmp_path: Path) -> None:
    folder = copy(name, tmp_path / "more", lambda tensors: tensors.update(extra))
    assert sorted(assert_same(name, folder)) == sorted(extra)


def test_an_untied_body_alone_leaves_its_logits(tmp_path: Path) -> None:
    folder = copy("llama", tmp_path / "body", architectures=["LlamaModel"])
    model, public = load_public(folder)
    assert isinstance(public.spec.head, spec.States)
    assert torch.equal(model.stack.embed.table, pair("llama")[1].stack.embed.table)


def test_sinusoids_that_are_none_are_refused(tmp_path: Path) -> None:
    odd = {"model.encoder.embed_positions.weight": torch.ones(80, 32)}
    with pytest.raises(CheckpointError, match=r"embed_positions\.weight should hold sinusoids"):
        load_public(copy("marian", tmp_path / "odd", lambda tensors: tensors.update(odd)))


def test_everything_that_does_not_fit_is_one_table(tmp_path: Path) -> None:
    def edit(tensors: dict[str, Tensor]) -> None:
        tensors["transformer.h.1.extra.weight"] = torch.zeros(1, 2)
        tensors["transformer.h.0.ln_1.wieght"] = tensors.pop("transformer.h.0.ln_1.weight")
        tensors["transformer.wpe.weight"] = torch.zeros(70, 31)
        tensors["transformer.ln_f.bias"] = torch.zeros(32, dtype=torch.int64)

    with pytest.raises(CheckpointError) as error:
        load_public(copy("gpt2", tmp_path / "odd", edit))
    lines = str(error.value).splitlines()
    assert lines[0].endswith("the tensors do not fit config.json:")
    assert lines[1:] == [
        "  misshapen   transformer.wpe.weight 70 × 31, expected 70 × 32",
        "  missing     transformer.h.0.ln_1.weight 32",
        "  unexpected  transformer.h.0.ln_1.wieght 32; did you mean 'h.0.ln_1.weight'?",
        "  unexpected  transformer.h.1.extra.weight 1 × 2",
        "  wrong type  transformer.ln_f.bias is I64, expected one of BF16, F16, F32, F64",
    ]


def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path: Path) -> None:
    def edit(tensors: dict[str, Tensor]) -> None:
        tensors["model.norm.weight"][3] = torch.nan
        tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = -torch.inf

    with pytest.raises(CheckpointError) as error:
        load_public(copy("llama", tmp_path / "odd", edit))
    assert "model.norm.weight holds NaN or infinity" in str(error.value)
    assert "model.layers.1.mlp.up_proj.weight holds NaN or infinity" in str(error.value)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_converted_and_said(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = copy("gpt2", tmp_path / "half", lambda ts: ts.update({name: t.to(dtype) for name, t in ts.items()}))
    model, public = load_public(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    said = [remark for remark in public.remarks if remark.key == "weights"]
    assert [remark.value for remark in said] == [str(dtype).removeprefix("torch.")]
    assert "converted to float32" in said[0].why
    expected = load_file(folder / "model.safetensors")["transformer.wte.weight"].float()
    assert torch.equal(model.stack.embed.table, expected)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_shards_are_one_model(name: str, tmp_path: Path) -> None:
    pair(name)[0].save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 2
    assert_same(name, tmp_path / "parts")


def test_a_missing_shard_is_told(tmp_path: Path) -> None:
    pair("llama")[0].save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    sorted((tmp_path / "parts").glob("*.safetensors"))[1].unlink()
    with pytest.raises(CheckpointError, match="which is not there"):
        load_public(tmp_path / "parts")


def test_weights_are_the_file_s_own_memory(tmp_path: Path) -> None:
    """No copy is made: all but what is joined or turned lies in the mapped file, and turned ones are views of it."""
    folder = copy("gpt2", tmp_path / "one")
    model, _ = load_public(folder)
    query, key = (getattr(model.stack.blocks[0].branches["self"].layer, part).weight for part in ("query", "key"))
    assert key.data_ptr() - query.data_ptr() == 32 * 4  # side by side in c_attn
    assert model.head.weight is model.stack.embed.table
    with torch.no_grad():
        model.stack.embed.table.zero_()  # private: the file stays as it is
    assert load_file(folder / "model.safetensors")["transformer.wte.weight"].abs().sum() > 0


@pytest.mark.parametrize("name", [name for name in CASES if "bert" in name or name in ("gpt2", "llama tied", "vit")])
def test_the_tensors_tell_the_head_where_no_architecture_does(name: str, tmp_path: Path) -> None:
    folder = copy(name, tmp_path / "silent", architectures=...)
    assert describe(folder).spec == describe(pair(name)[2]).spec
    assert_same(name, folder)


def test_a_pooler_may_be_missing(tmp_path: Path) -> None:
    def edit(tensors: dict[str, Tensor]) -> None:
        for key in ("pooler.dense.weight", "pooler.dense.bias"):
            del tensors[key]

    model, public = load_public(copy("bert pooler", tmp_path / "less", edit))
    assert isinstance(public.spec.head, spec.States)
    assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 32)


def test_flan_saved_tied_is_read_so(tmp_path: Path) -> None:
    """Newer versions say the scaling apart from the tying, and leave the second table out where it is the first."""
    folder = copy("flan_t5", tmp_path / "tied", lambda tensors: tensors.pop("lm_head.weight"))
    head = describe(folder).spec.head
    assert (head.tied, head.scaled) == (True, False)
    model, _ = load_public(folder)
    assert model.head.weight is model.encoder.embed.table


# --- writing ----------------------------------------------------------------------------------------------


def test_a_spec_that_no_family_holds_is_refused_with_the_nearest(tmp_path: Path) -> None:
    model = build(presets.bigbird("tiny"), seed=0)
    with pytest.raises(
        CheckpointError, match=r"no public family holds this model; the nearest is bert, and it lacks embed\.positions"
    ):
        save_public(model, tmp_path / "no")
    near = presets.bert("tiny").replace({"stack.blocks.1.self.pattern": spec.Near(radius=3)})
    with pytest.raises(CheckpointError) as error:
        save_public(build(near, seed=0), tmp_path / "no")
    assert str(error.value).endswith(
        "the nearest is bert, and differs in stack.blocks.1.self.layer.pattern: near here, everyone there"
    )
    big = presets.marian("tiny").replace({"decoder.final": spec.LayerNorm()})
    with pytest.raises(
        CheckpointError, match=r"the nearest is marian, and differs in decoder\.final: layer here, nothing"
    ):
        save_public(build(big, seed=0), tmp_path / "no")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "gpt2", "llama", "t5", "flan_t5", "marian", "vit"])
def test_every_preset_of_a_public_family_is_held(family: str, tmp_path: Path) -> None:
    model = build(presets.FAMILIES[family]("tiny"), seed=0)
    save_public(model, tmp_path / "out")
    assert describe(tmp_path / "out").family == {"flan_t5": "t5"}.get(family, family)


def test_a_folder_that_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(CheckpointError, match="exists already"):
        save_public(pair("gpt2")[1], tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_half_precision_can_be_written_unless_it_overflows(tmp_path: Path) -> None:
    model = build(presets.gpt2("tiny"), seed=0)
    save_public(model, tmp_path / "half", dtype="float16")
    assert {tensor.dtype for tensor in load_file(tmp_path / "half" / "model.safetensors").values()} == {torch.float16}
    with torch.no_grad():
        model.stack.embed.table[0, 0] = 1e6
    with pytest.raises(CheckpointError, match=r"transformer\.wte\.weight is too large for float16; nothing was saved"):
        save_public(model, tmp_path / "no", dtype="float16")
    with pytest.raises(CheckpointError, match="cannot be saved as 'float8'; did you mean 'float32' or"):
        save_public(model, tmp_path / "no", dtype="float8")
    assert not (tmp_path / "no").exists()
