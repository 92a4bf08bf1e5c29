"""A ViT that a GPT-2 looks at and writes about, `model_type` vision-encoder-decoder: captions for images."""

from collections.abc import Collection
from typing import Any

from clearformer import spec
from clearformer.checkpoints.config import Config, shown
from clearformer.checkpoints.families import gpt2, vit
from clearformer.checkpoints.families.common import UNUSED, Family
from clearformer.checkpoints.name_map import Row, Rules
from clearformer.errors import CheckpointError

KINDS = {"VisionEncoderDecoderModel": "both"}


def guess(names: Collection[str]) -> str:
    return "both"


def read(config: Config) -> spec.EncoderDecoder:
    config.architecture(KINDS, guess)
    encoder, decoder = config.inner("encoder"), config.inner("decoder")
    wrong = [
        f"  {side.prefix}model_type: {shown(side.values.get('model_type'))} is not read here, only {only}"
        for side, only in ((encoder, "vit"), (decoder, "gpt2"))
        if side.values.get("model_type") != only
    ]
    if wrong:  # the other keys are another family's, so nothing can be said of them
        raise CheckpointError("config.json cannot be read:\n" + "\n".join(wrong))
    if encoder.values.get("hidden_size", 768) != decoder.values.get("n_embd", 768):
        config.fault(
            f"encoder and decoder are {encoder.values.get('hidden_size', 768)} and {decoder.values.get('n_embd', 768)}"
            " wide, so a projection (enc_to_dec_proj) stands between them, which is not read"
        )
    tied = decoder.flag("tie_word_embeddings", "whether logits use the token table", True)
    decoder.must("add_cross_attention", True, why="the decoder looks at the image")
    decoder.must("is_decoder", True, why="the decoder looks at the image")
    see, tell = vit.read_stack(encoder), gpt2.read_stack(decoder, cross=True)
    config.must("is_encoder_decoder", True, why="there are two stacks")
    config.ignore("the decoder's own counts", "tie_word_embeddings")
    config.settle()
    return spec.EncoderDecoder(encoder=see(), decoder=tell(), head=spec.NextToken(tied=tied), shared=False)


def write(what: spec.EncoderDecoder) -> dict[str, Any]:
    return {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "is_encoder_decoder": True,
        "tie_word_embeddings": False,
        "encoder": {"model_type": "vit", **vit.sizes(what.encoder)},
        "decoder": {
            "model_type": "gpt2",
            **gpt2.sizes(what.decoder),
            "add_cross_attention": True,
            "is_decoder": True,
            "tie_word_embeddings": what.head.tied,
        },
    }


def rules(what: spec.EncoderDecoder) -> Rules:
    embed = what.encoder.embed
    assert isinstance(embed, spec.Patches)
    return Rules(
        [
            *vit.body("encoder", "encoder.", embed),
            *gpt2.body("decoder", "decoder.transformer"),
            Row("head.weight", "decoder.lm_head.weight"),
        ],
        left={
            r"encoder\.pooler\.dense\..*": UNUSED,
            rf"decoder\.transformer\.{gpt2.TRIANGLES}": gpt2.MASKS,
        },
        copies={"decoder.lm_head.weight": "decoder.transformer.wte.weight"},
    )


VISION_ENCODER_DECODER = Family("vision-encoder-decoder", read, write, rules, writes=True)
