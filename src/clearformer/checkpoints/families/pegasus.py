"""Pegasus (Zhang et al. 2020), `model_type` pegasus: the original Transformer with norms before the layers and a final
one, sinusoids in two halves, one table for both stacks. A translator that is trained here is one of these."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from clearformer import spec
from clearformer.checkpoints.config import Config
from clearformer.checkpoints.families import marian
from clearformer.checkpoints.families.common import Family
from clearformer.checkpoints.name_map import Row, Rules
from clearformer.core.positions import sinusoid

KINDS = {"PegasusForConditionalGeneration": "both"}
BIAS = "final_logits_bias"


def guess(names: Collection[str]) -> str:
    return "both"


def read(config: Config) -> spec.EncoderDecoder:
    config.architecture(KINDS, guess)
    vocabulary = config.whole("vocab_size", "rows of the token table", 50265)
    tied = config.flag("tie_word_embeddings", "whether logits use the token table", True)
    stack = marian.read_stacks(config, "before")
    config.must("static_position_embeddings", True, why="positions are sinusoids")
    config.must("normalize_before", True, why="norms come before")
    config.must("add_final_layer_norm", True, why="there is a final norm")
    marian.leave(config)
    config.settle()
    return spec.EncoderDecoder(
        encoder=stack("encoder", vocabulary),
        decoder=stack("decoder", vocabulary),
        head=spec.NextToken(tied=tied, bias=config.has(BIAS)),  # without the tensor it is zero
    )


def write(what: spec.EncoderDecoder) -> dict[str, Any]:
    return {
        "architectures": ["PegasusForConditionalGeneration"],
        "model_type": "pegasus",
        "is_encoder_decoder": True,
        **marian.sizes(what),
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "forced_eos_token_id": None,
    }


def rules(what: spec.EncoderDecoder) -> Rules:
    target = "shared.weight"
    return Rules(
        [
            Row("encoder.embed.table", "model.shared.weight"),
            *marian.body("before"),
            Row("encoder.final", "model.encoder.layer_norm"),
            Row("decoder.final", "model.decoder.layer_norm"),
        ],
        base="model.",
        left=marian.SINUSOIDS,
        copies=dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"), target),
    )


def more(what: spec.EncoderDecoder, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The sinusoids, which the public class looks for in the file."""
    length, width = config["max_position_embeddings"], what.encoder.width
    table = sinusoid(torch.arange(length), width, 10_000.0, "halves", torch.empty(0))
    return {f"model.{stack}.embed_positions.weight": table.clone() for stack in ("encoder", "decoder")}


PEGASUS = Family("pegasus", read, write, rules, writes=True, more=more)
