"""Megatron-BERT (Shoeybi et al. 2019), `model_type` megatron-bert: BERT with norms before the layers and a final one,
and none of the embeddings. An encoder that is trained here is one of these, its positions written down as a table."""

from typing import Any

from clearformer import spec
from clearformer.arrangements import block_of
from clearformer.checkpoints.config import Config
from clearformer.checkpoints.families import bert
from clearformer.checkpoints.families.common import Family, architecture_of, untied_bias, without_base
from clearformer.checkpoints.name_map import Row, Rules, under

KINDS = {f"Megatron{name}": kind for name, kind in bert.KINDS.items()}


def read(config: Config) -> spec.Transformer:
    return bert.read_encoder(config, KINDS, bert.guess, _arranged)


def _arranged(
    *,
    width: int,
    layers: int,
    attention: spec.SelfAttention,
    feedforward: spec.Plain,
    embed: spec.Tokens,
    dropout: float,
    initial: float,
    head: spec.Head,
) -> spec.Transformer:
    assert embed.norm is not None
    block = block_of(embed.norm, "before", dropout, self=attention, feedforward=feedforward)
    stack = spec.Stack(
        width=width,
        embed=embed.replace(norm=None),
        blocks=(block,) * layers,
        final=embed.norm,
        initial=initial or None,
    )
    return spec.Transformer(stack=stack, head=head)


def write(what: spec.Transformer) -> dict[str, Any]:
    said = bert.sizes(what.replace({"stack.embed.norm": what.stack.final}))
    return {"architectures": [architecture_of(what.head, KINDS)], "model_type": "megatron-bert", **said}


BODY = [
    *under(
        "stack.embed",
        "bert.embeddings",
        ("table", "word_embeddings.weight"),
        ("positions.table", "position_embeddings.weight"),
        ("segments", "token_type_embeddings.weight"),
    ),
    *under(
        "stack.blocks.{}.branches.self",
        "bert.encoder.layer.{}.attention",
        ("before", "ln"),
        ("layer.query", "self.query"),
        ("layer.key", "self.key"),
        ("layer.value", "self.value"),
        ("layer.output", "output.dense"),
    ),
    *under(
        "stack.blocks.{}.branches.feedforward",
        "bert.encoder.layer.{}",
        ("before", "ln"),
        ("layer.up", "intermediate.dense"),
        ("layer.down", "output.dense"),
    ),
    Row("stack.final", "bert.encoder.ln"),
]


def rules(what: spec.Transformer) -> Rules:
    like = bert.rules(what)
    rows = without_base(BODY + bert.HEAD_ROWS[what.head.kind], "bert.", what.head)
    return Rules(rows, base=like.base, left=like.left, copies=like.copies)


MEGATRON_BERT = Family("megatron-bert", read, write, rules, more=untied_bias)
