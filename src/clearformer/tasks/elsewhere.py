"""What transformers says for an exported folder, asked as its users ask: Auto classes, the folder's own tokenizer and
settings, `generate`. Replies come in the order of `tasks.verify`."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.checkpoints.card import auto_class
from clearformer.checkpoints.safe import read_json
from clearformer.errors import CheckpointError
from clearformer.tasks.base import Task
from clearformer.tasks.verify import BEAMS, MOST, TOP, Reply, language, masked, noise


@torch.inference_mode()
def replies(folder: Path, task: Task, texts: tuple[str, ...]) -> list[Reply]:
    """`task` is the model that was exported, which knows what to ask."""
    import transformers as hf

    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    auto = auto_class(read_json(folder / "config.json")["architectures"][0])
    try:
        model = getattr(hf, auto).from_pretrained(folder, dtype=torch.float32).eval()
        reader = (hf.AutoImageProcessor if task.metadata.image is not None else hf.AutoTokenizer).from_pretrained(
            folder
        )
    except Exception as error:  # whatever is wrong with the folder, it is of no use to others
        raise CheckpointError(f"transformers cannot read {folder}: {type(error).__name__}: {error}") from None
    match auto:
        case "AutoModelForSeq2SeqLM":
            return _written(model, reader, task, texts)
        case "AutoModelForCausalLM":
            return _completed(model, reader, texts)
        case "AutoModelForMaskedLM":
            return [_filled(model, reader, masked(task, text)) for text in texts]
        case "AutoModelForQuestionAnswering":
            return [_spanned(model, reader, texts[0], texts[-1])]
        case "AutoModelForSequenceClassification" | "AutoModelForTokenClassification":
            return [_labelled(model, reader, text) for text in texts]
        case "AutoModelForImageClassification":
            return [_seen(model, reader, task, number) for number in range(len(texts))]
    return [] if task.metadata.task == "caption" else [_vector(folder, model, reader, text) for text in texts]


def _written(model: Any, tokenizer: Any, task: Any, texts: tuple[str, ...]) -> list[Reply]:
    said = model.generation_config
    ends = said.eos_token_id if isinstance(said.eos_token_id, list) else [said.eos_token_id]
    special = (said.decoder_start_token_id, ends[0], said.pad_token_id)
    made = [Reply("special tokens (start, end, padding)", special)]
    to = language(task) if task.sides.languages else None
    for text in texts:
        given = tokenizer(text if to is None else f">>{to}<< {text}", return_tensors="pt")
        start = torch.tensor([[said.decoder_start_token_id]])
        logits = model(**given, decoder_input_ids=start).logits[0]
        made.append(Reply(f"tokens of {text!r}", tuple(given["input_ids"][0].tolist()), logits))
        for beams in BEAMS:
            ids = _generated(model, given, beams, min(MOST, task.limit(given["input_ids"].size(1))))[1:]
            ended = ids[-1:] and ids[-1] in ends
            pieces = task.sides.pieces(ids[:-1] if ended else ids)
            made.append(Reply(f"{text!r} with num_beams={beams}", (*pieces, bool(ended))))
    return made


def _completed(model: Any, tokenizer: Any, texts: tuple[str, ...]) -> list[Reply]:
    made, ends = [], model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    for text in texts:
        given = tokenizer(text, return_tensors="pt")
        for beams in BEAMS:
            ids = _generated(model, given, beams, min(MOST, 20))[given["input_ids"].size(1) :]
            ended = bool(ids) and ids[-1] in ends
            pieces = tokenizer.convert_ids_to_tokens(ids[:-1] if ended else ids)
            made.append(Reply(f"{text!r} with num_beams={beams}", (*pieces, ended), model(**given).logits[0, -1]))
    return made


def _generated(model: Any, given: Any, beams: int, most: int) -> list[int]:
    """Everything else is as the folder says."""
    inputs = {name: given[name] for name in ("input_ids", "attention_mask")}
    ids: list[int] = model.generate(**inputs, num_beams=beams, do_sample=False, max_new_tokens=most)[0].tolist()
    return ids


def _filled(model: Any, tokenizer: Any, text: str) -> Reply:
    given = tokenizer(text, return_tensors="pt")
    (place,) = (given["input_ids"][0] == tokenizer.mask_token_id).nonzero()
    best = model(**given).logits[0, int(place)].softmax(-1).topk(TOP)
    return Reply(text, tuple(best.indices.tolist()), best.values)


def _spanned(model: Any, tokenizer: Any, question: str, context: str) -> Reply:
    found = model(**tokenizer(question, context, return_tensors="pt"))
    logits = torch.stack([found.start_logits[0], found.end_logits[0]], -1)
    return Reply(question, tuple(logits.argmax(0).tolist()), logits)


def _labelled(model: Any, tokenizer: Any, text: str) -> Reply:
    logits: Tensor = model(**tokenizer(text, return_tensors="pt")).logits[0]
    best = logits.argmax(-1)
    return Reply(text, tuple(model.config.id2label[int(n)] for n in (best if best.dim() else best[None])), logits)


def _seen(model: Any, processor: Any, task: Task, number: int) -> Reply:
    logits = model(**processor(noise(task, number), return_tensors="pt")).logits[0]
    return Reply(f"picture {number}", (model.config.id2label[int(logits.argmax())],), logits.softmax(-1))


def _vector(folder: Path, model: Any, tokenizer: Any, text: str) -> Reply:
    """As sentence-transformers does it, from the same files."""
    states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    vector = states.mean(0)
    if (folder / "modules.json").is_file():
        import json

        pooling = read_json(folder / "1_Pooling" / "config.json")
        if pooling.get("pooling_mode_cls_token"):
            vector = states[0]
        elif pooling.get("pooling_mode_lasttoken"):
            vector = states[-1]
        kinds = [each["type"] for each in json.loads((folder / "modules.json").read_text(encoding="utf-8"))]
        vector = vector / vector.norm() if any(kind.endswith("Normalize") for kind in kinds) else vector
    return Reply(f"vector of {text!r}", (), vector)
