"""The proof that two folders hold the same model, in what they say: texts written greedily and with a beam, labels,
vectors, candidates for masks. An exported folder is read as others read it, by transformers where that is installed:
its own tokenizer, its own generation settings, its own image processor.
"""

from collections.abc import Collection
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearformer import spec
from clearformer.checkpoints import convert
from clearformer.checkpoints.convert import TEXTS, Verified
from clearformer.checkpoints.huggingface import is_public
from clearformer.core.model import EncoderDecoder
from clearformer.errors import DataError
from clearformer.tasks.base import Task
from clearformer.tasks.load import load

BEAMS = (1, 4)
MOST = 60  # tokens written at most
TOP = 3  # candidates for a mask


class Reply(NamedTuple):
    """What a model says to something; replies to the same question must be the same, and their numbers near."""

    asked: str
    said: tuple[Any, ...]
    numbers: Tensor | None = None


def verify(
    one: Path,
    other: Path,
    texts: tuple[str, ...] = TEXTS,
    tolerance: float | None = None,
    ignore: Collection[str] = (),
) -> Verified:
    """Load both folders; compare weights, tokenizers, logits, and what they say to each text."""
    task = load(one, precision=None, ignore=ignore)
    texts = tuple(fitting(task, text) for text in texts)
    found = convert.verify(one, other, texts, tolerance, ignore)
    if task.tokenizer is None and not isinstance(_first(task).embed, spec.Patches):
        return found
    if is_public(other) and not is_public(one) and find_spec("transformers") is not None:
        from clearformer.tasks.elsewhere import replies as theirs

        return _compared(replace(found, by="transformers"), replies(task, texts), theirs(other, task, texts))
    return _compared(found, replies(task, texts), replies(load(other, precision=None, ignore=ignore), texts))


def _compared(found: Verified, mine: list[Reply], theirs: list[Reply]) -> Verified:
    alike, odd, answers, largest = 0, None, found.answers, found.largest
    for one, other in zip(mine, theirs, strict=True):
        if one.said == other.said:
            alike += 1
        elif odd is None:
            odd = f"{one.asked}: {_short(one.said)} here, {_short(other.said)} there"
        if one.numbers is not None and other.numbers is not None:
            if one.numbers.shape != other.numbers.shape:
                odd = odd or f"{one.asked}: {tuple(one.numbers.shape)} here, {tuple(other.numbers.shape)} there"
                alike -= one.said == other.said
                continue
            answers = max(answers, float((one.numbers - other.numbers).abs().max()))
            largest = max(largest, float(one.numbers.abs().max()))
    return replace(found, said=len(mine), alike=alike, odd=odd, answers=answers, largest=largest)


def _short(said: tuple[Any, ...]) -> str:
    text = " ".join(map(str, said))
    return text if len(text) <= 160 else text[:159] + "…"


def _first(task: Task) -> spec.Stack:
    return next(iter(task.model.spec.stacks.values()))


def fitting(task: Task, text: str) -> str:
    """The text, or as many of its first words as the model takes."""
    longest = task.metadata.longest or getattr(task, "longest", None)
    if task.tokenizer is None or longest is None:
        return text
    words = text.split(" ")
    while len(words) > 1 and len(task.tokenizer.encode(" ".join(words)).ids) + 2 > longest:
        words.pop()
    return " ".join(words)


def masked(task: Task, text: str) -> str:
    """The text with a mask instead of its second word."""
    first, *rest = text.split(" ")
    return " ".join([first, task.mask, *rest[1:]])  # type: ignore[attr-defined]


def noise(task: Task, number: int) -> Any:
    """A picture of the size that the model sees, the same on both sides."""
    import numpy as np
    from PIL import Image

    embed = _first(task).embed
    assert isinstance(embed, spec.Patches)
    shape = (*embed.image, embed.channels) if embed.channels > 1 else embed.image
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8))


def language(task: Task) -> str | None:
    """The one to write, of a translator that was trained for some."""
    return next(iter(task.sides.languages or task.to), None)  # type: ignore[attr-defined]


# --- what a model of ours says --------------------------------------------------------------------------------------


@torch.inference_mode()
def replies(task: Task, texts: tuple[str, ...]) -> list[Reply]:
    """To every text, in the order in which `elsewhere` asks."""
    model: Any = task.model
    sees = isinstance(_first(task).embed, spec.Patches)
    if isinstance(model, EncoderDecoder):
        return [] if sees else _written(task, texts)
    head = model.spec.head
    if sees:
        return [_seen(task, number) for number in range(len(texts))]
    if isinstance(head, spec.NextToken):
        return _completed(task, texts)
    if isinstance(head, spec.MaskedToken):
        return [_filled(task, masked(task, text)) for text in texts]
    if isinstance(head, spec.Spans):
        return [_labelled(task, texts[0], texts[-1])]
    if isinstance(head, spec.Classes | spec.TokenClasses):
        return [_labelled(task, text) for text in texts]
    vectors = torch.from_numpy(task.embed(list(texts)))
    return [Reply(f"vector of {text!r}", (), vector) for text, vector in zip(texts, vectors, strict=True)]


def _written(task: Any, texts: tuple[str, ...]) -> list[Reply]:
    sides, made = task.sides, []
    made.append(Reply("special tokens (start, end, padding)", (sides.start, sides.end, sides.pad)))
    free = getattr(task, "instructed", False)  # one that reads instructions gets the text as it is
    to = None if free else task.language(language(task))
    for text in texts:
        source = sides.encode(text, to)
        logits = task.model(torch.tensor([source]), torch.tensor([[sides.start]]))[0]
        made.append(Reply(f"tokens of {text!r}", tuple(source), logits))
        for beams in BEAMS:
            how = {"num_beams": beams, "max_new_tokens": min(MOST, task.limit(len(source)))}
            (one,) = task.write(text, **how) if free else task.translate(text, to=language(task), **how)
            made.append(Reply(f"{text!r} with num_beams={beams}", (*one.tokens, one.finish == "end")))
    return made


def _completed(task: Any, texts: tuple[str, ...]) -> list[Reply]:
    made = []
    for text in texts:
        for beams in BEAMS:
            way = {"temperature": 0.0} if beams == 1 else {"num_beams": beams, "length_penalty": 1.0}
            (one,) = task.complete(text, max_new_tokens=min(MOST, 20), **way)
            logits = task.model(torch.tensor([task.prompt_ids(text, 1)]))[0, -1]
            made.append(Reply(f"{text!r} with num_beams={beams}", (*one.tokens, one.finish == "end"), logits))
    return made


def _filled(task: Any, text: str) -> Reply:
    (found,) = task.fill(text, top=TOP)
    (best,) = found.masks
    return Reply(text, tuple(each.id for each in best), torch.tensor([each.probability for each in best]))


def _labelled(task: Any, text: str, pair: str | None = None) -> Reply:
    """Logits and labels: of the text, or of every token."""
    encoded = task.tokenizer.encode(text, pair)
    segments = torch.tensor([encoded.segments]) if _first(task).embed.segments else None  # type: ignore[union-attr]
    logits = task.model(torch.tensor([encoded.ids]), segments=segments)[0]
    if pair is not None:
        return Reply(text, tuple(logits.argmax(0).tolist()), logits)
    names = task.metadata.labels or [str(number) for number in range(logits.size(-1))]
    best = logits.argmax(-1)
    return Reply(text, tuple(names[int(n)] for n in (best if best.dim() else best[None])), logits)


def _seen(task: Any, number: int) -> Reply:
    (found,) = task.see([noise(task, number)], top=len(task.labels))
    chances = dict(found.labels)
    if len(chances) < len(task.labels):
        raise DataError("two labels of the model have the same name, so they cannot be compared")
    return Reply(f"picture {number}", (found.label,), torch.tensor([chances[name] for name in task.labels]))
