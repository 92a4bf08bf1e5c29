"""BERT (Devlin et al. 2019), `model_type` bert."""

from collections.abc import Callable, Collection, Mapping
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
    untied_bias,
    without_base,
)
from clearformer.checkpoints.name_map import Row, Rules, under

KINDS = {
    "BertModel": "base",
    "BertForMaskedLM": "masked",
    "BertForPreTraining": "masked",
    "BertForSequenceClassification": "classes",
    "BertForTokenClassification": "tokens",
    "BertForQuestionAnswering": "spans",
}


def guess(names: Collection[str]) -> str:
    """The head, by the tensors alone."""
    starts = {name.split(".")[0] for name in names}
    if "cls" in starts:
        return "masked"
    if "qa_outputs" in starts:
        return "spans"
    if "classifier" in starts:
        return "classes" if any("pooler." in name for name in names) else "tokens"
    return "base"


def read(config: Config) -> spec.Transformer:
    return read_encoder(config, KINDS, guess, post_norm_encoder)


def read_encoder(
    config: Config,
    kinds: Mapping[str, str],
    guess: Callable[[Collection[str]], str],
    arrange: Callable[..., spec.Transformer],
) -> spec.Transformer:
    """BERT's keys; `arrange` says where the norms are."""
    width = config.whole("hidden_size", "width of the states")
    layers = config.whole("num_hidden_layers", "number of blocks", most=1000)
    heads = config.whole("num_attention_heads", "heads of every attention")
    inner = config.whole("intermediate_size", "inner width of the feed-forward layers")
    vocabulary = config.whole("vocab_size", "rows of the token table")
    length = config.whole("max_position_embeddings", "rows of the position table; no longer text fits", 512)
    segments = config.whole("type_vocab_size", "rows of the segment table", 2)
    activation = config.activation("hidden_act", "gelu")
    norm = spec.LayerNorm(eps=config.number("layer_norm_eps", "eps of the norms", 1e-12))
    dropout = config.share("hidden_dropout_prob", "dropout of states, in training", 0.1)
    weight_dropout = config.share("attention_probs_dropout_prob", "dropout of attention weights, in training", 0.1)
    before_classes = config.share("classifier_dropout", "dropout before the classes, in training", dropout)
    initial = config.number("initializer_range", "spread of fresh weights", 0.02)
    tied = config.flag("tie_word_embeddings", "whether logits use the token table", True)
    head = encoder_head(
        config,
        kinds,
        guess,
        dense="tanh",
        masked=spec.MaskedToken(tied=tied, activation=activation, norm=norm),
        pooler=config.names is None or any("pooler.dense." in name for name in config.names),
        dropouts=(before_classes, before_classes, 0.0),
    )
    leave(config)
    config.ignore(
        "of a pooler that was never used",
        *("directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
        *("pooler_size_per_head", "pooler_type"),
    )
    config.settle()
    return arrange(
        width=width,
        layers=layers,
        attention=spec.SelfAttention(heads=heads, weight_dropout=weight_dropout),
        feedforward=spec.Plain(inner=inner, activation=activation),
        embed=spec.Tokens(
            vocabulary=vocabulary,
            positions=spec.Learned(length=length),
            segments=segments,
            norm=norm,
            dropout=dropout,
        ),
        dropout=dropout,
        initial=initial,
        head=head,
    )


def leave(config: Config) -> None:
    """What BERT and RoBERTa leave alike."""
    config.must("position_embedding_type", "absolute", why="other kinds of positions are not read")
    config.must("is_decoder", False, why="this family is read as an encoder")
    config.must("add_cross_attention", False, why="this family is read as an encoder")
    config.must("is_encoder_decoder", False, why="there is one stack")


def write(what: spec.Transformer) -> dict[str, Any]:
    return {"architectures": [architecture_of(what.head, KINDS)], "model_type": "bert", **sizes(what)}


def sizes(what: spec.Transformer) -> dict[str, Any]:
    """The numbers of an encoder in BERT's words; RoBERTa's are the same."""
    stack, embed = what.stack, what.stack.embed
    assert isinstance(embed, spec.Tokens)
    return {
        "vocab_size": embed.vocabulary,
        "hidden_size": stack.width,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": stack.at("blocks.0.self.heads"),
        "intermediate_size": stack.at("blocks.0.feedforward.layer.inner"),
        "hidden_act": public_activation(stack.at("blocks.0.feedforward.layer.activation")),
        "hidden_dropout_prob": stack.at("blocks.0.self.dropout"),
        "attention_probs_dropout_prob": stack.at("blocks.0.self.weight_dropout"),
        "max_position_embeddings": stack.at("embed.positions.length"),
        "type_vocab_size": embed.segments,
        "layer_norm_eps": stack.at("embed.norm.eps"),
        "initializer_range": stack.initial or 0.02,
        "tie_word_embeddings": getattr(what.head, "tied", True),
        "classifier_dropout": getattr(what.head, "dropout", None),
    }


def body(base: str) -> list[Row]:
    return [
        *under(
            "stack.embed",
            f"{base}embeddings",
            ("table", "word_embeddings.weight"),
            ("positions.table", "position_embeddings.weight"),
            ("segments", "token_type_embeddings.weight"),
            ("norm", "LayerNorm"),
        ),
        *under(
            "stack.blocks.{}.branches.self",
            f"{base}encoder.layer.{{}}.attention",
            ("layer.query", "self.query"),
            ("layer.key", "self.key"),
            ("layer.value", "self.value"),
            ("layer.output", "output.dense"),
            ("after", "output.LayerNorm"),
        ),
        *under(
            "stack.blocks.{}.branches.feedforward",
            f"{base}encoder.layer.{{}}",
            ("layer.up", "intermediate.dense"),
            ("layer.down", "output.dense"),
            ("after", "output.LayerNorm"),
        ),
    ]


HEAD_ROWS: dict[str, list[Row]] = {
    "states": [],
    "vector": [Row("head.dense", "bert.pooler.dense")],
    "classes": [Row("head.vector.dense", "bert.pooler.dense"), Row("head.output", "classifier")],
    "token_classes": [Row("head.output", "classifier")],
    "spans": [Row("head.output", "qa_outputs")],
    "masked_token": under(
        "head",
        "cls.predictions",
        ("dense", "transform.dense"),
        ("norm", "transform.LayerNorm"),
        ("bias", "bias"),
        ("weight", "decoder.weight"),
    ),
}


def rules(what: spec.Transformer) -> Rules:
    kind = what.head.kind
    left = {
        **POSITION_IDS,
        r"cls\.seq_relationship\..*": "tells whether two texts follow each other, which no task here asks",
        r"pooler\.dense\..*": UNUSED,
    }
    if kind in ("states", "vector"):
        left |= {r"(cls|classifier|qa_outputs)\..*": UNUSED}
    return Rules(
        without_base(body("bert.") + HEAD_ROWS[kind], "bert.", what.head),
        base="bert.",
        left=left,
        copies={
            "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    )


BERT = Family("bert", read, write, rules, more=untied_bias)
