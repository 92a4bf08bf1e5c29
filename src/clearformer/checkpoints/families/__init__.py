"""The public families that are read and written, one file each, by their `model_type`."""

from clearformer.checkpoints.families import llama
from clearformer.checkpoints.families.bert import BERT
from clearformer.checkpoints.families.common import Family
from clearformer.checkpoints.families.distilbert import DISTILBERT
from clearformer.checkpoints.families.eurobert import EUROBERT
from clearformer.checkpoints.families.gpt2 import GPT2
from clearformer.checkpoints.families.marian import MARIAN
from clearformer.checkpoints.families.megatron_bert import MEGATRON_BERT
from clearformer.checkpoints.families.pegasus import PEGASUS
from clearformer.checkpoints.families.roberta import ROBERTA, XLM_ROBERTA
from clearformer.checkpoints.families.siglip import SIGLIP
from clearformer.checkpoints.families.t5 import T5
from clearformer.checkpoints.families.vision_encoder_decoder import VISION_ENCODER_DECODER
from clearformer.checkpoints.families.vit import VIT

__all__ = ["FAMILIES", "Family"]

FAMILIES: dict[str, Family] = {  # a spec that fits several is written as the first
    family.name: family
    for family in (
        BERT,
        DISTILBERT,
        ROBERTA,
        XLM_ROBERTA,
        MEGATRON_BERT,
        EUROBERT,
        GPT2,
        *llama.FAMILIES,
        T5,
        MARIAN,
        PEGASUS,
        VIT,
        SIGLIP,
        VISION_ENCODER_DECODER,
    )
}
