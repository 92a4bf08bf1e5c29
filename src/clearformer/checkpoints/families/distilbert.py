"""DistilBERT (Sanh et al. 2019), `model_type` distilbert: BERT's blocks without segments and pooler."""

from collections.abc import Collection
from typing import Any

from clearformer import spec
from clearformer.checkpoints.config import Config
from clearformer.checkpoints.families.common import (
    POSITION_IDS,
    UNUSED,
    Family,
    architecture_of,
    encoder_head,
    post_norm_encoder,
    public_activation,
    without_base,
)
from clearformer.checkpoints.name_map import Row, Rules, under

KINDS = {
    "DistilBertModel": "base",
    "DistilBertForMaskedLM": "masked",
    "DistilBertForSequenceClassification": "classes",
    "DistilBertForTokenClassification": "tokens",
    "DistilBertForQuestionAnswering": "spans",
}
NORM = spec.LayerNorm(eps=1e-12)  # written into the public code


def guess(names: Collection[str]) -> str:
    """The head, by the tensors alone."""
    starts = {name.split(".")[0] for name in names}
    for start, kind in (
        ("vocab_transform", "masked"),
        ("qa_outputs", "spans"),
        ("pre_classifier", "classes"),
        ("classifier", "tokens"),
    ):
        if start in starts:
            return kind
    return "base"


def read(config: Config) -> spec.Transformer:
    width = config.whole("dim", "width of the states", 768)
    layers = config.whole("n_layers", "number of blocks", 6, most=1000)
    heads = config.whole("n_heads", "heads of every attention", 12)
    inner = config.whole("hidden_dim", "inner width of the feed-forward layers", 3072)
    vocabulary = config.whole("vocab_size", "rows of the token table")
    length = config.whole("max_position_embeddings", "rows of the position table; no longer text fits", 512)
    activation = config.activation("activation", "gelu")
    dropout = config.share("dropout", "dropout of states, in training", 0.1)
    weight_dropout = config.share("attention_dropout", "dropout of attention weights, in training", 0.1)
    before_classes = config.share("seq_classif_dropout", "dropout before the classes, in training", 0.2)
    before_spans = config.share("qa_dropout", "dropout before the span head, in training", 0.1)
    initial = config.number("initializer_range", "spread of fresh weights", 0.02)
    tied = config.flag("tie_word_embeddings", "whether logits use the token table", True)
    head = encoder_head(
        config,
        KINDS,
        guess,
        dense="relu",
        masked=spec.MaskedToken(tied=tied, activation=activation, norm=NORM),
        pooler=False,
        dropouts=(before_classes, dropout, before_spans),
    )
    config.ignore("the table of positions is in the file either way", "sinusoidal_pos_embds")
    config.ignore("tie_word_embeddings says it", "tie_weights_")
    config.must("is_encoder_decoder", False, why="there is one stack")
    config.settle()
    return post_norm_encoder(
        width=width,
        layers=layers,
        attention=spec.SelfAttention(heads=heads, weight_dropout=weight_dropout),
        feedforward=spec.Plain(inner=inner, activation=activation),
        embed=spec.Tokens(vocabulary=vocabulary, positions=spec.Learned(length=length), norm=NORM, dropout=dropout),
        dropout=dropout,
        initial=initial,
        head=head,
    )


def write(what: spec.Transformer) -> dict[str, Any]:
    stack = what.stack
    dropout = {"classes": "seq_classif_dropout", "spans": "qa_dropout"}.get(what.head.kind)
    return {
        "architectures": [architecture_of(what.head, KINDS)],
        "model_type": "distilbert",
        "vocab_size": stack.at("embed.vocabulary"),
        "dim": stack.width,
        "n_layers": len(stack.blocks),
        "n_heads": stack.at("blocks.0.self.heads"),
        "hidden_dim": stack.at("blocks.0.feedforward.layer.inner"),
        "activation": public_activation(stack.at("blocks.0.feedforward.layer.activation")),
        "dropout": stack.at("blocks.0.self.dropout"),
        "attention_dropout": stack.at("blocks.0.self.weight_dropout"),
        "max_position_embeddings": stack.at("embed.positions.length"),
        "initializer_range": stack.initial or 0.02,
        "sinusoidal_pos_embds": False,
        "tie_word_embeddings": getattr(what.head, "tied", True),
        **({dropout: what.head.dropout} if dropout else {}),  # type: ignore[union-attr]
    }


BODY = [
    *under(
        "stack.embed",
        "distilbert.embeddings",
        ("table", "word_embeddings.weight"),
        ("positions.table", "position_embeddings.weight"),
        ("norm", "LayerNorm"),
    ),
    *under(
        "stack.blocks.{}.branches.self",
        "distilbert.transformer.layer.{}",
        ("layer.query", "attention.q_lin"),
        ("layer.key", "attention.k_lin"),
        ("layer.value", "attention.v_lin"),
        ("layer.output", "attention.out_lin"),
        ("after", "sa_layer_norm"),
    ),
    *under(
        "stack.blocks.{}.branches.feedforward",
        "distilbert.transformer.layer.{}",
        ("layer.up", "ffn.lin1"),
        ("layer.down", "ffn.lin2"),
        ("after", "output_layer_norm"),
    ),
]
HEAD_ROWS: dict[str, list[Row]] = {
    "states": [],
    "classes": [Row("head.vector.dense", "pre_classifier"), Row("head.output", "classifier")],
    "token_classes": [Row("head.output", "classifier")],
    "spans": [Row("head.output", "qa_outputs")],
    "masked_token": [
        Row("head.dense", "vocab_transform"),
        Row("head.norm", "vocab_layer_norm"),
        Row("head.bias", "vocab_projector.bias"),
        Row("head.weight", "vocab_projector.weight"),
    ],
}


def rules(what: spec.Transformer) -> Rules:
    left = dict(POSITION_IDS)
    if what.head.kind == "states":
        left |= {r"(vocab_transform|vocab_layer_norm|vocab_projector|pre_classifier|classifier|qa_outputs)\..*": UNUSED}
    return Rules(
        without_base(BODY + HEAD_ROWS[what.head.kind], "distilbert.", what.head),
        base="distilbert.",
        left=left,
        copies={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    )


DISTILBERT = Family("distilbert", read, write, rules)
