"""RoBERTa (Liu et al. 2019), `model_type` roberta, and XLM-RoBERTa, which is the same with another vocabulary.

Positions are numbered from the padding token's id + 1: those rows before are never read, and texts are that much
shorter than the table.
"""

from collections.abc import Callable, Collection
from typing import Any

from clearformer import spec
from clearformer.checkpoints.config import Config
from clearformer.checkpoints.families import bert
from clearformer.checkpoints.families.common import (
    POSITION_IDS,
    UNUSED,
    Family,
    architecture_of,
    encoder_head,
    post_norm_encoder,
    untied_bias,
    without_base,
)
from clearformer.checkpoints.name_map import Row, Rules, under


def kinds(word: str) -> dict[str, str]:
    return {
        f"{word}Model": "base",
        f"{word}ForMaskedLM": "masked",
        f"{word}ForSequenceClassification": "classes",
        f"{word}ForTokenClassification": "tokens",
        f"{word}ForQuestionAnswering": "spans",
    }


def guess(names: Collection[str]) -> str:
    """The head, by the tensors alone."""
    starts = {name.split(".")[0] for name in names}
    if "lm_head" in starts:
        return "masked"
    if "qa_outputs" in starts:
        return "spans"
    if "classifier" in starts:
        return "classes" if "classifier.dense.weight" in names else "tokens"
    return "base"


def reader(word: str) -> Callable[[Config], spec.Transformer]:
    def read(config: Config) -> spec.Transformer:
        width = config.whole("hidden_size", "width of the states")
        layers = config.whole("num_hidden_layers", "number of blocks", most=1000)
        heads = config.whole("num_attention_heads", "heads of every attention")
        inner = config.whole("intermediate_size", "inner width of the feed-forward layers")
        vocabulary = config.whole("vocab_size", "rows of the token table")
        offset = 1 + config.whole("pad_token_id", "positions are numbered from the one after it", 1, least=0)
        rows = config.whole(
            "max_position_embeddings", "rows of the position table; texts are as many shorter as it starts", 514
        )
        if rows <= offset:
            config.fault(f"max_position_embeddings: {rows} rows leave none beyond the {offset} that padding takes")
        segments = config.whole("type_vocab_size", "rows of the segment table", 1)
        activation = config.activation("hidden_act", "gelu")
        norm = spec.LayerNorm(eps=config.number("layer_norm_eps", "eps of the norms", 1e-5))
        dropout = config.share("hidden_dropout_prob", "dropout of states, in training", 0.1)
        weight_dropout = config.share("attention_probs_dropout_prob", "dropout of attention weights, in training", 0.1)
        before_classes = config.share("classifier_dropout", "dropout before the classes, in training", dropout)
        initial = config.number("initializer_range", "spread of fresh weights", 0.02)
        tied = config.flag("tie_word_embeddings", "whether logits use the token table", True)
        head = encoder_head(
            config,
            kinds(word),
            guess,
            dense="tanh",
            masked=spec.MaskedToken(tied=tied, activation="gelu", norm=norm),
            pooler=config.names is None or any("pooler.dense." in name for name in config.names),
            dropouts=(before_classes, before_classes, 0.0),
        )
        bert.leave(config)
        config.settle()
        return post_norm_encoder(
            width=width,
            layers=layers,
            attention=spec.SelfAttention(heads=heads, weight_dropout=weight_dropout),
            feedforward=spec.Plain(inner=inner, activation=activation),
            embed=spec.Tokens(
                vocabulary=vocabulary,
                positions=spec.Learned(length=rows - offset, offset=offset),
                segments=segments,
                norm=norm,
                dropout=dropout,
            ),
            dropout=dropout,
            initial=initial,
            head=head,
        )

    return read


def writer(name: str, word: str) -> Callable[[spec.Transformer], dict[str, Any]]:
    def write(what: spec.Transformer) -> dict[str, Any]:
        table = what.at("stack.embed.positions")
        return {
            "architectures": [architecture_of(what.head, kinds(word))],
            "model_type": name,
            **bert.sizes(what),
            "max_position_embeddings": table.length + table.offset,
            "pad_token_id": table.offset - 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        }

    return write


HEAD_ROWS: dict[str, list[Row]] = {
    "states": [],
    "vector": [Row("head.dense", "roberta.pooler.dense")],
    "classes": [Row("head.vector.dense", "classifier.dense"), Row("head.output", "classifier.out_proj")],
    "token_classes": [Row("head.output", "classifier")],
    "spans": [Row("head.output", "qa_outputs")],
    "masked_token": under(
        "head",
        "lm_head",
        ("dense", "dense"),
        ("norm", "layer_norm"),
        ("bias", "bias"),
        ("weight", "decoder.weight"),
    ),
}


def rules(what: spec.Transformer) -> Rules:
    kind = what.head.kind
    left = {**POSITION_IDS, r"pooler\.dense\..*": UNUSED}
    if kind in ("states", "vector"):
        left |= {r"(lm_head|classifier|qa_outputs)\..*": UNUSED}
    return Rules(
        without_base(bert.body("roberta.") + HEAD_ROWS[kind], "roberta.", what.head),
        base="roberta.",
        left=left,
        copies={
            "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
    )


ROBERTA = Family("roberta", reader("Roberta"), writer("roberta", "Roberta"), rules, more=untied_bias)
XLM_ROBERTA = Family("xlm-roberta", reader("XLMRoberta"), writer("xlm-roberta", "XLMRoberta"), rules, more=untied_bias)
