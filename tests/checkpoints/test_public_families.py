"""The models are the public ones: with the same weights, the same numbers as Hugging Face's classes.

Tiny models with random weights, nothing downloaded. Weights travel through the files that those classes save.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.models.t5.modeling_t5 import T5Attention

from clearformer import presets, spec
from clearformer.assemble import Model, build
from clearformer.core.model import Context, Stack
from clearformer.core.positions import Buckets
from tests.checkpoints.public import Weights, fill, table, to_ours, to_public, weights

BAR = 1e-5

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Case(NamedTuple):
    """A public family, a spec, and the class and configuration that mean the same in public."""

    family: str
    spec: spec.Transformer | spec.EncoderDecoder
    model: type[hf.PreTrainedModel]
    config: hf.PreTrainedConfig
    answer: Callable[[Any], Tensor] = lambda out: out.logits


def sizes(stack: spec.Stack) -> dict[str, Any]:
    return {
        "vocab_size": getattr(stack.embed, "vocabulary", None),
        "hidden_size": stack.width,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": stack.at("blocks.0.self.heads"),
        "intermediate_size": stack.at("blocks.0.feedforward.layer.inner"),
    }


def bert(head: spec.Head, model: type[hf.PreTrainedModel], **rest: Any) -> Case:
    what = presets.bert("tiny", length=70, head=head)
    labels = {"num_labels": getattr(head, "count", 2)}
    config = hf.BertConfig(**sizes(what.stack), **labels, max_position_embeddings=70, attn_implementation="eager")
    return Case("bert", what, model, config, **rest)


def distilbert(head: spec.Head, model: type[hf.PreTrainedModel], **rest: Any) -> Case:
    what = presets.distilbert("tiny", length=70, head=head)
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
    names |= {"intermediate_size": "hidden_dim"}
    config = hf.DistilBertConfig(
        **{names.get(name, name): size for name, size in sizes(what.stack).items()},
        num_labels=getattr(head, "count", 2),
        max_position_embeddings=70,
        attn_implementation="eager",
    )
    return Case("distilbert", what, model, config, **rest)


def gpt2() -> Case:
    what = presets.gpt2("tiny", length=70)
    same = sizes(what.stack)
    config = hf.GPT2Config(
        vocab_size=same["vocab_size"],
        n_embd=same["hidden_size"],
        n_layer=same["num_hidden_layers"],
        n_head=same["num_attention_heads"],
        n_inner=same["intermediate_size"],
        n_positions=70,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",
    )
    return Case("gpt2", what, hf.GPT2LMHeadModel, config)


def llama(changes: dict[str, Any] | None = None, kind: str = "Llama", **public: Any) -> Case:
    what = presets.llama("tiny").replace(changes)
    config = getattr(hf, f"{kind}Config")(
        **sizes(what.stack),
        num_key_value_heads=what.at("stack.blocks.0.self.key_heads"),
        rms_norm_eps=1e-5,
        max_position_embeddings=256,
        tie_word_embeddings=what.head.tied,
        attn_implementation="eager",
        **public,
    )
    return Case("llama", what, getattr(hf, f"{kind}ForCausalLM"), config)


OWN = "stack.blocks.*.self"


def t5(family: str, **public: Any) -> Case:
    what = presets.FAMILIES[family]("tiny")
    same = sizes(what.encoder)
    config = hf.T5Config(
        vocab_size=same["vocab_size"],
        d_model=same["hidden_size"],
        d_ff=same["intermediate_size"],
        d_kv=what.at("encoder.blocks.0.self.head_width"),
        num_layers=same["num_hidden_layers"],
        num_heads=same["num_attention_heads"],
        **public,
    )
    return Case(family, what, hf.T5ForConditionalGeneration, config)


def marian() -> Case:
    what = presets.marian("tiny")
    same = sizes(what.encoder)
    both = {
        f"{stack}_{public}": same[name]
        for stack in ("encoder", "decoder")
        for public, name in {
            "layers": "num_hidden_layers",
            "attention_heads": "num_attention_heads",
            "ffn_dim": "intermediate_size",
        }.items()
    }
    config = hf.MarianConfig(
        vocab_size=same["vocab_size"],
        d_model=same["hidden_size"],
        **both,
        activation_function="swish",
        scale_embedding=True,
        static_position_embeddings=True,
        max_position_embeddings=80,
        pad_token_id=99,
        decoder_start_token_id=99,
        attn_implementation="eager",
    )
    return Case("marian", what, hf.MarianMTModel, config)


def vit(image: tuple[int, int], channels: int) -> Case:
    what = presets.vit("tiny", channels=channels)
    embed = what.stack.embed.replace(image=image, positions=None)
    what = what.replace({"stack.embed": embed.replace(positions=spec.Learned(length=embed.count))})
    same = sizes(what.stack)
    del same["vocab_size"]
    config = hf.ViTConfig(
        **same,
        image_size=list(image),
        patch_size=embed.patch,
        num_channels=channels,
        num_labels=what.head.count,
        attn_implementation="eager",
    )
    return Case("vit", what, hf.ViTForImageClassification, config)


CASES = {
    "bert pooler": bert(spec.Vector(dense="tanh"), hf.BertModel, answer=lambda out: out.pooler_output),
    "bert masked": bert(spec.MaskedToken(), hf.BertForMaskedLM),
    "bert classes": bert(spec.Classes(count=3, vector=spec.Vector(dense="tanh")), hf.BertForSequenceClassification),
    "bert token classes": bert(spec.TokenClasses(count=5), hf.BertForTokenClassification),
    "bert spans": bert(
        spec.Spans(), hf.BertForQuestionAnswering, answer=lambda out: torch.stack([out.start_logits, out.end_logits], 2)
    ),
    "distilbert states": distilbert(spec.States(), hf.DistilBertModel, answer=lambda out: out.last_hidden_state),
    "distilbert masked": distilbert(spec.MaskedToken(), hf.DistilBertForMaskedLM),
    "distilbert classes": distilbert(
        spec.Classes(count=3, vector=spec.Vector(dense="relu")), hf.DistilBertForSequenceClassification
    ),
    "distilbert token classes": distilbert(spec.TokenClasses(count=5), hf.DistilBertForTokenClassification),
    "gpt2": gpt2(),
    "llama": llama(),
    "llama tied": llama({"head.tied": True}),
    "llama llama3": llama(
        {f"{OWN}.positions": spec.Rotary(base=5e3, scaling=spec.Llama3(factor=8.0, low=1.0, high=4.0, original=64))},
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 5e3,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "llama linear": llama(
        {f"{OWN}.positions.scaling": spec.Linear(factor=3.0)},
        rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0},
    ),
    "llama head width": llama({f"{OWN}.head_width": 12}, head_dim=12),
    "mistral": llama({f"{OWN}.pattern": spec.Window(size=5)}, "Mistral", sliding_window=5),
    "qwen2": llama({f"{OWN}.bias": True}, "Qwen2"),
    "qwen3": llama({f"{OWN}.head_width": 12, f"{OWN}.norm": spec.RMSNorm(eps=1e-5)}, "Qwen3", head_dim=12),
    "t5": t5("t5"),
    "flan_t5": t5("flan_t5", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "marian": marian(),
    "vit": vit((12, 12), 3),
    "vit oblong": vit((8, 16), 2),
}
ONE = {name: case for name, case in CASES.items() if isinstance(case.spec, spec.Transformer) and case.family != "vit"}
TWO = {name: case for name, case in CASES.items() if isinstance(case.spec, spec.EncoderDecoder)}
VIT = {name: case for name, case in CASES.items() if case.family == "vit"}


# --- the same weights on both sides -----------------------------------------------------------------------


def public_model(case: Case) -> hf.PreTrainedModel:
    """Random everywhere, biases and norms too: a zero or a one would hide a name that is mixed up."""
    torch.manual_seed(0)
    model = case.model(case.config).eval()
    if case.family == "flan_t5":  # published with two tables; a fresh one has one
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    scramble({name: one for name, one in model.named_parameters() if one.requires_grad})  # not Marian's sinusoids
    if case.family == "marian":
        model.final_logits_bias.normal_()
    return model


def our_model(case: Case) -> Model:
    torch.manual_seed(1)
    model = build(case.spec)
    scramble(weights(model))
    return model


@torch.no_grad()
def scramble(parameters: Weights) -> None:
    for name, parameter in parameters.items():
        centre = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0  # a norm's
        parameter.normal_(centre, 0.15)


def published(model: hf.PreTrainedModel) -> Weights:
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors")


@cache
def pair(name: str) -> tuple[hf.PreTrainedModel, Model]:
    case = CASES[name]
    theirs, ours = public_model(case), build(case.spec)
    fill(ours, to_ours(table(case.family, case.spec), published(theirs)))
    return theirs, ours


# --- the same inputs on both sides ------------------------------------------------------------------------


class Batch(NamedTuple):
    ids: Tensor
    mask: Tensor | None
    segments: Tensor | None = None

    @property
    def real(self) -> Tensor:
        return torch.ones_like(self.ids, dtype=torch.bool) if self.mask is None else self.mask


def batch(kind: str, length: int = 9, seed: int = 2) -> Batch:
    """Three texts: `whole`, `long`, or with padding on the `right` or `left`."""
    generator = torch.Generator().manual_seed(seed)
    length = 66 if kind.startswith("long") else length
    ids = torch.randint(0, 99, (3, length), generator=generator)
    segments = torch.randint(0, 2, (3, length), generator=generator)
    mask = torch.arange(length) < torch.tensor([[length], [length - 4], [2]])
    sided = {"right": mask, "left": mask.flip(1)}
    return Batch(ids, sided.get(kind.removeprefix("long ")), segments)


def ask_them(name: str, theirs: hf.PreTrainedModel, given: Batch, target: Batch | None = None) -> Any:
    case = CASES[name]
    if given.ids.dim() == 4:
        return theirs(pixel_values=given.ids, output_hidden_states=True)
    inputs: dict[str, Tensor | None] = {"input_ids": given.ids, "attention_mask": given.mask}
    if target is not None:
        inputs |= {"decoder_input_ids": target.ids, "decoder_attention_mask": target.mask}
    elif given.mask is not None and case.family != "distilbert":
        inputs["position_ids"] = (given.mask.cumsum(1) - 1).clamp(min=0)
    if case.family == "bert":
        inputs["token_type_ids"] = given.segments
    there = {key: tensor.long() for key, tensor in inputs.items() if tensor is not None}
    return theirs(**there, output_hidden_states=True)


def ask_us(ours: Model, given: Batch, target: Batch | None = None) -> Tensor:
    if target is not None:
        return ours(given.ids, target.ids, given.mask, target.mask)
    return ours(given.ids, given.mask, segments=sides(ours.stack, given))


def sides(stack: Stack, given: Batch) -> Tensor | None:
    """The batch's segments, for a model that has any."""
    return given.segments if getattr(stack.embed, "segments", None) is not None else None


def suitable(name: str) -> tuple[Batch, ...]:
    """What suits the model: images, a text, or a source and a target."""
    if name in VIT:
        embed = CASES[name].spec.stack.embed
        return (Batch(torch.rand(3, embed.channels, *embed.image, generator=torch.Generator().manual_seed(2)), None),)
    return (batch("whole"), batch("whole", 7, seed=3)) if name in TWO else (batch("whole"),)


def walk(stack: Stack, given: Batch, context: Context | None = None) -> list[Tensor]:
    """What goes into the first block and what comes out of each, then the same through the final norm."""
    places = stack.places(given.ids, given.mask)
    states = [stack.embed(given.ids, places, sides(stack, given))]
    for block, keys in zip(stack.blocks, context.keys if context else [{}] * len(stack.blocks), strict=True):
        states.append(block(states[-1], places, keys))
    return [*states, stack.final(states[-1])]


def assert_equal(theirs: Tensor, ours: Tensor, real: Tensor | None = None) -> None:
    assert theirs.shape == ours.shape
    assert theirs.dtype == ours.dtype == torch.float32
    if real is not None and theirs.dim() == 3:
        theirs, ours = theirs[real], ours[real]
    assert theirs.std() > 0.1  # there is something to compare
    assert (theirs - ours).abs().max() <= BAR


def assert_states_equal(theirs: tuple[Tensor, ...], ours: list[Tensor], real: Tensor) -> None:
    """The public classes show the last block's states after the final norm."""
    assert len(theirs) == len(ours) - 1
    for one, other in zip(theirs, [*ours[:-2], ours[-1]], strict=True):
        assert_equal(one, other, real)


# --- the same numbers -------------------------------------------------------------------------------------


def text_cases() -> Iterator[Any]:
    for name, case in ONE.items():
        kinds = ["whole", "right", "long", "long right"]
        if isinstance(case.spec.head, spec.NextToken):
            kinds += ["left", "long left"]
        elif case.family == "bert" and not isinstance(case.spec.head, spec.Vector | spec.Classes):
            kinds += ["left"]  # the pooled ones read the first cell in public, which is padding there
        yield from (pytest.param(name, kind, id=f"{name}, {kind}") for kind in kinds)


def pair_cases() -> Iterator[Any]:
    for name in TWO:
        kinds = ["whole", "right", "long", "long right"]
        if name != "marian":  # whose public class numbers the padding too, and takes no positions
            kinds += ["left", "long left"]
        yield from (pytest.param(name, kind, id=f"{name}, {kind}") for kind in kinds)


@torch.no_grad()
@pytest.mark.parametrize(("name", "kind"), [*text_cases()])
def test_one_stack_gives_the_same_states_and_answers(name: str, kind: str) -> None:
    theirs, ours = pair(name)
    given = batch(kind)
    out = ask_them(name, theirs, given)
    assert_equal(CASES[name].answer(out), ask_us(ours, given), given.real)
    assert_states_equal(out.hidden_states, walk(ours.stack, given), given.real)


@torch.no_grad()
@pytest.mark.parametrize(("name", "kind"), [*pair_cases()])
def test_two_stacks_give_the_same_states_and_logits(name: str, kind: str) -> None:
    theirs, ours = pair(name)
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
    theirs, ours = pair(name)
    (given,) = suitable(name)
    out, states = ask_them(name, theirs, given), walk(ours.stack, given)
    assert_equal(out.logits, ask_us(ours, given))
    assert_equal(theirs.vit(given.ids).last_hidden_state, states[-1])
    assert len(out.hidden_states) == len(states) - 1
    for one, other in zip(out.hidden_states, states, strict=False):  # these end before the final norm
        assert_equal(one, other)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["whole", "right", "left"])
def test_a_window_over_many_blocks_gives_the_same_logits(kind: str) -> None:
    theirs, ours = pair("mistral")
    given = batch(kind, 200)
    assert_equal(ask_them("mistral", theirs, given).logits, ask_us(ours, given), given.real)


@pytest.mark.parametrize(("count", "reach"), [(32, 128), (8, 20), (64, 256), (4, 3), (16, 1000)])
@pytest.mark.parametrize("two_way", [True, False])
def test_buckets_are_the_public_ones_at_every_distance(two_way: bool, count: int, reach: int) -> None:
    away = torch.arange(-3000, 3001)
    theirs = T5Attention._relative_position_bucket(away, two_way, count, reach)
    assert torch.equal(theirs, Buckets(1, count, reach, two_way).bucket(away))


# --- there and back ---------------------------------------------------------------------------------------


def raw(given: Weights) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in given.items()}


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_ours_goes_out_whole_and_comes_back_the_same(name: str) -> None:
    case, ours = CASES[name], our_model(CASES[name])
    rows = table(case.family, case.spec)
    exported = to_public(rows, weights(ours))
    assert raw(to_ours(rows, exported)) == raw(weights(ours))

    theirs, report = case.model.from_pretrained(
        None,
        config=case.config,
        state_dict=dict(exported),
        output_loading_info=True,
        attn_implementation="eager",
    )
    assert not any(report.values()), report  # no name missing, unexpected or of another shape
    given = suitable(name)
    assert_equal(case.answer(ask_them(name, theirs.eval(), *given)), ask_us(ours, *given))

    saved = published(theirs)
    assert raw(saved) == raw(exported)
    again = build(case.spec)
    fill(again, to_ours(rows, saved))
    assert raw(weights(again)) == raw(weights(ours))


def test_a_name_without_a_row_is_refused() -> None:
    case = CASES["gpt2"]
    rows, ours = table(case.family, case.spec), weights(build(case.spec))
    exported = to_public(rows, ours)
    with pytest.raises(KeyError, match=r"no row for transformer\.h\.1\.extra\.weight"):
        to_ours(rows, exported | {"transformer.h.1.extra.weight": torch.zeros(1)})
    with pytest.raises(KeyError, match=r"no row for head\.bias"):
        to_public(rows, ours | {"head.bias": torch.zeros(1)})
    del exported["transformer.h.1.ln_1.bias"]
    with pytest.raises(KeyError, match=r"names differ: stack\.blocks\.1\.branches\.self\.before\.bias"):
        fill(build(case.spec), to_ours(rows, exported))


# --- the tests can fail -----------------------------------------------------------------------------------


def invisible(case: Case, name: str) -> bool:
    """A key's bias adds the same to every score of a query, which softmax forgets, unless rotation comes between."""
    return name.endswith(".key.bias") and case.family != "llama"


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_weight_would_show(name: str) -> None:
    case = CASES[name]
    theirs, ours = pair(name)
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
