"""Small encoders with random weights and learned tokenizers, saved by Hugging Face transformers as people do."""

import random
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "A stirring, funny film that never lets go.",
    "The plot is a mess and the acting is worse!",
    "Angela Merkel met Barack Obama in Berlin, Germany.",
    "Paris is the capital of France.",
    "How do I reset the router to its factory settings?",
    "Höchst unnötig: ein Film ohne Mitte.",
    "The cat sat on the mat; the dog did not.",
    "It rains.",
]
LONGEST = 24
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROUND = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def word_pieces() -> Any:
    """BERT's kind of tokenizer."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=160, special_tokens=SPECIAL))
    first, last = (made.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", first), ("[SEP]", last)],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=LONGEST, **names)


def byte_pieces() -> Any:
    """RoBERTa's kind."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=420, special_tokens=ROUND, initial_alphabet=alphabet)
    )
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=LONGEST,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        cls_token="<s>",
        sep_token="</s>",
        mask_token=transformers.AddedToken("<mask>", lstrip=True),
    )


def config(kind: str, words: int, **rest: Any) -> Any:
    if kind == "DistilBert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": LONGEST}
        return transformers.DistilBertConfig(vocab_size=words, **sizes, **rest)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    if kind == "Roberta":
        more = {"max_position_embeddings": LONGEST + 2, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
        return transformers.RobertaConfig(vocab_size=words, type_vocab_size=1, **sizes, **more, **rest)
    return transformers.BertConfig(vocab_size=words, **{"max_position_embeddings": LONGEST, **sizes, **rest})


def save(folder: Path, name: str, **rest: Any) -> tuple[Path, Any, Any]:
    """A folder, its model and its tokenizer; `name` is that of a class, such as BertForMaskedLM."""
    kind = next(kind for kind in ("DistilBert", "Roberta", "Bert") if name.startswith(kind))
    tokenizer = byte_pieces() if kind == "Roberta" else word_pieces()
    torch.manual_seed(5)
    model = getattr(transformers, name)(config(kind, len(tokenizer), **rest)).eval()
    with torch.no_grad():  # as they are made, every text would get almost the same answer
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) * (0.1 if parameter.dim() == 1 else 0.25)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


def long_text(words: int = 60) -> str:
    chosen = random.Random(3)
    return " ".join(chosen.choice(" ".join(TEXTS).split()) for _ in range(words))
