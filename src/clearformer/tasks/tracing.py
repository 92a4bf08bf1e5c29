"""Traces of what a task really did, with its words on every axis: `cf.load(folder).trace("…")` of any kind of model.

The model that is traced is the one that answers, on its own weights, int8 ones included; the trace's `run` is what was
written (`Wrote`) or found (`Answered`).
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from io import BytesIO
from typing import Any

import torch
from torch import Tensor

from clearformer import spec
from clearformer.core.heads import Vector
from clearformer.core.model import Transformer
from clearformer.core.places import Places
from clearformer.data.pixels import from_array
from clearformer.data.preprocessing import Preprocessing
from clearformer.errors import DataError
from clearformer.explain import trace as traces
from clearformer.explain.changes import Changes
from clearformer.explain.trace import Recording
from clearformer.generate.options import GenerationOptions, merge, plan
from clearformer.generate.requests import Request, Watcher
from clearformer.tasks import see, wrote
from clearformer.tasks.answer import Answerer
from clearformer.tasks.base import Task
from clearformer.tasks.classify import Classifier
from clearformer.tasks.complete import Completer
from clearformer.tasks.embed import Embedder
from clearformer.tasks.encoder_task import OnLong, Read, Reader, Window
from clearformer.tasks.fill import Filler
from clearformer.tasks.tag import Tagger
from clearformer.tasks.text_stream import Telling
from clearformer.tasks.text_to_text import Writer
from clearformer.tasks.translate import Translator

Trace = traces.Trace


@dataclass(frozen=True)
class Answered:
    """What a task found in a text, or an image: `answer` is the result of its verb, as JSON has it."""

    verb: str
    text: str | None
    pair: str | None
    tokens: list[str]
    ids: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    window: int = 0  # which stretch of a long text was traced, of so many
    windows: int = 1
    grid: tuple[int, int] | None = None  # rows and columns of an image's patches
    picture: str | None = None  # what the model sees of an image: a PNG as a data: URL
    answer: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Asked:
    """How a run is to be made and looked at."""

    model: Any  # that is traced: the task's own, or the same weights unpacked
    target: str | Sequence[int] | None
    goes_on: bool
    top: int
    options: GenerationOptions
    told: dict[str, Any]  # what `cf.trace` is told besides: change, record

    def trace(self, *inputs: Any, model: Any = None, **named: Any) -> Trace:
        return traces.trace(self.model if model is None else model, *inputs, **self.told, **named)

    def target_ids(self, encode: Callable[[str], list[int]]) -> list[int] | None:
        """The ids of a target that was given."""
        if self.target is None:
            return None
        if isinstance(self.target, str):
            return encode(self.target) if self.target else []
        return _known(self.target, len(self.model.head.weight), "target")


def trace(
    task: Task,
    given: Any = None,
    pair: str | None = None,
    *,
    target: str | Sequence[int] | None = None,
    goes_on: bool = False,
    to: str | None = None,
    verb: str | None = None,
    top: int = 5,
    window: int = 0,
    on_long: OnLong = "error",
    segments: Sequence[int] = (),
    options: GenerationOptions | None = None,
    change: Changes | None = None,
    record: Recording = "auto",
    model: Any = None,
    **fields: Any,
) -> Trace:
    """Run a task on one text, a list of ids, or an image, and trace the model on what it did.

    `pair` is the second text of a classifier, or the context of a question. A model that writes is told `options` and
    `fields` as its verb is, or is given the `target` that it would have to write ("" looks at a prompt alone); with
    `goes_on` the target is only how it begins, and the model writes on from there. `top` tokens of every step are kept.
    `to` is a translator's language, and `verb` what a model that can do several is asked for: translate, summarize,
    write. Of a text longer than the model takes, with `on_long`, one `window` is looked at. `segments` are those of ids
    that stand for a pair. `change` and `record` are those of `cf.trace`; `model` is traced in place of the task's own.
    """
    if top < 1:
        raise DataError(f"top must be at least 1, given {top}", param="top")
    if given is None or (isinstance(given, str) and not given.strip()):
        raise DataError("there is nothing to explain in an empty text; give one, or an image to a model that sees")
    if isinstance(given, list | tuple) and not given:
        raise DataError("there is no token to begin with; give at least one id")
    writing = GenerationOptions.of(options, **fields)
    writes = isinstance(task, Translator | Completer | see.Captioner)
    if not writes and (target is not None or to is not None or writing.to_dict()):
        said = [*(["target"] if target is not None else []), *(["to"] if to is not None else []), *writing.to_dict()]
        raise DataError(f"{', '.join(said)}: for models that write, and this one can {' and '.join(task.can)}")
    if goes_on and target is None:
        raise DataError("goes_on: give the target that the text begins with", param="target")
    if pair is not None and not isinstance(task, Classifier | Answerer | Embedder | Tagger):
        raise DataError("a second text is for models that read two; give one text")
    told: dict[str, Any] = {"change": change, "record": record}
    asked = Asked(task.model if model is None else model, target, goes_on, top, writing, told)
    match task:
        case Translator():
            return _translated(task, given, to, verb, asked)
        case Completer():
            return _completed(task, given, asked)
        case see.Captioner():
            return _captioned(task, given, asked)
        case see.Seer():
            return _seen(task, given, asked)
        case Reader():
            return _read(task, given, pair, window, on_long, segments, asked)
    raise DataError(f"a {type(task).__name__} cannot be traced; trace its model with cf.trace(task.model, ids)")


# --- what writes ------------------------------------------------------------------------------------------


def _translated(task: Translator, given: Any, to: str | None, verb: str | None, asked: Asked) -> Trace:
    if are_ids(given) and to is not None:
        raise DataError("to is for a text: ids have the tag of their language already", param="to")
    task, front, verb = _way(task, to, verb, are_ids(given))
    rows = task.spec.encoder.embed.vocabulary
    source = _known(given, rows, "ids") if are_ids(given) else task.sides.encode(given, front)
    if len(source) > task.longest:
        raise DataError(
            f"the text has {len(source):,} tokens, and the longest this model was trained on had {task.longest:,}; give"
            " a shorter one"
        )
    sides, options = task.sides, merge(task.defaults(), asked.options)
    target = asked.target_ids(lambda text: _begun(task, text) if asked.goes_on else sides.encode_targets([text])[0])

    def request(forced: list[int], watch: Watcher) -> Request:
        return task.request(source, options, forced, watch=watch)

    found = wrote.find(task.engine, request, sides.pieces, sides.pieces([sides.start])[0], [sides.end], target,
                       asked.goes_on)  # fmt: skip
    reads = [sides.start, *wrote.read_of(found)]
    words = {"source": task.source_pieces(source), "target": sides.pieces(reads)}
    outputs = partial(sides.pieces, range(len(task.model.head.weight)))
    made = asked.trace(wrote.row(source), wrote.row(reads), words=words, outputs=outputs)
    logits = made.tape.records["head.logits"].value[0]
    start = sides.pieces([sides.start])
    made.run = wrote.told(verb, found, logits, start, sides.pieces, sides.decode, options, asked.top, words["source"])
    return made


def _begun(task: Translator, text: str) -> list[int]:
    """The tokens of how a translation begins: those of a target without its end."""
    ids = task.sides.encode_targets([text])[0]
    return ids[:-1] if ids[-1:] == [task.sides.end] else ids


def _known(ids: Sequence[int], rows: int, what: str) -> list[int]:
    if odd := [i for i in ids if not 0 <= i < rows]:
        raise DataError(f"{what}: this model has ids from 0 to {rows - 1:,}, given {odd[0]}", param=what)
    return list(ids)


def _way(task: Translator, to: str | None, verb: str | None, ids: bool) -> tuple[Translator, str | None, str]:
    """The translator with what its checkpoint says of a verb, what to put in front of a source, and the verb."""
    if not isinstance(task, Writer):
        if verb not in (None, "translate"):
            raise DataError(f"this model can translate; given the verb {verb!r}", param="verb")
        return task, None if ids else task.language(to), "translate"
    verb = verb or ("translate" if to is not None or not task.instructed else "write")
    if verb not in ("translate", "summarize", "write"):
        raise DataError(f"verb must be translate, summarize or write, given {verb!r}", param="verb")
    if verb == "write" or ids:
        return task, None, verb
    front = task.language(to) if verb == "translate" else task.prompts.get("summarize", "summarize: ")
    return task._made_for(verb), front, verb


def _completed(task: Completer, given: Any, asked: Asked) -> Trace:
    prompt = task.prompt_ids(given, 1)
    options, pieces = merge(task.own, asked.options), task.tokenizer.pieces
    before, ends = pieces(prompt), options.eos_token_id or ()
    target = asked.target_ids(lambda text: task.tokenizer.encode(text, special=False).ids)

    def request(forced: list[int], watch: Watcher) -> Request:
        return task.request([*prompt, *forced], options, watch=watch)

    found = wrote.find(task.engine, request, pieces, before[-1], ends, target, asked.goes_on)
    reads = [*prompt, *wrote.read_of(found)]
    outputs = partial(pieces, range(len(task.model.head.weight)))
    made = asked.trace(wrote.row(reads), words=pieces(reads), outputs=outputs)
    logits = made.tape.records["head.logits"].value[0, len(prompt) - 1 :]
    telling = Telling(task.tokenizer, prompt, options.stop or ())
    made.run = wrote.told(
        "complete", found, logits, before, pieces, lambda ids: telling.whole(ids)[0], options, asked.top
    )
    return made


def _captioned(task: "see.Captioner", given: Any, asked: Asked) -> Trace:
    pixels = _pixels(task, given)
    options, pieces = merge(task.own, asked.options), task.tokenizer.pieces
    start, ends = pieces([task.start]), options.eos_token_id or ()
    target = asked.target_ids(lambda text: task.tokenizer.encode(text, special=False).ids)

    def request(forced: list[int], watch: Watcher) -> Request:
        prompt = [task.start, *forced]
        ways = plan(options, len(prompt), room=None if task.longest is None else task.longest - len(prompt))
        return Request(prompt, ways, source=pixels[0], watch=watch)

    found = wrote.find(task.engine, request, pieces, start[0], ends, target, asked.goes_on)
    reads = [task.start, *wrote.read_of(found)]
    words = {"source": patches(task.patches), "target": pieces(reads)}
    outputs = partial(pieces, range(len(task.model.head.weight)))
    made = asked.trace(pixels, wrote.row(reads), words=words, outputs=outputs)
    logits, decode = made.tape.records["head.logits"].value[0], task.tokenizer.decode
    run = wrote.told("see", found, logits, start, pieces, lambda ids: decode(ids).strip(), options, asked.top)
    made.run = replace(run, grid=_grid(task.patches), picture=picture(pixels[0], task.how))
    return made


# --- what reads -------------------------------------------------------------------------------------------


def _seen(task: "see.Seer", given: Any, asked: Asked) -> Trace:
    pixels, words = _pixels(task, given), patches(task.patches)
    made = asked.trace(pixels, words=words, outputs=task.labels)
    name = given if isinstance(given, str) else None
    best = task._chances(pixels, lambda count: None)[0].topk(min(asked.top, len(task.labels)))
    labels = [(task.labels[n], chance) for n, chance in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
    answer = see.Seen(tuple(labels)).to_dict()
    shown = picture(pixels[0], task.how)
    made.run = Answered("see", name, None, words, grid=_grid(task.patches), picture=shown, answer=answer)
    return made


def _pixels(task: Any, given: Any) -> Tensor:
    """b c h w of one image; what has been made ready already, a tensor of floats, is taken as it is."""
    if isinstance(given, Tensor) and given.is_floating_point() and given.dim() == 3:
        return given[None]
    images = see.several(given)
    if len(images) > 1:
        raise DataError(f"one image is looked into at a time, given {len(images)}")
    return see.load(images, task.how, 0)


def _grid(what: spec.Patches) -> tuple[int, int]:
    return what.image[0] // what.patch, what.image[1] // what.patch


def picture(pixels: Tensor, how: Preprocessing) -> str:
    """What a model sees of an image, upright, resized and cropped: a PNG as a data: URL."""
    values = pixels.double()
    if how.mean is not None:
        mean, std = (torch.tensor(each, dtype=torch.float64).view(-1, 1, 1) for each in (how.mean, how.std or (1.0,)))
        values = values * std + mean
    array = (values / how.scale).round().clamp(0, 255).to(torch.uint8)
    file = BytesIO()
    from_array(array.numpy(), "the image").save(file, "PNG")
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


def patches(what: spec.Patches) -> list[str]:
    """The names of an image's patches, row by row: `2,5` is the sixth of the third row."""
    rows, columns = what.image[0] // what.patch, what.image[1] // what.patch
    named = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    return (["[summary]"] if what.count > len(named) else []) + named


def _read(
    task: Reader, given: Any, pair: Any, number: int, on_long: OnLong, segments: Sequence[int], asked: Asked
) -> Trace:
    answer: dict[str, Any]
    if are_ids(given):
        if len(given) > task.longest:
            raise DataError(f"{len(given):,} ids, and this model takes {task.longest:,} tokens; give fewer")
        _known(given, task.spec.stack.embed.vocabulary, "ids")
        sides = list(segments) or [0] * len(given)
        window, windows, answer = Window(list(given), sides, 0, len(given)), 1, {}
    else:
        read, answer = _answer(task, given, pair, on_long, asked.top)
        windows = len(read.windows)
        if not 0 <= number < windows:
            raise DataError(f"the text has {windows} windows, 0 to {windows - 1}, given {number}", param="window")
        window = read.windows[number]
    pieces = task.tokenizer.pieces
    words, head = pieces(window.ids), task.spec.head
    sided = bool(task.spec.stack.embed.segments) and any(window.segments)
    extra = {"segments": wrote.row(window.segments)} if sided else {}
    outputs: Any = None
    if isinstance(head, spec.Classes | spec.TokenClasses):
        outputs = task.labels(head.count)
    elif isinstance(head, spec.Spans):
        outputs = ["start", "end"]
    elif isinstance(head, spec.MaskedToken):
        outputs = partial(pieces, range(len(task.model.head.weight)))
    model = _pooling(task, asked.model) if answer.get("verb") == "embed" else None
    made = asked.trace(wrote.row(window.ids), model=model, words=words, outputs=outputs, **extra)
    verb = answer.pop("verb", task.can[0])
    text = None if are_ids(given) else given
    ids, sides = list(window.ids), list(window.segments)
    made.run = Answered(verb, text, pair, words, ids, sides, number, windows, answer=answer)
    return made


def _answer(task: Reader, text: str, pair: str | None, on_long: OnLong, top: int) -> tuple[Read, dict[str, Any]]:
    """The text as the model reads it, and what the task says of it."""
    match task:
        case Answerer():
            if pair is None:
                raise DataError("a question needs a context: trace(question, context)")
            answer = task.answer(text, pair, top=top)[0].to_dict()
            return task.encode_questions([(text, pair)])[0], {"verb": "answer", **answer}
        case Filler() if any(mask in text for mask in (*_masks(task),)):
            filled = task.fill(text, top=top)[0].to_dict()
            return next(task.read(task._spelled(text, 1)))[0], {"verb": "fill", **filled}
        case Embedder():
            prompt = task.metadata.prompt or ""
            embedded = task.embedded(text, on_long=on_long)
            found = {"vector": embedded.vectors[0].tolist(), "pool": task.pool(), "finish": embedded.finish[0]}
            return next(task.read(prompt + text, pair, on_long=on_long))[0], {"verb": "embed", **found}
        case Classifier():
            found = task.classify(text, pair, on_long=on_long)[0].to_dict()
            return next(task.read(text, pair, on_long=on_long))[0], {"verb": "classify", **found}
        case Tagger():
            found = task.tag(text, on_long=on_long)[0].to_dict()
            return next(task.read(text, on_long=on_long))[0], {"verb": "tag", **found}
    return next(task.read(text, pair, on_long=on_long))[0], {}


def _masks(task: Filler) -> tuple[str, ...]:
    from clearformer.tasks.fill import SPELLINGS

    return (*SPELLINGS, task.mask)


class Pool(Vector):
    """A vector of a text as `embed` makes it, with its prompt left out where the model says so."""

    def __init__(self, pool: str, skipped: int):
        super().__init__(pool, None, None)
        self.skipped = skipped

    def forward(self, x: Any, places: Places) -> Any:
        return self.pooled(x, places.after(self.skipped) if self.skipped else places)


def _pooling(task: Reader, model: Any) -> Transformer:
    """The model with the pool that `embed` puts on it as its head, so that the vector is a step with an address."""
    assert isinstance(task, Embedder)
    prompt = task.metadata.prompt or ""
    skipped = task._tokens(prompt) if prompt and task.metadata.skips_prompt else 0
    what = task.spec.replace({"head": spec.Vector(pool=task.pool())})
    return Transformer(what, model.stack, Pool(task.pool(), skipped))


def are_ids(given: Any) -> bool:
    """Whether ids are given rather than a text."""
    return isinstance(given, list | tuple) and bool(given) and all(type(i) is int for i in given)
