"""Seeing: what an image shows, by labels or in words, and which of its patches a label rests on.

A patch matters as much as the label's probability falls when the patch is taken away, that is, replaced by the mean
of the image's patches (Zeiler & Fergus 2014). Unlike weights of attention or gradients, that is what would really
happen. A negative number is a patch that spoke against the label. It costs a run of the model for each patch, so where
there are many they are taken away in squares, and each patch of a square gets the square's number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearformer import spec
from clearformer.checkpoints.metadata import numbered
from clearformer.core.model import EncoderDecoder, Transformer
from clearformer.data.images import prepare, view
from clearformer.data.pixels import take
from clearformer.data.preprocessing import Preprocessing
from clearformer.errors import CheckpointError, DataError
from clearformer.generate.options import GenerationOptions, merge, plan
from clearformer.generate.requests import Request, Written
from clearformer.tasks.base import Given, Task, own_options

if TYPE_CHECKING:
    from PIL.Image import Image

    from clearformer.text.tokenizer import PublicTokenizer

Done = Callable[[int, int], None]  # images run so far, those with a patch taken away included, and how many in all
Watch = Callable[[int], None]
BUDGET = 4_000  # patches run at once
RUNS = 64  # the most that patches are worth, if nobody says otherwise
Grid = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Seen:
    """Labels with their probabilities, best first; `patches` is a grid, row by row, of what each patch was worth."""

    labels: tuple[tuple[str, float], ...]
    patches: Grid | None = None
    square: int = 1  # so many patches on a side were taken away at once

    @property
    def label(self) -> str:
        return self.labels[0][0]

    @property
    def probability(self) -> float:
        return self.labels[0][1]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: only what was asked for."""
        found: dict[str, Any] = {"labels": [{"label": name, "probability": chance} for name, chance in self.labels]}
        if self.patches is not None:
            found |= {"patches": [list(row) for row in self.patches], "square": self.square}
        return found


class Seer(Task):
    """A ViT with a head over classes."""

    can = ("see",)

    def __init__(self, model: Transformer, tokenizer: Any = None, metadata: Given = None):
        super().__init__(model, tokenizer, metadata)
        what = model.spec
        if not isinstance(what, spec.Transformer) or not isinstance(what.stack.embed, spec.Patches):
            raise CheckpointError("to see, a model needs patches of images as its input; this one reads tokens")
        if not isinstance(what.head, spec.Classes):
            raise CheckpointError(f"to see, a model needs a head over classes; this one has {what.head.kind!r}")
        self.patches = what.stack.embed
        self.how = _how(self.metadata.image, self.patches)
        given = self.metadata.labels
        self.labels = numbered(what.head.count) if given is None else list(given)
        if len(self.labels) != what.head.count:
            raise CheckpointError(f"the model has {what.head.count} classes and names for {len(self.labels)}")

    def see(
        self,
        images: Any,
        *,
        top: int = 5,
        patches: bool = False,
        square: int | None = None,
        done: Done | None = None,
    ) -> list[Seen]:
        """The `top` likeliest labels of each image: paths, Pillow images, or arrays. `patches` also measures what each
        patch was worth to the first label, taken away with the others of its `square`; without a word, a square has as
        many on a side as it takes to need no more than 64 runs."""
        for name, value in (("top", top), ("square", square)):
            if value is not None and value < 1:
                raise DataError(f"{name} must be at least 1, given {value}", param=name)
        given = several(images)
        square = square or next(n for n in range(1, max(self.grid) + 1) if len(self._squares(n)) <= RUNS)
        watch = _counted(done, len(given) * (1 + len(self._squares(square)) * patches))
        found: list[Seen] = []
        for rows in _rows(len(given), self.patches):
            pixels = load(given[rows], self.how, rows.start)
            for image, chances in zip(pixels, self._chances(pixels, watch), strict=True):
                best = chances.topk(min(top, len(chances)))
                names = [self.labels[place] for place in best.indices.tolist()]
                labels = tuple(zip(names, best.values.tolist(), strict=True))
                worth = self._worth(image, int(best.indices[0]), labels[0][1], square, watch) if patches else None
                found.append(Seen(labels, worth, square if patches else 1))
        return found

    def view(self, image: Any) -> "Image":
        """The picture that the model sees of one image: upright, resized and cropped."""
        return view(take(image, self.patches.channels, "the image"), self.how)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        height, width = self.patches.image
        return height // self.patches.patch, width // self.patches.patch

    def _squares(self, side: int) -> list[tuple[int, int]]:
        """The first row and column of every square of so many patches on a side; the last may be smaller."""
        return [(row, column) for row in range(0, self.grid[0], side) for column in range(0, self.grid[1], side)]

    def _worth(self, image: Tensor, label: int, chance: float, square: int, watch: Watch) -> Grid:
        """What the label's probability loses with each square."""
        worth = torch.zeros(self.grid, dtype=torch.float64)
        places = self._squares(square)
        for rows in _rows(len(places), self.patches):
            without = without_patches(image, self.patches.patch, places[rows], square)
            lost = chance - self._chances(without, watch)[:, label]
            for (row, column), value in zip(places[rows], lost, strict=True):
                worth[row : row + square, column : column + square] = value
        return tuple(map(tuple, worth.tolist()))

    @torch.inference_mode()
    def _chances(self, pixels: Tensor, watch: Watch) -> Tensor:
        """b c: the probability of every label, in double precision so that they add up."""
        weight = next(self.model.parameters())
        logits = self.model.eval()(pixels.to(weight.device, weight.dtype))
        watch(len(pixels))
        return logits.cpu().double().softmax(-1)


def without_patches(image: Tensor, patch: int, places: Sequence[tuple[int, int]], square: int = 1) -> Tensor:
    """b c h w: the image once for each place, a row and column of patches, with the square that begins there replaced
    by the mean of all patches."""
    whole = image.unflatten(2, (-1, patch)).unflatten(1, (-1, patch))  # c rows p columns p
    found = whole.repeat(len(places), 1, 1, 1, 1, 1)
    mean = whole.mean((1, 3))[:, None, :, None]
    for number, (row, column) in enumerate(places):
        found[number, :, row : row + square, :, column : column + square] = mean
    return found.flatten(4, 5).flatten(2, 3)


@dataclass(frozen=True)
class Caption:
    """What was written about one image."""

    text: str
    score: float  # the sum of its tokens' log-probabilities, an end included
    tokens: tuple[str, ...]
    finish: str  # "end", or "limit": it did not come to an end by itself
    others: tuple["Caption", ...] = ()  # the next best, where asked for

    def to_dict(self) -> dict[str, Any]:
        """For JSON: only what was asked for."""
        found = {key: value for key, value in asdict(self).items() if key != "others"}
        return found | ({"others": [other.to_dict() for other in self.others]} if self.others else {})


class Captioner(Task):
    """An encoder of images with a decoder that writes, such as ViT + GPT-2."""

    can = ("see",)

    def __init__(self, model: EncoderDecoder, tokenizer: "PublicTokenizer", metadata: Given = None):
        super().__init__(model, tokenizer, metadata)
        if not isinstance(model, EncoderDecoder) or not isinstance(model.spec.encoder.embed, spec.Patches):
            raise CheckpointError("to write captions, a model needs an encoder of images and a decoder of tokens")
        self.patches = model.spec.encoder.embed
        self.how = _how(self.metadata.image, self.patches)
        self.own = own_options(self.metadata)
        if not self.own.eos_token_id and tokenizer.end is not None:
            self.own = merge(self.own, GenerationOptions(eos_token_id=(tokenizer.end,)))
        start = self.own.start if self.own.start is not None else tokenizer.start
        if start is None:
            raise CheckpointError("nothing says which token captions start with; decoder_start_token_id is missing")
        self.start: int = start
        self.longest: int | None = getattr(model.spec.decoder.embed.positions, "length", None)

    def see(
        self, images: Any, *, options: GenerationOptions | None = None, done: Done | None = None, **fields: Any
    ) -> list[Caption]:
        """A caption for each image: paths, Pillow images, or arrays. `fields` are those of `GenerationOptions`:
        max_new_tokens=, num_beams=, temperature=, seed=, ... and without any captions are written as the checkpoint
        says."""
        given, asked = several(images), GenerationOptions.of(options, **fields)
        if asked.stop:
            raise DataError("captions end by themselves or at their limit; stop is for completions")
        ways = plan(merge(self.own, asked), 1, room=None if self.longest is None else self.longest - 1)
        watch = _counted(done, len(given))
        found: list[Caption] = []
        for rows in _rows(len(given), self.patches):
            pixels = load(given[rows], self.how, rows.start)
            made = self.engine.run([Request([self.start], ways, source=image) for image in pixels])
            for best in made:
                first, *others = [self._caption(one) for one in best]
                found.append(replace(first, others=tuple(others)))
            watch(len(made))
        return found

    def _caption(self, one: Written) -> Caption:
        tokens = one.tokens[:-1] if one.finish == "end" else one.tokens
        pieces = tuple(self.tokenizer.pieces(tokens))
        return Caption(self.tokenizer.decode(tokens).strip(), one.score, pieces, one.finish)


# --- images in --------------------------------------------------------------------------------------------


def several(images: Any) -> list[Any]:
    """One image or many as a list; an array of one image is one image."""
    one = isinstance(images, str | Path) or getattr(images, "ndim", 4) < 4 or not hasattr(images, "__iter__")
    given = [images] if one else list(images)
    if not given:
        raise DataError("no images were given")
    return given


def load(images: Sequence[Any], how: Preprocessing, before: int) -> Tensor:
    """b c h w: images as a model takes them; errors name the ones that are no files by their number."""
    return torch.stack(
        [prepare(take(image, how.channels or 3, f"image {n}"), how) for n, image in enumerate(images, before + 1)]
    )


def _how(given: Preprocessing | None, patches: spec.Patches) -> Preprocessing:
    """How images are made ready; what comes out must be what the model takes in."""
    said = {} if given is None else given.model_dump(exclude_unset=True)
    how = Preprocessing(**{"size": patches.image, **said, "channels": patches.channels})
    size = how.crop or how.size
    if size is None or size != tuple(patches.image):
        made = "of any size" if size is None else f"of {size[0]} × {size[1]}"
        raise CheckpointError(
            f"the model takes images of {patches.image[0]} × {patches.image[1]} (height × width), and its preprocessing"
            f" makes them {made}"
        )
    if how.shortest and how.crop is None:
        raise CheckpointError(
            "the preprocessing brings the shorter side to one size and crops nothing: images would differ"
        )
    return how


def _rows(count: int, patches: spec.Patches) -> Iterator[slice]:
    step = max(1, BUDGET // patches.count)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _counted(done: Done | None, total: int) -> Watch:
    so_far = 0

    def watch(count: int) -> None:
        nonlocal so_far
        so_far += count
        if done is not None:
            done(so_far, total)

    return watch
