"""A model folder in the other layout, and the proof that both hold the same model."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from clearformer.assemble import Model
from clearformer.checkpoints.atomic import write_folder
from clearformer.checkpoints.huggingface import DTYPES, is_public, load_public, meant, pooled_apart, save_public
from clearformer.checkpoints.match_family import differences, normal
from clearformer.checkpoints.metadata import FILE, Metadata, read_metadata
from clearformer.checkpoints.model_folder import load_model, save_model
from clearformer.checkpoints.relatives import public_form
from clearformer.checkpoints.safe import read_json
from clearformer.core.embed import Patches
from clearformer.core.model import EncoderDecoder
from clearformer.errors import CheckpointError, DataError, nearest
from clearformer.generate.options import translating, translation_limit
from clearformer.kernels.pack import is_int8, quantise
from clearformer.text.learn import LearnedTokenizer
from clearformer.text.translation import TAG

Layout = Literal["huggingface", "clearformer"]
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.spm", "*.model")
TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2, "int8": 1e-1}  # of the largest answer
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "In 1889 the tower was the tallest building in the world!",
)


def read(folder: Path, ignore: Collection[str] = ()) -> tuple[Model, Metadata]:
    """The model and metadata of a folder of either layout; half precision is computed with in single."""
    if is_public(folder):
        model, public = load_public(folder, ignore=ignore)
        return model, public.metadata
    model = load_model(folder).float()
    return model, read_metadata(folder) if (folder / FILE).is_file() else Metadata()


def convert(
    folder: Path,
    out: Path,
    to: Layout,
    dtype: str = "float32",
    precision: str = "float32",
    ignore: Collection[str] = (),
) -> Path:
    """Write the model of a folder to a new one; the tokenizer and the metadata go with it. `ignore` are unknown keys of
    config.json to go on without."""
    if precision not in ("float32", "int8"):
        raise CheckpointError(f"a model cannot be kept as {precision!r}{nearest(str(precision), ['float32', 'int8'])}")
    if precision == "int8" and (to != "clearformer" or dtype != "float32"):
        raise CheckpointError("int8 is a way of our own layout; say --to clearformer, and no --dtype")
    if to not in ("huggingface", "clearformer"):
        raise CheckpointError(f"there is no layout {to!r}{nearest(str(to), ['huggingface', 'clearformer'])}")
    if dtype not in DTYPES:
        raise CheckpointError(f"weights cannot be saved as {dtype!r}{nearest(str(dtype), DTYPES)}")
    model, metadata = read(folder, ignore)
    if is_int8(model) and to == "clearformer":
        raise CheckpointError(f"{folder} is kept as int8, which is rounded; convert the model it was made from")
    if precision == "int8":
        model = quantise(model)
    if to == "clearformer" and metadata.task is None:
        raise CheckpointError(f"{folder} has no {FILE}, so nothing is known of what its model is for")

    words, known = words_of(folder), metadata
    if to == "huggingface" and words is not None:
        words = exported(words, metadata)
        known = known_to_others(metadata, words)

    def write(waiting: Path) -> None:
        inner = waiting / "model"
        if to == "huggingface":
            save_public(model, inner, metadata=known, dtype=dtype, ids=None if words is None else _ids(words))
        else:
            save_model(model.to(DTYPES[dtype]), inner)
            (inner / FILE).write_text(metadata.to_json(), encoding="utf-8")
        for file in inner.iterdir():
            file.rename(waiting / file.name)
        inner.rmdir()
        if words is not None and to == "huggingface":
            words.save_public(waiting, **_settings(metadata))
        elif _translates(folder):
            (waiting / TOKENIZERS[0]).write_bytes((folder / TOKENIZERS[0]).read_bytes())
        elif words is not None:
            words.save(waiting)

    return write_folder(out, write)


def _settings(metadata: Metadata) -> dict[str, str]:
    """What public folders keep with the tokenizer: the one language that is written (several are in prompts or
    tags), and that prompts to go on from are padded in front."""
    to = metadata.to or ()
    said = {"target_lang": to[0]} if len(to) == 1 and not metadata.prompts else {}
    return said | ({"padding_side": "left"} if metadata.task == "complete" else {})


def words_of(folder: Path) -> Any:
    """The folder's tokenizer; a model of images alone has none."""
    if not any(next(folder.glob(pattern), None) for pattern in TOKENIZERS):
        return None
    from clearformer.text.tokenizer import PublicTokenizer

    if _translates(folder):
        return PublicTokenizer.of(LearnedTokenizer.load(folder / "tokenizer.json"), start=False, tags=True)
    return PublicTokenizer.load(folder)


def _translates(folder: Path) -> bool:
    """Whether it is a translator of ours, whose `tokenizer.json` has no template."""
    return (folder / FILE).is_file() and read_metadata(folder).task == "translate"


def exported(words: Any, metadata: Metadata) -> Any:
    """The tokenizer as others ask it: a prompt to go on from has no end, and a mask can be written in a text."""
    if metadata.task == "complete" and words.plain:
        words = words.without_end()
    if metadata.task == "fill" and words.plain:
        words.plain = words.engine.encode_special_tokens = False
    if words.longest is None:
        words.longest = metadata.longest
    return words


def known_to_others(metadata: Metadata, words: Any) -> Metadata:
    """Metadata with all that is said of writing; of a translator of ours, what its class does by itself."""
    if metadata.task != "translate":
        return metadata
    penalty = 1.0 if metadata.length_penalty is None else metadata.length_penalty
    tags = [i for i, piece in enumerate(words.pieces(range(len(words)))) if TAG.fullmatch(piece)]
    said = translating(start=words.start, end=words.end, pad=words.pad, tags=tags, length_penalty=penalty).to_dict()
    said |= {"decoder_start_token_id": words.start, "pad_token_id": words.pad}
    said["max_new_tokens"] = translation_limit(metadata.longest or 256, metadata.growth or 2.0)
    return metadata.replace(generation=said)


def _ids(words: Any) -> dict[str, int]:
    """The special tokens' ids, as configurations name them."""
    roles = {"pad_token_id": words.pad, "bos_token_id": words.start, "eos_token_id": words.end}
    return {key: number for key, number in roles.items() if number is not None}


@dataclass(frozen=True)
class Verified:
    """How far two folders are apart: in their weights, in their logits or vectors, and in what they say to texts."""

    tensors: int
    weights: float  # the largest difference of two weights
    answers: float  # of two answers
    largest: float  # the largest answer
    tolerance: float  # how far answers may be apart, as a share of the largest
    texts: int
    said: int = 0  # how many replies were compared: texts written greedily and with a beam, labels, candidates
    alike: int = 0  # of these, those that are the same
    by: str = "clearformer"  # who read the second folder and replied: transformers, where it is installed
    odd: str | None = None  # the first reply that is not the same
    strict: bool = True  # replies must be the same; where weights were rounded, they need not

    @property
    def same(self) -> bool:
        near = self.answers <= self.tolerance * max(self.largest, 1.0)
        return near and (self.alike == self.said or not self.strict)

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "same": self.same}


@torch.inference_mode()
def verify(
    one: Path,
    other: Path,
    texts: tuple[str, ...] = TEXTS,
    tolerance: float | None = None,
    ignore: Collection[str] = (),
) -> Verified:
    """Load both folders and compare all weights, the tokenizers, and the logits or vectors of each text. What they say
    is compared by `tasks.verify`, which calls this."""
    (a, metadata), (b, more) = read(one, ignore), read(other, ignore)
    mine, theirs = _comparable((one, other), (a, b), metadata)
    apart = max(float((mine[name] - theirs[name]).abs().max()) for name in mine)
    words = tuple(each and exported(each, metadata) for each in (words_of(one), words_of(other)))
    _compare_words((one, other), words, (metadata, more))
    if metadata.task == "embed" and (metadata.pool, metadata.normalise) != (more.pool, more.normalise):
        raise CheckpointError(f"{one} and {other} make vectors of their states in different ways")
    answers, largest = 0.0, 0.0
    inputs, others = _inputs(one, words[0], a, texts), _inputs(other, words[1], b, texts)
    for given, again in zip(inputs, others, strict=True):
        if any(x.shape != y.shape or not torch.equal(x, y) for x, y in zip(given, again, strict=True)):
            raise CheckpointError(f"the tokenizers of {one} and {other} read a text differently")
        first, second = _answer(a, given), _answer(b, again)
        answers = max(answers, float((first - second).abs().max()))
        largest = max(largest, float(first.abs().max()))
    kinds = {_kind(folder) for folder in (one, other)}
    exact = kinds == {"float32"} or (apart == 0 and "int8" not in kinds)  # all is computed in single precision
    if tolerance is None:
        tolerance = TOLERANCES["float32"] if exact else max(TOLERANCES[kind] for kind in kinds)
    return Verified(len(mine), apart, answers, largest, tolerance, len(inputs), strict=exact)


def _comparable(
    folders: tuple[Path, Path], models: tuple[Model, Model], metadata: Metadata
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of both by name; of the first, where the second is an exact relative of it, those of the relative."""
    mine, theirs = (meant(model) for model in models)
    specs = [pooled_apart(model.spec) for model in models]
    if any(differences(normal(specs[0]), normal(specs[1]))):
        with suppress(CheckpointError):
            form = public_form(specs[0], mine, metadata.family, metadata.longest)
            if not any(differences(normal(form.spec), normal(specs[1]))):
                return form.weights, theirs
    where = f"{folders[0]} and {folders[1]} hold different models"
    if specs[0].head.kind != specs[1].head.kind or mine.keys() != theirs.keys():
        odd = sorted(mine.keys() ^ theirs.keys())
        raise CheckpointError(where + (f": {odd[0]} is in one only" if odd else ""))
    shapes = [name for name in mine if mine[name].shape != theirs[name].shape]
    if shapes:
        raise CheckpointError(f"{where}: {shapes[0]} differs in shape")
    return mine, theirs


def _compare_words(folders: tuple[Path, Path], words: tuple[Any, ...], metadata: tuple[Metadata, ...]) -> None:
    """Raise where tokenizers are apart beyond the ids of a text, or the second cannot be read by others."""
    templates = [getattr(each, "chat_template", None) for each in words]
    if templates[0] != templates[1]:
        raise CheckpointError(f"the chat templates of {folders[0]} and {folders[1]} differ")
    known = [_languages(w, said) for w, said in zip(words, metadata, strict=True)]
    if known[0] != known[1]:
        first, second = (", ".join(languages) or "no language that is named" for languages in known)
        raise CheckpointError(f"{folders[0]} translates to {first}, and {folders[1]} to {second}")
    settings, wanted = folders[1] / "tokenizer_config.json", folders[1] / "tokenizer.json"
    if is_public(folders[1]) and settings.is_file() and not wanted.is_file():
        from clearformer.text.tokenizer import FAST

        if (named := read_json(settings).get("tokenizer_class")) in FAST:
            raise CheckpointError(
                f"{settings} names the class {named}, which reads {wanted.name}, and there is none; convert it again"
            )


def _languages(words: Any, said: Metadata) -> list[str]:
    """Those that have a token each, or else what the folder says."""
    pieces = [] if words is None else words.pieces(range(len(words)))
    tags = [found[1] for piece in pieces if (found := TAG.fullmatch(piece))]
    return sorted(getattr(words, "codes", ()) or tags or said.to or ())


def _answer(model: Model, given: tuple[Tensor, ...]) -> Tensor:
    """What the model says; the states of one whose pooling is told beside it."""
    if pooled_apart(model.spec) is model.spec or isinstance(model, EncoderDecoder):
        return model(*given)
    return model.stack(*given, model.stack.places(given[0], None))


def _kind(folder: Path) -> str:
    """The coarsest type of a folder's weights."""
    from clearformer.checkpoints.safe import open_tensors
    from clearformer.checkpoints.weights import NAMES

    tensors = open_tensors(folder, "model" if is_public(folder) else "weights")
    kinds = {"int8" if tensors.kind(name) == "I8" else NAMES.get(tensors.kind(name), "float32") for name in tensors}
    return max(kinds & TOLERANCES.keys(), key=lambda kind: TOLERANCES[kind], default="float32")


def _inputs(folder: Path, words: Any, model: Model, texts: tuple[str, ...]) -> list[tuple[Tensor, ...]]:
    """What to ask: the texts as ids, of a decoder those of its own; of an image model, as many images of noise."""
    first = model.encoder if isinstance(model, EncoderDecoder) else model.stack
    rows = None if words is None else [words.encode(text).ids for text in texts]
    if isinstance(first.embed, Patches):
        shape = (1, first.embed.channels, *first.embed.image)
        images = [torch.rand(shape, generator=torch.Generator().manual_seed(n)) for n in range(len(texts))]
        if not isinstance(model, EncoderDecoder):
            return [(image,) for image in images]
        starts = rows or [[0, 1, 2]] * len(images)
        return [(image, torch.tensor([ids])) for image, ids in zip(images, starts, strict=True)]
    if rows is None:
        raise DataError(f"{folder} has no tokenizer, so no text can be tried")
    if not all(rows):
        raise DataError("a text to try has no tokens; give another with --text")
    tensors = [torch.tensor([ids]) for ids in rows]
    if not isinstance(model, EncoderDecoder):
        return [(ids,) for ids in tensors]
    written = [torch.tensor([words.target().encode(text).ids]) for text in texts]
    return list(zip(tensors, written, strict=True))
