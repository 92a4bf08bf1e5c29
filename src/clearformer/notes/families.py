"""The three families and ViT (N0, N1): which attention each uses, and how large it is."""

import torch

from clearformer import presets, spec
from clearformer.assemble import build
from clearformer.notes.parts import Check, Heading, Ours, Prose, Section, Slip, Table

Model = spec.Transformer | spec.EncoderDecoder
MODELS: tuple[tuple[str, str, Model], ...] = (
    ("both", "original base", presets.original("base")),
    ("both", "T5 small", presets.t5("small")),
    ("both", "FLAN-T5 small", presets.flan_t5("small")),
    ("encoder", "BERT base", presets.bert("base")),
    ("encoder", "DistilBERT", presets.distilbert("base")),
    ("decoder", "GPT-2", presets.gpt2("124m")),
    ("decoder", "TinyLlama", presets.llama("tinyllama-1.1b")),
    ("decoder", "Llama 2 7B", presets.llama("llama-2-7b")),
    ("images", "ViT B/16", presets.vit("b/16")),
)


def families() -> list[Section]:
    counts = {name: _count(what) for _, name, what in MODELS}
    rows = tuple(
        (family, name, _who(what), "yes" if _crosses(what) else "no", _where(what), _blocks(what), f"{counts[name]:,}")
        for family, name, what in MODELS
    )
    return [
        Heading("One specification, nine models"),
        Prose("What tells the families apart is who may see whom, and whether there is an encoder to look at."),
        Table("", ("family", "model", "a word sees", "cross", "positions", "blocks", "parameters"), rows),
        Prose("Parameters are counted on models built without memory, at their published sizes."),
        Table(
            "What N0 uses them for",
            ("family", "tasks"),
            (
                ("encoder–decoder", "translation, summarisation: the output depends heavily on the input"),
                ("encoder only", "classification, semantic search: a vector is wanted, both sides are known"),
                ("decoder only", "completion, question answering: the next word is wanted, only the past is known"),
            ),
        ),
        *_checks(counts),
        *_vit(),
        Slip(
            "that Transformers are encoder–decoder models",
            "true of the original; BERT is the encoder alone, GPT the decoder alone",
            "N0 lists three families, and N1's own last page has a model of each",
            "N1, what and why",
        ),
        Slip("the top 5 models", "four: BERT, GPT, ViT, T5", "that is how many the list has", "N1, last page"),
    ]


def _checks(counts: dict[str, int]) -> list[Section]:
    by_name = {name: what for _, name, what in MODELS}
    bert, gpt = by_name["BERT base"], by_name["GPT-2"]
    assert isinstance(bert, spec.Transformer)
    assert isinstance(gpt, spec.Transformer)
    share = counts["DistilBERT"] / counts["BERT base"]
    return [
        Check(
            "BERT sees both sides, GPT only the past", not bert.stack.causal and gpt.stack.causal, "from their specs"
        ),
        Check("DistilBERT is BERT with half the blocks", share < 0.65, f"{share:.0%} of its parameters"),
    ]


def _vit() -> list[Section]:
    full, toy = presets.vit("b/16").stack.embed, presets.vit("tiny")
    assert isinstance(full, spec.Patches)
    assert isinstance(toy.stack.embed, spec.Patches)
    height, width = full.image
    image = torch.randn(1, 3, *toy.stack.embed.image, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        classes = build(toy, seed=0)(image)
    return [
        Heading("Images as patches"),
        Check(
            "an image becomes a sentence of squares, with a summary in front",
            full.count == (height // full.patch) * (width // full.patch) + 1,
            f"{height}/{full.patch} × {width}/{full.patch} + 1 = {full.count} vectors",
        ),
        Ours("a tiny ViT, untrained: 12 × 12 pixels in squares of 4."),
        Check(
            "from there on it is an encoder: states in, classes out",
            tuple(classes.shape) == (1, 5),
            f"{toy.stack.embed.count} vectors in, {classes.size(1)} class scores out",
        ),
    ]


def _count(what: Model) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build(what).parameters())


def _who(what: Model) -> str:
    return " + ".join("past" if stack.causal else "everyone" for stack in what.stacks.values())


def _crosses(what: Model) -> bool:
    layers = [layer for stack in what.stacks.values() for _, _, layer in stack.layers()]
    return any(isinstance(layer, spec.CrossAttention) for layer in layers)


def _where(what: Model) -> str:
    stack = next(iter(what.stacks.values()))
    first = next(layer for _, _, layer in stack.layers() if isinstance(layer, spec.SelfAttention))
    scheme = stack.embed.positions or first.positions
    return scheme.kind if scheme else "none"


def _blocks(what: Model) -> str:
    return " + ".join(str(len(stack.blocks)) for stack in what.stacks.values())
