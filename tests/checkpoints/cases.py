"""Tiny models of every public family with random weights, made by Hugging Face's classes, and inputs for both sides."""

import atexit
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import torch
import transformers as hf
from torch import Tensor, nn

from clearformer import presets, spec
from clearformer.assemble import Model
from clearformer.checkpoints.huggingface import load_public
from clearformer.core.model import Context, Stack

BAR = 1e-5

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()


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


def roberta(head: spec.Head, model: type[hf.PreTrainedModel], **rest: Any) -> Case:
    what = presets.roberta("tiny", length=70, head=head)
    kind = hf.XLMRobertaConfig if model.__name__.startswith("XLM") else hf.RobertaConfig
    config = kind(
        **sizes(what.stack),
        num_labels=getattr(head, "count", 2),
        max_position_embeddings=72,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        attn_implementation="eager",
    )
    return Case("roberta", what, model, config, **rest)


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


def eurobert(head: spec.Head, model: type[hf.PreTrainedModel], **rest: Any) -> Case:
    what = presets.llama("tiny").replace({f"{OWN}.pattern": spec.Everyone(), "head": spec.States()}).replace(head=head)
    labels = {"num_labels": getattr(head, "count", 2), "classifier_pooling": "mean"}
    if isinstance(head, spec.Classes) and head.vector.pool == "first":
        labels["classifier_pooling"] = "bos"
    config = hf.EuroBertConfig(
        **sizes(what.stack),
        **labels,
        num_key_value_heads=what.at("stack.blocks.0.self.key_heads"),
        rms_norm_eps=1e-5,
        max_position_embeddings=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation="eager",
    )
    return Case("eurobert", what, model, config, **rest)


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


def marian(shared: bool = True) -> Case:
    what = presets.marian("tiny")
    if not shared:
        what = what.replace({"shared": False, "decoder.embed.vocabulary": 103})
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
        decoder_vocab_size=what.decoder.embed.vocabulary,
        share_encoder_decoder_embeddings=shared,
        attn_implementation="eager",
    )
    return Case("marian", what, hf.MarianMTModel, config)


def pegasus() -> Case:
    what = presets.marian("tiny")
    norm = {"before": spec.LayerNorm(), "after": None}
    for stack in ("encoder", "decoder"):
        branches = ("self", "feedforward") if stack == "encoder" else ("self", "cross", "feedforward")
        moved = {f"{stack}.blocks.*.{name}.{place}": one for name in branches for place, one in norm.items()}
        what = what.replace({**moved, f"{stack}.final": spec.LayerNorm()})
    public = marian().config.to_dict()
    sides = ("layers", "attention_heads", "ffn_dim")
    same = {name: public[name] for stack in ("encoder", "decoder") for name in (f"{stack}_{each}" for each in sides)}
    same |= {name: public[name] for name in ("vocab_size", "d_model", "scale_embedding", "activation_function")}
    config = hf.PegasusConfig(
        **same, max_position_embeddings=80, pad_token_id=99, decoder_start_token_id=99, attn_implementation="eager"
    )
    return Case("pegasus", what, hf.PegasusForConditionalGeneration, config)


def megatron(head: spec.Head, model: type[hf.PreTrainedModel], **rest: Any) -> Case:
    what = presets.bert("tiny", length=70, head=head)
    norm = what.stack.embed.norm
    assert norm is not None
    moved = {
        f"stack.blocks.*.{name}.{place}": norm if place == "before" else None
        for name in ("self", "feedforward")
        for place in ("before", "after")
    }
    what = what.replace({**moved, "stack.final": norm, "stack.embed.norm": None})
    labels = {"num_labels": getattr(head, "count", 2)}
    config = hf.MegatronBertConfig(**sizes(what.stack), **labels, max_position_embeddings=70)
    return Case("megatron-bert", what, model, config, **rest)


def siglip(channels: int) -> Case:
    what = presets.vit("tiny", channels=channels)
    embed = what.stack.embed.replace(summary=False, positions=None)
    embed = embed.replace(positions=spec.Learned(length=embed.count))
    head = spec.Classes(count=what.head.count, vector=spec.Vector(pool="mean"))
    what = what.replace({"stack.embed": embed, "head": head})
    same = sizes(what.stack)
    del same["vocab_size"]
    side = {"image_size": embed.image[0], "patch_size": embed.patch, "num_channels": channels}
    vision = {**same, **side, "hidden_act": "gelu", "layer_norm_eps": what.stack.final.eps, "vision_use_head": False}
    config = hf.SiglipConfig(vision_config=vision, num_labels=what.head.count, attn_implementation="eager")
    return Case("vit", what, hf.SiglipForImageClassification, config)


def vit(image: tuple[int, int], channels: int, *, pooler: bool = False) -> Case:
    what = presets.vit("tiny", channels=channels)
    if pooler:
        what = what.replace(head=spec.Vector(dense="tanh"))
    embed = what.stack.embed.replace(image=image, positions=None)
    what = what.replace({"stack.embed": embed.replace(positions=spec.Learned(length=embed.count))})
    same = sizes(what.stack)
    del same["vocab_size"]
    config = hf.ViTConfig(
        **same,
        image_size=list(image),
        patch_size=embed.patch,
        num_channels=channels,
        num_labels=getattr(what.head, "count", 2),
        attn_implementation="eager",
    )
    if pooler:
        return Case("vit", what, hf.ViTModel, config, lambda out: out.pooler_output)
    return Case("vit", what, hf.ViTForImageClassification, config)


def captions() -> Case:
    """A ViT and a GPT-2 that looks at it."""
    see, tell = vit((12, 12), 3), gpt2()
    block = tell.spec.stack.blocks[0]
    cross = spec.Residual(name="cross", layer=spec.CrossAttention(heads=4), before=spec.LayerNorm())
    block = spec.Block(branches=(block.branches[0], cross, block.branches[1]))
    what = spec.EncoderDecoder(
        encoder=see.spec.stack,
        decoder=tell.spec.stack.replace(blocks=(block, block)),
        head=spec.NextToken(),
        shared=False,
    )
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(see.config, tell.config)
    config.decoder_start_token_id, config.pad_token_id = 7, 8
    return Case("captions", what, hf.VisionEncoderDecoderModel, config)


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
    "roberta pooler": roberta(spec.Vector(dense="tanh"), hf.RobertaModel, answer=lambda out: out.pooler_output),
    "roberta masked": roberta(spec.MaskedToken(norm=spec.LayerNorm()), hf.RobertaForMaskedLM),
    "roberta classes": roberta(
        spec.Classes(count=3, vector=spec.Vector(dense="tanh")), hf.RobertaForSequenceClassification
    ),
    "roberta token classes": roberta(spec.TokenClasses(count=5), hf.RobertaForTokenClassification),
    "roberta spans": roberta(
        spec.Spans(),
        hf.RobertaForQuestionAnswering,
        answer=lambda out: torch.stack([out.start_logits, out.end_logits], 2),
    ),
    "xlm-roberta masked": roberta(spec.MaskedToken(norm=spec.LayerNorm()), hf.XLMRobertaForMaskedLM),
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
    "llama biases": llama(
        {f"{OWN}.bias": True, f"{OWN}.output_bias": True, "stack.blocks.*.feedforward.layer.bias": True},
        attention_bias=True,
        mlp_bias=True,
    ),
    "qwen2": llama({f"{OWN}.bias": True}, "Qwen2"),
    "qwen2 windows": llama(
        {f"{OWN}.bias": True, "stack.blocks.1.self.pattern": spec.Window(size=5)},
        "Qwen2",
        use_sliding_window=True,
        sliding_window=5,
        max_window_layers=1,
    ),
    "qwen3": llama({f"{OWN}.head_width": 12, f"{OWN}.norm": spec.RMSNorm(eps=1e-5)}, "Qwen3", head_dim=12),
    "t5": t5("t5"),
    "flan_t5": t5("flan_t5", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "marian": marian(),
    "marian two tables": marian(shared=False),
    "pegasus": pegasus(),
    "megatron-bert pooler": megatron(
        spec.Vector(dense="tanh"), hf.MegatronBertModel, answer=lambda out: out.pooler_output
    ),
    "megatron-bert masked": megatron(spec.MaskedToken(), hf.MegatronBertForMaskedLM),
    "megatron-bert classes": megatron(
        spec.Classes(count=3, vector=spec.Vector(dense="tanh")), hf.MegatronBertForSequenceClassification
    ),
    "megatron-bert token classes": megatron(spec.TokenClasses(count=5), hf.MegatronBertForTokenClassification),
    "megatron-bert spans": megatron(
        spec.Spans(),
        hf.MegatronBertForQuestionAnswering,
        answer=lambda out: torch.stack([out.start_logits, out.end_logits], 2),
    ),
    "eurobert states": eurobert(spec.States(), hf.EuroBertModel, answer=lambda out: out.last_hidden_state),
    "eurobert classes": eurobert(
        spec.Classes(count=3, vector=spec.Vector(pool="mean", dense="gelu")), hf.EuroBertForSequenceClassification
    ),
    "eurobert classes of the first": eurobert(
        spec.Classes(count=3, vector=spec.Vector(dense="gelu")), hf.EuroBertForSequenceClassification
    ),
    "eurobert token classes": eurobert(spec.TokenClasses(count=5), hf.EuroBertForTokenClassification),
    "siglip": siglip(3),
    "siglip grey": siglip(1),
    "vit": vit((12, 12), 3),
    "vit oblong": vit((8, 16), 2),
    "vit pooler": vit((12, 12), 3, pooler=True),
    "captions": captions(),
}
ONE = {name: case for name, case in CASES.items() if isinstance(case.spec, spec.Transformer) and case.family != "vit"}
TWO = {
    name: case
    for name, case in CASES.items()
    if isinstance(case.spec, spec.EncoderDecoder) and isinstance(case.spec.encoder.embed, spec.Tokens)
}
VIT = {name: case for name, case in CASES.items() if case.family == "vit"}


# --- the same weights on both sides -----------------------------------------------------------------------


def public_model(case: Case) -> hf.PreTrainedModel:
    """Random everywhere, biases and norms too: a zero or a one would hide a name that is mixed up."""
    torch.manual_seed(0)
    model = case.model(case.config).eval()
    if case.family == "flan_t5":  # published with two tables; a fresh one has one
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    scramble({name: one for name, one in model.named_parameters() if one.requires_grad})  # not sinusoids
    if case.family in ("marian", "pegasus"):
        model.final_logits_bias.normal_()
    return model


@torch.no_grad()
def scramble(parameters: dict[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        centre = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0  # a norm's
        parameter.normal_(centre, 0.15)


@cache
def pair(name: str) -> tuple[hf.PreTrainedModel, Model, Path]:
    """Theirs, ours from the folder that theirs was saved to, and the folder."""
    theirs = public_model(CASES[name])
    folder = Path(mkdtemp(prefix="clearformer-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    theirs.save_pretrained(folder)
    ours, _ = load_public(folder)
    return theirs, ours, folder


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, however many modules share it."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


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
        words = {} if target is None else {"decoder_input_ids": target.ids, "decoder_attention_mask": target.mask}
        return theirs(pixel_values=given.ids, output_hidden_states=True, **words)
    inputs: dict[str, Tensor | None] = {"input_ids": given.ids, "attention_mask": given.mask}
    if target is not None:
        inputs |= {"decoder_input_ids": target.ids, "decoder_attention_mask": target.mask}
    elif case.family == "roberta":  # which would count tokens by their ids otherwise
        inputs["position_ids"] = (given.real.cumsum(1) - 1).clamp(min=0) + 2
    elif given.mask is not None and case.family != "distilbert":
        inputs["position_ids"] = (given.mask.cumsum(1) - 1).clamp(min=0)
    if case.family in ("bert", "megatron-bert"):
        inputs["token_type_ids"] = given.segments
    there = {key: tensor.long() for key, tensor in inputs.items() if tensor is not None}
    return theirs(**there, output_hidden_states=True)


def ask_us(ours: Model, given: Batch, target: Batch | None = None) -> Tensor:
    if target is not None:
        return ours(given.ids, target.ids, given.mask, target.mask)
    return ours(given.ids, given.mask, segments=sides(ours.stack, given))


def sides(stack: Stack, given: Batch) -> Tensor | None:
    """The batch's segments, for a model that has any."""
    table = getattr(stack.embed, "segments", None)
    return given.segments if table is not None and len(table) > 1 else None


def images(embed: spec.Patches) -> Batch:
    return Batch(torch.rand(3, embed.channels, *embed.image, generator=torch.Generator().manual_seed(2)), None)


def suitable(name: str) -> tuple[Batch, ...]:
    """What suits the model: images, a text, or a source and a target."""
    if name in VIT:
        return (images(CASES[name].spec.stack.embed),)
    if name == "captions":
        return images(CASES[name].spec.encoder.embed), batch("whole", 7, seed=3)
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
